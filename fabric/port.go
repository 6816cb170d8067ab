package fabric

import (
	"errors"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/uaccess"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// ErrClosed is what every method of a closed port returns that can return an error.
var ErrClosed = errors.New("fabric: port is closed")

// ErrNoWait is what a decorator's Wait or Nap returns when the port below is no [Waiter]
// or [Napper], and what a Nap returns that had better be a timer's.
var ErrNoWait = errors.New("fabric: port cannot wait")

// Datagram is one RoCE v2 packet and the network headers around it.
type Datagram struct {
	// Path holds addresses, traffic class, hop limit, UDP source port, flow label
	// and IPv4 identification. The ICRC covers several of them.
	Path wire.Path
	// Buf runs from the BTH to the ICRC, its last [wire.ICRCBytes] bytes. On write
	// the port computes the ICRC into these bytes, so the writer leaves room for it
	// and need not clear it. The caller owns Buf on write and gets it back when
	// WriteBatch returns; the port owns it on read, until the next ReadBatch.
	Buf []byte
	// At is the arrival instant. Read only: a writer need not set it.
	At vtime.Time
	// BadICRC asks the port to write the complement of the correct ICRC, so that
	// the receiver drops the packet. Only fault injection sets it. On read a port
	// that verifies never delivers such a packet; one that does not leaves it unset.
	BadICRC bool
	// Far is payload that is not in Buf yet, on write only: FarLen bytes of this process at
	// address Far, which belong into Buf behind its headers and end right before the ICRC. The
	// program may have unmapped them. Only ports that say so ([Fetches]) get such
	// datagrams; they fetch the payload on its way, or by Fetch.
	Far    uint64
	FarLen int // a multiple of crcfold.Block, or 0: all is in Buf
}

// ErrFar is what WriteBatch returns if a datagram's payload is not where Far says.
var ErrFar = errors.New("fabric: the payload is not there")

// Fetch puts into Buf what is not there yet. It returns false if it is nowhere.
func (d *Datagram) Fetch() bool {
	if d.FarLen == 0 {
		return true
	}
	end := len(d.Buf) - wire.ICRCBytes
	if !uaccess.Load(d.Buf[end-d.FarLen:end], d.Far) {
		return false
	}
	d.FarLen = 0
	return true
}

// Port is a RoCE v2 network port. It moves batches and never blocks. A Port belongs
// to one caller at a time, except for Close and [Waiter.Wake], which any goroutine
// may call where the implementation says so.
type Port interface {
	// ReadBatch fills dst from the front with datagrams that have arrived and
	// returns how many. It returns 0 and no error when there are none. Buffers in
	// dst stay valid until the next ReadBatch. Packets that the port itself refuses
	// (too short, wrong ICRC) are counted and skipped.
	ReadBatch(dst []Datagram) (n int, err error)
	// WriteBatch sends src in order and returns how many it took. n < len(src) with
	// a nil error is back-pressure: the rest may be offered again. An error concerns
	// src[n]; the datagrams before it were taken. For each datagram taken the port
	// stores the ICRC into Buf and, over IPv4, the identification that it knows or
	// expects the packet to carry into Path.IPID, so that a [Tap] above records
	// exactly what went out.
	WriteBatch(src []Datagram) (n int, err error)
	// BatchSize is the number of datagrams per call that suits the port best.
	BatchSize() int
	// MTU is the largest IB MTU that the port's link can carry.
	MTU() ib.MTU
	// LocalGID is the address that the port is bound to.
	LocalGID() ib.GID
	// Counters returns the port's live counters. They belong to the port's caller
	// like the port itself; copy them to keep them.
	Counters() *PortCounters
	// Close releases the port. Closing twice is no error.
	Close() error
}

// Waiter is a Port whose host can sleep when it has nothing to do. A host that wraps
// ports in decorators shortens its wait to [DeadlineOf] the outermost one: Wait itself
// looks at no state that reading and writing change, so it may run beside them.
type Waiter interface {
	// Wait returns when ReadBatch may find something, when the port can take writes
	// again after back-pressure, when Wake is called, or after d. It may return
	// early for no reason. d <= 0 only looks; a negative d never means "for ever",
	// a very large one does in effect.
	Wait(d time.Duration) error
	// Wake ends a Wait that is under way, or else the next one. Any goroutine may
	// call it, also while another is inside Wait.
	Wake()
}

// Napper is a Waiter that can also sleep while packets arrive.
type Napper interface {
	Waiter
	// Nap returns after d or when Wake is called, and looks at nothing that arrives. It
	// may return early for no reason. d <= 0 returns at once.
	Nap(d time.Duration) error
}

// Fetcher is a Port that takes datagrams with payload elsewhere, or would at other times.
type Fetcher interface {
	// Fetches reports whether it takes them now. The answer holds until the owner of the
	// port calls another method than WriteBatch.
	Fetches() bool
}

// Fetches reports whether a port takes datagrams now whose payload is elsewhere; see
// [Datagram.Far].
func Fetches(p Port) bool {
	f, ok := p.(Fetcher)
	return ok && f.Fetches()
}

// Foreseer is a Port that knows where packets are which ReadBatch is going to deliver.
type Foreseer interface {
	// Ahead returns up to n bytes of them, in another call the next ones. They are for
	// asking the processor for them, not for looking at.
	Ahead(n int) []byte
}

// AheadOf returns a port's Ahead, nil if it has none.
func AheadOf(p Port) func(n int) []byte {
	if f, ok := p.(Foreseer); ok {
		return f.Ahead
	}
	return nil
}

// Neighbours is a Port that knows who is on its network.
type Neighbours interface {
	// Neighbour tells whether dst can be reached from src, an address of the port: 0 if
	// dst answers, EAGAIN if it was asked and has not answered yet, another errno, such as
	// ENETUNREACH, if there is no way to it. It does not block, and may be called from
	// anywhere while the port is open.
	Neighbour(src, dst ib.GID) ib.Errno
}

// PortCounters counts since the port was opened.
type PortCounters struct {
	TxPackets, TxBytes uint64 // bytes of Datagram.Buf, ICRC included
	RxPackets, RxBytes uint64 // delivered by ReadBatch
	RxBadICRC          uint64 // refused: ICRC did not match
	RxTooShort         uint64 // refused: shorter than BTH and ICRC, or cut off
	RxOverflow         uint64 // lost by the socket, receive buffer full (SO_RXQ_OVFL)
	TxBackpressure     uint64 // times that WriteBatch took less than it was offered
	TxErrors           uint64 // datagrams the system refused to send
	GSOFallbacks       uint64 // times that segmentation offload was given up
	TxSyscalls         uint64
	RxSyscalls         uint64
}

// Add adds the counters of another port.
func (c *PortCounters) Add(o *PortCounters) {
	c.TxPackets += o.TxPackets
	c.TxBytes += o.TxBytes
	c.RxPackets += o.RxPackets
	c.RxBytes += o.RxBytes
	c.RxBadICRC += o.RxBadICRC
	c.RxTooShort += o.RxTooShort
	c.RxOverflow += o.RxOverflow
	c.TxBackpressure += o.TxBackpressure
	c.TxErrors += o.TxErrors
	c.GSOFallbacks += o.GSOFallbacks
	c.TxSyscalls += o.TxSyscalls
	c.RxSyscalls += o.RxSyscalls
}

// DeadlineOf returns when p, or a port that it wraps, wants ReadBatch or WriteBatch
// to be called even though no datagram arrived; [vtime.Never] for ordinary ports.
func DeadlineOf(p Port) vtime.Time {
	if d, ok := p.(interface{ Deadline() vtime.Time }); ok {
		return d.Deadline()
	}
	return vtime.Never
}
