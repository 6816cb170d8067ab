package cm

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

// loses returns a fate that loses the first message of a kind.
func loses(kind Attr) (fate func(int, *Packet) []time.Duration, lost *int) {
	lost = new(int)
	return func(_ int, p *Packet) []time.Duration {
		if DecodeHeader(p.MAD[:]).Attr == kind && *lost == 0 {
			*lost++
			return nil
		}
		return []time.Duration{latency}
	}, lost
}

// plot is what two programs do, and what each of them sees of it.
type plot struct {
	name   string
	lose   Attr
	space  PortSpace
	play   func(w *world, a *ID) (b *ID) // a has asked; b is the other end, if anybody saw it
	serve  func(w *world, e Event)       // what the passive program does with an event
	a, b   EventType                     // the last that each side sees on a perfect network
	status int                           // that comes with a's
	lostB  EventType                     // the last of b's with the loss, if it differs
}

func accepts(w *world, e Event) {
	switch e.Type {
	case EventConnectRequest:
		require.NoError(w.t, e.ID.Accept(w.now, ConnParam{QPN: 0x99}))
	case EventDisconnected:
		require.NoError(w.t, e.ID.Disconnect(w.now))
	}
}

func refuses(w *world, e Event) {
	if e.Type == EventConnectRequest {
		require.NoError(w.t, e.ID.Reject(w.now, 0, []byte("no")))
	}
}

// hesitates accepts late, so that the peer asks again and is told to wait.
func hesitates(*world, Event) {}

var plots = []plot{
	{name: "nobody listens", lose: AttrREJ, space: PSIB, a: EventRejected, status: int(RejInvalidServiceID)},
	{name: "the program refuses", lose: AttrREJ, space: PSTCP, serve: refuses, a: EventRejected, status: int(RejConsumerDefined), b: EventConnectRequest},
	{name: "the answer is refused", lose: AttrREJ, space: PSTCP, serve: accepts, a: EventConnectResponse, b: EventRejected, lostB: EventUnreachable,
		play: func(w *world, a *ID) *ID {
			w.run(time.Second)
			require.NoError(w.t, a.Reject(w.now, 0, nil))
			return nil
		}},
	{name: "the request is given up", lose: AttrREJ, space: PSTCP, serve: hesitates, a: EventRouteResolved, b: EventConnectRequest,
		play: func(w *world, a *ID) *ID {
			w.run(time.Second)
			a.Destroy(w.now)
			w.run(time.Second)
			b := w.nodes[1].last(EventConnectRequest).ID
			_ = b.Accept(w.now, ConnParam{QPN: 1}) // EINVAL if it is known that nobody waits
			return b
		}, lostB: EventUnreachable},
	{name: "wait, the request is being looked at", lose: AttrMRA, space: PSTCP, serve: hesitates, a: EventConnectResponse, b: EventEstablished,
		play: func(w *world, a *ID) *ID {
			w.run(20 * time.Second)
			b := w.nodes[1].last(EventConnectRequest).ID
			require.NoError(w.t, b.Accept(w.now, ConnParam{QPN: 1}))
			w.run(20 * time.Second)
			require.NoError(w.t, a.Establish(w.now))
			return b
		}},
	{name: "wait, the answer is being looked at", lose: AttrMRA, space: PSTCP, serve: accepts, a: EventConnectResponse, b: EventEstablished,
		play: func(w *world, a *ID) *ID {
			w.run(20 * time.Second)
			require.NoError(w.t, a.Establish(w.now))
			return nil
		}},
	{name: "a datagram service is asked for", lose: AttrSIDRReq, space: PSUDP, serve: accepts, a: EventEstablished, b: EventConnectRequest},
	{name: "a datagram service answers", lose: AttrSIDRRep, space: PSUDP, serve: accepts, a: EventEstablished, b: EventConnectRequest},
	{name: "a datagram service refuses", lose: AttrSIDRRep, space: PSUDP, serve: refuses, a: EventUnreachable, status: int(SIDRRejected), b: EventConnectRequest},
	{name: "one end is destroyed", lose: AttrDREQ, space: PSTCP, serve: accepts, a: EventConnectResponse, b: EventTimeWaitExit, lostB: EventEstablished,
		play: func(w *world, a *ID) *ID {
			w.run(time.Second)
			require.NoError(w.t, a.Establish(w.now))
			w.run(time.Second)
			a.Destroy(w.now)
			return nil
		}},
}

// TestOtherMessagesLostOnce loses the messages that a plain connection does not have. Most
// are repeated when they are asked for again. Three are sent once, when their id goes: then
// the peer learns it by its own timers, or, of an end that was destroyed, not at all.
//
// req: CM-TIME-02 CM-TIME-05
func TestOtherMessagesLostOnce(t *testing.T) {
	for _, c := range plots {
		t.Run(c.lose.String()+"/"+c.name, func(t *testing.T) {
			lastOf := func(lose bool) (a, b EventType, status int) {
				w := newWorld(t, 2, nil)
				na, nb := w.nodes[0], w.nodes[1]
				if c.serve != nil {
					nb.onEv = func(e Event) { c.serve(w, e) }
				}
				typ := ib.QPTypeRC
				if c.space == PSUDP {
					typ = ib.QPTypeUD
				}
				if c.space != PSIB { // where nobody listens
					nb.listen(c.space, typ, 7, 0)
				}
				var lost *int
				if lose {
					w.fate, lost = loses(c.lose)
				}
				id := na.resolved(c.space, typ, Addr{}, nb.addr(7))
				require.NoError(t, id.Connect(w.now, ConnParam{QPN: 0x55}))
				if c.play != nil {
					c.play(w, id)
				}
				w.run(5 * time.Minute)
				require.True(t, !lose || *lost == 1, "it was sent and lost")
				last := na.events[len(na.events)-1]
				a, status = last.Type, last.Status
				if len(nb.events) > 0 {
					b = nb.events[len(nb.events)-1].Type
				}
				for _, n := range w.nodes {
					for len(n.m.ids) > 0 {
						n.m.ids[0].Destroy(w.now)
					}
				}
				w.run(time.Hour)
				w.checkEmpty()
				return a, b, status
			}
			a, b, status := lastOf(false)
			require.Equal(t, [3]any{c.a, c.b, c.status}, [3]any{a, b, status}, "on a perfect network")
			wantB := c.b
			if c.lostB != 0 {
				wantB = c.lostB
			}
			a, b, status = lastOf(true)
			require.Equal(t, [3]any{c.a, wantB, c.status}, [3]any{a, b, status}, "with the loss")
		})
	}
}

// vanished is a state that an exchange is in when its peer vanishes for good.
type vanished struct {
	side   string
	make   func(*peer, state) *ID
	state  state
	next   func(*peer, *ID) // what the program does, who knows of nothing
	event  EventType        // what it learns at last
	status int              // of the event that tells of the silence, if one does
}

var vanishings = []vanished{
	{"active", (*peer).active, stREQSent, nil, EventUnreachable, -110},
	{"active", (*peer).active, stMRAREQRcvd, nil, EventUnreachable, -110},
	{"active", (*peer).active, stREPRcvd, confirms, EventTimeWaitExit, -110},
	{"active", (*peer).active, stREPRcvd, nil, EventConnectResponse, 0}, // nothing is awaited of the peer
	{"active", (*peer).active, stEstablished, leaves, EventTimeWaitExit, -110},
	{"active", (*peer).active, stDREQSent, nil, EventTimeWaitExit, -110},
	{"active", (*peer).active, stDREQRcvd, leaves, EventTimeWaitExit, 0},
	{"active", (*peer).active, stTimeWait, nil, EventTimeWaitExit, 0},
	{"passive", (*peer).passive, stREQRcvd, accepting, EventUnreachable, -110},
	{"passive", (*peer).passive, stREQRcvd, nil, EventConnectRequest, 0},
	{"passive", (*peer).passive, stREPSent, nil, EventUnreachable, -110},
	{"passive", (*peer).passive, stMRAREPRcvd, nil, EventUnreachable, -110},
	{"passive", (*peer).passive, stEstablished, leaves, EventTimeWaitExit, -110},
	{"passive", (*peer).passive, stDREQSent, nil, EventTimeWaitExit, -110},
	{"passive", (*peer).passive, stDREQRcvd, leaves, EventTimeWaitExit, 0},
	{"passive", (*peer).passive, stTimeWait, nil, EventTimeWaitExit, 0},
	{"active", (*peer).asksDatagrams, stSIDRSent, nil, EventUnreachable, -110},
	{"passive", (*peer).askedDatagrams, stSIDRRcvd, accepting, EventConnectRequest, 0}, // the answer is the end of it
}

func leaves(p *peer, id *ID) { require.NoError(p.w.t, id.Disconnect(p.w.now)) }

func confirms(p *peer, id *ID) {
	require.NoError(p.w.t, id.Establish(p.w.now))
	leaves(p, id)
}

func accepting(p *peer, id *ID) { require.NoError(p.w.t, id.Accept(p.w.now, ConnParam{QPN: 0x55})) }

// asksDatagrams and askedDatagrams are exchanges about datagrams.
func (p *peer) asksDatagrams(state) *ID {
	id := p.n.resolved(PSUDP, ib.QPTypeUD, Addr{}, AddrOf(p.gid, 7))
	require.NoError(p.w.t, id.Connect(p.w.now, ConnParam{}))
	p.w.flush()
	return id
}

func (p *peer) askedDatagrams(state) *ID {
	p.n.listen(PSUDP, ib.QPTypeUD, 7, 0)
	r := &SIDRReq{RequestID: 9, PKey: 0xffff, ServiceID: NewServiceID(PSUDP, 7)}
	PrivateHeader{IPVersion: 4, Src: p.gid, Dst: p.n.gid}.Put(r.Private[:])
	p.send(r)
	return p.n.last(EventConnectRequest).ID
}

// TestVanish: the peer is gone for good in each state of either side. Everything ends by
// itself once the program has done its part, and at once if it destroys the id.
//
// req: CM-TIME-03
func TestVanish(t *testing.T) {
	seen := map[state]bool{stIdle: true} // no exchange
	for _, c := range vanishings {
		t.Run(c.side+"/"+c.state.String()+"/"+c.event.String(), func(t *testing.T) {
			for _, patient := range []bool{true, false} {
				w := newWorld(t, 1, nil)
				p := newPeer(w)
				id := c.make(p, c.state)
				require.Equal(t, c.state, id.conn.state)
				seen[c.state] = true
				if patient {
					if c.next != nil {
						c.next(p, id)
					}
					w.run(5 * time.Minute)
					types := p.n.types(id)
					require.Equal(t, c.event, types[len(types)-1])
					worst := 0
					for _, e := range p.n.events {
						worst = min(worst, e.Status)
					}
					require.Equal(t, c.status, worst, "of DISCONNECTED or UNREACHABLE, if anything was awaited")
				}
				for len(p.n.m.ids) > 0 {
					p.n.m.ids[0].Destroy(w.now)
				}
				w.run(5 * time.Second) // TIMEWAIT
				w.checkEmpty()
			}
		})
	}
	for s := range state(len(stateNames)) {
		require.True(t, seen[s], "%v is not in the table", s)
	}
}
