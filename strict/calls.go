package strict

import (
	"fmt"
	"slices"
	"time"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
)

// Arm is told that a queue is being armed. channel says whether it has one.
func (t *Tracker) Arm(c *cq.CQ, channel bool, site Site) {
	cs := t.cq(c)
	cs.arm, cs.channel, cs.armed = Place{"req_notify_cq", site}, channel, true
	if !channel {
		if t.checks.Events {
			t.say(&ArmWithoutChannel, c, "it was created without a channel", cs.arm)
		}
		return
	}
	cs.missed = len(cs.items)
}

// Wait is told that the program is about to sleep until an event of one of the queues
// comes.
func (t *Tracker) Wait(c *cq.CQ, site Site) {
	cs := t.cq(c)
	if t.checks.Events && cs.missed > 0 {
		t.say(&LostWakeup, c, count(cs.missed, "completion waits in it since before it was armed: it sends", "completions wait in it since before it was armed: they send")+" no event", cs.arm, Place{"get_cq_event", site})
	}
}

// WaitUnarmed is told that the program is about to sleep until an event of one of the queues
// list comes, or seems to have gone to sleep. If none of them was ever armed, none will.
func (t *Tracker) WaitUnarmed(list []*cq.CQ, site Site) {
	if c := t.neverArmed(list); c != nil && t.checks.Events {
		t.say(&NeverArmed, c, count(len(t.cq(c).items), "completion waits", "completions wait")+" in it", Place{"get_cq_event", site})
	}
}

// neverArmed returns a queue that holds completions if none of the list was ever armed.
func (t *Tracker) neverArmed(list []*cq.CQ) (c *cq.CQ) {
	for _, o := range list {
		switch cs := t.cq(o); {
		case cs.armed:
			return nil
		case c == nil && len(cs.items) > 0:
			c = o
		}
	}
	return c
}

// Unacked is told that the destruction of an object waits for acknowledgements.
func (t *Tracker) Unacked(verb, object string, events int, site Site) {
	if t.checks.Events {
		r := UnackedReport(verb, object, events, site)
		t.say(r.Code, name(object), r.Text, r.Places...)
	}
}

// UnackedReport says that the destruction of an object waits for acknowledgements, for hosts
// that find it out themselves.
func UnackedReport(verb, object string, events int, site Site) Report {
	return Report{Code: &UnackedEvents, Object: object, Places: []Place{{verb, site}},
		Text: verb + " waits: " + count(events, "event was delivered and is not acknowledged", "events were delivered and are not acknowledged")}
}

// tooLong is how long a dead peer may go unnoticed.
const tooLong = 10 * time.Minute

// Modify is told that attributes of a queue pair were changed.
func (t *Tracker) Modify(q *qp.QP, mask ib.AttrMask, site Site) {
	if !t.checks.Connections || q.Type != ib.QPTypeRC {
		return
	}
	a, p := &q.Attr, Place{"modify_qp", site}
	if mask&(ib.AttrTimeout|ib.AttrRetryCnt) != 0 {
		d, ok := ib.AckTimeout(a.Timeout)
		switch total := d * time.Duration(a.RetryCnt+1); {
		case !ok:
			t.say(&WaitsForHours, q, "timeout 0 means that the queue pair waits for ever", p)
		case total >= tooLong:
			t.say(&WaitsForHours, q, fmt.Sprintf("timeout %d is %v; with retry_cnt %d a dead peer is noticed after %v", a.Timeout, d.Round(time.Second), a.RetryCnt, total.Round(time.Minute)), p)
		}
	}
	if mask&ib.AttrMinRNRTimer != 0 && a.MinRNRTimer == 0 {
		t.say(&LongestRNR, q, fmt.Sprintf("each message that finds no receive makes its sender wait %v", ib.RNRTimeout(0)), p)
	}
}

// ModifyRefused is told that a change of attributes was refused.
func (t *Tracker) ModifyRefused(q *qp.QP, a *qp.Attr, mask ib.AttrMask, site Site) {
	if t.checks.Connections && mask&ib.AttrAV != 0 && !a.AV.IsGlobal {
		t.say(&NoGRH, q, fmt.Sprintf("its ah_attr has is_global = 0, so there is no dgid to send to (dlid %d means nothing here)", a.AV.DLID), Place{"modify_qp", site})
	}
}

// Dereg is told that a region is about to be deregistered.
func (t *Tracker) Dereg(lkey ib.LKey, site Site) {
	if !t.checks.Memory {
		return
	}
	var places []Place
	n := 0
	add := func(p Place) {
		if n++; n <= 3 {
			places = append(places, p)
		}
	}
	for _, st := range t.live {
		for i := range st.sends {
			if s := &st.sends[i]; !s.finished && slices.Contains(s.lkeys, lkey) {
				add(s.place())
			}
		}
		st.recv.eachOf(lkey, add)
	}
	for _, rq := range t.srqs { //arch:sorted a device has few shared queues, and only the choice of three depends on it
		rq.eachOf(lkey, add)
	}
	if n > 0 {
		t.say(&FreedMR, name("mr "+lkey.String()), count(n, "posted work request names it", "posted work requests name it"), append([]Place{{"dereg_mr", site}}, places...)...)
	}
}

func (rq *recvQueue) eachOf(lkey ib.LKey, f func(Place)) {
	for i := range rq.posted {
		if slices.Contains(rq.posted[i].lkeys, lkey) {
			f(rq.posted[i].place())
		}
	}
}

// Refused implements qp.Observer.
func (t *Tracker) Refused(q *qp.QP, f *qp.Failure) {
	if !t.checks.Memory || !t.keys.DistinctKeys || f.Cause != ib.CauseRKey {
		return
	}
	key := f.Request.RKey
	if _, c := t.keys.CheckLKey(q.PD, mr.SGE{Length: 1, LKey: ib.LKey(key)}, 0); c != ib.CauseLKeyUnknown {
		t.say(&LKeyAsRKey, q, fmt.Sprintf("qp %v used key %v, which is the lkey of a region here", q.Attr.DestQPN, key))
	}
}

// DeviceWrote is told that the device itself wrote to memory: a READ response, a
// message, a peer's WRITE. Sends that read from there are not the program's to blame.
func (t *Tracker) DeviceWrote(mem mr.Memory, addr uint64, n int) {
	for _, st := range t.live {
		for i := range st.sends {
			s := &st.sends[i]
			for _, g := range s.segs {
				if g.Mem == mem && g.Addr < addr+uint64(n) && addr < g.Addr+uint64(g.Len) {
					s.excused = true
				}
			}
		}
	}
}

var _ qp.Observer = (*Tracker)(nil)
