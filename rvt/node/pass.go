package node

import (
	"errors"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/crcfold"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Bounds of one pass. They bound how long a poster waits for the mutex.
const (
	// maxRounds is how often packets to the node itself are turned round in a pass.
	maxRounds = 4
	// maxBatches is the most batches sent in one go.
	maxBatches = 4
)

// maxHeaderBytes is more than BTH and extended headers of any opcode.
const maxHeaderBytes = 64

// frameBytes is the room that one packet needs in the arena.
func frameBytes(m ib.MTU) int { return maxHeaderBytes + m.Bytes() + 3 + wire.ICRCBytes }

// pass does everything that there is to do now, within bounds. It reports whether
// there was anything, and so whether another pass may find more.
func (n *Node) pass() (worked bool) { return n.do(Work{Packets: true}) }

// do is a pass by somebody who may know that there is nothing in the port.
func (n *Node) do(w Work) (worked bool) {
	if n.stopped.Load() {
		return false
	}
	n.stats.Passes++
	n.deferred = 0
	now := n.now()
	n.passedAt = now
	if n.cfg.PassedAt != nil {
		*n.cfg.PassedAt = now
	}
	if !n.Heard() && w.Doorbells && n.cfg.Doorbells != nil {
		n.cfg.Doorbells(n.dev)
	}
	// What answers are late for may be waiting in the port.
	read := w.Packets || n.deadline() <= now
	for round := 0; ; round++ {
		got, drained := n.receiveLoopback(now), true
		if round == 0 && read {
			var k int
			k, drained = n.receive(now)
			got = got || k > 0
		}
		if at := n.dev.Deadline(); at <= now && n.mayExpire(at, now, drained) {
			n.dev.Expire(now)
			got = true
		}
		if got {
			n.stirred = true
			n.dev.Commit(now)
			n.loop.release()
		}
		sent := false
		if !n.dev.AcksOnly() {
			n.hold.sent()
			sent = n.emit(now)
		} else if !n.hold.acksUp(now) {
			sent = n.emit(now)
		}
		worked = worked || got || sent
		if n.loop.len() == 0 || round == maxRounds-1 {
			break
		}
	}
	n.dispatch()
	return worked
}

// receive takes one batch from the port. The payloads stay in the port's buffers, which
// live until the next batch; the Commit that follows has copied them by then. drained
// reports that the port had none: fewer than asked for may mean that it threw some away.
func (n *Node) receive(now vtime.Time) (k int, drained bool) {
	k, err := n.port.ReadBatch(n.rx[:min(n.rxBudget.packets+rvt.EmitSlack, len(n.rx))])
	if err != nil {
		n.fail(err)
		return 0, true
	}
	bytes := 0
	for i := range n.rx[:k] {
		bytes += len(n.rx[i].Buf)
	}
	if k > 0 {
		n.rxBudget.learn(bytes, k)
	}
	n.received += uint64(k)
	for i := range n.rx[:k] {
		d := &n.rx[i]
		n.input(now, &d.Path, d.Buf[:len(d.Buf)-wire.ICRCBytes])
	}
	return k, k == 0
}

const (
	// maxUndrained is how many passes in a row may leave timers alone because packets
	// wait: a flood must not stop them for good.
	maxUndrained = 16
	// starved is how late a timer must be to show that this process was not running,
	// and grace what arrives then gets to be read. A queue pair may get more, see Grace.
	starved = 5 * time.Millisecond
	grace   = 2 * time.Millisecond
)

// mayExpire decides whether timers that are due since at run now. An adapter in
// hardware is never descheduled; a process is, and then its timers come due while the
// answers that would have stopped them wait in the socket, or in a peer that was not
// running either. Answers first, so that a busy machine does not look like a dead one.
func (n *Node) mayExpire(at, now vtime.Time, drained bool) bool {
	if !drained && n.undrained < maxUndrained {
		n.undrained++
		return false
	}
	n.undrained = 0
	if now.Sub(at) > starved {
		if n.graceUntil == 0 {
			n.graceUntil = now.Add(grace)
		}
		if now < n.graceUntil {
			return false
		}
	}
	n.graceUntil = 0
	return true
}

// receiveLoopback takes the packets that the node sent to itself.
func (n *Node) receiveLoopback(now vtime.Time) bool {
	k := 0
	for f := n.loop.next(); f != nil; f = n.loop.next() {
		n.input(now, &f.path, f.buf[:len(f.buf)-wire.ICRCBytes])
		k++
	}
	return k > 0
}

func (n *Node) input(now vtime.Time, path *wire.Path, b []byte) {
	var pkt wire.Packet
	if r := wire.Decode(b, &pkt); r != wire.DropNone {
		n.dev.Drop(r)
		return
	}
	n.dev.Receive(now, path, &pkt)
}

// emit sends until there is nothing left, the port is full, or enough is done. It
// reports whether any packet went out.
func (n *Node) emit(now vtime.Time) (sent bool) {
	if n.stopped.Load() {
		return false
	}
	for range maxBatches {
		if n.txHead < len(n.tx) {
			before := n.txHead
			n.flush()
			sent = sent || n.txHead > before
			if n.txHead < len(n.tx) {
				return sent
			}
		}
		n.out.Reset()
		more := n.dev.EmitTrains(now, &n.out, n.budget.packets)
		n.build()
		if n.txHead < len(n.tx) {
			before := n.txHead
			n.flush()
			sent = sent || n.txHead > before
		}
		n.fetchRest()
		n.dev.Commit(now) // the payload is in the arena, or on its way
		if !more {
			return sent
		}
	}
	return sent
}

// build lays the packets of the outbox out in the arena and fetches their payload, all
// of it with one gather, except for what the port can fetch itself.
func (n *Node) build() {
	n.arena, n.tx, n.txHead = n.arena[:0], n.tx[:0], 0
	if len(n.out.Packets) == 0 {
		return
	}
	n.acksLast()
	fetches := fabric.Fetches(n.port)
	for i := range n.out.Packets {
		p := &n.out.Packets[i]
		p.Pkt.Pad = wire.PadFor(p.Len)
		start := len(n.arena)
		if need := maxHeaderBytes + p.Len + 3 + wire.ICRCBytes; need > cap(n.arena)-start {
			// The arena has room for a full batch of full packets. Should a device
			// build longer ones, their frames go elsewhere rather than move the rest.
			n.arena, start = make([]byte, 0, max(need, cap(n.arena))), 0
		}
		b := wire.AppendHeaders(n.arena[start:start], &p.Pkt)
		h := len(b)
		b = b[:h+p.Len+int(p.Pkt.Pad)+wire.ICRCBytes]
		clear(b[h+p.Len:])
		n.arena = n.arena[:start+len(b)]
		d := fabric.Datagram{Path: p.Path, Buf: b}
		if !fetches || !n.leave(&d, i) {
			n.out.Gather(&n.gather, i, b[h:h+p.Len])
		}
		n.tx = append(n.tx, d)
	}
	n.budget.learn(len(n.arena), len(n.tx))
	if n.gather.Len() > 0 {
		if faults := n.gather.Read(); len(faults) > 0 {
			n.withhold(faults)
		}
	}
}

// leave leaves it to the port to fetch the payload of packet i, if that can be. Packets that leave
// before one whose memory is gone cannot be withheld with it then. Only RC bears that: its peer
// sees a message that does not end. Messages of the others would count as failed.
func (n *Node) leave(d *fabric.Datagram, i int) bool {
	p := &n.out.Packets[i]
	if p.Len == 0 || p.Len%crcfold.Block != 0 || p.Pkt.Opcode.Transport() != ib.TransportRC {
		return false
	}
	addr, ok := n.out.Direct(i)
	if ok {
		d.Far, d.FarLen = addr, p.Len
	}
	return ok
}

// fetchRest fetches the payload of frames that the port had no room for: from here on their
// memory may change.
func (n *Node) fetchRest() {
	for i := n.txHead; i < len(n.tx); i++ {
		if d := &n.tx[i]; d.Buf != nil && !d.Fetch() {
			n.lost(i)
		}
	}
}

// lost withholds frame i, whose payload could not be fetched.
func (n *Node) lost(i int) { n.withhold([]mr.Fault{{Tag: uint32(i), Err: mr.ErrFault}}) }

// withhold takes back packets of queue pairs whose memory could not be read, and tells these.
func (n *Node) withhold(faults []mr.Fault) {
	for i := range faults {
		n.dev.GatherFault(&n.out, &faults[i])
	}
	// Packets and frames correspond only as long as none has been taken out, so the
	// frames stay and lose their buffer; flush passes over them.
	for i := range n.out.Packets {
		if n.out.Packets[i].Withheld && n.tx[i].Buf != nil {
			n.tx[i].Buf = nil
			n.stats.GatherFaults++
		}
	}
}

// flush hands tx[txHead:] to the port, and what is for the node itself to the loopback
// queue, in order. What does not fit stays.
func (n *Node) flush() {
	n.blocked = false
	for n.txHead < len(n.tx) && !n.blocked {
		d := &n.tx[n.txHead]
		switch {
		case d.Buf == nil:
			n.txHead++
		case n.isOwn(d):
			if !d.Fetch() {
				n.lost(n.txHead)
				continue
			}
			if n.loop.push(&d.Path, d.Buf) {
				n.stats.Loopback++
				n.txHead++
			} else {
				n.blocked = true
			}
		default:
			if !n.write(n.runLength()) {
				return
			}
		}
	}
	if n.blocked {
		n.stats.Backpressure++
	}
}

// runLength is the number of frames from txHead on that go to the port together.
func (n *Node) runLength() int {
	i := n.txHead + 1
	for i < len(n.tx) && n.tx[i].Buf != nil && !n.isOwn(&n.tx[i]) {
		i++
	}
	return i - n.txHead
}

// write offers k frames to the port; false if the port has failed.
func (n *Node) write(k int) bool {
	end := n.txHead + k
	sent, err := n.port.WriteBatch(n.tx[n.txHead:end])
	sent = min(max(sent, 0), k)
	n.wrote = n.wrote || sent > 0
	n.sent += uint64(sent)
	n.txHead += sent
	switch {
	case errors.Is(err, fabric.ErrClosed):
		n.fail(err)
		n.txHead = len(n.tx)
		return false
	case errors.Is(err, fabric.ErrFar):
		n.lost(n.txHead)
	case err != nil:
		// The port refuses the next one; a network would have lost it.
		n.stats.TxRefused++
		n.txHead = min(n.txHead+1, end)
	case n.txHead < end:
		n.blocked = true
	}
	return true
}

// isOwn reports whether a frame is for this very device: the adapter's internal switch
// turns it round. Other devices may have the same address, and then a range of QPNs each.
func (n *Node) isOwn(d *fabric.Datagram) bool {
	gids := n.dev.GIDs()
	for i := range gids {
		if gids[i] == d.Path.Dst {
			return n.dev.Owns(ib.QPN(d.Buf[5])<<16 | ib.QPN(d.Buf[6])<<8 | ib.QPN(d.Buf[7]))
		}
	}
	return false
}

// budget chooses how many packets to build at once, or to take from the port: as many as
// the port likes, but no more bytes than stay in a core's cache between the gather and the
// system call, or the system call and the scatter. It also lets the peer work at the same
// time: the acknowledgement leaves when a part of its window has been taken, not all of it.
type budget struct {
	packets, most int
	average       int // bytes of a frame, as seen lately
}

const (
	// trainBytes is what one segmentation offload train holds. A batch is batchTrains full
	// ones: what is left over of it would travel alone.
	trainBytes  = 65536 - 96
	batchTrains = 2
	// leastBatch is for frames that no train can hold two of.
	leastBatch = 4
)

func newBudget(most int) budget { return budget{packets: most, most: most} }

func (b *budget) learn(bytes, frames int) {
	b.average = (b.average + bytes/frames) / 2
	b.packets = min(max(batchTrains*(trainBytes/max(b.average, 1)), leastBatch), b.most)
}
