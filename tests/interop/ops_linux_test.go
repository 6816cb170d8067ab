package interop

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/tests/interop/lab"
)

// sizes are message lengths around the edges of packets.
func sizes(mtu ib.MTU) []int {
	m := mtu.Bytes()
	return []int{0, 1, 3, m - 1, m, m + 1, 3*m + 7, 64 << 10}
}

// Where the scenarios put things in the memory of an end.
const (
	srcOff = 0
	dstOff = 128 << 10
)

var operations = []scenario{
	{name: "SEND", typ: ib.QPTypeRC, run: func(t *testing.T, req, resp *end) { sends(req, resp) }},
	{name: "SEND", typ: ib.QPTypeUC, run: func(t *testing.T, req, resp *end) { sends(req, resp) }},
	{name: "WRITE", typ: ib.QPTypeRC, run: func(t *testing.T, req, resp *end) { writes(req, resp) }},
	{name: "WRITE", typ: ib.QPTypeUC, run: func(t *testing.T, req, resp *end) { writes(req, resp) }},
	{name: "READ", typ: ib.QPTypeRC, run: reads},
	{name: "atomics", typ: ib.QPTypeRC, run: atomics},
	{name: "many at once", typ: ib.QPTypeRC, run: manyAtOnce},
	{name: "solicited events", typ: ib.QPTypeRC, run: solicited},
	{name: "memory window and SEND_WITH_INV", typ: ib.QPTypeRC, run: memoryWindow},
	{name: "SRQ of two QPs", typ: ib.QPTypeRC, run: sharedReceives},
	{name: "datagrams", typ: ib.QPTypeUD, run: datagrams},
	{name: "multicast", typ: ib.QPTypeUD, run: multicast},
}

// TestOperations checks data and completions of every operation.
func TestOperations(t *testing.T) {
	guest(t)
	for _, p := range profiles() {
		t.Run(p.Name, func(t *testing.T) {
			for _, s := range operations {
				forEach(t, s, options{profile: p})
			}
		})
	}
}

// sends sends messages of all sizes, plain and with immediate, as whole and as the last
// of several packets.
func sends(req, resp *end) {
	for i, n := range sizes(req.p.mtu) {
		b := req.fill(i, srcOff, n)
		wr := uint64(100 + i)
		for _, s := range []struct {
			op    ib.WROpcode
			flags ib.WCFlags
		}{{ib.WRSend, 0}, {ib.WRSendWithImm, ib.WCFlagWithImm}} {
			resp.put(resp.m, dstOff, make([]byte, n+1))
			resp.recv(resp.qp, recv{wr: wr, m: resp.m, off: dstOff, n: n + 8})
			req.post(send{wr: wr, op: s.op, m: req.m, off: srcOff, n: n, imm: 0xcafe0000 + uint32(i)})
			req.sent(wr, ib.WCSend)
			resp.expect(lab.RecvCQ, want{wr: wr, op: ib.WCRecv, bytes: n, flags: s.flags, imm: 0xcafe0000 + uint32(i)})
			resp.holds(dstOff, append(b[:n:n], 0))
		}
	}
}

// writes writes all sizes, plain and with immediate, and nothing beside the target.
func writes(req, resp *end) {
	for i, n := range sizes(req.p.mtu) {
		b := req.fill(50+i, srcOff, n)
		wr := uint64(200 + i)
		resp.put(resp.m, dstOff, make([]byte, n+2))
		resp.recv(resp.qp, recv{wr: wr})
		// Of a UC write without immediate nobody learns when it is there; the next one is
		// the proof, because it is in order behind it.
		s := send{wr: wr, op: ib.WRRDMAWrite, m: req.m, off: srcOff, n: n, raddr: resp.m.addr + dstOff + 1, rkey: resp.m.rkey, imm: uint32(i)}
		req.post(s)
		req.sent(wr, ib.WCRDMAWrite)
		s.op = ib.WRRDMAWriteWithImm
		req.post(s)
		req.sent(wr, ib.WCRDMAWrite)
		resp.expect(lab.RecvCQ, want{wr: wr, op: ib.WCRecvRDMAWithImm, bytes: n, flags: ib.WCFlagWithImm, imm: uint32(i)})
		resp.holds(dstOff, append(append([]byte{0}, b...), 0))
	}
}

func reads(_ *testing.T, req, resp *end) {
	for i, n := range sizes(req.p.mtu) {
		b := resp.fill(90+i, srcOff, n)
		req.put(req.m, dstOff, make([]byte, n+1))
		req.post(send{wr: 1, op: ib.WRRDMARead, m: req.m, off: dstOff, n: n, raddr: resp.m.addr + srcOff, rkey: resp.m.rkey})
		req.sent(1, ib.WCRDMARead)
		req.holds(dstOff, append(b[:n:n], 0))
	}
}

func atomics(t *testing.T, req, resp *end) {
	resp.setWord(dstOff, 1000)
	at := send{m: req.m, off: srcOff, n: 8, raddr: resp.m.addr + dstOff, rkey: resp.m.rkey}
	step := func(op ib.WROpcode, done ib.WCOpcode, add, swap, before, after uint64) {
		t.Helper()
		s := at
		s.wr, s.op, s.add, s.swap = 7, op, add, swap
		req.post(s)
		req.sent(7, done)
		require.Equal(t, before, req.word(srcOff), "value that was there before")
		require.Equal(t, after, resp.word(dstOff), "value afterwards")
	}
	step(ib.WRAtomicFetchAndAdd, ib.WCFetchAdd, 23, 0, 1000, 1023)
	step(ib.WRAtomicFetchAndAdd, ib.WCFetchAdd, ^uint64(0), 0, 1023, 1022)
	step(ib.WRAtomicCmpAndSwp, ib.WCCompSwap, 1022, 0x0102030405060708, 1022, 0x0102030405060708)
	step(ib.WRAtomicCmpAndSwp, ib.WCCompSwap, 1022, 5, 0x0102030405060708, 0x0102030405060708)
}

// TestAtomicWrite: soft-RoCE has ATOMIC_WRITE since Linux 6.2. Before that its requester
// fails and its responder drops a packet that it does not know.
func TestAtomicWrite(t *testing.T) {
	old := oldKernel(t)
	forEach(t, scenario{name: "ATOMIC_WRITE", typ: ib.QPTypeRC, edit: func(req, _ *params) {
		if old {
			req.timeout, req.retry = 8, 1
		}
	}, run: func(t *testing.T, req, resp *end) {
		aw := send{wr: 7, op: ib.WRAtomicWrite, m: req.m, off: srcOff, n: 8, raddr: resp.m.addr + dstOff, rkey: resp.m.rkey}
		req.fill(1, srcOff, 8)
		if old {
			req.post(aw)
			want := ib.WCRetryExcErr
			if req.name() == "kernel" {
				want = ib.WCLocQPOpErr
			}
			req.failed(lab.SendCQ, 7, want)
			return
		}
		// Order: each finds what the one before it left, around a READ and a WRITE.
		for i := range 20 {
			b := req.fill(i, srcOff, 8)
			write := aw
			write.wr, write.op, write.raddr = 8, ib.WRRDMAWrite, aw.raddr+8
			read := aw
			read.wr, read.op, read.off, read.n = 9, ib.WRRDMARead, dstOff, 16
			for _, s := range []send{aw, write, read} {
				req.post(s)
			}
			req.expect(lab.SendCQ, want{wr: 7, op: ib.WCAtomicWrite}, want{wr: 8, op: ib.WCRDMAWrite}, want{wr: 9, op: ib.WCRDMARead})
			resp.holds(dstOff, append(b, b...))
			req.holds(dstOff, append(b, b...))
		}
	}}, options{profile: qp.ProfileIBTA})
}

// manyAtOnce posts a mixture without waiting: order, READs up to the limit, long messages.
func manyAtOnce(t *testing.T, req, resp *end) {
	const count = 24
	src, far := req.fill(1, srcOff, 8192), resp.fill(2, srcOff, 8192)
	resp.setWord(dstOff+100<<10, 0)
	var wants []want
	for i := range count {
		wr := uint64(i)
		s := send{wr: wr, m: req.m, off: srcOff, n: 3000, rkey: resp.m.rkey}
		switch i % 4 {
		case 0:
			resp.recv(resp.qp, recv{wr: wr, m: resp.m, off: dstOff + i*3000, n: 3000})
			s.op = ib.WRSend
			wants = append(wants, want{wr: wr, op: ib.WCSend})
		case 1:
			s.op, s.raddr = ib.WRRDMAWrite, resp.m.addr+dstOff+uint64(i)*3000
			wants = append(wants, want{wr: wr, op: ib.WCRDMAWrite})
		case 2:
			s.op, s.raddr, s.off = ib.WRRDMARead, resp.m.addr+srcOff, dstOff+i*3000
			wants = append(wants, want{wr: wr, op: ib.WCRDMARead})
		case 3:
			s.op, s.raddr, s.off, s.n, s.add = ib.WRAtomicFetchAndAdd, resp.m.addr+dstOff+100<<10, dstOff+i*3000, 8, 3
			wants = append(wants, want{wr: wr, op: ib.WCFetchAdd})
		}
		req.post(s)
	}
	req.expect(lab.SendCQ, wants...)
	for i := range count {
		switch i % 4 {
		case 0:
			resp.got(uint64(i), 3000)
			resp.holds(dstOff+i*3000, src[:3000])
		case 1:
			resp.holds(dstOff+i*3000, src[:3000])
		case 2:
			req.holds(dstOff+i*3000, far[:3000])
		case 3:
			require.EqualValues(t, 3*(i/4), req.word(dstOff+i*3000))
		}
	}
}

// solicited arms the responder's queue for solicited completions only.
func solicited(t *testing.T, req, resp *end) {
	resp.arm(lab.RecvCQ, true)
	for wr := range uint64(2) {
		resp.recv(resp.qp, recv{wr: wr, m: resp.m, off: dstOff, n: 64})
	}
	req.fill(3, srcOff, 16)
	req.post(send{wr: 1, op: ib.WRSend, m: req.m, n: 16})
	req.sent(1, ib.WCSend)
	require.Equal(t, -1, resp.event(50*time.Millisecond), "event of a plain send")
	req.post(send{wr: 2, op: ib.WRSend, flags: ib.SendSolicited, m: req.m, n: 16})
	req.sent(2, ib.WCSend)
	require.Equal(t, lab.RecvCQ, resp.event(5*time.Second), "event of a solicited send")
	resp.got(0, 16)
	resp.got(1, 16)
}

// memoryWindow writes through a window that the responder has bound, lets a SEND
// invalidate it, and writes again.
func memoryWindow(_ *testing.T, req, resp *end) {
	key := resp.allocMW(0) + 1
	resp.bind(resp.qp, 0, resp.m, dstOff, 4096, ib.AccessRemoteWrite, key, 50)
	resp.sent(50, ib.WCBindMW)
	resp.recv(resp.qp, recv{wr: 1, m: resp.m, off: srcOff, n: 64})
	b := req.fill(4, srcOff, 4096)
	write := send{wr: 10, op: ib.WRRDMAWrite, m: req.m, n: 4096, raddr: resp.m.addr + dstOff, rkey: key}
	req.post(write)
	req.sent(10, ib.WCRDMAWrite)
	resp.holds(dstOff, b)
	req.post(send{wr: 11, op: ib.WRSendWithInv, m: req.m, n: 8, inv: key})
	req.sent(11, ib.WCSend)
	resp.expect(lab.RecvCQ, want{wr: 1, op: ib.WCRecv, bytes: 8, flags: ib.WCFlagWithInv})
	write.wr = 12
	req.post(write)
	req.failed(lab.SendCQ, 12, ib.WCRemAccessErr)
}

// sharedReceives lets two QPs of the responder take from one SRQ.
func sharedReceives(t *testing.T, req, resp *end) {
	resp.createSRQ(0, 16)
	var pairs [2][2]*end
	for i := range pairs {
		a, b := *req, *resp
		a.qp, b.qp = i+1, i+1
		a.qpn, b.qpn = a.createQP(i+1, ib.QPTypeRC, 16, -1), b.createQP(i+1, ib.QPTypeRC, 16, 0)
		join(ib.QPTypeRC, &a, &b, nil)
		pairs[i] = [2]*end{&a, &b}
	}
	for i := range 4 {
		resp.recvSRQ(0, recv{wr: uint64(i), m: resp.m, off: dstOff + i*5000, n: 5000})
	}
	for i := range 4 {
		b := req.fill(20+i, srcOff, 4000)
		a := pairs[i%2][0]
		a.post(send{wr: uint64(i), op: ib.WRSend, m: req.m, n: 4000})
		a.sent(uint64(i), ib.WCSend)
		got := resp.poll(lab.RecvCQ, 1, waitFor)
		require.Len(t, got, 1)
		require.Equal(t, ib.WCSuccess, got[0].Status)
		require.Equal(t, pairs[i%2][1].qpn, got[0].QPN, "QP of the completion")
		require.EqualValues(t, i, got[0].WRID)
		resp.holds(dstOff+i*5000, b)
	}
	// Nothing is left: the sender waits until something is.
	req.fill(30, srcOff, 100)
	pairs[0][0].post(send{wr: 9, op: ib.WRSend, m: req.m, n: 100})
	pairs[0][0].quiet(lab.SendCQ)
	resp.recvSRQ(0, recv{wr: 9, m: resp.m, off: dstOff, n: 100})
	pairs[0][0].sent(9, ib.WCSend)
	resp.got(9, 100)
}

// datagrams checks the GRH, immediates, and what a wrong Q_Key does.
func datagrams(t *testing.T, req, resp *end) {
	for i, n := range []int{1, 2, 3, 4, 100, req.p.mtu.Bytes()} {
		b := req.fill(i, srcOff, n)
		resp.put(resp.m, dstOff, make([]byte, ib.GRHBytes+n+8))
		resp.recv(resp.qp, recv{wr: uint64(i), m: resp.m, off: dstOff, n: ib.GRHBytes + n + 8})
		op, flags := ib.WRSend, ib.WCFlags(0)
		if i%2 == 1 {
			op, flags = ib.WRSendWithImm, ib.WCFlagWithImm
		}
		dgram := send{wr: uint64(i), op: op, m: req.m, n: n, imm: 77, qpn: resp.qpn, qkey: testQKey + 1}
		req.post(dgram) // wrong Q_Key: lost
		req.sent(uint64(i), ib.WCSend)
		dgram.qkey = testQKey
		req.post(dgram)
		req.sent(uint64(i), ib.WCSend)
		wcs := resp.poll(lab.RecvCQ, 1, waitFor)
		require.Len(t, wcs, 1)
		w := wcs[0]
		require.Equal(t, ib.WCSuccess, w.Status)
		require.EqualValues(t, ib.GRHBytes+n, w.ByteLen)
		require.Equal(t, flags|ib.WCFlagGRH, w.Flags)
		require.Equal(t, req.qpn, w.SrcQP)
		if flags != 0 {
			require.EqualValues(t, 77, w.Imm)
		}
		resp.holds(dstOff+ib.GRHBytes, append(b[:n:n], 0))
		checkGRH(t, resp.get(resp.m, dstOff, ib.GRHBytes), req.gid(), resp.gid(), n)
	}
	resp.quiet(lab.RecvCQ)
}

// checkGRH looks at the first 40 bytes of a datagram: over IPv4 the last 20 of them hold
// the IP header, over IPv6 all.
func checkGRH(t *testing.T, grh []byte, from, to ib.GID, n int) {
	t.Helper()
	udpBytes := 8 + 12 + 8 + (n+3)&^3 + 4 // UDP, BTH, DETH, payload, ICRC
	if from.IsIPv4() {
		ip := grh[20:]
		require.EqualValues(t, 0x45, ip[0], "% x", grh)
		require.InDelta(t, 20+udpBytes, binary.BigEndian.Uint16(ip[2:]), 4, "total length (with or without immediate)")
		require.EqualValues(t, 17, ip[9])
		a, b := from.IPv4(), to.IPv4()
		require.Equal(t, a[:], ip[12:16], "source")
		require.Equal(t, b[:], ip[16:20], "destination")
		return
	}
	require.EqualValues(t, 6, grh[0]>>4, "% x", grh)
	require.InDelta(t, udpBytes, binary.BigEndian.Uint16(grh[4:]), 4, "payload length (with or without immediate)")
	require.Equal(t, from[:], grh[8:24], "source")
	require.Equal(t, to[:], grh[24:40], "destination")
}

// multicast sends to a group that the responder has joined.
func multicast(t *testing.T, req, resp *end) {
	group := ib.GID{0xff, 0x0e, 15: 0x42}
	if req.gid().IsIPv4() {
		group = ib.GIDFromIPv4(239, 1, 2, 3)
	}
	resp.attach(resp.qp, group)
	req.createAH(1, group)
	for i := range 3 {
		b := req.fill(60+i, srcOff, 300)
		resp.recv(resp.qp, recv{wr: uint64(i), m: resp.m, off: dstOff, n: ib.GRHBytes + 300})
		req.post(send{wr: uint64(i), op: ib.WRSend, m: req.m, n: 300, ah: 1, qpn: ib.QPNMulticast, qkey: testQKey})
		req.sent(uint64(i), ib.WCSend)
		resp.got(uint64(i), ib.GRHBytes+300)
		resp.holds(dstOff+ib.GRHBytes, b)
		checkGRH(t, resp.get(resp.m, dstOff, ib.GRHBytes), req.gid(), group, 300)
	}
}

// TestTrains sends long messages, which leave this process as trains that the host's
// kernel cuts into datagrams. The peer drops a datagram whose ICRC does not fit, and the
// ICRC names the IPv4 identification that we expect the kernel to give: so no packet may
// have to be sent twice. The other way around the peer numbers its packets, and the
// number is found by solving.
func TestTrains(t *testing.T) {
	guest(t)
	for _, f := range families {
		for _, noGSO := range []bool{false, true} {
			name := map[bool]string{false: "trains", true: "single datagrams"}[noGSO]
			t.Run(name+"/"+f.name, func(t *testing.T) {
				record(t, "RC 20 x 128 KiB WRITE and READ, "+name, "both", f.name)
				req, resp := connected(t, ib.QPTypeRC, f, directions[0], options{noGSO: noGSO, profile: qp.ProfileIBTA}, func(req, _ *params) { req.timeout = 20 })
				trains(t, req, resp, !noGSO)
			})
		}
	}
}

func trains(t *testing.T, req, resp *end, wantTrains bool) {
	us := req.side.(*ours)
	for i := range 20 {
		b := req.fill(i, srcOff, 128<<10)
		req.post(send{wr: 1, op: ib.WRRDMAWrite, m: req.m, n: len(b), raddr: resp.m.addr + dstOff, rkey: resp.m.rkey})
		req.sent(1, ib.WCRDMAWrite)
		req.post(send{wr: 2, op: ib.WRRDMARead, m: req.m, off: dstOff, n: len(b), raddr: resp.m.addr + dstOff, rkey: resp.m.rkey})
		req.sent(2, ib.WCRDMARead)
		req.holds(dstOff, b)
	}
	c, d := us.dev.Counters(), us.details()
	t.Logf("sent %d packets in %d trains, again %d; received %d in %d trains, %d identifications solved",
		c.Port.TxPackets, d.TxTrains, c.Device.RetransPackets, c.Port.RxPackets, d.RxTrains, d.RxSolvedID)
	require.Equal(t, wantTrains, d.TxTrains > 0, "%+v", d)
	require.Zero(t, c.Port.RxBadICRC, "ICRC of packets from the kernel")
	require.Zero(t, c.Device.RetransPackets, "packets that the kernel did not accept or lost")
	if req.gid().IsIPv4() {
		require.NotZero(t, d.RxSolvedID)
	}
}
