package cm

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

func (n *node) id(space PortSpace, typ ib.QPType) *ID {
	id, err := n.m.CreateID(space, typ)
	require.NoError(n.w.t, err)
	return id
}

func TestCreateID(t *testing.T) {
	n := newWorld(t, 1, nil).nodes[0]
	for _, c := range []struct {
		space PortSpace
		typ   ib.QPType
		ok    bool
	}{
		{PSTCP, ib.QPTypeRC, true}, {PSTCP, ib.QPTypeUD, false}, {PSUDP, ib.QPTypeUD, true}, {PSUDP, ib.QPTypeRC, false},
		{PSIPoIB, ib.QPTypeUD, true}, {PSIB, ib.QPTypeRC, true}, {PSIB, ib.QPTypeUC, true}, {PSIB, ib.QPTypeGSI, false}, {PSIB, 9, true}, {PSIB, 10, true}, {PSTCP, 9, false}, {5, ib.QPTypeRC, false},
	} {
		_, err := n.m.CreateID(c.space, c.typ)
		require.Equal(t, c.ok, err == nil, "%v %v", c.space, c.typ)
	}
	xrc, err := n.m.CreateID(PSIB, 9)
	require.NoError(t, err)
	require.NoError(t, xrc.ResolveAddr(0, Addr{}, n.addr(9), time.Second))
	require.NoError(t, xrc.ResolveRoute(0, time.Second))
	require.Equal(t, ib.EOPNOTSUPP, ib.ErrnoOf(xrc.Connect(0, ConnParam{})))
	listens, err := n.m.CreateID(PSIB, 10)
	require.NoError(t, err)
	require.NoError(t, listens.Listen(0))
	require.Equal(t, []*ID{listens}, n.m.Listeners())
}

// TestBind checks who keeps whom from a port.
//
// req: CM-ADDR-01 CM-ADDR-02 CM-ADDR-03
func TestBind(t *testing.T) {
	v6 := ib.GID{0xfd, 15: 1}
	w := newWorld(t, 1, nil)
	n := w.nodes[0]
	_, err := n.m.AddPort(PortConfig{Name: "six", GUID: 7, GIDs: []ib.GID{v6}, MTU: ib.MTU1024})
	require.NoError(t, err)
	any4, any6, one, six := Wildcard(FamilyIPv4, 9), Wildcard(FamilyIPv6, 9), n.addr(9), AddrOf(v6, 9)
	for _, c := range []struct {
		name          string
		first, second Addr
		reuse         bool
		space         PortSpace
		want          ib.Errno
	}{
		{"same address", one, one, false, PSTCP, ib.EADDRINUSE},
		{"wildcard after address", one, any4, false, PSTCP, ib.EADDRNOTAVAIL},
		{"address after wildcard", any4, one, false, PSTCP, ib.EADDRNOTAVAIL},
		{"v6 wildcard after v4", one, any6, false, PSTCP, ib.EADDRNOTAVAIL},
		{"v4 after v6", six, one, false, PSTCP, 0},
		{"other space", one, one, false, PSUDP, 0},
		{"reuse", one, one, true, PSTCP, 0},
		{"reuse wildcard", any4, one, true, PSTCP, 0},
		{"not ours", one, IPv4(10, 9, 9, 9, 9), false, PSTCP, ib.EADDRNOTAVAIL},
		{"no address", one, Addr{}, false, PSTCP, ib.EAFNOSUPPORT},
	} {
		a := n.id(PSTCP, ib.QPTypeRC)
		typ := ib.QPTypeRC
		if c.space == PSUDP {
			typ = ib.QPTypeUD
		}
		b := n.id(c.space, typ)
		require.NoError(t, a.SetReuseAddr(c.reuse))
		require.NoError(t, b.SetReuseAddr(c.reuse))
		require.NoError(t, a.Bind(c.first), c.name)
		err := b.Bind(c.second)
		require.Equal(t, c.want, ib.ErrnoOf(err), "%s: %v", c.name, err)
		if c.want != 0 {
			require.Equal(t, IDIdle, b.State(), c.name)
			require.NoError(t, b.Bind(n.addr(0)), "%s: the id is as before", c.name)
		}
		require.Equal(t, ib.EINVAL, ib.ErrnoOf(a.Bind(c.first)), "bound twice")
		a.Destroy(1)
		b.Destroy(1)
	}
	require.Empty(t, n.m.binds)
	v6only := n.id(PSTCP, ib.QPTypeRC)
	require.NoError(t, v6only.SetAFOnly(true))
	require.NoError(t, v6only.Bind(any6))
	require.NoError(t, n.id(PSTCP, ib.QPTypeRC).Bind(one), "both are for one family only")
}

// req: CM-ADDR-01
func TestPortZero(t *testing.T) {
	n := newWorld(t, 1, func(_ int, c *Config) { c.PortLow, c.PortHigh = 100, 103 }).nodes[0]
	var ids []*ID
	used := map[uint16]bool{}
	for range 4 {
		id := n.id(PSTCP, ib.QPTypeRC)
		require.NoError(t, id.Bind(Wildcard(FamilyIPv4, 0)))
		used[id.Local().Port] = true
		ids = append(ids, id)
	}
	require.Len(t, used, 4)
	require.Equal(t, ib.EADDRNOTAVAIL, ib.ErrnoOf(n.id(PSTCP, ib.QPTypeRC).Bind(n.addr(0))))
	freed := ids[3].Local().Port
	require.Equal(t, freed, n.m.last[PSTCP])
	ids[3].Destroy(1)
	require.Error(t, n.id(PSTCP, ib.QPTypeRC).Bind(n.addr(0)), "the port given out last is not given out again at once")
	ids[0].Destroy(1)
	require.NoError(t, n.id(PSTCP, ib.QPTypeRC).Bind(n.addr(0)))
}

func TestListenRules(t *testing.T) {
	w := newWorld(t, 1, nil)
	n := w.nodes[0]
	id := n.id(PSTCP, ib.QPTypeRC)
	require.NoError(t, id.Listen(0))
	require.True(t, id.Local().IsAny() && id.Local().Port != 0, "an unbound id gets the wildcard and a port")
	require.Equal(t, 1024, id.backlogLeft)
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(id.Listen(0)))
	a, b := n.id(PSTCP, ib.QPTypeRC), n.id(PSTCP, ib.QPTypeRC)
	for _, x := range []*ID{a, b} {
		require.NoError(t, x.SetReuseAddr(true))
		require.NoError(t, x.Bind(n.addr(9)))
	}
	require.Equal(t, ib.EADDRINUSE, ib.ErrnoOf(a.Listen(0)), "a listener does not share its port")
	b.Destroy(1)
	require.NoError(t, a.Listen(0))
	require.Error(t, a.SetReuseAddr(true))
	c := n.id(PSTCP, ib.QPTypeRC)
	require.NoError(t, c.SetReuseAddr(true))
	require.Equal(t, ib.EADDRINUSE, ib.ErrnoOf(c.Bind(n.addr(9))))
}

func TestResolve(t *testing.T) {
	w := newWorld(t, 1, nil)
	n := w.nodes[0]
	for _, c := range []struct {
		name     string
		src, dst Addr
		errno    ib.Errno // of the call
		status   int      // of ADDR_ERROR
		route    ib.Errno
	}{
		{"peer", Addr{}, IPv4(10, 77, 0, 2, 5), 0, 0, 0},
		{"self", Addr{}, n.addr(5), 0, 0, 0},
		{"with source", n.addr(0), IPv4(10, 77, 0, 2, 5), 0, 0, 0},
		{"source not ours", IPv4(1, 2, 3, 4, 0), IPv4(10, 77, 0, 2, 5), ib.EADDRNOTAVAIL, 0, 0},
		{"families differ", n.addr(0), AddrOf(ib.GID{0xfd, 15: 2}, 5), ib.EINVAL, 0, 0},
		{"no destination", n.addr(0), Addr{}, ib.EINVAL, 0, 0},
		{"broadcast", Addr{}, IPv4(255, 255, 255, 255, 5), ib.ENETUNREACH, 0, 0},
		{"no port of the family", Addr{}, AddrOf(ib.GID{0xfd, 15: 2}, 5), 0, -19, 0},
		{"127.0.0.1", Addr{}, IPv4(127, 0, 0, 1, 5), 0, 0, ib.ENODEV},
		{"0.0.0.0", Addr{}, IPv4(0, 0, 0, 0, 5), 0, 0, ib.ENODEV},
	} {
		id := n.id(PSTCP, ib.QPTypeRC)
		err := id.ResolveAddr(w.now, c.src, c.dst, time.Second)
		require.Equal(t, c.errno, ib.ErrnoOf(err), c.name)
		w.flush()
		if c.errno != 0 {
			require.Empty(t, n.types(id), c.name)
			continue
		}
		if c.status != 0 {
			require.Equal(t, c.status, n.last(EventAddrError).Status, c.name)
			require.Equal(t, IDAddrBound, id.State())
			require.NoError(t, id.ResolveAddr(w.now, Addr{}, AddrOf(ib.GID{0xfd, 15: 3}, 5), time.Second), "it may resolve again")
			continue
		}
		require.Equal(t, []EventType{EventAddrResolved}, n.types(id), c.name)
		require.Equal(t, ib.EINVAL, ib.ErrnoOf(id.ResolveAddr(w.now, Addr{}, c.dst, time.Second)), "twice")
		require.Equal(t, ib.EINVAL, ib.ErrnoOf(id.ResolveRoute(w.now, 0)), "timeout 0")
		require.Equal(t, ib.EINVAL, ib.ErrnoOf(id.Connect(w.now, ConnParam{})), "connect before the route")
		require.Equal(t, c.route, ib.ErrnoOf(id.ResolveRoute(w.now, time.Second)), c.name)
		if c.route == 0 {
			require.Equal(t, ib.EINVAL, ib.ErrnoOf(id.ResolveRoute(w.now, time.Second)), "twice")
		}
	}
	ipoib := n.id(PSIPoIB, ib.QPTypeUD)
	require.NoError(t, ipoib.ResolveAddr(w.now, Addr{}, n.addr(5), time.Second))
	w.flush()
	require.Equal(t, -22, n.last(EventAddrError).Status)
}

// TestNeighbour checks a destination that answers late, or never.
//
// req: CM-ADDR-04
func TestNeighbour(t *testing.T) {
	state := ib.EAGAIN
	asked := 0
	w := newWorld(t, 1, func(_ int, c *Config) {
		c.Neighbour = func(_, _ ib.GID) ib.Errno { asked++; return state }
	})
	n := w.nodes[0]
	id := n.id(PSTCP, ib.QPTypeRC)
	require.NoError(t, id.ResolveAddr(w.now, Addr{}, IPv4(10, 77, 0, 2, 5), 500*time.Millisecond))
	w.run(500*time.Millisecond - 1)
	require.Empty(t, n.events)
	w.run(1)
	require.Equal(t, -110, n.last(EventAddrError).Status)
	require.NoError(t, id.ResolveAddr(w.now, Addr{}, IPv4(10, 77, 0, 2, 5), 6*time.Second))
	w.run(2500 * time.Millisecond)
	state = 0
	w.run(time.Second)
	require.Equal(t, []EventType{EventAddrError, EventAddrResolved}, n.types(id))
	require.Less(t, asked, 30, "nobody is asked more often the longer it takes")
	state = ib.EAGAIN
	soon := n.id(PSTCP, ib.QPTypeRC)
	require.NoError(t, soon.ResolveAddr(w.now, Addr{}, IPv4(10, 77, 0, 2, 5), 6*time.Second))
	state = 0
	w.run(time.Millisecond)
	require.Equal(t, []EventType{EventAddrResolved}, n.types(soon), "an answer is seen soon")
	require.NoError(t, n.id(PSTCP, ib.QPTypeRC).ResolveAddr(w.now, Addr{}, IPv4(239, 0, 0, 2, 5), 0), "a group has no neighbours")
	state = ib.EAGAIN
	gone := n.id(PSTCP, ib.QPTypeRC)
	require.NoError(t, gone.ResolveAddr(w.now, Addr{}, IPv4(10, 77, 0, 2, 5), 6*time.Second))
	gone.Destroy(w.now)
	w.run(time.Minute)
	require.Empty(t, n.types(gone))

	state = ib.ENETUNREACH
	id = n.id(PSTCP, ib.QPTypeRC)
	require.Equal(t, ib.ENETUNREACH, ib.ErrnoOf(id.ResolveAddr(w.now, Addr{}, IPv4(10, 77, 0, 2, 5), time.Second)), "at once, without an event")
	require.Empty(t, n.types(id))
	require.Equal(t, IDAddrBound, id.State())
	state = ib.EAGAIN
	require.NoError(t, id.ResolveAddr(w.now, Addr{}, IPv4(10, 77, 0, 2, 5), time.Second))
	state = ib.ENETUNREACH
	w.run(time.Second)
	require.Equal(t, -int(ib.ENETUNREACH), n.last(EventAddrError).Status, "the route has gone meanwhile")
}

// TestParameters checks the parameters that either side sees, and the QP attributes that
// follow from them.
//
// req: CM-CONN-02 CM-CONN-03
func TestParameters(t *testing.T) {
	w := newWorld(t, 2, nil)
	a, b := w.established()
	req, rep := w.nodes[1].last(EventConnectRequest).Conn, w.nodes[0].last(EventConnectResponse).Conn
	require.Equal(t, [2]uint8{5, 3}, [2]uint8{req.ResponderResources, req.InitiatorDepth}, "swapped")
	require.Equal(t, [2]uint8{1, 2}, [2]uint8{rep.ResponderResources, rep.InitiatorDepth}, "swapped")
	require.Len(t, req.Private, 56)
	require.Len(t, rep.Private, 196)
	attr := func(id *ID, s ib.QPState) (QPAttr, ib.AttrMask) {
		q, m, err := id.InitQPAttr(s)
		require.NoError(t, err)
		return q, m
	}
	init, mask := attr(a, ib.StateInit)
	require.Equal(t, ib.AttrMask(0x39), mask)
	require.Equal(t, ib.AccessRemoteWrite|ib.AccessRemoteRead|ib.AccessRemoteAtomic, init.AccessFlags)
	artr, mask := attr(a, ib.StateRTR)
	require.Equal(t, ib.AttrMask(0x129181), mask)
	arts, mask := attr(a, ib.StateRTS)
	require.Equal(t, ib.AttrMask(0x12e01), mask)
	brtr, _ := attr(b, ib.StateRTR)
	brts, _ := attr(b, ib.StateRTS)
	require.Equal(t, arts.SQPSN, brtr.RQPSN)
	require.Equal(t, brts.SQPSN, artr.RQPSN)
	require.NotEqual(t, arts.SQPSN, brts.SQPSN)
	require.Equal(t, [2]ib.QPN{0x11, 0x11}, [2]ib.QPN{artr.DestQPN, brtr.DestQPN})
	require.Equal(t, w.nodes[1].gid, artr.AV.DGID)
	require.Equal(t, w.nodes[0].gid, brtr.AV.DGID)
	require.Equal(t, [3]uint8{19, 7, 7}, [3]uint8{arts.Timeout, arts.RetryCnt, arts.RNRRetry})
	require.Equal(t, [3]uint8{19, 7, 7}, [3]uint8{brts.Timeout, brts.RetryCnt, brts.RNRRetry})
	// The REP says 2 and 1, and each side's window fits the other's.
	require.Equal(t, [2]uint8{1, 2}, [2]uint8{artr.MaxDestRdAtomic, arts.MaxRdAtomic})
	require.Equal(t, [2]uint8{2, 1}, [2]uint8{brtr.MaxDestRdAtomic, brts.MaxRdAtomic})
	require.Equal(t, uint8(0), artr.MinRNRTimer)
	require.Equal(t, ib.MTU1024, brtr.PathMTU)

	_, _, err := a.InitQPAttr(7)
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(err))
	require.NoError(t, a.Disconnect(w.now))
	w.run(10 * latency)
	for _, s := range []ib.QPState{ib.StateInit, ib.StateRTR, ib.StateRTS} {
		_, _, err := b.InitQPAttr(s)
		require.Equal(t, ib.EINVAL, ib.ErrnoOf(err), "after DREQ")
	}
}

// TestAttrBeforeConnection checks what the kernel gives before there is an exchange.
func TestAttrBeforeConnection(t *testing.T) {
	w := newWorld(t, 1, nil)
	n := w.nodes[0]
	id := n.id(PSTCP, ib.QPTypeRC)
	_, _, err := id.InitQPAttr(ib.StateInit)
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(err), "no device")
	id = n.resolved(PSTCP, ib.QPTypeRC, Addr{}, IPv4(10, 77, 0, 9, 1))
	q, mask, err := id.InitQPAttr(ib.StateRTR)
	require.NoError(t, err)
	require.Equal(t, ib.AttrMask(0x39), mask)
	require.Equal(t, ib.Access(0), q.AccessFlags)
	require.Equal(t, id.psn, q.RQPSN)
	ud := n.resolved(PSUDP, ib.QPTypeUD, Addr{}, IPv4(10, 77, 0, 9, 1))
	q, mask, err = ud.InitQPAttr(ib.StateRTS)
	require.NoError(t, err)
	require.Equal(t, ib.AttrMask(0x71), mask)
	require.Equal(t, QKeyUDP, q.QKey)
	require.NoError(t, id.Connect(w.now, ConnParam{QPN: 1}))
	_, _, err = id.InitQPAttr(ib.StateRTR)
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(err), "REQ_SENT")
	q, _, err = id.InitQPAttr(ib.StateInit)
	require.NoError(t, err)
	require.Equal(t, ib.AccessRemoteWrite, q.AccessFlags, "no responder resources")
}

// TestPrivateData checks every length at every limit, and that data arrive.
//
// req: CM-DATA-01 CM-DATA-02
func TestPrivateData(t *testing.T) {
	data := func(n int) []byte { return bytes.Repeat([]byte{0xa5}, n) }
	padded := func(n, size int) []byte { return append(data(n), make([]byte, size-n)...) }
	for _, n := range []int{0, 1, 56} {
		for _, k := range []int{0, 1, 92, 196} {
			w := newWorld(t, 2, nil)
			na, nb := w.nodes[0], w.nodes[1]
			nb.listen(PSTCP, ib.QPTypeRC, 7, 0)
			a := na.resolved(PSTCP, ib.QPTypeRC, Addr{}, nb.addr(7))
			require.NoError(t, a.Connect(w.now, ConnParam{QPN: 1, Private: data(n)}))
			w.run(10 * latency)
			ev := nb.last(EventConnectRequest)
			require.Equal(t, padded(n, 56), ev.Conn.Private)
			require.NoError(t, ev.ID.Accept(w.now, ConnParam{QPN: 2, Private: data(k)}))
			w.run(10 * latency)
			require.Equal(t, padded(k, 196), na.last(EventConnectResponse).Conn.Private)
		}
	}
	w := newWorld(t, 2, nil)
	na, nb := w.nodes[0], w.nodes[1]
	nb.listen(PSTCP, ib.QPTypeRC, 7, 0)
	a := na.resolved(PSTCP, ib.QPTypeRC, Addr{}, nb.addr(7))
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(a.Connect(w.now, ConnParam{Private: data(57)})))
	require.NoError(t, a.Connect(w.now, ConnParam{QPN: 1}), "a refused call changes nothing")
	w.run(10 * latency)
	b := nb.last(EventConnectRequest).ID
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(b.Reject(w.now, 0, data(149))))
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(b.Reject(w.now, RejStaleConn, nil)))
	require.NoError(t, b.Reject(w.now, RejVendorOption, data(148)))
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(b.Reject(w.now, 0, nil)), "twice")
	w.run(10 * latency)
	require.Equal(t, data(148), na.last(EventRejected).Conn.Private)
	require.Equal(t, 35, na.last(EventRejected).Status)

	a = na.resolved(PSTCP, ib.QPTypeRC, Addr{}, nb.addr(7))
	require.NoError(t, a.Connect(w.now, ConnParam{QPN: 1}))
	w.run(10 * latency)
	b = nb.last(EventConnectRequest).ID
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(b.Accept(w.now, ConnParam{Private: data(197)})))
	w.run(10 * latency)
	require.Equal(t, 28, na.last(EventRejected).Status, "a failed accept refuses")
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(a.Connect(w.now, ConnParam{})), "one id, one attempt")
}

// TestBacklog: requests beyond the backlog are neither lost nor refused.
//
// req: CM-ADDR-05
func TestBacklog(t *testing.T) {
	w := newWorld(t, 2, nil)
	na, nb := w.nodes[0], w.nodes[1]
	l := nb.listen(PSTCP, ib.QPTypeRC, 7, 2)
	var ids []*ID
	for range 4 {
		ids = append(ids, na.resolved(PSTCP, ib.QPTypeRC, Addr{}, nb.addr(7)))
	}
	// Nobody fetches: flush, which does, is not called until the messages have arrived.
	for _, id := range ids {
		require.NoError(t, id.Connect(w.now, ConnParam{QPN: na.qpn()}))
	}
	var out [8]Packet
	k := na.m.Emit(out[:])
	require.Equal(t, 4, k)
	deliver := func(pkts []Packet) {
		for i := range pkts {
			nb.m.Receive(w.now, nb.port, &wire.Path{Src: na.gid, Dst: nb.gid}, pkts[i].MAD[:])
		}
	}
	deliver(out[:k])
	require.Equal(t, uint64(2), nb.m.Counters().DropBacklog)
	require.Equal(t, 0, l.backlogLeft)
	require.False(t, nb.m.Pending(), "no refusal")
	w.run(7 * time.Second)
	require.Len(t, nb.events, 4, "the others come with the next repetition")
	require.Equal(t, 2, l.backlogLeft)
}

// TestListenerDestroyed: requests not fetched are refused, fetched ones live on.
//
// req: CM-REJ-03
func TestListenerDestroyed(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := newPeer(w)
	l := p.n.listen(PSTCP, ib.QPTypeRC, 7, 0)
	p.send(p.req(100, 200))
	fetched := p.n.last(EventConnectRequest).ID
	mad := Encode(Header{}, p.req(101, 201))
	p.n.m.Receive(w.now, p.n.port, &wire.Path{Src: p.gid, Dst: p.n.gid}, mad[:])
	l.Destroy(w.now)
	got := p.take()
	require.Len(t, got, 1)
	require.Equal(t, CommID(101), got[0].(*REJ).RemoteCommID)
	require.Equal(t, RejConsumerDefined, got[0].(*REJ).Reason)
	require.Len(t, p.n.events, 1, "the event of the refused one is gone")
	require.NoError(t, fetched.Accept(w.now, ConnParam{QPN: 5}))
	require.Equal(t, AttrREP, p.take()[0].Attr())
}

// TestSilentUntilAccept: what happens to a request before accept is no event.
//
// req: CM-CONN-05
func TestSilentUntilAccept(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := newPeer(w)
	id := p.passive(stREQRcvd)
	peerGone.apply(p, id)
	require.Len(t, p.n.events, 1)
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(id.Accept(w.now, ConnParam{QPN: 5})))
	require.Empty(t, p.take(), "there is nobody to refuse")
}

// req: CM-SIDR-01
func TestSIDRRules(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := newPeer(w)
	req := &SIDRReq{RequestID: 9, PKey: 0xffff, ServiceID: NewServiceID(PSUDP, 7)}
	PrivateHeader{IPVersion: 4, Src: p.gid, Dst: p.n.gid}.Put(req.Private[:])
	status := func() SIDRStatus { return p.take()[0].(*SIDRRep).Status }
	p.send(req)
	require.Equal(t, SIDRUnsupported, status(), "no listener")
	p.n.listen(PSUDP, ib.QPTypeUD, 7, 0)
	bad := *req
	bad.Private[0] = 1
	p.send(&bad)
	require.Equal(t, SIDRRejected, status(), "bad header")
	p.send(req)
	p.send(req)
	require.Empty(t, p.take(), "a duplicate of an open request is ignored")
	require.Len(t, p.n.events, 1)
	id := p.n.events[0].ID
	require.NoError(t, id.Accept(w.now, ConnParam{QPN: 5, Private: []byte("hi")}))
	rep := p.take()[0].(*SIDRRep)
	require.Equal(t, QKeyUDP, rep.QKey)
	require.True(t, bytes.HasPrefix(rep.Private[:], []byte("hi")))
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(id.Accept(w.now, ConnParam{QPN: 5})), "twice")
	require.NoError(t, id.Disconnect(w.now))
	require.Empty(t, p.take())
	p.send(req)
	require.Len(t, p.n.events, 2, "after the answer a repeated request is a new one")
	require.NoError(t, p.n.events[1].ID.Reject(w.now, 0, []byte("no")))
	rep = p.take()[0].(*SIDRRep)
	require.Equal(t, SIDRRejected, rep.Status)
	require.Zero(t, rep.QPN)
	p.send(req)
	p.n.events[2].ID.Destroy(w.now)
	require.Equal(t, SIDRRejected, status(), "destroyed unanswered")
	p.send(req)
	other := *req
	mad := Encode(Header{}, &other)
	p.n.m.Receive(w.now, p.n.port, &wire.Path{Src: ib.GIDFromIPv4(10, 77, 0, 98), Dst: p.n.gid}, mad[:])
	w.flush()
	require.Len(t, p.n.events, 5, "two hosts may use the same request ID")
}

// req: CM-SIDR-01 CM-SIDR-02
func TestSIDRAnswers(t *testing.T) {
	for _, c := range []struct {
		name   string
		qkeyed bool // the program asked for QP attributes before
		rep    SIDRRep
		event  EventType
		status int
	}{
		{"valid", true, SIDRRep{QPN: 3, QKey: QKeyUDP}, EventEstablished, 0},
		{"status", true, SIDRRep{Status: SIDRUnsupported}, EventUnreachable, 1},
		{"other Q_Key", true, SIDRRep{QPN: 3, QKey: 5}, EventAddrError, -22},
		{"any Q_Key", false, SIDRRep{QPN: 3, QKey: 5}, EventEstablished, 0},
	} {
		w := newWorld(t, 1, nil)
		p := newPeer(w)
		id := p.n.resolved(PSUDP, ib.QPTypeUD, Addr{}, AddrOf(p.gid, 7))
		if c.qkeyed {
			_, _, err := id.InitQPAttr(ib.StateInit)
			require.NoError(t, err)
		}
		require.Equal(t, ib.EINVAL, ib.ErrnoOf(id.Connect(w.now, ConnParam{Private: make([]byte, 181)})))
		require.NoError(t, id.Connect(w.now, ConnParam{Private: make([]byte, 180)}))
		c.rep.RequestID = p.take()[0].(*SIDRReq).RequestID
		p.send(&c.rep)
		require.Equal(t, c.event, p.n.events[2].Type, c.name)
		require.Equal(t, c.status, p.n.events[2].Status, c.name)
		p.send(&c.rep)
		require.Len(t, p.n.events, 3, "a second answer is ignored")
	}
	w := newWorld(t, 1, nil)
	p := newPeer(w)
	id := p.n.resolved(PSUDP, ib.QPTypeUD, Addr{}, AddrOf(p.gid, 7))
	require.NoError(t, id.Connect(w.now, ConnParam{}))
	w.flush()
	require.Len(t, timing(w, 16*4096*time.Millisecond), 15)
	require.Equal(t, -110, p.n.last(EventUnreachable).Status)
}

// req: CM-CONN-06
func TestNotify(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := newPeer(w)
	id := p.passive(stREPSent)
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(id.Notify(w.now, ib.EventQPFatal)))
	require.NoError(t, id.Notify(w.now, ib.EventCommEst))
	require.Equal(t, ib.EISCONN, ib.ErrnoOf(id.Notify(w.now, ib.EventCommEst)))
	p.send(&RTU{LocalCommID: 100, RemoteCommID: id.conn.localID})
	require.Equal(t, []EventType{EventConnectRequest, EventEstablished}, p.n.types(id), "the late RTU is no news")
}

// req: CM-FILE-05
func TestDeviceRemoval(t *testing.T) {
	w := newWorld(t, 1, nil)
	p := newPeer(w)
	n := p.n
	est := p.passive(stEstablished)
	wild := n.m.ids[0]
	specific := n.id(PSTCP, ib.QPTypeRC)
	require.NoError(t, specific.Bind(n.addr(8)))
	require.NoError(t, specific.Listen(0))
	p.send(p.req(101, 201))
	waiting := n.last(EventConnectRequest).ID
	asking := n.resolved(PSTCP, ib.QPTypeRC, Addr{}, AddrOf(p.gid, 7))
	require.NoError(t, asking.Connect(w.now, ConnParam{QPN: 9}))
	p.take()
	n.m.RemovePort(w.now, n.port)
	var sent []Attr
	for _, m := range p.take() {
		sent = append(sent, m.Attr())
	}
	require.ElementsMatch(t, []Attr{AttrDREQ, AttrREJ, AttrREJ}, sent)
	for _, id := range []*ID{est, specific, asking} {
		types := n.types(id)
		require.Equal(t, EventDeviceRemoval, types[len(types)-1])
	}
	for _, id := range []*ID{est, specific, asking, waiting} {
		require.Equal(t, ib.ENXIO, ib.ErrnoOf(id.Disconnect(w.now)))
	}
	require.Empty(t, n.types(wild))
	require.Equal(t, IDListen, wild.State())
	port, err := n.m.AddPort(n.port.PortConfig)
	require.NoError(t, err)
	n.port = port
	p.send(p.req(102, 202))
	require.Equal(t, EventConnectRequest, n.events[len(n.events)-1].Type, "the wildcard listener works again")
	for len(n.m.ids) > 0 {
		n.m.ids[0].Destroy(w.now)
	}
	w.run(time.Hour)
	w.checkEmpty()
}

// req: CM-MCAST-01
func TestMulticast(t *testing.T) {
	w := newWorld(t, 1, nil)
	n := w.nodes[0]
	group := IPv4(239, 1, 2, 3, 0)
	rc := n.resolved(PSTCP, ib.QPTypeRC, Addr{}, IPv4(10, 77, 0, 9, 1))
	_, err := rc.Join(group, false, nil)
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(err))
	routed := n.resolved(PSUDP, ib.QPTypeUD, Addr{}, IPv4(10, 77, 0, 9, 1))
	_, err = routed.Join(group, false, nil)
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(err), "ROUTE_RESOLVED")
	id := n.id(PSUDP, ib.QPTypeUD)
	_, err = id.Join(group, false, nil)
	require.Equal(t, ib.EINVAL, ib.ErrnoOf(err), "no device")
	require.NoError(t, id.Bind(n.addr(0)))
	require.NoError(t, id.ResolveAddr(w.now, Addr{}, group, time.Second))
	_, err = id.Join(AddrOf(ib.GID{0xff, 15: 1}, 0), false, nil)
	require.Equal(t, ib.ENOTSUPP, ib.ErrnoOf(err))
	mc, err := id.Join(group, false, "mine")
	require.NoError(t, err)
	w.flush()
	ev := n.last(EventMulticastJoin)
	require.Equal(t, ib.QPNMulticast, ev.Conn.QPN)
	require.Equal(t, QKeyUDP, ev.Conn.QKey)
	require.Equal(t, group.IP, ev.AV.DGID)
	require.Same(t, mc, ev.Mcast)
	again, err := id.Join(group, true, nil)
	require.NoError(t, err)
	require.NoError(t, again.Leave())
	w.flush()
	require.Same(t, mc, n.last(EventMulticastJoin).Mcast, "the event of a membership that ended is gone")
	require.NoError(t, mc.Leave())
	require.Equal(t, ib.EADDRNOTAVAIL, ib.ErrnoOf(mc.Leave()))
	_, err = id.Join(group, false, nil)
	require.NoError(t, err)
	id.Destroy(w.now)
	require.Empty(t, id.mcasts)
}

func TestOptions(t *testing.T) {
	w := newWorld(t, 2, nil)
	na, nb := w.nodes[0], w.nodes[1]
	nb.listen(PSTCP, ib.QPTypeRC, 7, 0)
	id := na.id(PSTCP, ib.QPTypeRC)
	require.NoError(t, id.SetTOS(0x20))
	require.NoError(t, id.SetAckTimeout(12))
	require.Error(t, id.SetAckTimeout(32))
	require.Error(t, na.id(PSUDP, ib.QPTypeUD).SetAckTimeout(12))
	require.NoError(t, id.ResolveAddr(w.now, Addr{}, nb.addr(7), time.Second))
	require.Error(t, id.SetAFOnly(true))
	require.Error(t, id.SetReuseAddr(false))
	require.NoError(t, id.ResolveRoute(w.now, time.Second))
	require.NoError(t, id.Connect(w.now, ConnParam{QPN: 1}))
	w.run(10 * latency)
	_, m, err := Decode(w.sent[0][:])
	require.NoError(t, err)
	req := m.(*REQ)
	require.Equal(t, uint8(15), req.Primary.AckTimeout)
	require.Equal(t, uint8(0x20), req.Primary.TrafficClass)
	b := nb.last(EventConnectRequest).ID
	require.NoError(t, b.Accept(w.now, ConnParam{QPN: 2}))
	w.run(10 * latency)
	q, _, err := id.InitQPAttr(ib.StateRTS)
	require.NoError(t, err)
	require.Equal(t, uint8(12), q.Timeout)
	q, _, err = b.InitQPAttr(ib.StateRTR)
	require.NoError(t, err)
	require.Equal(t, uint8(0x20), q.AV.TrafficClass)
}

func TestAckTimeout(t *testing.T) {
	for _, c := range [][3]uint8{{15, 18, 19}, {15, 16, 17}, {15, 11, 15}, {0, 11, 12}, {31, 31, 31}, {12, 11, 13}} {
		require.Equal(t, c[2], ackTimeout(c[0], c[1]), "%v", c)
	}
	for in, want := range map[uint8]time.Duration{20: 4096, 24: 65536, 18: 1024, 0: 1, 8: 1, 9: 2} {
		require.Equal(t, want*time.Millisecond, ibTime(in))
	}
}

func TestConfigValidate(t *testing.T) {
	_, err := New(Config{PacketLifeTime: 31, MaxCMRetries: 16})
	require.ErrorContains(t, err, "5 bits")
	require.ErrorContains(t, err, "4 bits")
	require.ErrorContains(t, err, "backlog")
	require.ErrorContains(t, err, "port 0")
	m, err := New(DefaultConfig())
	require.NoError(t, err)
	_, err = m.AddPort(PortConfig{Name: "x"})
	require.Error(t, err)
}
