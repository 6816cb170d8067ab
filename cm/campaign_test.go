package cm

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

var worldsFlag = flag.Int("cm.worlds", 300, "random worlds of TestCampaign")

// story is a whole connection that two programs carry out by themselves: connect, talk
// for hold, the client disconnects, both destroy.
type story struct {
	w    *world
	a, b *ID
	done map[*ID]bool
	keep bool // ids stay until TIMEWAIT_EXIT
	up   int
}

// program answers the events of a node as most programs do.
func (s *story) program(n *node) func(Event) {
	return func(e Event) {
		t, now := s.w.t, s.w.now
		switch e.Type {
		case EventConnectRequest:
			s.b = e.ID
			require.NoError(t, e.ID.Accept(now, ConnParam{QPN: n.qpn(), RNRRetryCount: 7}))
		case EventConnectResponse:
			require.NoError(t, e.ID.Establish(now))
			s.up++
		case EventEstablished:
			s.up++
		case EventDisconnected:
			require.NoError(t, e.ID.Disconnect(now))
			if !s.keep {
				e.ID.Destroy(now)
				s.done[e.ID] = true
			}
		case EventTimeWaitExit, EventRejected, EventUnreachable:
			e.ID.Destroy(now)
			s.done[e.ID] = true
		}
	}
}

func newStory(t testing.TB, keep bool) *story {
	s := &story{w: newWorld(t, 2, nil), done: map[*ID]bool{}, keep: keep}
	for _, n := range s.w.nodes {
		n.onEv = s.program(n)
	}
	return s
}

// run plays the story. The fate of messages is the world's.
func (s *story) run() {
	w := s.w
	na, nb := w.nodes[0], w.nodes[1]
	l := nb.listen(PSTCP, ib.QPTypeRC, 7471, 0)
	s.a = na.resolved(PSTCP, ib.QPTypeRC, Addr{}, nb.addr(7471))
	require.NoError(w.t, s.a.Connect(w.now, ConnParam{QPN: na.qpn(), RetryCount: 7, RNRRetryCount: 7}))
	w.run(20 * time.Second)
	if s.up == 2 {
		require.NoError(w.t, s.a.Disconnect(w.now))
	}
	w.run(20 * time.Minute)
	l.Destroy(w.now)
	w.flush()
}

// TestEachMessageLostOnce loses, repeats, or delays each message of a connection once.
// Both programs must see what they see on a perfect network.
//
// req: CM-TIME-02
func TestEachMessageLostOnce(t *testing.T) {
	for _, keep := range []bool{false, true} {
		perfect := newStory(t, keep)
		perfect.run()
		require.Len(t, perfect.w.sent, 5)
		perfect.w.checkEmpty()
		wantA, wantB := perfect.w.nodes[0].types(perfect.a), perfect.w.nodes[1].types(perfect.b)
		require.Equal(t, []EventType{EventAddrResolved, EventRouteResolved, EventConnectResponse, EventDisconnected}, wantA[:4])
		for _, fate := range []struct {
			name   string
			delays []time.Duration
		}{
			{"lost", nil}, {"twice", []time.Duration{latency, latency}}, {"later again", []time.Duration{latency, 3 * time.Second}},
			{"late", []time.Duration{5 * time.Second}},
		} {
			for i := range perfect.w.sent {
				name := fmt.Sprintf("keep %v, message %d (%v) %s", keep, i, DecodeHeader(perfect.w.sent[i][:]).Attr, fate.name)
				s := newStory(t, keep)
				s.w.fate = func(n int, _ *Packet) []time.Duration {
					if n == i {
						return fate.delays
					}
					return []time.Duration{latency}
				}
				s.run()
				require.Equal(t, wantA, s.w.nodes[0].types(s.a), "%s: %v", name, s.w.log)
				require.Equal(t, wantB, s.w.nodes[1].types(s.b), "%s: %v", name, s.w.log)
				s.w.checkEmpty()
			}
		}
	}
}

// TestBothDisconnect: both sides disconnect at once; each sees one DISCONNECTED and has
// to disconnect once more.
//
// req: CM-DISC-02
func TestBothDisconnect(t *testing.T) {
	w := newWorld(t, 2, nil)
	a, b := w.established()
	require.NoError(t, a.Disconnect(w.now))
	require.NoError(t, b.Disconnect(w.now))
	w.run(10 * latency)
	require.Equal(t, [2]state{stDREQRcvd, stDREQRcvd}, [2]state{a.conn.state, b.conn.state})
	require.NoError(t, a.Disconnect(w.now))
	w.run(10 * latency)
	require.Equal(t, stTimeWait, b.conn.state, "the DREP of the peer ends the wait for the program")
	require.NoError(t, b.Disconnect(w.now))
	w.run(time.Minute)
	for i, id := range []*ID{a, b} {
		types := w.nodes[i].types(id)
		require.Equal(t, []EventType{EventDisconnected, EventTimeWaitExit}, types[len(types)-2:])
		require.Equal(t, 1, count(types, EventDisconnected))
	}
}

// TestBothConnect: two nodes connect to each other at once; these are two connections.
//
// req: CM-CONN-07
func TestBothConnect(t *testing.T) {
	w := newWorld(t, 2, nil)
	var ids []*ID
	for i, n := range w.nodes {
		n.onEv = (&story{w: w, done: map[*ID]bool{}}).program(n)
		n.listen(PSTCP, ib.QPTypeRC, 7, 0)
		ids = append(ids, n.resolved(PSTCP, ib.QPTypeRC, Addr{}, w.nodes[1-i].addr(7)))
	}
	for i, id := range ids {
		require.NoError(t, id.Connect(w.now, ConnParam{QPN: w.nodes[i].qpn()}))
	}
	w.run(time.Second)
	for i, n := range w.nodes {
		require.Equal(t, stEstablished, ids[i].conn.state)
		require.Equal(t, 1, count(eventTypes(n.events), EventEstablished))
	}
}

// TestSelf connects a node with itself.
//
// req: CM-CONN-07
func TestSelf(t *testing.T) {
	w := newWorld(t, 1, nil)
	n := w.nodes[0]
	s := &story{w: w, done: map[*ID]bool{}}
	n.onEv = s.program(n)
	n.listen(PSTCP, ib.QPTypeRC, 7, 0)
	a := n.resolved(PSTCP, ib.QPTypeRC, Addr{}, n.addr(7))
	require.NoError(t, a.Connect(w.now, ConnParam{QPN: n.qpn()}))
	w.run(time.Second)
	require.Equal(t, 2, s.up)
	require.NoError(t, a.Disconnect(w.now))
	w.run(time.Minute)
	require.Equal(t, 2, count(eventTypes(n.events), EventDisconnected))
}

// TestStorm connects 1,000 ids at once, to a backlog of 128 that is fetched in time, and
// takes them all down again.
//
// req: CM-CONN-08
func TestStorm(t *testing.T) {
	w := newWorld(t, 2, nil)
	na, nb := w.nodes[0], w.nodes[1]
	s := &story{w: w, done: map[*ID]bool{}}
	na.onEv, nb.onEv = s.program(na), s.program(nb)
	l := nb.listen(PSTCP, ib.QPTypeRC, 7, 128)
	ids := make([]*ID, 1000)
	for i := range ids {
		ids[i] = na.resolved(PSTCP, ib.QPTypeRC, Addr{}, nb.addr(7))
	}
	for _, id := range ids {
		require.NoError(t, id.Connect(w.now, ConnParam{QPN: na.qpn()}))
	}
	w.run(time.Second)
	require.Equal(t, 2000, s.up)
	for _, id := range ids {
		require.NoError(t, id.Disconnect(w.now))
	}
	w.run(time.Minute)
	require.Len(t, s.done, 2000)
	l.Destroy(w.now)
	w.checkEmpty()
}

func eventTypes(es []Event) (out []EventType) {
	for _, e := range es {
		out = append(out, e.Type)
	}
	return out
}

func count(types []EventType, t EventType) (n int) {
	for _, x := range types {
		if x == t {
			n++
		}
	}
	return n
}

// grammar checks the order of an id's events.
func grammar(t testing.TB, types []EventType) {
	next := map[EventType][]EventType{
		EventAddrResolved:    {EventRouteResolved},
		EventRouteResolved:   {EventConnectResponse, EventRejected, EventUnreachable, EventEstablished},
		EventConnectRequest:  {EventEstablished, EventRejected, EventUnreachable, EventDisconnected},
		EventConnectResponse: {EventRejected, EventDisconnected},
		EventEstablished:     {EventRejected, EventDisconnected},
		EventDisconnected:    {EventTimeWaitExit},
	}
	for i := 1; i < len(types); i++ {
		require.True(t, slices.Contains(next[types[i-1]], types[i]), "%v", types)
	}
}

// chaos is a world in which programs do at random what their ids allow.
type chaos struct {
	w   *world
	rng *rand.Rand
	ids []*ID
}

func (c *chaos) program(n *node) func(Event) {
	return func(e Event) {
		if e.Type == EventConnectRequest {
			c.ids = append(c.ids, e.ID)
		}
		if c.rng.IntN(4) > 0 { // most programs answer at once
			c.act(n, e.ID, 0)
		}
	}
}

// act does something to an id; first says which of the possible things come first.
func (c *chaos) act(n *node, id *ID, first int) {
	now := c.w.now
	switch pick := first + c.rng.IntN(20); {
	case pick < 12 && id.conn != nil && id.conn.state == stREQRcvd:
		_ = id.Accept(now, ConnParam{QPN: n.qpn(), Private: make([]byte, c.rng.IntN(200))})
	case pick < 12 && id.conn != nil && id.conn.state == stREPRcvd:
		_ = id.Establish(now)
	case pick < 12 && id.conn != nil && id.conn.state == stSIDRRcvd:
		_ = id.Accept(now, ConnParam{QPN: n.qpn()})
	case pick < 12 && id.conn != nil && id.conn.state == stDREQRcvd:
		_ = id.Disconnect(now)
	case pick == 13:
		_ = id.Reject(now, 0, nil)
	case pick == 14:
		_ = id.Disconnect(now)
	case pick == 15:
		_ = id.Establish(now)
	case pick == 16:
		_ = id.Notify(now, ib.EventCommEst)
	case pick == 17:
		_ = id.Accept(now, ConnParam{QPN: 1})
	case pick == 18:
		id.Destroy(now)
	}
}

func (c *chaos) connect() {
	i := c.rng.IntN(len(c.w.nodes))
	n, to := c.w.nodes[i], c.w.nodes[c.rng.IntN(len(c.w.nodes))]
	space, typ := PSTCP, ib.QPTypeRC
	if c.rng.IntN(4) == 0 {
		space, typ = PSUDP, ib.QPTypeUD
	}
	id, err := n.m.CreateID(space, typ)
	require.NoError(c.w.t, err)
	c.ids = append(c.ids, id)
	require.NoError(c.w.t, id.ResolveAddr(c.w.now, Addr{}, to.addr(uint16(7+c.rng.IntN(2))), time.Second))
	require.NoError(c.w.t, id.ResolveRoute(c.w.now, time.Second))
	require.NoError(c.w.t, id.Connect(c.w.now, ConnParam{QPN: n.qpn(), Private: make([]byte, c.rng.IntN(57))}))
}

// TestCampaign runs random worlds under loss, repetition and reordering. At any time the
// tables agree with the exchanges; at the end, when all ids are gone, nothing is left.
func TestCampaign(t *testing.T) {
	for seed := range uint64(*worldsFlag) {
		c := &chaos{w: newWorld(t, 2+int(seed%2), func(i int, cfg *Config) { cfg.Seed = seed*8 + uint64(i) }), rng: rand.New(rand.NewPCG(seed, 1))}
		w := c.w
		w.fate = lossy(c.rng, c.rng.Float64()*0.4, c.rng.Float64()*0.3, c.rng.Float64()*0.5)
		for _, n := range w.nodes {
			n.onEv = c.program(n)
			n.listen(PSTCP, ib.QPTypeRC, 7, 1+c.rng.IntN(3))
			n.listen(PSUDP, ib.QPTypeUD, 7, 1+c.rng.IntN(3))
		}
		for range 5 + c.rng.IntN(10) {
			c.connect()
			w.run(time.Duration(c.rng.Int64N(int64(8 * time.Second))))
			for _, id := range slices.Clone(c.ids) {
				if c.rng.IntN(6) == 0 && !id.destroyed {
					c.act(w.nodeOf(id), id, c.rng.IntN(2))
				}
			}
		}
		w.run(2 * time.Minute)
		for _, n := range w.nodes {
			for _, id := range c.ids {
				grammar(t, n.types(id))
			}
			for len(n.m.ids) > 0 {
				n.m.ids[0].Destroy(w.now)
			}
		}
		w.run(time.Hour)
		w.checkEmpty()
	}
}

func (w *world) nodeOf(id *ID) *node {
	for _, n := range w.nodes {
		if n.m == id.m {
			return n
		}
	}
	return nil
}

// TestDeterminism: the same seed gives the same messages.
func TestDeterminism(t *testing.T) {
	play := func() []MAD {
		s := newStory(t, true)
		s.w.fate = lossy(rand.New(rand.NewPCG(3, 4)), 0.3, 0.3, 0.3)
		s.run()
		return s.w.sent
	}
	require.Equal(t, play(), play())
}

// FuzzReceive sends anything to a manager that has an exchange in every state, and then
// time and the programs take their course. A datagram is 1 byte that selects what is
// forged into it, and its bytes.
func FuzzReceive(f *testing.F) {
	for _, c := range captures {
		for _, m := range captureOf(f, c.name) {
			for sel := range byte(16) {
				f.Add(append([]byte{sel}, m.mad[:]...))
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWorld(t, 1, nil)
		p := newPeer(w)
		p.w.fate = func(int, *Packet) []time.Duration { return nil }
		n := p.n
		est := p.passiveAll()
		for len(data) > 0 {
			sel, k := data[0], min(len(data)-1, MADBytes)
			mad := append([]byte(nil), data[1:1+k]...)
			data = data[1+k:]
			if sel&8 != 0 && len(mad) >= HeaderBytes+12 {
				// Make it about an exchange that exists.
				c := est[int(sel&7)%len(est)]
				be.PutUint32(mad[HeaderBytes:], uint32(c.remoteID))
				be.PutUint32(mad[HeaderBytes+4:], uint32(c.localID))
			}
			n.m.Receive(w.now, n.port, &wire.Path{Src: p.gid, Dst: n.gid}, mad)
			n.m.check(t)
			w.run(time.Duration(sel) * 100 * time.Millisecond)
		}
		for len(n.m.ids) > 0 {
			n.m.ids[0].Destroy(w.now)
			n.m.check(t)
		}
		w.run(24 * time.Hour)
		w.checkEmpty()
	})
}

// passiveAll makes exchanges in several states.
func (p *peer) passiveAll() (out []*conn) {
	l := p.n.listen(PSTCP, ib.QPTypeRC, 7, 0)
	p.n.listen(PSUDP, ib.QPTypeUD, 7, 0)
	for i := range CommID(6) {
		p.send(p.req(100+i, ib.QPN(200+i)))
		id := p.n.last(EventConnectRequest).ID
		out = append(out, id.conn)
		if i == 0 {
			continue
		}
		require.NoError(p.w.t, id.Accept(p.w.now, ConnParam{QPN: 0x55}))
		if i == 1 {
			continue
		}
		p.send(&RTU{LocalCommID: 100 + i, RemoteCommID: id.conn.localID})
		switch i {
		case 3:
			_ = id.Disconnect(p.w.now)
		case 4, 5:
			p.send(&DREQ{LocalCommID: 100 + i, RemoteCommID: id.conn.localID, RemoteQPN: 0x55})
		}
		if i == 5 {
			_ = id.Disconnect(p.w.now)
		}
	}
	_ = l
	id := p.n.resolved(PSTCP, ib.QPTypeRC, Addr{}, AddrOf(p.gid, 7))
	require.NoError(p.w.t, id.Connect(p.w.now, ConnParam{QPN: 0x55}))
	p.w.flush()
	return append(out, id.conn)
}
