package shm

import (
	"maps"
	"sync/atomic"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/crcfold"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Sockets is the port that takes what no lane is for.
type Sockets interface {
	fabric.Napper
	fabric.Port
	// EventFD is the descriptor that ends a Wait when an eight-byte number is written to it.
	EventFD() int
}

// Peer is a program at an address that several programs may share.
type Peer struct {
	GID  ib.GID
	Seat uint8 // the high byte of its QPNs
}

// Port is a port with lanes. ReadBatch, WriteBatch, Counters and Join belong to the port's
// owner. Wait and Nap may run beside them in one other goroutine, and so may Reaches, but
// not beside Join. Wake and Close may be called from anywhere.
type Port struct {
	Sockets
	inbox   *Inbox
	sport   uint16
	clock   func() vtime.Time
	readsAt *vtime.Time // when the ReadBatch under way is; nil: ask the clock

	lanes   atomic.Pointer[map[Peer]*Lane]
	dead    []*Lane           // whose readers have ended; closed by the next Join
	met     map[Peer]struct{} // without a lane
	unknown chan Peer
	to      Peer // the latest peer, and the lane to it
	lane    *Lane
	blocked atomic.Bool // the last WriteBatch met a full lane

	// What a Wait looks at.
	state atomic.Pointer[waitState]

	looked   vtime.Time    // when the sockets were asked last
	every    time.Duration // how often they are asked while the lanes are in use
	vain     uint8         // reads since the clock was asked, which found nothing
	hot      int           // how many more times they are asked whenever the lanes are empty
	txKnown  wire.ICRCPrefixes
	rxKnown  wire.ICRCPrefixes
	counters fabric.PortCounters
	sum      fabric.PortCounters
}

type waitState struct {
	lanes []*inLane
	seen  uint32
}

var (
	_ fabric.Port     = (*Port)(nil)
	_ fabric.Napper   = (*Port)(nil)
	_ fabric.Fetcher  = (*Port)(nil)
	_ fabric.Foreseer = (*Port)(nil)
)

// New puts an inbox beside sockets. sport is their UDP port, and clock the one that their
// arrival times come from. pace is how many times slower this process is than others: the
// sockets are looked at less often then.
func New(s Sockets, in *Inbox, sport uint16, clock func() vtime.Time, pace int) *Port {
	p := &Port{Sockets: s, inbox: in, sport: sport, clock: clock, met: map[Peer]struct{}{}, unknown: make(chan Peer, 16),
		every: lookEvery * time.Duration(max(pace, 1))}
	p.lanes.Store(&map[Peer]*Lane{})
	p.state.Store(&waitState{})
	return p
}

// Reaches reports whether there is a lane to a peer that has not ended.
func (p *Port) Reaches(to Peer) bool {
	l := (*p.lanes.Load())[to]
	return l != nil && !l.Gone()
}

// Standing returns for how long a peer has taken nothing of what was sent to it, as far as the
// looks of the port's owner, who alone may call it, tell: 1 ns the first time. It is 0 if the
// peer has taken everything, has ended, or is reached by the sockets, where nobody can tell.
func (p *Port) Standing(to Peer) time.Duration {
	if l := (*p.lanes.Load())[to]; l != nil {
		return l.standing(p.clock())
	}
	return 0
}

// Join makes l the way to a peer. The port takes it over, and gives up the one that it had.
func (p *Port) Join(to Peer, l *Lane) {
	if old := p.replace(to, l); old != nil {
		p.dead = append(p.dead, old)
	}
	for _, d := range p.dead {
		d.Close()
	}
	p.dead = nil
	p.to, p.lane = Peer{}, nil
}

// replace makes l the way to a peer, nil none, and returns what it was.
func (p *Port) replace(to Peer, l *Lane) (old *Lane) {
	next := maps.Clone(*p.lanes.Load())
	old = next[to]
	if next[to] = l; l == nil {
		delete(next, to)
	}
	p.lanes.Store(&next)
	return old
}

const (
	// lookEvery is how often the sockets are looked at while packets come by lanes, or not
	// at all. A look is a system call, and costs more than all the lanes together.
	lookEvery = 20 * time.Microsecond
	// clockEvery is how many looks in vain at the lanes share one reading of the clock, which
	// costs as much.
	clockEvery = 8
	// stayHot is how often in a row sockets that had something may have nothing until they
	// are looked at less often.
	stayHot = 16
	// blockedWait is the longest wait while a lane is full.
	blockedWait = 50 * time.Microsecond
)

// ReadsAt spares the port a look at the clock in each ReadBatch: its caller has just looked,
// and keeps in at what he saw. It belongs to the port's owner.
func (p *Port) ReadsAt(at *vtime.Time) { p.readsAt = at }

func (p *Port) readTime() vtime.Time {
	if p.readsAt != nil {
		return *p.readsAt
	}
	return p.clock()
}

// ReadBatch implements fabric.Port.
func (p *Port) ReadBatch(dst []fabric.Datagram) (int, error) {
	p.inbox.release()
	if p.inbox.look() || len(p.inbox.fresh) > 0 {
		// Until now its writer has used the sockets. What it sent there comes first.
		if n, err := p.Sockets.ReadBatch(dst); n > 0 || err != nil {
			return n, err
		}
		p.inbox.adopt()
		p.state.Store(&waitState{p.inbox.lanes, p.inbox.seen})
	}
	n := p.inbox.read(dst, &p.rxKnown, &p.counters)
	if len(p.inbox.lanes) > 0 && n == 0 && p.hot == 0 {
		if p.vain++; p.vain%clockEvery != 0 {
			return 0, nil
		}
	}
	now := p.readTime()
	for i := range dst[:n] {
		dst[i].At = now
	}
	if n == len(dst) || len(p.inbox.lanes) > 0 && (n > 0 || p.hot == 0) && now.Sub(p.looked) < p.every {
		return n, nil
	}
	k, err := p.Sockets.ReadBatch(dst[n:])
	p.looked = now
	switch {
	case k > 0:
		p.hot = stayHot
	case p.hot > 0:
		p.hot--
	}
	if n > 0 && err != nil {
		return n, nil // it will come again
	}
	return n + k, err
}

// laneTo returns the lane for a packet, nil if the sockets have to take it.
func (p *Port) laneTo(d *fabric.Datagram) *Lane {
	if len(d.Buf) < fabric.MinDatagramBytes || len(d.Buf) > maxPacket {
		return nil
	}
	if to := (Peer{d.Path.Dst, d.Buf[5]}); to != p.to {
		p.to, p.lane = to, (*p.lanes.Load())[to]
		if p.lane == nil {
			p.meet(to)
		}
	}
	if p.lane != nil && p.lane.Gone() {
		// Another program may have the seat. What it cannot know is lost at the sockets.
		p.dead = append(p.dead, p.replace(p.to, nil))
		p.lane = nil
		delete(p.met, p.to)
		p.meet(p.to)
	}
	return p.lane
}

// maxMet bounds how many peers without a lane are remembered.
const maxMet = 4096

// meet tells of a peer that there is no lane to, the first time that something is for it.
func (p *Port) meet(to Peer) {
	if _, known := p.met[to]; known || to.GID.IsMulticast() || len(p.met) == maxMet {
		return
	}
	select {
	case p.unknown <- to:
		p.met[to] = struct{}{}
	default: // another time
	}
}

// Unknown brings peers that something was for and that there is no lane to, each once.
func (p *Port) Unknown() <-chan Peer { return p.unknown }

// WriteBatch implements fabric.Port.
func (p *Port) WriteBatch(src []fabric.Datagram) (int, error) {
	p.blocked.Store(false)
	for n := 0; n < len(src); {
		l := p.laneTo(&src[n])
		end := n + 1
		for end < len(src) && p.laneTo(&src[end]) == l {
			end++
		}
		var k int
		var err error
		if l == nil {
			k, err = p.writeSockets(src[n:end])
		} else {
			k, err = p.send(l, src[n:end])
		}
		n += k
		if err != nil || n < end {
			return n, err
		}
	}
	return len(src), nil
}

// writeSockets writes to the sockets, which want all payload in place.
func (p *Port) writeSockets(src []fabric.Datagram) (int, error) {
	for i := range src {
		if !src[i].Fetch() {
			n, err := p.Sockets.WriteBatch(src[:i])
			if n == i && err == nil {
				err = fabric.ErrFar
			}
			return n, err
		}
	}
	return p.Sockets.WriteBatch(src)
}

// Fetches implements fabric.Fetcher: what goes by a lane is fetched with its ICRC in one pass.
func (p *Port) Fetches() bool { return len(*p.lanes.Load()) > 0 && crcfold.Loads() }

// Ahead implements fabric.Foreseer.
func (p *Port) Ahead(n int) []byte { return p.inbox.ahead(n) }

// send writes to a lane and returns how many packets were taken, that is written or lost.
func (p *Port) send(l *Lane, src []fabric.Datagram) (n int, err error) {
	l.rewind()
	local := p.LocalGID()
	for n < len(src) {
		d := &src[n]
		if isReadResponse(d.Buf) && l.crowded(len(d.Buf), p.clock) {
			break
		}
		b := l.reserve(len(d.Buf))
		if b == nil {
			break
		}
		if !fabric.SealInto(b[recordHead:recordHead+len(d.Buf)], d, local, p.sport, 0, &p.txKnown) {
			l.giveBack(len(d.Buf))
			err = fabric.ErrFar
			break
		}
		putRecord(b, d)
		n++
	}
	l.publish()
	if n < len(src) && err == nil {
		if !l.Gone() && !l.full(p.clock()) {
			p.counters.TxBackpressure++
			p.blocked.Store(true)
		} else {
			n = len(src) // a network would have carried them, and nobody taken them
		}
	}
	p.counters.TxPackets += uint64(n)
	for i := range src[:n] {
		p.counters.TxBytes += uint64(len(src[i].Buf))
	}
	return n, err
}

// Wait implements fabric.Waiter.
func (p *Port) Wait(d time.Duration) error {
	if d <= 0 {
		return p.Sockets.Wait(d)
	}
	if p.blocked.Load() {
		d = min(d, blockedWait)
	}
	p.inbox.head.asleep.Store(1)
	if s := p.state.Load(); p.inbox.waiting(s.lanes, s.seen) {
		d = 0
	}
	err := p.Sockets.Wait(d)
	p.inbox.head.asleep.Store(0)
	return err
}

// Counters implements fabric.Port: lanes and sockets together.
func (p *Port) Counters() *fabric.PortCounters {
	p.sum = *p.Sockets.Counters()
	p.sum.Add(&p.counters)
	return &p.sum
}
