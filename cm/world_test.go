package cm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// node is a manager with one port in a world.
type node struct {
	w      *world
	name   string
	m      *Manager
	port   *Port
	gid    ib.GID
	events []Event
	onEv   func(Event) // called for each event, after it was appended
	nextQP ib.QPN
}

// flight is a message under way.
type flight struct {
	at   vtime.Time
	seq  int
	path wire.Path
	mad  MAD
}

// world is some nodes and a network in virtual time.
type world struct {
	t     testing.TB
	now   vtime.Time
	nodes []*node
	fly   []flight
	seq   int
	log   []string
	sent  []MAD
	// fate decides about the n-th message sent, from 0: when its copies arrive. nil is
	// once, after latency.
	fate func(n int, p *Packet) []time.Duration
}

const latency = time.Millisecond

func newWorld(t testing.TB, n int, edit func(i int, c *Config)) *world {
	w := &world{t: t, now: 1}
	for i := range n {
		cfg := DefaultConfig()
		cfg.Seed = uint64(i + 1)
		cfg.PacketLifeTime = 18
		if edit != nil {
			edit(i, &cfg)
		}
		m, err := New(cfg)
		require.NoError(t, err)
		gid := ib.GIDFromIPv4(10, 77, 0, byte(i+1))
		p, err := m.AddPort(PortConfig{Name: fmt.Sprint("rvt", i), GUID: 0x505400fffe770001 + uint64(i), GIDs: []ib.GID{gid}, MTU: ib.MTU1024, AckDelay: 15})
		require.NoError(t, err)
		w.nodes = append(w.nodes, &node{w: w, name: string(rune('A' + i)), m: m, port: p, gid: gid, nextQP: 0x11})
	}
	return w
}

// flush takes what the nodes have to send and to tell, until there is nothing more.
func (w *world) flush() {
	for again := true; again; {
		again = false
		for _, n := range w.nodes {
			var out [4]Packet
			for k := n.m.Emit(out[:]); k > 0; k = n.m.Emit(out[:]) {
				for i := range out[:k] {
					w.transmit(n, &out[i])
				}
				again = true
			}
			var ev [4]Event
			for k := n.m.PollEvents(ev[:]); k > 0; k = n.m.PollEvents(ev[:]) {
				for _, e := range ev[:k] {
					n.events = append(n.events, e)
					if e.Type == EventConnectRequest {
						e.ID.Fetched()
					}
					if n.onEv != nil {
						n.onEv(e)
					}
				}
				again = true
			}
		}
	}
}

func (w *world) transmit(n *node, p *Packet) {
	num := len(w.sent)
	w.sent = append(w.sent, p.MAD)
	w.log = append(w.log, fmt.Sprintf("%v %s %v", w.now, n.name, DecodeHeader(p.MAD[:]).Attr))
	delays := []time.Duration{latency}
	if w.fate != nil {
		delays = w.fate(num, p)
	}
	for _, d := range delays {
		w.seq++
		w.fly = append(w.fly, flight{w.now.Add(d), w.seq, wire.Path{Src: p.Port.GIDs[p.AV.SGIDIndex], Dst: p.AV.DGID, TClass: p.AV.TrafficClass, HopLimit: 64}, p.MAD})
	}
}

// step moves time to the next thing that happens, not beyond until. It reports false if
// there is nothing.
func (w *world) step(until vtime.Time) bool {
	w.flush()
	next, which := vtime.Never, -1
	for i, f := range w.fly {
		if f.at < next || f.at == next && which >= 0 && f.seq < w.fly[which].seq {
			next, which = f.at, i
		}
	}
	for _, n := range w.nodes {
		if d := n.m.Deadline(); d < next {
			next, which = d, -1
		}
	}
	if next > until || next == vtime.Never {
		return false
	}
	w.now = max(w.now, next)
	if which >= 0 {
		f := w.fly[which]
		w.fly = append(w.fly[:which], w.fly[which+1:]...)
		for _, n := range w.nodes {
			if n.gid == f.path.Dst {
				n.m.Receive(w.now, n.port, &f.path, f.mad[:])
			}
		}
	}
	for _, n := range w.nodes {
		if n.m.Deadline() <= w.now {
			n.m.Expire(w.now)
		}
		if len(n.m.conns) < 64 || w.seq%97 == 0 {
			n.m.check(w.t) // its cost grows with the exchanges
		}
	}
	w.flush()
	return true
}

// run lets d pass.
func (w *world) run(d time.Duration) {
	until := w.now.Add(d)
	for w.step(until) {
	}
	w.now = until
}

// types returns the types of a node's events about an id.
func (n *node) types(id *ID) []EventType {
	var out []EventType
	for _, e := range n.events {
		if e.ID == id {
			out = append(out, e.Type)
		}
	}
	return out
}

func (n *node) last(t EventType) *Event {
	for i := len(n.events) - 1; i >= 0; i-- {
		if n.events[i].Type == t {
			return &n.events[i]
		}
	}
	require.Fail(n.w.t, "no such event", "%s: %v", n.name, t)
	return nil
}

func (n *node) qpn() ib.QPN {
	n.nextQP++
	return n.nextQP - 1
}

func (n *node) addr(port uint16) Addr { return AddrOf(n.gid, port) }

// listen makes a listener.
func (n *node) listen(space PortSpace, typ ib.QPType, port uint16, backlog int) *ID {
	id, err := n.m.CreateID(space, typ)
	require.NoError(n.w.t, err)
	require.NoError(n.w.t, id.Bind(Wildcard(FamilyIPv4, port)))
	require.NoError(n.w.t, id.Listen(backlog))
	return id
}

// resolved makes an id that is ready to connect.
func (n *node) resolved(space PortSpace, typ ib.QPType, src, dst Addr) *ID {
	t := n.w.t
	id, err := n.m.CreateID(space, typ)
	require.NoError(t, err)
	require.NoError(t, id.ResolveAddr(n.w.now, src, dst, time.Second))
	n.w.flush()
	require.NoError(t, id.ResolveRoute(n.w.now, time.Second))
	n.w.flush()
	require.Equal(t, []EventType{EventAddrResolved, EventRouteResolved}, n.types(id))
	return id
}

// established makes a connection; a's end connects.
func (w *world) established() (a, b *ID) {
	na, nb := w.nodes[0], w.nodes[1]
	l := nb.listen(PSTCP, ib.QPTypeRC, 7471, 0)
	a = na.resolved(PSTCP, ib.QPTypeRC, Addr{}, nb.addr(7471))
	require.NoError(w.t, a.Connect(w.now, ConnParam{QPN: na.qpn(), RetryCount: 7, RNRRetryCount: 7, ResponderResources: 3, InitiatorDepth: 5}))
	w.run(10 * latency)
	b = nb.last(EventConnectRequest).ID
	require.NoError(w.t, b.Accept(w.now, ConnParam{QPN: nb.qpn(), RNRRetryCount: 7, ResponderResources: 2, InitiatorDepth: 1}))
	w.run(10 * latency)
	require.Equal(w.t, EventConnectResponse, na.events[len(na.events)-1].Type)
	require.NoError(w.t, a.Establish(w.now))
	w.run(10 * latency)
	require.Equal(w.t, []EventType{EventConnectRequest, EventEstablished}, nb.types(b))
	l.Destroy(w.now)
	return a, b
}

// checkEmpty fails if a node still knows anything.
func (w *world) checkEmpty() {
	for _, n := range w.nodes {
		m := n.m
		require.Empty(w.t, m.conns, "%s: exchanges; log %v", n.name, w.log)
		require.Empty(w.t, m.remoteIDs, n.name)
		require.Empty(w.t, m.remoteQPNs, n.name)
		require.Empty(w.t, m.sidrs, n.name)
		require.Empty(w.t, m.ids, n.name)
		require.Empty(w.t, m.binds, n.name)
		require.Empty(w.t, m.timers, n.name)
		require.Equal(w.t, vtime.Never, m.Deadline())
	}
}

// check tests what must hold of a manager at any time.
func (m *Manager) check(t testing.TB) {
	for k, c := range m.conns {
		require.Equal(t, k, c.localID)
		armed := c.timer.pos > 0
		switch c.state {
		case stREQSent, stMRAREQRcvd, stREPSent, stMRAREPRcvd, stDREQSent, stSIDRSent, stTimeWait:
			require.True(t, armed, "%v", c)
		default:
			require.False(t, armed, "%v", c)
		}
		if c.id == nil {
			require.Equal(t, stTimeWait, c.state, "%v outlives its id", c)
		} else {
			require.Same(t, c, c.id.conn)
			require.False(t, c.id.destroyed)
		}
		inTables := m.remoteQPNs[c.qpnKey] == c
		switch c.state {
		case stREQRcvd, stREPSent, stMRAREPRcvd, stREPRcvd, stEstablished, stDREQSent, stDREQRcvd:
			require.True(t, inTables && m.remoteIDs[c.idKey] == c, "%v", c)
		default:
			require.False(t, inTables || m.remoteIDs[c.idKey] == c, "%v", c)
		}
	}
	for _, c := range m.remoteIDs {
		require.Same(t, c, m.conns[c.localID])
	}
	for i, id := range m.ids {
		require.Equal(t, i, id.pos)
	}
	for i, tm := range m.timers {
		require.Equal(t, i+1, tm.pos)
	}
	for k, ids := range m.binds {
		require.NotEmpty(t, ids)
		for _, id := range ids {
			require.True(t, id.isBound && id.bindKey == k && id.src.Port == k.port)
		}
	}
}

// lossy returns a fate that loses, repeats and delays at random.
func lossy(rng *rand.Rand, loss, dup, late float64) func(int, *Packet) []time.Duration {
	return func(int, *Packet) []time.Duration {
		var out []time.Duration
		for {
			if rng.Float64() >= loss {
				d := latency
				if rng.Float64() < late {
					d += time.Duration(rng.Int64N(int64(6 * time.Second)))
				}
				out = append(out, d)
			}
			if rng.Float64() >= dup {
				return out
			}
		}
	}
}
