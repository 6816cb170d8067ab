package node

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// ErrClosed is what calls of a closed node return.
var ErrClosed = errors.New("node: closed")

// epoch is the zero of the process's clock.
var epoch = time.Now()

// Now is the process's clock: monotonic time since the process started. Ports whose
// arrival times are to agree with their node's clock use it too.
func Now() vtime.Time { return vtime.Time(time.Since(epoch)) }

// Config describes a node. The zero value is ready to use.
type Config struct {
	// Now is the clock; nil means the package's [Now]. Decorators of the port that
	// need a clock must get the same one.
	Now func() vtime.Time
	// Events takes the device's asynchronous events and completion notifications, in
	// order. It is called by whoever drives the node, with the node locked: it must be
	// quick, must not call the node, and must not keep the slice. If nil, the events
	// stay in the device until somebody polls them inside Do.
	Events func([]rvt.Event)
	// Doorbells is called in a pass after [Node.Ring], by whoever makes the pass and as
	// the owner: it takes what programs have posted into rings of their own.
	Doorbells func(d *rvt.Device)
	// AckDelay is how long an acknowledgement may wait for what the program posts in
	// answer, if it has answered promptly lately; 0 means that none ever waits. It is for
	// hosts whose posts use BeginPost or TryBegin.
	AckDelay time.Duration
	// Linger is how long the background goroutine may look for packets before it sleeps
	// in the port, if packets used to come so soon lately; 0 means that it never does. It
	// is for processes that can spare a thread.
	Linger time.Duration
	// Pace multiplies AckDelay, Linger and what else bridges the gap between two messages,
	// on machines where such gaps are longer; see the package's [Pace]. 0 is 1. Where it is
	// more, an acknowledgement may wait for up to a millisecond, if the program's answers
	// take that long.
	Pace int
	// PassedAt, if it is not nil, is where the node keeps when the pass under way began, for
	// ports that would look at the clock for every packet. It belongs to the node's owner.
	PassedAt *vtime.Time
	// Bell is what the host shares with those who ring without a call; nil: nobody does.
	Bell *Bell
	// Doze is how long a Progress in vain may sleep, for what comes next or this long, while other
	// threads want the caller's processor and the caller does nothing but poll; 0 means that it
	// never does. It is for callers that are no goroutines of a program's own. Only Linux can.
	Doze time.Duration
	// Manual starts no background goroutine. Whoever made the node must call Progress
	// often enough, or packets and timers wait.
	Manual bool
}

// Bell lets somebody who cannot call the node cheaply, a program from C say, do what
// [Node.Ring] does. Rung is set to 1 by whoever has put work into the rings of
// Config.Doorbells, and Napping says whether that is enough. If it is 1 after Rung was set,
// the program polls, and will see to it when it does so next; should it not, the background
// goroutine does, at the end of a nap of a millisecond at most. If it is 0 then, Ring must be
// called. Only sequentially consistent operations may be used.
type Bell struct {
	Rung, Napping atomic.Uint32
}

// Counters is a snapshot of everything that a node counts.
type Counters struct {
	Device qp.Counters
	Port   fabric.PortCounters
	Node   Stats
}

// Stats counts what the host itself does.
type Stats struct {
	Passes           uint64 // passes, by whomever
	BackgroundPasses uint64 // passes by the background goroutine
	Waits            uint64 // times that the background goroutine waited in the port
	Naps             uint64 // times that it kept away because a program polls
	Wakeups          uint64 // times that somebody ended its wait
	Loopback         uint64 // packets to the node's own address, never given to the port
	TxRefused        uint64 // packets that the port refused with an error, dropped
	GatherFaults     uint64 // packets dropped because their payload could not be read
	Backpressure     uint64 // times that packets had to wait for room in the port
}

// check says why dev cannot use port.
func check(dev *rvt.Device, port fabric.Port) error {
	if dev == nil || port == nil {
		return errors.New("node: device or port is nil")
	}
	cfg := dev.Config()
	if !slices.Contains(dev.GIDs(), port.LocalGID()) {
		return fmt.Errorf("node: device %q does not have the port's address %v in its GID table", cfg.Name, port.LocalGID())
	}
	if cfg.MTU > port.MTU() {
		return fmt.Errorf("node: device %q has an active MTU of %v, its port carries %v", cfg.Name, cfg.MTU, port.MTU())
	}
	return nil
}
