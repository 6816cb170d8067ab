package uverbs

import (
	"os"
	"sync/atomic"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// Caller is the process that makes a call. A context may be shared by several.
type Caller struct {
	// Mem is the process's memory. Regions stay bound to the memory that was given
	// when they were registered, so it must be the same pointer for the same process.
	// Ioctl reads it in the goroutine of its caller, at the same time as the device may.
	Mem mr.Memory
	// Site says where in the program the call is made, as the host knows it; 0 if it does
	// not. See Device.Site.
	Site uintptr
}

// File is a descriptor to hand over to the program.
type File struct {
	// F is the file. It belongs to the host from now on, which closes it once the
	// program has its own descriptor.
	F *os.File
	// Off is where in Reply.Out the program's descriptor number goes, as an int32.
	Off int
}

// Write is bytes to store in the caller's memory besides Reply.Out.
type Write struct {
	Addr uint64
	Data []byte
}

// Reply is the outcome of a call.
type Reply struct {
	// Errno is 0 for success: write() then returns the length of the command.
	// Otherwise it returns -1. Out and Writes are to be stored in either case.
	Errno   ib.Errno
	Out     []byte // bytes for OutAddr in the caller's memory
	OutAddr uint64
	Files   []File
	Writes  []Write
}

// Passed identifies a descriptor of the calling process by the inode number of the
// file behind it (st_ino of a completion channel's pipe). ok is false if the process
// has no such descriptor.
type Passed func(fd int32) (ino uint64, ok bool)

// Context is one open device file with the objects that were made through it. Its
// state belongs to the owner of the device.
type Context struct {
	// Owner is the host's.
	Owner any

	dev *Device
	mem RingMemory

	ready  bool // GET_CONTEXT was called
	closed bool

	objects    map[uint32]any // by handle; one space for all kinds, as in the kernel
	lastHandle uint32
	qps        []*qpObj          // every QP, for Scan
	windows    map[uint32]*mwObj // memory windows by rkey without its low byte
	channels   map[uint64]*channel
	// asyncs are the asynchronous event files; the first is that of objects that name
	// none. The slice is replaced, not changed: broadcast reads it and is not the owner.
	asyncs atomic.Pointer[[]*channel]

	wr decoder // reused for each work request
}

// maxHandle keeps handles positive in a C int.
const maxHandle = 1<<31 - 1

// add gives an object the next handle. Handles count up, so that a stale one is not
// soon somebody else's.
func (c *Context) add(o any) uint32 {
	for {
		if c.lastHandle++; c.lastHandle > maxHandle {
			c.lastHandle = 1
		}
		if _, taken := c.objects[c.lastHandle]; !taken {
			c.objects[c.lastHandle] = o
			return c.lastHandle
		}
	}
}

// get finds an object of type T, nil if the handle is unknown or of another kind.
func get[T any](c *Context, h uint32) *T {
	o, _ := c.objects[h].(*T)
	return o
}

// take finds an object that is to be destroyed. The kernel tells an unknown handle
// (ENOENT) from one of another kind (EINVAL) here.
func take[T any](c *Context, verb string, h uint32) (*T, error) {
	o, known := c.objects[h]
	if !known {
		return nil, ib.NewVerbError(ib.ENOENT, verb, "", "no object has this handle")
	}
	t, ok := o.(*T)
	if !ok {
		return nil, ib.NewVerbError(ib.EINVAL, verb, "", "the handle is of another kind of object")
	}
	return t, nil
}

// refused tells the host of a call that failed.
func (c *Context) refused(err error) {
	if h, ok := c.dev.host.(RefusalHost); ok {
		h.Refused(c, err)
	}
}

// QPs returns the numbers of the context's QPs, for a report. Call it as the owner.
func (c *Context) QPs() []ib.QPN {
	ns := make([]ib.QPN, len(c.qps))
	for i, o := range c.qps {
		ns[i] = o.q.QPN
	}
	return ns
}

// Objects returns how many objects the program has. Call it as the owner.
func (c *Context) Objects() int { return len(c.objects) }

// Doorbell takes the sends that wait in the ring of one QP, like a POST_SEND without
// work requests but without an answer: a send that cannot be posted completes with an
// error instead. It is for hosts that pass doorbells one way.
func (c *Context) Doorbell(qpHandle uint32) {
	c.dev.host.Do(func(d *rvt.Device, _ vtime.Time) {
		if o := get[qpObj](c, qpHandle); o != nil {
			o.drain(d)
		}
	})
}

// Post is [Context.Doorbell] for a caller who owns the device already. idle reports that
// nothing was under way on the QP before, so that what was posted is worth sending at
// once. ok is false if a POST_SEND is needed instead: the QP may have to refuse the sends.
func (c *Context) Post(d *rvt.Device, qpHandle uint32) (idle, ok bool) {
	o := get[qpObj](c, qpHandle)
	if o == nil || o.sq == nil || !o.postable() {
		return false, false
	}
	idle = o.q.Outstanding() == 0
	o.drain(d)
	return idle, true
}

// Scan takes the sends that wait in any ring of the context and returns how many it
// posted. Call it as the owner, for a doorbell that does not say whose it is. It costs
// one load for each QP.
func (c *Context) Scan(d *rvt.Device) int {
	n := 0
	defer func(was *Context) { c.dev.calling = was }(c.dev.calling) // a command may be under way
	c.dev.calling = c
	for _, o := range c.qps {
		if o.sq != nil && o.sq.waiting() > 0 {
			n += o.drain(d)
		}
	}
	return n
}

// Close frees everything that the program made, in an order that leaves nothing in
// use: the last close() of the device file, or the death of the program.
func (c *Context) Close() {
	c.dev.mu.Lock()
	delete(c.dev.contexts, c)
	c.dev.mu.Unlock()
	ran := false
	c.dev.host.Do(func(d *rvt.Device, now vtime.Time) {
		ran = true
		if !c.closed {
			c.closed = true
			was := c.dev.calling
			c.dev.calling = c
			c.destroyAll(d, now)
			c.dev.calling = was
			c.closeChannels()
		}
	})
	if !ran { // the device is gone, and nothing works on this context any more
		c.closeChannels()
	}
}

func (c *Context) closeChannels() {
	for _, ch := range c.channels {
		ch.close()
	}
	for _, ch := range c.asyncFiles() {
		ch.close()
	}
}

// destroyAll destroys the objects kind by kind. Errors cannot be acted upon.
func (c *Context) destroyAll(d *rvt.Device, now vtime.Time) {
	for len(c.qps) > 0 {
		c.qps[len(c.qps)-1].leaveGroups(d)
		c.qps[len(c.qps)-1].destroy(d, now)
	}
	each(c, func(o *srqObj) { _ = o.destroy(d) })
	each(c, func(o *cqObj) { _ = o.destroy(d) })
	each(c, func(o *mwObj) { _ = o.destroy(d) })
	each(c, func(o *mrObj) { _ = o.dereg(d, now) })
	each(c, func(o *dmObj) { _ = o.free() })
	each(c, func(o *ahObj) { _ = d.DestroyAH(o.ah) })
	each(c, func(o *pdObj) { _ = d.DeallocPD(o.pd) })
	clear(c.objects)
}

func each[T any](c *Context, f func(*T)) {
	for _, o := range c.objects {
		if t, ok := o.(*T); ok {
			f(t)
		}
	}
}

func (c *Context) asyncFiles() []*channel {
	if l := c.asyncs.Load(); l != nil {
		return *l
	}
	return nil
}

// addAsync makes one more file of asynchronous events. The owner calls it.
func (c *Context) addAsync(verb string) (*os.File, error) {
	ch, r, err := newChannel(16)
	if err != nil {
		return nil, ib.NewVerbError(emfile, verb, "", "no pipe: "+err.Error())
	}
	var l []*channel
	for i, old := range c.asyncFiles() {
		if i > 0 && old.abandoned() { // its events would have no reader
			old.close()
			continue
		}
		l = append(l, old)
	}
	l = append(l, ch)
	c.asyncs.Store(&l)
	if h, ok := c.mem.(Heir); ok {
		h.BequeathEvents(ch.writeEnd())
	}
	return r, nil
}

// asyncEvents is where the asynchronous events of one object go.
type asyncEvents struct {
	ch   *channel // nil: the program takes none
	sent uint32   // events written to ch, under its lock
}

// eventsTo returns the events of a new object that go to ch, or to the first file of
// the context if ch is nil.
func (c *Context) eventsTo(ch *channel) asyncEvents {
	if l := c.asyncFiles(); ch == nil && len(l) > 0 {
		ch = l[0]
	}
	return asyncEvents{ch: ch}
}

// send gives the program an event of the object that it calls element.
func (e *asyncEvents) send(element uint64, t ib.EventType) {
	if e.ch != nil {
		e.ch.send(encode(&asyncEventDesc{Element: element, EventType: uint32(t)}), &e.sent)
	}
}

// forget removes the events of an object that is gone and returns how many of them
// the program has read.
func (e *asyncEvents) forget(element uint64) uint32 {
	if e.ch == nil {
		return 0
	}
	return e.ch.forget(element, &e.sent)
}

// broadcast sends an event that concerns no object to every file of the context.
func (c *Context) broadcast(element uint64, t ib.EventType) {
	for _, ch := range c.asyncFiles() {
		ch.send(encode(&asyncEventDesc{Element: element, EventType: uint32(t)}), nil)
	}
}
