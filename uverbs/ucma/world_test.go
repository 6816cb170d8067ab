package ucma

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/uverbs"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// world is two nodes with an rdma_cm device each, a network that delivers at once, and
// virtual time.
type world struct {
	t     testing.TB
	now   vtime.Time
	nodes []*node
	wire  []flight
	// lose decides about messages on their way; nil loses none.
	lose func(from int, a cm.Attr) bool
}

type flight struct {
	from *node
	p    cm.Packet
}

// node implements Host.
type node struct {
	w      *world
	num    int
	m      *cm.Manager
	port   *cm.Port
	gid    ib.GID
	dev    *Device
	groups map[ib.GID]int
	inodes uint64
	// What the device has told as a TroubleHost, with the owner of the channel.
	refused []trouble
	failed  []trouble
}

type trouble struct {
	owner any
	err   error
	event cm.EventType
}

var _ TroubleHost = (*node)(nil)

// Refused implements TroubleHost.
func (n *node) Refused(ch *Channel, err error) {
	n.refused = append(n.refused, trouble{owner: ch.Owner, err: err})
}

// Failed implements TroubleHost.
func (n *node) Failed(ch *Channel, e *cm.Event) {
	n.failed = append(n.failed, trouble{owner: ch.Owner, event: e.Type})
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, now: 1}
	for i := range 2 {
		cfg := cm.DefaultConfig()
		cfg.Seed = uint64(i + 1)
		m, err := cm.New(cfg)
		require.NoError(t, err)
		n := &node{w: w, num: i, m: m, gid: ib.GIDFromIPv4(10, 77, 0, byte(i+1)), groups: map[ib.GID]int{}, inodes: 1000}
		n.port, err = m.AddPort(cm.PortConfig{Name: fmt.Sprint("rvt", i), GUID: 0x505400fffe770001 + uint64(i), GIDs: []ib.GID{n.gid}, MTU: ib.MTU1024, AckDelay: 15})
		require.NoError(t, err)
		n.dev = NewDevice(n)
		w.nodes = append(w.nodes, n)
	}
	return w
}

// Do implements Host.
func (n *node) Do(f func(m *cm.Manager, now vtime.Time) error) error {
	err := f(n.m, n.w.now)
	n.flush()
	return err
}

func (n *node) flush() {
	var out [8]cm.Packet
	for k := n.m.Emit(out[:]); k > 0; k = n.m.Emit(out[:]) {
		for _, p := range out[:k] {
			n.w.wire = append(n.w.wire, flight{n, p})
		}
	}
	var evs [8]cm.Event
	for k := n.m.PollEvents(evs[:]); k > 0; k = n.m.PollEvents(evs[:]) {
		n.dev.HandleEvents(evs[:k])
	}
}

// JoinGroup implements Host.
func (n *node) JoinGroup(g ib.GID) error {
	if g == ib.GIDFromIPv4(239, 0, 0, 99) {
		return ib.NewVerbError(ib.ENODEV, "join", "", "the network says no")
	}
	n.groups[g]++
	return nil
}

// LeaveGroup implements Host.
func (n *node) LeaveGroup(g ib.GID) {
	if n.groups[g]--; n.groups[g] == 0 {
		delete(n.groups, g)
	}
}

// settle delivers what is on the wire until nothing is.
func (w *world) settle() {
	for len(w.wire) > 0 {
		f := w.wire[0]
		w.wire = w.wire[1:]
		if w.lose != nil && w.lose(f.from.num, cm.DecodeHeader(f.p.MAD[:]).Attr) {
			continue
		}
		for _, n := range w.nodes {
			if n.gid == f.p.AV.DGID {
				n.m.Receive(w.now, n.port, &wire.Path{Src: f.from.gid, Dst: n.gid, HopLimit: 64}, f.p.MAD[:])
				n.flush()
			}
		}
	}
}

// pass lets time pass, in steps of deadlines.
func (w *world) pass(d time.Duration) {
	w.settle()
	for end := w.now.Add(d); ; {
		next := vtime.Min(w.nodes[0].m.Deadline(), w.nodes[1].m.Deadline())
		if next > end {
			w.now = end
			return
		}
		w.now = next
		for _, n := range w.nodes {
			n.m.Expire(w.now)
			n.flush()
		}
		w.settle()
	}
}

// program is an open channel, and the memory of its program: the answers.
type program struct {
	t     testing.TB
	n     *node
	ch    *Channel
	ready bool
	sets  int
	mem   *mr.Slice
}

// Set implements Signal.
func (p *program) Set(readable bool) { p.ready = readable; p.sets++ }

func (n *node) open() *program {
	p := &program{t: n.w.t, n: n, mem: mr.NewSlice(0x1000, make([]byte, 512))}
	n.inodes++
	p.ch = n.dev.Open(n.inodes, p)
	return p
}

// inodeOf is what descriptors of a test program refer to: number n is inode n.
func inodeOf(fd int32) (uint64, bool) { return uint64(fd), fd > 0 }

const answerAt = 0xabc000

// try writes a command with so much room for the answer.
func (p *program) try(cmd uint32, room int, v any) ([]byte, ib.Errno) {
	p.t.Helper()
	body := encode(v)
	b := binary.NativeEndian.AppendUint32(nil, cmd)
	b = binary.NativeEndian.AppendUint16(b, uint16(len(body)))
	b = binary.NativeEndian.AppendUint16(b, uint16(room))
	r := p.ch.Write(&uverbs.Caller{Mem: p.mem}, append(b, body...), inodeOf)
	if len(r.Out) > 0 && r.OutAddr != answerAt {
		p.t.Errorf("the answer goes to %#x", r.OutAddr)
	}
	if r.Errno != 0 && len(r.Out) > 0 {
		p.t.Errorf("an answer beside %v", r.Errno)
	}
	return r.Out, r.Errno
}

// do writes a command that must succeed.
func (p *program) do(cmd uint32, room int, v any) []byte {
	p.t.Helper()
	out, errno := p.try(cmd, room, v)
	require.Zero(p.t, errno, "%s: %v", methods[cmd].verb, errno)
	return out
}

// fails writes a command that must fail.
func (p *program) fails(want ib.Errno, cmd uint32, room int, v any) {
	p.t.Helper()
	_, errno := p.try(cmd, room, v)
	require.Equal(p.t, want, errno, methods[cmd].verb)
}

func (p *program) create(ps cm.PortSpace, uid uint64) uint32 {
	p.t.Helper()
	return native.Uint32(p.do(cmdCreateID, 4, &createIDCmd{UID: uid, Response: answerAt, PS: uint16(ps), QPType: uint8(ib.QPTypeRC)}))
}

func (p *program) destroy(id uint32) (reported uint32) {
	p.t.Helper()
	return native.Uint32(p.do(cmdDestroyID, 4, &idCmd{Response: answerAt, ID: id}))
}

func ip4(last byte, port uint16) (a sin6) {
	putAddr(a[:], cm.IPv4(10, 77, 0, last, port))
	return a
}

// got is an event as the program reads it.
type got struct {
	eventResp
	conn connParam
	ud   udParam
	ece  ece
}

func (p *program) tryEvent() (got, ib.Errno) {
	p.t.Helper()
	var e got
	out, errno := p.try(cmdGetEvent, eventBytes, &getEventCmd{answerAt})
	if errno != 0 {
		return e, errno
	}
	require.Len(p.t, out, eventBytes)
	_, err := binary.Decode(out, native, &e.eventResp)
	require.NoError(p.t, err)
	_, err = binary.Decode(out[eventParamOff:], native, &e.conn)
	require.NoError(p.t, err)
	_, err = binary.Decode(out[eventParamOff:], native, &e.ud)
	require.NoError(p.t, err)
	_, err = binary.Decode(out[eventECEOff:], native, &e.ece)
	require.NoError(p.t, err)
	return e, 0
}

// event is the next event, which must be of this type.
func (p *program) event(want cm.EventType) got {
	p.t.Helper()
	require.True(p.t, p.ready, "the descriptor is not readable, want %v", want)
	e, errno := p.tryEvent()
	require.Zero(p.t, errno)
	require.Equal(p.t, want, cm.EventType(e.Event), "status %d", e.Status)
	return e
}

// quiet makes sure that no event waits.
func (p *program) quiet() {
	p.t.Helper()
	require.False(p.t, p.ready, "the descriptor is readable")
	_, errno := p.tryEvent()
	require.Equal(p.t, ib.EAGAIN, errno)
}

// listener makes a listening id on a port.
func (p *program) listener(ps cm.PortSpace, uid uint64, port uint16, backlog int32) uint32 {
	p.t.Helper()
	id := p.create(ps, uid)
	p.do(cmdBindIP, 0, &bindIPCmd{Response: answerAt, Addr: ip4(byte(p.n.num+1), port), ID: id})
	p.do(cmdListen, 0, &idValueCmd{id, backlog})
	return id
}

// resolved makes an id with a route to a port of the other node.
func (p *program) resolved(ps cm.PortSpace, uid uint64, port uint16) uint32 {
	p.t.Helper()
	id := p.create(ps, uid)
	p.do(cmdResolveIP, 0, &resolveIPCmd{Dst: ip4(byte(2-p.n.num), port), ID: id, Timeout: 2000})
	p.event(cm.EventAddrResolved)
	p.do(cmdResolveRoute, 0, &idValueCmd{id, 2000})
	p.event(cm.EventRouteResolved)
	return id
}

// param are connection parameters with private data of n bytes: 1, 2, 3...
func param(qpn uint32, n int) connParam {
	c := connParam{QPNum: qpn, PrivateLen: uint8(n), ResponderResources: 3, InitiatorDepth: 5, RetryCount: 7, RNRRetryCount: 6, Valid: 1}
	for i := range n {
		c.Private[i] = byte(i + 1)
	}
	return c
}

func (p *program) connect(id, qpn uint32, private int) {
	p.t.Helper()
	p.do(cmdConnect, 0, &connectCmd{Conn: param(qpn, private), ID: id})
	p.n.w.settle()
}

func (p *program) accept(id uint32, uid uint64, qpn uint32, private int) {
	p.t.Helper()
	p.do(cmdAccept, 0, &acceptCmd{UID: uid, Conn: param(qpn, private), ID: id})
	p.n.w.settle()
}

// confirm is the active side's accept.
func (p *program) confirm(id uint32) {
	p.t.Helper()
	p.do(cmdAccept, 0, &acceptCmd{ID: id})
	p.n.w.settle()
}

// connected sets up a connection from client to server, who listens on port.
func connected(client, server *program, port uint16) (cid, sid uint32) {
	client.t.Helper()
	cid = client.resolved(cm.PSTCP, 0xc11e, port)
	client.connect(cid, 0x11, 0)
	sid = server.event(cm.EventConnectRequest).ID
	server.accept(sid, 0x5e4, 0x12, 0)
	client.event(cm.EventConnectResponse)
	client.confirm(cid)
	server.event(cm.EventEstablished)
	return cid, sid
}
