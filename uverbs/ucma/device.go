package ucma

import (
	"slices"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
)

// Host owns the connection manager of the node.
type Host interface {
	// Do calls f as the owner of the manager and returns what f returns. Afterwards
	// the host sends what the manager has to send, and hands its events to
	// [Device.HandleEvents]. f never calls Do. It is called for a device that is gone
	// too: its ids must still be destroyed.
	Do(f func(m *cm.Manager, now vtime.Time) error) error
	// JoinGroup makes the node's port receive what is sent to a multicast group;
	// LeaveGroup undoes one JoinGroup. They are called by the owner.
	JoinGroup(ib.GID) error
	LeaveGroup(ib.GID)
}

// TroubleHost is a Host that wants to know what went wrong for programs. Both methods are
// called by the owner, and must not block or keep what they are given.
type TroubleHost interface {
	// Refused is called for each command that fails. err says more than the errno that the
	// program gets.
	Refused(ch *Channel, err error)
	// Failed is called for each event by which a program learns that something did not
	// work: a name that was not resolved, a connection that was not made or not ended.
	Failed(ch *Channel, e *cm.Event)
}

// Signal is the descriptor by which a program learns that events wait.
type Signal interface {
	// Set makes the descriptor readable, or not. The owner calls it after everything
	// that happens to the channel, also if nothing has changed: the program may have
	// read from it. It must not block.
	Set(readable bool)
}

// Device is the rdma_cm device of one node. Its state belongs to the owner of the manager.
type Device struct {
	host     Host
	ids      table[context]
	mcasts   table[membership]
	channels map[uint64]*Channel // by inode of the descriptor
}

// NewDevice returns the device of the node whose connection manager host owns.
func NewDevice(host Host) *Device {
	return &Device{host: host, channels: map[uint64]*Channel{}}
}

// table numbers objects, lowest free number first (kernel: xa_alloc). Numbers are used
// again at once.
type table[T any] struct {
	of   []*T
	free int // no number below is free
}

func (t *table[T]) add(o *T) uint32 {
	for t.free < len(t.of) && t.of[t.free] != nil {
		t.free++
	}
	if t.free == len(t.of) {
		t.of = append(t.of, nil)
	}
	t.of[t.free] = o
	t.free++
	return uint32(t.free - 1)
}

func (t *table[T]) get(id uint32) *T {
	if uint64(id) >= uint64(len(t.of)) {
		return nil
	}
	return t.of[id]
}

func (t *table[T]) remove(id uint32) {
	t.of[id] = nil
	t.free = min(t.free, int(id))
}

// context (struct ucma_context) is an id of a program.
type context struct {
	ch       *Channel
	id       uint32
	uid      uint64 // the program's name for it; 0 for a request until it is accepted
	core     *cm.ID
	reported uint32 // events handed out
	mcasts   []*membership
}

// membership (struct ucma_multicast) is an id's membership in a group.
type membership struct {
	ctx      *context
	id       uint32
	uid      uint64
	core     *cm.Mcast
	reported uint32
}

// event is an event that waits for GET_EVENT.
type event struct {
	ctx   *context
	mcast *membership // counts it too
	child *cm.ID      // of a CONNECT_REQUEST: gets its context when the event is fetched
	resp  [eventBytes]byte
}

// Channel (struct ucma_file) is one open device file. Processes that inherit the
// descriptor share it.
type Channel struct {
	// Owner is the host's. Set it before the first command.
	Owner any

	dev    *Device
	ino    uint64
	signal Signal
	closed bool
	events []event
	ids    []*context // in the order in which they came
}

// Open returns a channel, the counterpart of one open() of the device file. ino is the
// inode number of the program's descriptor, by which MIGRATE_ID finds the channel.
func (d *Device) Open(ino uint64, s Signal) *Channel {
	ch := &Channel{dev: d, ino: ino, signal: s}
	_ = d.host.Do(func(*cm.Manager, vtime.Time) error {
		d.channels[ino] = ch
		return nil
	})
	return ch
}

// Close (kernel: ucma_close) destroys the channel's ids, one after the other. Peers are
// told once.
func (ch *Channel) Close() {
	_ = ch.dev.host.Do(func(_ *cm.Manager, now vtime.Time) error {
		if ch.closed {
			return nil
		}
		ch.closed = true
		if ch.dev.channels[ch.ino] == ch {
			delete(ch.dev.channels, ch.ino)
		}
		for len(ch.ids) > 0 {
			ch.destroy(now, ch.ids[0])
		}
		ch.events = nil
		return nil
	})
}

// Refresh sets the channel's signal anew: a process that shares the channel has ended,
// who knows in the middle of what.
func (ch *Channel) Refresh() {
	_ = ch.dev.host.Do(func(*cm.Manager, vtime.Time) error {
		ch.announce()
		return nil
	})
}

// IDs returns the ids of the channel, for a report, as text. Call it as the owner.
func (ch *Channel) IDs() []string {
	out := make([]string, len(ch.ids))
	for i, c := range ch.ids {
		out[i] = c.core.String()
	}
	return out
}

func (ch *Channel) announce() {
	if !ch.closed {
		ch.signal.Set(len(ch.events) > 0)
	}
}

// newContext makes an id known to the program.
func (ch *Channel) newContext(core *cm.ID, uid uint64) *context {
	c := &context{ch: ch, core: core, uid: uid}
	c.id = ch.dev.ids.add(c)
	core.Context = c
	ch.ids = append(ch.ids, c)
	return c
}

// destroy (kernel: ucma_destroy_private_ctx) removes an id with everything that waits for
// it. It returns how many events the program has seen.
func (ch *Channel) destroy(now vtime.Time, c *context) uint32 {
	d := ch.dev
	for len(c.mcasts) > 0 {
		d.leave(c.mcasts[0])
	}
	c.core.Destroy(now)
	ch.events = slices.DeleteFunc(ch.events, func(e event) bool { return e.ctx == c })
	d.ids.remove(c.id)
	i := slices.Index(ch.ids, c)
	ch.ids = slices.Delete(ch.ids, i, i+1)
	return c.reported
}

// leave ends a membership, and returns how many of its events the program has seen.
func (d *Device) leave(mc *membership) uint32 {
	c := mc.ctx
	i := slices.Index(c.mcasts, mc)
	c.mcasts = slices.Delete(c.mcasts, i, i+1)
	_ = mc.core.Leave() // fails only for one that has left
	if !mc.core.SendOnly {
		d.host.LeaveGroup(mc.core.GID)
	}
	c.ch.events = slices.DeleteFunc(c.ch.events, func(e event) bool { return e.mcast == mc })
	d.mcasts.remove(mc.id)
	return mc.reported
}
