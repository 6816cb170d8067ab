package sim

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// settle lets applications and device of a node take turns until neither has anything
// left to do at this instant, and notes when the node must be woken.
func (w *World) settle(n *Node) {
	if n.dead {
		return
	}
	for round := 0; ; round++ {
		w.dispatch(n)
		busy := w.stepApps(n)
		busy = w.emit(n) || busy
		w.notice(n)
		// A program may be due though nothing was sent: for work that was flushed.
		if !busy && !n.Dev.HasEvents() && n.due == 0 || n.quiet() {
			break
		}
		if round == maxRounds {
			w.stats.Stalls++
			w.At(w.now.Add(stallStep), func(vtime.Time) { w.Touch(n) })
			break
		}
	}
	w.rearm(n)
	if w.cfg.Check && w.failure == nil {
		w.failure = checkQueues(n)
	}
}

// quiet reports whether it is plain that nothing is left to do.
func (n *Node) quiet() bool {
	return n.due == 0 && n.eager == 0 && len(n.ready) == 0 && !n.Dev.HasEvents() && !n.Dev.Pending()
}

// rearm makes sure that the node is woken no later than its device's deadline. A key
// that is early stays, so that a timer that is pushed on with every packet costs
// nothing here.
func (w *World) rearm(n *Node) {
	if at := n.Dev.Deadline(); at < n.wakeAt || n.wakeAt <= w.now {
		w.timers.move(n, at)
	}
}

// dispatch hands events to the applications they concern.
func (w *World) dispatch(n *Node) {
	for n.Dev.HasEvents() {
		k := n.Dev.PollEvents(w.events[:])
		for i := range w.events[:k] {
			w.deliverEvent(n, &w.events[i])
			w.events[i] = rvt.Event{}
		}
	}
}

func (w *World) deliverEvent(n *Node, ev *rvt.Event) {
	var ctx any
	switch {
	case ev.QP != nil:
		ctx = ev.QP.Context
	case ev.CQ != nil:
		ctx = ev.CQ.Context
	case ev.SRQ != nil:
		ctx = ev.SRQ.Context
	}
	if s := n.find(ctx); s != nil && s.sink != nil {
		n.wake(s)
		s.sink.OnEvent(*ev)
		return
	}
	if !ev.Comp && int(ev.Type) < len(n.Events) {
		n.Events[ev.Type]++
	}
}

// fewApps is up to how many applications a search is faster than a map.
const fewApps = 4

// find returns the application that is an object's Context, nil if none is.
func (n *Node) find(ctx any) *appSlot {
	app, ok := ctx.(App)
	if !ok {
		return nil
	}
	if len(n.driven)+len(n.polled) > fewApps {
		return n.slots[app]
	}
	for _, s := range n.driven {
		if s.app == app {
			return s
		}
	}
	for _, s := range n.polled {
		if s.app == app {
			return s
		}
	}
	return nil
}

// stepApps runs the applications that are ready or polled.
func (w *World) stepApps(n *Node) (busy bool) {
	w.notice(n)
	for i := 0; i < len(n.polled) && n.due+n.eager > 0; i++ {
		s := n.polled[i]
		if !s.due && !s.eager {
			continue
		}
		if s.due {
			s.due = false
			n.due--
		}
		if s.app.Step(w.now) {
			busy = true
			n.wake(s) // it may have more to do
		}
		w.scheduleApp(s)
		w.notice(n)
	}
	for len(n.ready) > 0 {
		s := n.ready[0]
		n.ready = append(n.ready[:0], n.ready[1:]...)
		s.queued = false
		busy = s.app.Step(w.now) || busy
		w.scheduleApp(s)
	}
	return busy
}

// notice wakes the programs that have something to poll.
func (w *World) notice(n *Node) {
	if len(n.polled) == n.eager {
		return
	}
	for _, c := range n.Dev.Shown() {
		if s := n.find(c.Context); s != nil && !s.events {
			n.wake(s)
		}
	}
}

// scheduleApp sees to it that an application is called at its deadline.
func (w *World) scheduleApp(s *appSlot) {
	at := s.app.Deadline()
	if at == vtime.Never || at >= s.wakeAt && s.wakeAt > w.now {
		return
	}
	at = max(at, w.now.Add(1))
	s.wakeAt = at
	w.calls.push(call{at: at, app: s})
}

// emit sends what the device has to send, a batch at a time, and reports whether there
// was anything.
func (w *World) emit(n *Node) (sent bool) {
	for more := true; more; {
		w.out.Reset()
		more = n.Dev.Emit(w.now, &w.out, w.cfg.EmitBatch)
		for i := range w.out.Packets {
			w.send(n, i)
		}
		sent = sent || len(w.out.Packets) > 0
		n.Dev.Commit(w.now)
	}
	return sent
}

// send hands packet i of the outbox to the network, which copies the payload: straight
// from registered memory if it is one piece of an ordinary one, and not at all if that
// holds nothing.
func (w *World) send(n *Node, i int) {
	p := &w.out.Packets[i]
	if p.Withheld {
		return
	}
	payload := p.Pkt.Payload
	if p.SegLen > 0 {
		segs := w.out.Segs[p.SegOff : p.SegOff+p.SegLen]
		var ok bool
		var void bool
		if payload, void, ok = view(segs, p.Len); void {
			w.net.SendConstant(w.now, n.Index, &p.Path, &p.Pkt, payload)
			return
		}
		if !ok {
			payload = w.buf[:p.Len]
			w.out.Gather(&w.gather, i, payload)
			if faults := w.gather.Read(); len(faults) > 0 {
				n.Dev.GatherFault(&w.out, &faults[0])
				return
			}
		}
	}
	w.net.Send(w.now, n.Index, &p.Path, &p.Pkt, payload)
}

// view returns the bytes of a payload in place, if they lie in one piece of a
// [mr.Slice], and whether they mean nothing.
func view(segs []mr.Seg, n int) (payload []byte, void, ok bool) {
	if len(segs) != 1 {
		return nil, false, false
	}
	m, ok := segs[0].Mem.(*mr.Slice)
	if !ok {
		return nil, false, false
	}
	off := segs[0].Addr - m.Base
	if segs[0].Addr < m.Base || off > uint64(len(m.Buf)) || uint64(n) > uint64(len(m.Buf))-off {
		return nil, false, false
	}
	return m.Buf[off : off+uint64(n)], m.Void, true
}

// JoinMulticast lets packets to a group reach a node. Its device must have attached a
// QP to the group as well.
func (w *World) JoinMulticast(n *Node, gid ib.GID) error { return w.net.JoinMulticast(gid, n.Index) }
