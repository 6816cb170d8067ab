package fabric

import (
	"slices"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// MaxHeld bounds the datagrams that an [Impaired] port holds back. One more is lost
// and counted as LossQueue, as in a router whose buffer is full.
const MaxHeld = 1 << 14

// ImpairedCounters counts what an [Impaired] port did. Datagrams are conserved:
// Offered + Duplicated = Written + WriteErrors + sum of Lost + Held().
type ImpairedCounters struct {
	Offered     uint64 // accepted by WriteBatch
	Duplicated  uint64 // extra copies made
	Written     uint64 // taken by the port below
	WriteErrors uint64 // refused by the port below with an error
	Corrupted   uint64 // of the offered ones, marked BadICRC
	Reordered   uint64
	Delayed     uint64 // copies held back for whatever reason
	Lost        [NumLossReasons]uint64
}

// Impaired is a Port that applies an [Impairment] to what is written to the port
// below, and sends it along a [Way]. Reading is untouched. Datagrams that must wait are copied and go out on a
// later ReadBatch or WriteBatch, at the earliest when they are due; Deadline tells the
// host when that is. It is as little safe for concurrent use as any Port.
//
// Put a Tap below to record what really went out, above to record what was meant to.
type Impaired struct {
	inner Port
	// other is the treatment of packets to destinations that perDst does not have; perDst
	// is looked up only.
	other  treatment
	perDst map[ib.GID]treatment
	now    func() vtime.Time

	// held is sorted by (due, seq) from index head on.
	held     []heldDatagram
	head     int
	seq      uint64
	counting int // entries of held whose left is not 0

	out   []Datagram // one batch for the port below
	about []outgoing // parallel to out
	// routed is what route is at: a variable of its own would go to the heap.
	routed Datagram
	free   [][]byte // buffers for copies
	count  ImpairedCounters
}

// treatment is what packets to a destination go through. The zero value lets them pass.
type treatment struct {
	policy *Impairment
	way    Way
}

func (t treatment) none() bool { return t.way == nil && !t.policy.Active() }

type heldDatagram struct {
	due   vtime.Time // when it reaches stage
	seq   uint64
	left  int      // released when so many later datagrams went out; 0: only when due
	d     Datagram // Buf belongs to us
	way   Way      // nil unless stage is before Arrived
	stage Stage
}

// outgoing says whose the datagram of the same index in Impaired.out is.
type outgoing struct {
	src   int  // index in the caller's batch, if not owned
	owned bool // Buf is one of ours
}

var (
	_ Port   = (*Impaired)(nil)
	_ Napper = (*Impaired)(nil)
)

// NewImpaired wraps p. policy may be nil and be set later. now gives the present
// instant on the same clock that the host uses.
func NewImpaired(p Port, policy *Impairment, now func() vtime.Time) *Impaired {
	return &Impaired{inner: p, other: treatment{policy: policy}, now: now}
}

// SetPolicy replaces the policy; nil heals the network. Held datagrams stay held.
func (im *Impaired) SetPolicy(policy *Impairment) { im.other.policy = policy }

// SetPolicyFor sets the policy of packets to one destination, in place of the general
// one. A nil policy lets them all pass.
func (im *Impaired) SetPolicyFor(dst ib.GID, policy *Impairment) {
	t := im.perDst[dst]
	t.policy = policy
	im.treat(dst, t)
}

// SetWay sets what packets go through to any destination that has no policy and no way of
// its own; nil is a network that takes no time. Those that are under way go on.
func (im *Impaired) SetWay(w Way) { im.other.way = w }

// SetWayFor sets the way to one destination. Like a policy it stands in place of the
// general one.
func (im *Impaired) SetWayFor(dst ib.GID, w Way) {
	t := im.perDst[dst]
	t.way = w
	im.treat(dst, t)
}

// Forget takes back what SetPolicyFor and SetWayFor said of a destination.
func (im *Impaired) Forget(dst ib.GID) { delete(im.perDst, dst) }

func (im *Impaired) treat(dst ib.GID, t treatment) {
	if t.none() && im.other.none() {
		delete(im.perDst, dst) // the general treatment is the same, and costs nothing
		return
	}
	if im.perDst == nil {
		im.perDst = map[ib.GID]treatment{}
	}
	im.perDst[dst] = t
}

// treatmentFor is what packets to dst go through.
func (im *Impaired) treatmentFor(dst ib.GID) treatment {
	if t, ok := im.perDst[dst]; ok {
		return t
	}
	return im.other
}

// idle reports whether nothing can happen to a packet.
func (im *Impaired) idle() bool { return len(im.perDst) == 0 && im.other.none() }

// Policy returns the general policy in force, to add rules or partitions; it may be nil.
func (im *Impaired) Policy() *Impairment { return im.other.policy }

// Stats returns a copy of the counters.
func (im *Impaired) Stats() ImpairedCounters { return im.count }

// Held returns how many datagrams wait.
func (im *Impaired) Held() int { return len(im.held) - im.head }

// Deadline is when the first held datagram is due, of this port or of one below.
func (im *Impaired) Deadline() vtime.Time {
	at := DeadlineOf(im.inner)
	if im.Held() > 0 {
		at = vtime.Min(at, im.held[im.head].due)
	}
	return at
}

// Fetches implements [Fetcher]: as the port below while nothing can happen to a packet.
func (im *Impaired) Fetches() bool { return im.Held() == 0 && im.idle() && Fetches(im.inner) }

// Ahead implements [Foreseer].
func (im *Impaired) Ahead(n int) []byte {
	if f := AheadOf(im.inner); f != nil {
		return f(n)
	}
	return nil
}

// ReadBatch lets due datagrams out and reads from the port below.
func (im *Impaired) ReadBatch(dst []Datagram) (int, error) {
	if im.Held() > 0 {
		if _, err := im.flush(im.now()); err != nil {
			return 0, err
		}
	}
	return im.inner.ReadBatch(dst)
}

// WriteBatch decides the fate of each datagram and writes those that go out now. It
// takes all of src, or nothing while earlier datagrams that are due meet
// back-pressure. If the port below refuses a datagram with an error, that one is
// counted and dropped, the others are kept, and n is still len(src).
func (im *Impaired) WriteBatch(src []Datagram) (int, error) {
	if im.Held() == 0 && im.idle() {
		n, err := im.inner.WriteBatch(src)
		im.count.Offered += uint64(n)
		im.count.Written += uint64(n)
		return n, err
	}
	now := im.now()
	if done, err := im.flush(now); !done || err != nil {
		return 0, err
	}
	for i := range src {
		im.route(now, src, i)
	}
	im.count.Offered += uint64(len(src))
	err := im.send(now, src)
	if err == nil {
		_, err = im.flush(now) // duplicates and copies without delay
	}
	return len(src), err
}

// route puts src[i] and its copies where their way and their verdict say: into the batch,
// among the held, or nowhere.
func (im *Impaired) route(now vtime.Time, src []Datagram, i int) {
	im.routed = src[i]
	d := &im.routed
	info, _ := PeekInfo(d.Buf)
	t := im.treatmentFor(d.Path.Dst)
	stage, at := Arrived, now
	if t.way != nil {
		var lost LossReason
		var ok bool
		if stage, at, lost, ok = t.way.Step(now, Departing, info, payloadBytes(d.Buf, info), &d.Path); !ok {
			im.count.Lost[lost]++
			return
		}
	}
	v := t.policy.Fate(now, &d.Path, info)
	if v.Drop {
		im.count.Lost[v.Reason]++
		return
	}
	if v.Corrupt != CorruptNone {
		im.count.Corrupted++
	}
	first := *d
	first.BadICRC = d.BadICRC || v.Corrupt == CorruptICRC
	var own []byte
	if v.Corrupt == CorruptPayload {
		own = tampered(im.buffer(), d.Buf, info)
		first.Buf = own
	}
	if v.Delay[0] == 0 && stage == Arrived && at <= now {
		im.out = append(im.out, first)
		im.about = append(im.about, outgoing{src: i, owned: own != nil})
		im.overtake()
	} else {
		left := 0
		if v.Reordered {
			im.count.Reordered++
			if t.way == nil {
				left = t.policy.cfg.ReorderPackets
			}
		}
		im.count.Delayed++
		im.hold(heldDatagram{due: at.Add(v.Delay[0]), left: left, d: first, way: t.way, stage: stage}, own)
	}
	// A second copy never shares the caller's buffer with the first: the ICRC of
	// the two may differ.
	for c := uint8(1); c < v.Copies; c++ {
		im.count.Duplicated++
		if v.Delay[c] > 0 || at > now {
			im.count.Delayed++
		}
		im.hold(heldDatagram{due: at.Add(v.Delay[c]), d: *d, way: t.way, stage: stage}, nil)
	}
}

// tampered copies an encoded packet to dst and flips a bit of its payload, if it has
// one. The port below computes the ICRC of what it gets.
func tampered(dst, packet []byte, p PacketInfo) []byte {
	dst = append(dst, packet...)
	if n := payloadBytes(packet, p); n > 0 {
		at, bit := FlipAt(p, n)
		dst[wire.Info(p.Opcode).HeaderBytes+at] ^= bit
	}
	return dst
}

// overtake tells held datagrams that count packets that one more went out, and puts
// those that have waited for enough into the batch behind it.
func (im *Impaired) overtake() {
	if im.counting == 0 {
		return
	}
	live := im.held[im.head:]
	kept := live[:0]
	for _, h := range live {
		if h.left == 1 {
			im.counting--
			im.out = append(im.out, h.d)
			im.about = append(im.about, outgoing{owned: true})
			continue
		}
		if h.left > 1 {
			h.left--
		}
		kept = append(kept, h)
	}
	clear(live[len(kept):])
	im.held = im.held[:im.head+len(kept)]
}

// hold copies a datagram unless its buffer is ours already, owned, and keeps it.
func (im *Impaired) hold(h heldDatagram, owned []byte) {
	if im.Held() >= MaxHeld {
		im.count.Lost[LossQueue]++
		if owned != nil {
			im.free = append(im.free, owned)
		}
		return
	}
	if owned == nil {
		owned = append(im.buffer(), h.d.Buf...)
	}
	if h.left > 0 {
		im.counting++
	}
	h.d.Buf = owned
	im.insert(h)
}

// insert puts an entry into its place, in order of (due, seq).
func (im *Impaired) insert(h heldDatagram) {
	h.seq = im.seq
	im.seq++
	// Reuse the front once it is half of all, so that moving stays cheap on average.
	if len(im.held) == cap(im.held) && im.head >= (len(im.held)+1)/2 {
		n := copy(im.held, im.held[im.head:])
		clear(im.held[n:])
		im.held, im.head = im.held[:n], 0
	}
	// Delays are mostly equal, so the place is nearly always at the end.
	i := len(im.held)
	for i > im.head && im.held[i-1].due > h.due {
		i--
	}
	im.held = slices.Insert(im.held, i, h)
}

// advance moves datagrams on that have reached a stage of their way, until those at the
// front that are due are at its end.
func (im *Impaired) advance(now vtime.Time) {
	for k := 0; k < im.Held() && im.held[im.head+k].due <= now; {
		i := im.head + k
		at := &im.held[i]
		if at.stage == Arrived {
			k++
			continue
		}
		info, _ := PeekInfo(at.d.Buf)
		next, due, lost, ok := at.way.Step(at.due, at.stage, info, payloadBytes(at.d.Buf, info), &at.d.Path)
		h := *at
		im.held = slices.Delete(im.held, i, i+1)
		if !ok {
			im.count.Lost[lost]++
			im.free = append(im.free, h.d.Buf)
			continue
		}
		h.stage, h.due = next, due
		im.insert(h) // behind what is due no later, so not before k
	}
}

// flush moves what is due to the port below, a batch at a time. done tells whether
// nothing that is due is left.
func (im *Impaired) flush(now vtime.Time) (done bool, err error) {
	im.advance(now)
	size := max(1, im.inner.BatchSize())
	for im.Held() > 0 && im.held[im.head].due <= now {
		for i := im.head; i < len(im.held) && len(im.out) < size && im.held[i].due <= now; i++ {
			im.out = append(im.out, im.held[i].d)
		}
		offered := len(im.out)
		n, err := im.inner.WriteBatch(im.out)
		n = min(max(n, 0), offered)
		clear(im.out)
		im.out = im.out[:0]
		im.count.Written += uint64(n)
		im.release(n)
		if err != nil {
			if n < offered {
				im.count.WriteErrors++
				im.release(1)
			}
			return false, err
		}
		if n < offered {
			return false, nil
		}
	}
	return true, nil
}

// release forgets the first n held datagrams and keeps their buffers for reuse.
func (im *Impaired) release(n int) {
	for ; n > 0; n-- {
		h := &im.held[im.head]
		if h.left > 0 {
			im.counting--
		}
		im.free = append(im.free, h.d.Buf)
		*h = heldDatagram{}
		im.head++
	}
	if im.Held() == 0 {
		im.held, im.head = im.held[:0], 0
	}
}

// send writes the batch in out and empties it. What the port below does not take is
// held, due at once, in its order; what it refuses with an error is dropped.
func (im *Impaired) send(now vtime.Time, src []Datagram) error {
	if len(im.out) == 0 {
		return nil
	}
	n, err := im.inner.WriteBatch(im.out)
	n = min(max(n, 0), len(im.out))
	im.count.Written += uint64(n)
	for i := range im.out {
		d, a := &im.out[i], im.about[i]
		switch {
		case i < n && !a.owned:
			src[a.src].Path.IPID = d.Path.IPID
		case i < n:
			im.free = append(im.free, d.Buf)
		case i == n && err != nil:
			im.count.WriteErrors++
			if a.owned {
				im.free = append(im.free, d.Buf)
			}
		case a.owned:
			im.hold(heldDatagram{due: now, d: *d, stage: Arrived}, d.Buf)
		default:
			im.hold(heldDatagram{due: now, d: *d, stage: Arrived}, nil)
		}
	}
	clear(im.out)
	im.out, im.about = im.out[:0], im.about[:0]
	return err
}

// buffer returns an empty buffer of ours.
func (im *Impaired) buffer() []byte {
	if n := len(im.free); n > 0 {
		b := im.free[n-1]
		im.free = im.free[:n-1]
		return b[:0]
	}
	return make([]byte, 0, ib.MTU4096.Bytes()+256)
}

// BatchSize is that of the port below.
func (im *Impaired) BatchSize() int { return im.inner.BatchSize() }

// MTU is that of the port below.
func (im *Impaired) MTU() ib.MTU { return im.inner.MTU() }

// LocalGID is that of the port below.
func (im *Impaired) LocalGID() ib.GID { return im.inner.LocalGID() }

// Counters are those of the port below.
func (im *Impaired) Counters() *PortCounters { return im.inner.Counters() }

// Close closes the port below. Held datagrams stay where they are and are never sent.
func (im *Impaired) Close() error { return im.inner.Close() }

// Wait waits at the port below, which knows nothing of held datagrams: see [Waiter].
func (im *Impaired) Wait(d time.Duration) error { return waitOn(im.inner, d) }

// Wake ends a Wait at the port below.
func (im *Impaired) Wake() { wakeOn(im.inner) }

// Nap sleeps at the port below.
func (im *Impaired) Nap(d time.Duration) error { return napOn(im.inner, d) }

func napOn(p Port, d time.Duration) error {
	if w, ok := p.(Napper); ok {
		return w.Nap(d)
	}
	return ErrNoWait
}

func waitOn(p Port, d time.Duration) error {
	if w, ok := p.(Waiter); ok {
		return w.Wait(d)
	}
	return ErrNoWait
}

func wakeOn(p Port) {
	if w, ok := p.(Waiter); ok {
		w.Wake()
	}
}
