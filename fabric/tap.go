package fabric

import (
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
)

// Sink receives copies of traffic, a packet capture for example. Capture must not
// keep d or change it; d is valid until Capture returns.
type Sink interface {
	Capture(at vtime.Time, d *Datagram)
}

// Tap is a Port that shows a [Sink] each datagram that the port below took, with its
// ICRC in place, and if wanted each one that arrived. It changes nothing. With a nil
// sink it only forwards.
type Tap struct {
	inner Port
	sink  Sink
	reads bool
	now   func() vtime.Time
}

var (
	_ Port   = (*Tap)(nil)
	_ Napper = (*Tap)(nil)
)

// NewTap wraps p. reads says whether arrivals are shown too; they carry their own
// arrival instant, written datagrams that of now, taken once per batch.
func NewTap(p Port, sink Sink, reads bool, now func() vtime.Time) *Tap {
	return &Tap{inner: p, sink: sink, reads: reads, now: now}
}

// Fetches implements [Fetcher]: a sink sees whole packets.
func (t *Tap) Fetches() bool { return t.sink == nil && Fetches(t.inner) }

// Ahead implements [Foreseer].
func (t *Tap) Ahead(n int) []byte {
	if f := AheadOf(t.inner); f != nil {
		return f(n)
	}
	return nil
}

// ReadBatch reads from the port below.
func (t *Tap) ReadBatch(dst []Datagram) (int, error) {
	n, err := t.inner.ReadBatch(dst)
	if t.sink != nil && t.reads {
		for i := range dst[:n] {
			t.sink.Capture(dst[i].At, &dst[i])
		}
	}
	return n, err
}

// WriteBatch writes to the port below.
func (t *Tap) WriteBatch(src []Datagram) (int, error) {
	n, err := t.inner.WriteBatch(src)
	if t.sink != nil && n > 0 {
		at := t.now()
		for i := range src[:n] {
			t.sink.Capture(at, &src[i])
		}
	}
	return n, err
}

// Deadline is that of the port below.
func (t *Tap) Deadline() vtime.Time { return DeadlineOf(t.inner) }

// BatchSize is that of the port below.
func (t *Tap) BatchSize() int { return t.inner.BatchSize() }

// MTU is that of the port below.
func (t *Tap) MTU() ib.MTU { return t.inner.MTU() }

// LocalGID is that of the port below.
func (t *Tap) LocalGID() ib.GID { return t.inner.LocalGID() }

// Counters are those of the port below.
func (t *Tap) Counters() *PortCounters { return t.inner.Counters() }

// Close closes the port below; the sink is not the tap's to close.
func (t *Tap) Close() error { return t.inner.Close() }

// Wait waits at the port below.
func (t *Tap) Wait(d time.Duration) error { return waitOn(t.inner, d) }

// Nap sleeps at the port below.
func (t *Tap) Nap(d time.Duration) error { return napOn(t.inner, d) }

// Wake ends a Wait at the port below.
func (t *Tap) Wake() { wakeOn(t.inner) }
