package ucma

import (
	"strconv"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
)

// HandleEvents takes events of the manager, in order. The owner calls it.
func (d *Device) HandleEvents(evs []cm.Event) {
	for i := range evs {
		d.handle(&evs[i])
	}
}

// handle (kernel: ucma_event_handler) queues an event for the program that it concerns.
func (d *Device) handle(e *cm.Event) {
	about := e.ID
	if e.Listener != nil {
		about = e.Listener
	}
	c, ok := about.Context.(*context)
	if !ok {
		return // made by somebody else
	}
	q := event{ctx: c}
	head := eventResp{UID: c.uid, ID: c.id, Event: uint32(e.Type), Status: int32(e.Status)}
	switch {
	case e.Listener != nil:
		q.child = e.ID
	case e.Mcast != nil:
		mc, ok := e.Mcast.Context.(*membership)
		if !ok {
			return
		}
		q.mcast = mc
		head.UID, head.ID = mc.uid, mc.id
	}
	copy(q.resp[:], encode(&head))
	copy(q.resp[eventParamOff:], paramOf(e, about.QPType()))
	copy(q.resp[eventECEOff:], encode(&ece{e.Conn.ECE.VendorID, e.Conn.ECE.Options}))
	c.ch.events = append(c.ch.events, q)
	c.ch.announce()
	if h, ok := d.host.(TroubleHost); ok && failure(e) {
		h.Failed(c.ch, e)
	}
}

// failure reports whether an event says that something did not work.
func failure(e *cm.Event) bool {
	switch e.Type {
	case cm.EventAddrError, cm.EventRouteError, cm.EventConnectError, cm.EventUnreachable, cm.EventRejected, cm.EventMulticastError:
		return true
	}
	return e.Type == cm.EventDisconnected && e.Status != 0
}

// paramOf is the parameters of an event. Which form they have depends on the id, not on
// the event.
func paramOf(e *cm.Event, typ ib.QPType) []byte {
	p := &e.Conn
	if typ == ib.QPTypeUD {
		u := udParam{QPNum: uint32(p.QPN), QKey: uint32(p.QKey), AH: ahOf(&e.AV), PrivateLen: uint8(len(p.Private))}
		copy(u.Private[:], p.Private)
		return encode(&u)
	}
	c := connParam{QPNum: uint32(p.QPN), QKey: uint32(p.QKey), PrivateLen: uint8(len(p.Private)), SRQ: bit(p.SRQ),
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth, FlowControl: bit(p.FlowControl),
		RetryCount: p.RetryCount, RNRRetryCount: p.RNRRetryCount}
	copy(c.Private[:], p.Private)
	return encode(&c)
}

func bit(b bool) uint8 {
	if b {
		return 1
	}
	return 0
}

// getEvent (kernel: ucma_get_event) hands out the oldest event. A request gets its id
// now, and does not count against the backlog of its listener any more.
func getEvent(k *call) error {
	var cmd getEventCmd
	if err := k.decode(&cmd, eventMinBytes); err != nil {
		return err
	}
	ch := k.ch
	if len(ch.events) == 0 {
		return k.err(ib.EAGAIN, "no event waits")
	}
	e := &ch.events[0]
	if e.child != nil {
		child := ch.newContext(e.child, 0)
		native.PutUint32(e.resp[8:], child.id)
		e.child.Fetched()
	}
	e.ctx.reported++
	if e.mcast != nil {
		e.mcast.reported++
	}
	k.respond(cmd.Response, e.resp[:])
	ch.events[0] = event{}
	if ch.events = ch.events[1:]; len(ch.events) == 0 {
		ch.events = nil
	}
	return nil
}

// migrateID (kernel: ucma_migrate_id) moves an id and what waits for it to this channel.
func migrateID(k *call) error {
	var cmd idCmd
	if err := k.decode(&cmd, 4); err != nil {
		return err
	}
	ino, open := uint64(0), false
	if k.passed != nil {
		ino, open = k.passed(int32(cmd.Arg))
	}
	if !open {
		return k.err(ib.ENOENT, "no such descriptor")
	}
	from := k.ch.dev.channels[ino]
	if from == nil {
		return k.err(ib.EINVAL, "the descriptor is no event channel")
	}
	c := k.ch.dev.ids.get(cmd.ID)
	switch {
	case c == nil:
		return k.err(ib.ENOENT, "no such id")
	case c.ch != from:
		return k.err(ib.EINVAL, "the id is another channel's")
	}
	if from != k.ch {
		from.hand(c, k.ch)
		from.announce()
	}
	k.respond(cmd.Response, encode(&eventsResp{c.reported}))
	return nil
}

// hand moves an id and its events to another channel.
func (ch *Channel) hand(c *context, to *Channel) {
	var stay []event
	for i := range ch.events {
		if e := &ch.events[i]; e.ctx == c {
			to.events = append(to.events, *e)
		} else {
			stay = append(stay, *e)
		}
	}
	ch.events = stay
	for i, o := range ch.ids {
		if o == c {
			ch.ids = append(ch.ids[:i], ch.ids[i+1:]...)
			break
		}
	}
	c.ch = to
	to.ids = append(to.ids, c)
}

// destroyID (kernel: ucma_destroy_id) destroys an id. The events that nobody fetched
// vanish, and the requests among them are refused.
func destroyID(k *call) error {
	var cmd idCmd
	if err := k.decode(&cmd, 4); err != nil {
		return err
	}
	c, err := k.ch.find(cmd.ID, k.verb)
	if err != nil {
		return err
	}
	k.respond(cmd.Response, encode(&eventsResp{k.ch.destroy(k.now, c)}))
	return nil
}

// find (kernel: _ucma_find_context) returns an id of the channel.
func (ch *Channel) find(id uint32, verb string) (*context, error) {
	c := ch.dev.ids.get(id)
	switch {
	case c == nil:
		return nil, ib.NewVerbError(ib.ENOENT, verb, name(id), "there is no such id: it was never given out, or was destroyed")
	case c.ch != ch:
		return nil, ib.NewVerbError(ib.EINVAL, verb, name(id), "the id is another channel's")
	}
	return c, nil
}

// name is what a program's id is called in errors: the number that the kernel gave it, which
// the library keeps to itself.
func name(id uint32) string { return "id number " + strconv.FormatUint(uint64(id), 10) }

// own (kernel: ucma_get_ctx) returns an id for anything but its end.
func (k *call) own(id uint32) (*context, error) {
	c, err := k.ch.find(id, k.verb)
	if err != nil {
		return nil, err
	}
	k.about = c
	if c.core.State() == cm.IDDeviceRemoval {
		return nil, k.err(ib.ENXIO, "its device was removed")
	}
	return c, nil
}

// ownWithDevice (kernel: ucma_get_ctx_dev) returns an id that is bound to a device.
func (k *call) ownWithDevice(id uint32) (*context, error) {
	c, err := k.own(id)
	if err == nil && c.core.Port() == nil {
		return nil, k.err(ib.EINVAL, "it has no device yet")
	}
	return c, err
}
