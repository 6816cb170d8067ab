package ucma

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
)

// TestLife is a connection from the first command to the last, as rping and ucmatose
// give them.
//
// req: CM-CONN-01 CM-CONN-02 CM-CONN-03 CM-DISC-01 CM-DISC-03 CM-FILE-03
func TestLife(t *testing.T) {
	w := newWorld(t)
	client, server := w.nodes[0].open(), w.nodes[1].open()
	lid := server.listener(cm.PSTCP, 0xaaaa, 7471, 3)
	cid := client.resolved(cm.PSTCP, 0xc11e, 7471)
	client.quiet()
	server.quiet()

	client.connect(cid, 0x11, 56)
	req := server.event(cm.EventConnectRequest)
	require.Equal(t, uint64(0xaaaa), req.UID, "the listener's")
	require.NotEqual(t, lid, req.ID)
	require.EqualValues(t, 56, req.conn.PrivateLen)
	want := param(0x11, 56)
	require.Equal(t, want.Private[:56], req.conn.Private[:56])
	require.EqualValues(t, 5, req.conn.ResponderResources, "swapped")
	require.EqualValues(t, 3, req.conn.InitiatorDepth)
	require.EqualValues(t, 0x11, req.conn.QPNum)
	server.accept(req.ID, 0xbbbb, 0x12, 196)

	rep := client.event(cm.EventConnectResponse)
	require.Equal(t, eventResp{UID: 0xc11e, ID: cid, Event: 5}, rep.eventResp)
	require.EqualValues(t, 196, rep.conn.PrivateLen)
	want = param(0x12, 196)
	require.Equal(t, want.Private, rep.conn.Private)
	for i, state := range []uint32{1, 2, 3} {
		out := client.do(cmdInitQPAttr, 144, &idCmd{Response: answerAt, ID: cid, Arg: state})
		require.Equal(t, []uint32{0x39, 0x129181, 0x12e01}[i], native.Uint32(out), "the attributes of state %d", state)
		require.Equal(t, state, native.Uint32(out[4:]))
	}
	client.confirm(cid)
	est := server.event(cm.EventEstablished)
	require.Equal(t, eventResp{UID: 0xbbbb, ID: req.ID, Event: 9}, est.eventResp)
	require.Zero(t, est.conn.PrivateLen)

	client.do(cmdDisconnect, 0, &disconnectCmd{cid})
	w.settle()
	server.event(cm.EventDisconnected)
	client.quiet() // the DREP waits for the server
	server.do(cmdDisconnect, 0, &disconnectCmd{req.ID})
	w.settle()
	client.event(cm.EventDisconnected)
	w.pass(time.Minute)
	client.event(cm.EventTimeWaitExit)
	server.event(cm.EventTimeWaitExit)
	require.EqualValues(t, 5, client.destroy(cid), "events reported")
	require.EqualValues(t, 3, server.destroy(req.ID))
	require.EqualValues(t, 1, server.destroy(lid), "requests count for the listener")
	client.quiet()
	client.ch.Close()
	server.ch.Close()
	require.Empty(t, server.n.dev.channels)
}

// TestPrivateData: what fits, what does not, and what comes out.
//
// req: CM-DATA-01 CM-DATA-02
func TestPrivateData(t *testing.T) {
	w := newWorld(t)
	client, server := w.nodes[0].open(), w.nodes[1].open()
	server.listener(cm.PSTCP, 1, 7471, 0)
	for _, n := range []int{0, 1, 55, 56} {
		cid := client.resolved(cm.PSTCP, 2, 7471)
		client.connect(cid, 0x11+uint32(n), n)
		req := server.event(cm.EventConnectRequest)
		require.EqualValues(t, 56, req.conn.PrivateLen, "the room of the message, filled up")
		want := param(0, n)
		require.Equal(t, want.Private[:56], req.conn.Private[:56])
		for m := range map[int]bool{197: true, 255: true} {
			if n == 55 {
				server.fails(ib.EINVAL, cmdAccept, 0, &acceptCmd{UID: 3, Conn: param(0x12, m), ID: req.ID})
				break
			}
		}
		if n != 55 {
			server.accept(req.ID, 3, 0x100+uint32(n), n)
			rep := client.event(cm.EventConnectResponse)
			require.EqualValues(t, 196, rep.conn.PrivateLen)
			want = param(0, n)
			require.Equal(t, want.Private, rep.conn.Private)
		} else {
			w.settle()
			require.EqualValues(t, cm.RejConsumerDefined, client.event(cm.EventRejected).Status, "an accept that fails refuses")
		}
	}
	for _, n := range []int{57, 92, 196, 220, 255} {
		cid := client.resolved(cm.PSTCP, 2, 7471)
		client.fails(ib.EINVAL, cmdConnect, 0, &connectCmd{Conn: param(0x11, n), ID: cid})
	}
	for _, c := range []struct {
		n    int
		want ib.Errno
	}{{0, 0}, {148, 0}, {149, ib.EINVAL}, {196, ib.EINVAL}} {
		cid := client.resolved(cm.PSTCP, 2, 7471)
		client.connect(cid, 0x800+uint32(c.n), 0)
		req := server.event(cm.EventConnectRequest)
		r := rejectCmd{ID: req.ID, PrivateLen: uint8(c.n), Private: param(0, c.n).Private}
		_, errno := server.try(cmdReject, 0, &r)
		require.Equal(t, c.want, errno, "%d bytes", c.n)
		w.settle()
		if errno == 0 {
			rej := client.event(cm.EventRejected)
			require.EqualValues(t, 148, rej.conn.PrivateLen)
			require.Equal(t, r.Private, rej.conn.Private)
		}
		server.destroy(req.ID)
	}
}

// TestRefusals: which reasons a program sees.
//
// req: CM-REJ-01 CM-REJ-02 CM-REJ-03
func TestRefusals(t *testing.T) {
	w := newWorld(t)
	client, server := w.nodes[0].open(), w.nodes[1].open()
	try := func(port uint16, answer func(got)) got {
		cid := client.resolved(cm.PSTCP, 2, port)
		client.connect(cid, 0x11, 0)
		if answer != nil {
			answer(server.event(cm.EventConnectRequest))
			w.settle()
		}
		return client.event(cm.EventRejected)
	}
	require.EqualValues(t, cm.RejInvalidServiceID, try(7000, nil).Status, "nobody listens")
	lid := server.listener(cm.PSTCP, 1, 7471, 0)
	reject := func(reason uint8) func(got) {
		return func(e got) { server.do(cmdReject, 0, &rejectCmd{ID: e.ID, Reason: reason}) }
	}
	require.EqualValues(t, cm.RejConsumerDefined, try(7471, reject(0)).Status)
	require.EqualValues(t, cm.RejConsumerDefined, try(7471, reject(28)).Status)
	require.EqualValues(t, cm.RejVendorOption, try(7471, reject(35)).Status)
	require.EqualValues(t, cm.RejConsumerDefined, try(7471, func(e got) { server.destroy(e.ID) }).Status)
	require.EqualValues(t, cm.RejConsumerDefined, try(7471, func(e got) {
		server.fails(ib.EINVAL, cmdReject, 0, &rejectCmd{ID: e.ID, Reason: 8})
		server.do(cmdReject, 0, &rejectCmd{ID: e.ID})
		server.fails(ib.EINVAL, cmdReject, 0, &rejectCmd{ID: e.ID})
		server.fails(ib.EINVAL, cmdAccept, 0, &acceptCmd{UID: 3, Conn: param(0x12, 0), ID: e.ID})
	}).Status)

	// A request that nobody has fetched when its listener goes.
	cid := client.resolved(cm.PSTCP, 2, 7471)
	client.connect(cid, 0x11, 0)
	require.True(t, server.ready)
	require.EqualValues(t, 5, server.destroy(lid), "the one that was not fetched does not count")
	require.False(t, server.ready, "the event went with the listener")
	w.settle()
	require.EqualValues(t, cm.RejConsumerDefined, client.event(cm.EventRejected).Status)
}

// TestWriteErrors: what a write() returns before a command is looked at, and how the
// arguments of commands are checked.
//
// req: CM-FILE-01
func TestWriteErrors(t *testing.T) {
	w := newWorld(t)
	p := w.nodes[0].open()
	raw := func(b []byte) ib.Errno { return p.ch.Write(nil, b, nil).Errno }
	hdr := func(cmd uint32, in, out uint16, body int) []byte {
		b := binary.NativeEndian.AppendUint32(nil, cmd)
		b = binary.NativeEndian.AppendUint16(b, in)
		b = binary.NativeEndian.AppendUint16(b, out)
		return append(b, make([]byte, body)...)
	}
	require.Equal(t, ib.EINVAL, raw(nil))
	require.Equal(t, ib.EINVAL, raw(make([]byte, 7)))
	require.Equal(t, ib.EINVAL, raw(hdr(23, 0, 0, 0)), "no such command")
	require.Equal(t, ib.EINVAL, raw(hdr(1<<31, 0, 0, 0)))
	require.Equal(t, ib.EINVAL, raw(hdr(cmdCreateID, 25, 4, 24)), "longer than the write")
	require.Equal(t, ib.EINVAL, raw(hdr(cmdCreateID, 24, 4, 20)))
	require.Equal(t, ib.ENOSYS, raw(hdr(cmdGetOption, 0, 0, 0)))
	require.Equal(t, ib.ENOSPC, raw(hdr(cmdCreateID, 24, 3, 24)), "no room for the answer")
	require.Equal(t, ib.ENOSPC, raw(hdr(cmdGetEvent, 8, 323, 8)))
	require.Equal(t, ib.EAGAIN, raw(hdr(cmdGetEvent, 8, 324, 8)))
	require.Equal(t, ib.EINVAL, raw(hdr(cmdGetEvent, 7, 336, 7)), "shorter than the command")
	require.Equal(t, ib.EINVAL, raw(hdr(cmdConnect, 279, 0, 279)))
	require.Equal(t, ib.EINVAL, raw(hdr(cmdConnect, 280, 0, 280)), "long enough, but without parameters")
	require.Equal(t, ib.EINVAL, raw(hdr(cmdAccept, 287, 0, 287)))
	require.Equal(t, ib.ENOENT, raw(hdr(cmdAccept, 288, 0, 288)), "long enough, but for no id")

	for _, ps := range []uint16{0, 1, 0x107, 0xffff} {
		p.fails(ib.EINVAL, cmdCreateID, 4, &createIDCmd{PS: ps})
	}
	p.fails(ib.ENOENT, cmdDestroyID, 4, &idCmd{ID: 0})
	p.fails(ib.ENOENT, cmdListen, 0, &idValueCmd{99, 1})
	id := p.create(cm.PSTCP, 1)
	require.Zero(t, id, "the first number is 0")
	other := w.nodes[0].open()
	other.fails(ib.EINVAL, cmdListen, 0, &idValueCmd{id, 1})
	other.fails(ib.EINVAL, cmdDestroyID, 4, &idCmd{ID: id})
	for _, cmd := range []uint32{cmdDisconnect, cmdResolveRoute} {
		p.fails(ib.EINVAL, cmd, 0, &idValueCmd{ID: id, Value: 1})
	}
	p.fails(ib.EINVAL, cmdReject, 0, &rejectCmd{ID: id})
	p.fails(ib.EINVAL, cmdInitQPAttr, 144, &idCmd{Response: answerAt, ID: id, Arg: 1})
	p.fails(ib.EINVAL, cmdInitQPAttr, 144, &idCmd{Response: answerAt, ID: id, Arg: 7})
	p.fails(ib.EINVAL, cmdNotify, 0, &idValueCmd{id, 4})
	p.fails(ib.EINVAL, cmdNotify, 0, &idValueCmd{id, -1})
	p.fails(ib.EINVAL, cmdBindIP, 0, &bindIPCmd{ID: id})
	p.fails(ib.EINVAL, cmdResolveIP, 0, &resolveIPCmd{ID: id})
	require.Zero(t, p.destroy(id))
	require.Zero(t, p.create(cm.PSTCP, 1), "numbers are used again at once")
	p.ch.Close()
	require.Equal(t, ib.EINVAL, raw(hdr(cmdGetEvent, 8, 336, 8)), "after the last close")
}

// TestAddresses: both generations of BIND and RESOLVE, and what QUERY tells.
//
// req: CM-ADDR-01 CM-FILE-01
func TestAddresses(t *testing.T) {
	w := newWorld(t)
	p := w.nodes[0].open()
	bound := func(a sin6, want ib.Errno) uint32 {
		id := p.create(cm.PSTCP, 1)
		_, errno := p.try(cmdBindIP, 0, &bindIPCmd{Addr: a, ID: id})
		require.Equal(t, want, errno)
		return id
	}
	a := bound(ip4(1, 4000), 0)
	bound(ip4(1, 4000), ib.EADDRINUSE)
	bound(ip4(9, 4001), ib.EADDRNOTAVAIL)
	var any4, any6, local6 sin6
	putAddr(any4[:], cm.Wildcard(cm.FamilyIPv4, 4000))
	bound(any4, ib.EADDRNOTAVAIL)
	putAddr(any6[:], cm.Wildcard(cm.FamilyIPv6, 0))
	bound(any6, 0)
	putAddr(local6[:], cm.AddrOf(ib.GID{0: 0xfe, 1: 0x80, 15: 1}, 0))
	bound(local6, ib.EINVAL)
	p.fails(ib.EINVAL, cmdBindIP, 0, &bindIPCmd{Addr: ip4(1, 5000), ID: a})

	id := p.create(cm.PSTCP, 1)
	var st storage
	one := ip4(1, 0)
	copy(st[:], one[:])
	p.fails(ib.EINVAL, cmdBind, 0, &bindCmd{ID: id, Size: 28, Addr: st})
	p.fails(ib.EINVAL, cmdBind, 0, &bindCmd{ID: id, Size: 0, Addr: st})
	p.fails(ib.EINVAL, cmdBind, 0, &bindCmd{ID: id, Size: 16, Reserved: 1, Addr: st})
	var ibAddr storage
	native.PutUint16(ibAddr[:], afIB)
	p.fails(ib.EADDRNOTAVAIL, cmdBind, 0, &bindCmd{ID: id, Size: 48, Addr: ibAddr})
	p.do(cmdBind, 0, &bindCmd{ID: id, Size: 16, Addr: st})
	out := p.do(cmdQuery, 280, &idCmd{Response: answerAt, ID: id, Arg: queryAddr})
	require.Equal(t, uint16(16), native.Uint16(out[12:]))
	require.Zero(t, native.Uint16(out[14:]), "there is no destination")
	require.GreaterOrEqual(t, be.Uint16(out[18:]), uint16(32768), "port 0 chooses one")
	require.EqualValues(t, 0x505400fffe770001, be.Uint64(out))

	var dst storage
	two := ip4(2, 7471)
	copy(dst[:], two[:])
	p.fails(ib.EINVAL, cmdResolveAddr, 0, &resolveAddrCmd{ID: id, DstSize: 28, Dst: dst, Timeout: 1000})
	p.fails(ib.EINVAL, cmdResolveAddr, 0, &resolveAddrCmd{ID: id, DstSize: 16, SrcSize: 28, Src: st, Dst: dst, Timeout: 1000})
	p.do(cmdResolveAddr, 0, &resolveAddrCmd{ID: id, DstSize: 16, Dst: dst, Timeout: 1000})
	p.event(cm.EventAddrResolved)
	p.fails(ib.EINVAL, cmdResolveRoute, 0, &idValueCmd{id, 0})
	p.do(cmdResolveRoute, 0, &idValueCmd{id, 1})
	p.event(cm.EventRouteResolved)

	out = p.do(cmdQuery, 280, &idCmd{Response: answerAt, ID: id, Arg: queryGID})
	require.Equal(t, uint16(48), native.Uint16(out[12:]))
	require.Equal(t, uint16(afIB), native.Uint16(out[16:]))
	require.Equal(t, w.nodes[1].gid[:], out[144+8:144+24])
	require.EqualValues(t, 0x1061d2f, be.Uint64(out[144+24:]), "service id of the destination")
	require.Len(t, p.do(cmdQuery, 79, &idCmd{Response: answerAt, ID: id, Arg: queryPath}), 8, "no room for a path")
	out = p.do(cmdQuery, 80, &idCmd{Response: answerAt, ID: id, Arg: queryPath})
	require.Len(t, out, 80)
	require.EqualValues(t, 1, native.Uint32(out))
	require.EqualValues(t, pathFlags, native.Uint32(out[8:]))
	p.fails(ib.ENOSYS, cmdQuery, 280, &idCmd{Response: answerAt, ID: id, Arg: 3})
	p.fails(ib.ENOSPC, cmdQuery, 271, &idCmd{Response: answerAt, ID: id, Arg: queryAddr})

	route := p.do(cmdQueryRoute, 208, &idCmd{Response: answerAt, ID: id})
	require.Len(t, route, 208)
	require.Equal(t, w.nodes[1].gid[:], route[8:24])
	require.Equal(t, w.nodes[0].gid[:], route[24:40])
	require.EqualValues(t, 1, native.Uint32(route[192:]))
	require.Equal(t, noIndex, native.Uint32(route[200:]))
	require.Equal(t, two[:16], route[164:180])
	p.fails(ib.ENOSPC, cmdQueryRoute, 199, &idCmd{Response: answerAt, ID: id})
}

// TestOptions: values are read from the program's memory.
//
// req: CM-ADDR-02 CM-FILE-01
func TestOptions(t *testing.T) {
	w := newWorld(t)
	p := w.nodes[0].open()
	id := p.create(cm.PSTCP, 1)
	set := func(id, level, name uint32, val ...byte) ib.Errno {
		copy(p.mem.Buf, val)
		_, errno := p.try(cmdSetOption, 0, &setOptionCmd{OptVal: 0x1000, ID: id, Level: level, OptName: name, OptLen: uint32(len(val))})
		return errno
	}
	require.Zero(t, set(id, 0, optTOS, 0x20))
	require.Equal(t, ib.EINVAL, set(id, 0, optTOS, 1, 2))
	require.Equal(t, ib.EINVAL, set(id, 0, optTOS))
	require.Zero(t, set(id, 0, optReuseAddr, 1, 0, 0, 0))
	require.Equal(t, ib.EINVAL, set(id, 0, optReuseAddr, 1))
	require.Zero(t, set(id, 0, optAFOnly, 0, 0, 0, 0))
	require.Zero(t, set(id, 0, optAckTimeout, 12))
	require.Equal(t, ib.ENOSYS, set(id, 0, 4, 1))
	require.Equal(t, ib.ENOSYS, set(id, 2, 0, 1))
	require.Equal(t, ib.ENOSYS, set(id, 1, 2, 1))
	require.Equal(t, ib.ENOENT, set(id+1, 0, optTOS, 1))
	p.fails(ib.EFAULT, cmdSetOption, 0, &setOptionCmd{OptVal: 0x11ff, ID: id, OptName: optReuseAddr, OptLen: 4})
	p.fails(ib.EINVAL, cmdSetOption, 0, &setOptionCmd{OptVal: 0x1000, ID: id, OptLen: 1 << 31})
	ud := p.create(cm.PSUDP, 1)
	require.Equal(t, ib.EINVAL, set(ud, 0, optAckTimeout, 12))

	// Two ids share a port if both say so; a listener is alone.
	second := p.create(cm.PSTCP, 2)
	p.do(cmdBindIP, 0, &bindIPCmd{Addr: ip4(1, 4000), ID: id})
	p.fails(ib.EADDRINUSE, cmdBindIP, 0, &bindIPCmd{Addr: ip4(1, 4000), ID: second})
	require.Zero(t, set(second, 0, optReuseAddr, 1, 0, 0, 0))
	p.do(cmdBindIP, 0, &bindIPCmd{Addr: ip4(1, 4000), ID: second})
	p.fails(ib.EADDRINUSE, cmdListen, 0, &idValueCmd{second, 0})

	// A path that a program brings itself takes the place of RESOLVE_ROUTE.
	p.do(cmdResolveIP, 0, &resolveIPCmd{Dst: ip4(2, 1), ID: id, Timeout: 1000})
	p.event(cm.EventAddrResolved)
	from := w.nodes[0].open()
	ready := from.resolved(cm.PSTCP, 1, 7471)
	path := from.do(cmdQuery, 80, &idCmd{Response: answerAt, ID: ready, Arg: queryPath})[8:]
	require.Equal(t, ib.EINVAL, set(id, 1, optIBPath, path[:71]...))
	require.Equal(t, ib.EINVAL, set(id, 1, optIBPath))
	require.Equal(t, ib.EINVAL, set(id, 1, optIBPath, make([]byte, 72)...), "no primary path")
	path[8+48] = 0x77 // traffic class
	require.Zero(t, set(id, 1, optIBPath, path...))
	p.event(cm.EventRouteResolved)
	again := p.do(cmdQuery, 80, &idCmd{Response: answerAt, ID: id, Arg: queryPath})[8:]
	require.Equal(t, path[8+44:], again[8+44:], "the path as it was given")
	require.Equal(t, ib.EINVAL, set(id, 1, optIBPath, path...), "there is a route")
}

// TestBacklog: requests that nobody fetches are bounded; more are dropped and come again.
//
// req: CM-ADDR-05
func TestBacklog(t *testing.T) {
	w := newWorld(t)
	client, server := w.nodes[0].open(), w.nodes[1].open()
	server.listener(cm.PSTCP, 1, 7471, 2)
	for i := range uint32(4) {
		client.connect(client.resolved(cm.PSTCP, 2, 7471), 0x20+i, 0)
	}
	var ids []uint32
	for range 2 {
		ids = append(ids, server.event(cm.EventConnectRequest).ID)
	}
	server.quiet()
	w.pass(10 * time.Second) // they are sent again
	for range 2 {
		ids = append(ids, server.event(cm.EventConnectRequest).ID)
	}
	server.quiet()
	for i, id := range ids {
		server.accept(id, 9, 0x40+uint32(i), 0)
		client.event(cm.EventConnectResponse)
	}
}

// TestMigrate: an id moves with its events, and the count goes along.
//
// req: CM-FILE-03 CM-FILE-04
func TestMigrate(t *testing.T) {
	w := newWorld(t)
	client, server := w.nodes[0].open(), w.nodes[1].open()
	server.listener(cm.PSTCP, 1, 7471, 0)
	cid, sid := connected(client, server, 7471)
	second := server.n.open()
	client.do(cmdDisconnect, 0, &disconnectCmd{cid})
	w.settle()
	require.True(t, server.ready)
	out := second.do(cmdMigrateID, 4, &idCmd{Response: answerAt, ID: sid, Arg: uint32(server.ch.ino)})
	require.EqualValues(t, 1, native.Uint32(out), "ESTABLISHED; the request counts for the listener")
	require.False(t, server.ready)
	server.quiet()
	server.fails(ib.EINVAL, cmdDisconnect, 0, &disconnectCmd{sid})
	second.event(cm.EventDisconnected)
	second.fails(ib.EINVAL, cmdMigrateID, 4, &idCmd{ID: sid, Arg: uint32(server.ch.ino)})
	second.fails(ib.ENOENT, cmdMigrateID, 4, &idCmd{ID: sid, Arg: 0})
	second.fails(ib.EINVAL, cmdMigrateID, 4, &idCmd{ID: sid, Arg: 5})
	second.fails(ib.ENOENT, cmdMigrateID, 4, &idCmd{ID: 77, Arg: uint32(server.ch.ino)})
	second.do(cmdMigrateID, 4, &idCmd{Response: answerAt, ID: sid, Arg: uint32(second.ch.ino)})
	require.EqualValues(t, 2, second.destroy(sid))
	w.settle()
	client.event(cm.EventDisconnected)

	// A listener takes its requests along.
	lid := server.listener(cm.PSTCP, 7, 7472, 0)
	client.connect(client.resolved(cm.PSTCP, 2, 7472), 0x31, 0)
	second.do(cmdMigrateID, 4, &idCmd{Response: answerAt, ID: lid, Arg: uint32(server.ch.ino)})
	server.quiet()
	e := second.event(cm.EventConnectRequest)
	second.accept(e.ID, 8, 0x32, 0)
	client.event(cm.EventConnectResponse)
}

// TestMulticast: memberships have ids of their own, and events count twice.
//
// req: CM-MCAST-01 CM-MCAST-02 CM-FILE-03
func TestMulticast(t *testing.T) {
	w := newWorld(t)
	p := w.nodes[0].open()
	id := p.create(cm.PSUDP, 1)
	join := &joinIPCmd{Response: answerAt, UID: 0x77, ID: id}
	putAddr(join.Addr[:], cm.IPv4(239, 1, 1, 1, 0))
	p.fails(ib.EINVAL, cmdJoinIPMcast, 4, join) // no device yet
	p.do(cmdBindIP, 0, &bindIPCmd{Addr: ip4(1, 0), ID: id})
	p.fails(ib.ENOSPC, cmdJoinIPMcast, 3, join)
	mid := native.Uint32(p.do(cmdJoinIPMcast, 4, join))
	e := p.event(cm.EventMulticastJoin)
	require.Equal(t, eventResp{UID: 0x77, ID: mid, Event: 12}, e.eventResp)
	require.EqualValues(t, 0xffffff, e.ud.QPNum)
	require.EqualValues(t, cm.QKeyUDP, e.ud.QKey)
	require.Equal(t, ib.GIDFromIPv4(239, 1, 1, 1), ib.GID(e.ud.AH.DGID))
	group := ib.GIDFromIPv4(239, 1, 1, 1)
	require.Equal(t, 1, p.n.groups[group])

	only := &joinCmd{Response: answerAt, UID: 0x78, ID: id, Size: 16, Flags: joinSendOnly}
	copy(only.Addr[:], join.Addr[:])
	second := native.Uint32(p.do(cmdJoinMcast, 4, only))
	require.NotEqual(t, mid, second)
	require.Equal(t, 1, p.n.groups[group], "who only sends joins no group")
	only.Flags = 2
	p.fails(ib.EINVAL, cmdJoinMcast, 4, only)
	only.Flags, only.Size = 0, 28
	p.fails(ib.EINVAL, cmdJoinMcast, 4, only)
	require.Zero(t, native.Uint32(p.do(cmdLeaveMcast, 4, &idCmd{Response: answerAt, ID: second})), "its event was not fetched")
	p.quiet()
	require.EqualValues(t, 1, native.Uint32(p.do(cmdLeaveMcast, 4, &idCmd{Response: answerAt, ID: mid})))
	require.Empty(t, p.n.groups)
	p.fails(ib.ENOENT, cmdLeaveMcast, 4, &idCmd{Response: answerAt, ID: mid})

	putAddr(join.Addr[:], cm.IPv4(239, 0, 0, 99, 0))
	p.fails(ib.ENODEV, cmdJoinIPMcast, 4, join)
	p.quiet()
	putAddr(join.Addr[:], cm.AddrOf(ib.GID{0: 0xff, 1: 2, 15: 1}, 0))
	p.fails(ib.ENOTSUPP, cmdJoinIPMcast, 4, join)
	putAddr(join.Addr[:], cm.IPv4(239, 1, 1, 2, 0))
	p.do(cmdJoinIPMcast, 4, join)
	other := w.nodes[0].open()
	other.fails(ib.EINVAL, cmdLeaveMcast, 4, &idCmd{Response: answerAt, ID: 0})
	require.EqualValues(t, 1, p.destroy(id), "the second join was not fetched")
	require.Empty(t, p.n.groups, "the end of an id ends its memberships")
	p.quiet()
	rc := p.create(cm.PSTCP, 1)
	p.do(cmdBindIP, 0, &bindIPCmd{Addr: ip4(1, 0), ID: rc})
	join.ID = rc
	p.fails(ib.EINVAL, cmdJoinIPMcast, 4, join)
}

// TestDatagrams: the request for the QP behind a service.
//
// req: CM-SIDR-01 CM-SIDR-02
func TestDatagrams(t *testing.T) {
	w := newWorld(t)
	client, server := w.nodes[0].open(), w.nodes[1].open()
	server.listener(cm.PSUDP, 1, 7174, 0)
	cid := client.resolved(cm.PSUDP, 2, 7174)
	out := client.do(cmdInitQPAttr, 144, &idCmd{Response: answerAt, ID: cid, Arg: 1})
	require.EqualValues(t, 0x71, native.Uint32(out))
	client.connect(cid, 0x11, 180)
	req := server.event(cm.EventConnectRequest)
	require.EqualValues(t, 180, req.ud.PrivateLen)
	server.accept(req.ID, 3, 0x12, 136)
	e := client.event(cm.EventEstablished)
	require.EqualValues(t, 136, e.ud.PrivateLen)
	require.EqualValues(t, 0x12, e.ud.QPNum)
	require.Equal(t, w.nodes[1].gid, ib.GID(e.ud.AH.DGID))
	server.quiet() // no ESTABLISHED there
	server.fails(ib.EINVAL, cmdAccept, 0, &acceptCmd{UID: 3, Conn: param(0x12, 0), ID: req.ID})
	out = server.do(cmdQueryRoute, 208, &idCmd{Response: answerAt, ID: req.ID})
	require.Zero(t, native.Uint32(out[192:]), "no path")

	cid = client.resolved(cm.PSUDP, 2, 7175)
	client.connect(cid, 0x11, 0)
	require.EqualValues(t, 1, client.event(cm.EventUnreachable).Status, "service id not supported")
}

// TestSilence: a peer that never answers, in every state that waits.
//
// req: CM-TIME-03 CM-CONN-06
func TestSilence(t *testing.T) {
	w := newWorld(t)
	client, server := w.nodes[0].open(), w.nodes[1].open()
	server.listener(cm.PSTCP, 1, 7471, 0)
	w.lose = func(from int, a cm.Attr) bool { return a == cm.AttrREQ }
	client.connect(client.resolved(cm.PSTCP, 2, 7471), 0x11, 0)
	w.pass(2 * time.Minute)
	require.EqualValues(t, -110, client.event(cm.EventUnreachable).Status)

	w.lose = func(from int, a cm.Attr) bool { return a == cm.AttrRTU }
	cid := client.resolved(cm.PSTCP, 2, 7471)
	client.connect(cid, 0x12, 0)
	req := server.event(cm.EventConnectRequest)
	server.accept(req.ID, 3, 0x22, 0)
	client.event(cm.EventConnectResponse)
	client.confirm(cid)
	server.quiet()
	server.do(cmdNotify, 0, &idValueCmd{req.ID, 4}) // COMM_EST: data has come
	server.event(cm.EventEstablished)
	server.fails(ib.EISCONN, cmdNotify, 0, &idValueCmd{req.ID, 4})

	w.lose = func(from int, a cm.Attr) bool { return from == 1 }
	client.do(cmdDisconnect, 0, &disconnectCmd{cid})
	w.pass(2 * time.Minute)
	require.EqualValues(t, -110, client.event(cm.EventDisconnected).Status)
	client.event(cm.EventTimeWaitExit)
}

// TestRemoval: the device goes away under its ids.
//
// req: CM-FILE-05
func TestRemoval(t *testing.T) {
	w := newWorld(t)
	client, server := w.nodes[0].open(), w.nodes[1].open()
	lid := server.listener(cm.PSTCP, 1, 7471, 0)
	_, sid := connected(client, server, 7471)
	client.connect(client.resolved(cm.PSTCP, 2, 7471), 0x31, 0)
	require.NoError(t, server.n.Do(func(m *cm.Manager, _ vtime.Time) error { m.RemovePort(w.now, server.n.port); return nil }))
	e := server.event(cm.EventConnectRequest) // still delivered, but dead
	server.fails(ib.ENXIO, cmdAccept, 0, &acceptCmd{UID: 3, Conn: param(0x12, 0), ID: e.ID})
	server.event(cm.EventDeviceRemoval)
	server.event(cm.EventDeviceRemoval)
	for _, id := range []uint32{sid, lid} {
		server.fails(ib.ENXIO, cmdListen, 0, &idValueCmd{id, 1})
		server.fails(ib.ENXIO, cmdQuery, 280, &idCmd{Response: answerAt, ID: id})
	}
	w.settle()
	client.event(cm.EventDisconnected)
	require.EqualValues(t, 2, server.destroy(sid))
	require.EqualValues(t, 3, server.destroy(lid))
	require.Zero(t, server.destroy(e.ID))
}

// TestClose: the last close of the descriptor is the end of every id.
//
// req: CM-DISC-04
func TestClose(t *testing.T) {
	w := newWorld(t)
	client, server := w.nodes[0].open(), w.nodes[1].open()
	server.listener(cm.PSTCP, 1, 7471, 0)
	connected(client, server, 7471)
	client.connect(client.resolved(cm.PSTCP, 2, 7471), 0x41, 0)
	client.ch.Close()
	client.ch.Close() // nothing is left to do
	w.settle()
	server.event(cm.EventConnectRequest)
	server.event(cm.EventDisconnected)
	require.Empty(t, client.ch.IDs())
	require.Len(t, server.ch.IDs(), 3)
	before := server.sets
	server.ch.Refresh()
	require.Equal(t, before+1, server.sets)
	require.Equal(t, ib.EINVAL, client.ch.Write(nil, make([]byte, 16), nil).Errno)
}

// TestStorm: a thousand connections over one listener and one channel.
//
// req: CM-CONN-08
func TestStorm(t *testing.T) {
	const n = 1000
	w := newWorld(t)
	client, server := w.nodes[0].open(), w.nodes[1].open()
	lid := server.listener(cm.PSTCP, 1, 7471, 0)
	seen := map[uint64]bool{}
	for i := range uint32(n) {
		client.do(cmdConnect, 0, &connectCmd{Conn: param(0x1000+i, 0), ID: client.resolved(cm.PSTCP, uint64(i), 7471)})
	}
	w.settle()
	for i := range uint32(n) {
		server.accept(server.event(cm.EventConnectRequest).ID, uint64(i), 0x1000+i, 0)
		e := client.event(cm.EventConnectResponse)
		require.False(t, seen[e.UID])
		seen[e.UID] = true
		client.confirm(e.ID)
	}
	for range n {
		server.event(cm.EventEstablished)
	}
	client.ch.Close()
	w.settle()
	for range n {
		server.destroy(server.event(cm.EventDisconnected).ID)
	}
	require.EqualValues(t, n, server.destroy(lid))
	server.quiet()
	w.pass(time.Minute)
}

// TestTrouble: the host learns of what a program is told by an errno or an event only: which
// command, which id and in what state, and whose.
//
// req: CM-FILE-01
func TestTrouble(t *testing.T) {
	w := newWorld(t)
	client, server := w.nodes[0].open(), w.nodes[1].open()
	client.ch.Owner = "the client"
	cid := client.resolved(cm.PSTCP, 1, 7471)
	require.Empty(t, w.nodes[0].refused)
	client.fails(ib.EINVAL, cmdListen, 0, &idValueCmd{ID: cid})
	client.fails(ib.ENOENT, cmdDisconnect, 0, &disconnectCmd{77})
	client.fails(ib.EINVAL, cmdConnect, 0, &connectCmd{ID: cid})
	_, errno := client.tryEvent()
	require.Equal(t, ib.EAGAIN, errno)
	want := []string{"listen: id 10.77.0.1:", "disconnect: id number 77: there is no such id", "connect: there are no parameters"}
	require.Len(t, w.nodes[0].refused, len(want), "that no event waits is no trouble")
	for i, r := range w.nodes[0].refused {
		require.Equal(t, "the client", r.owner)
		require.ErrorContains(t, r.err, want[i])
	}
	require.ErrorContains(t, w.nodes[0].refused[0].err, "(ROUTE_RESOLVED)")

	client.connect(cid, 0x11, 0)
	client.event(cm.EventRejected)
	require.Equal(t, []trouble{{owner: "the client", event: cm.EventRejected}}, w.nodes[0].failed, "nobody listens")
	lid := server.listener(cm.PSTCP, 2, 7472, 0)
	c2, s2 := connected(client, server, 7472)
	client.do(cmdDisconnect, 0, &disconnectCmd{c2})
	w.settle()
	server.do(cmdDisconnect, 0, &disconnectCmd{s2})
	w.pass(time.Minute)
	require.Len(t, w.nodes[0].failed, 1, "an end as it should be is no trouble")
	require.Empty(t, w.nodes[1].failed)
	server.destroy(lid)
}
