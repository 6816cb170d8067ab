package interop

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/tests/interop/lab"
)

// Failures, with the statuses of profile "rxe": ours in the requester's part must report
// what the kernel reports of the kernel, and ours in the responder's part must answer so
// that the kernel reports it. The responder has two receives posted wherever they would
// be flushed.
var failures = []scenario{
	{name: "WRITE, unknown rkey", typ: ib.QPTypeRC, run: refused(ib.WCRemAccessErr, func(_, resp *end, s *send) {
		s.op, s.rkey = ib.WRRDMAWrite, resp.m.rkey+0x5500
	})},
	{name: "READ, unknown rkey", typ: ib.QPTypeRC, run: refused(ib.WCRemAccessErr, func(_, resp *end, s *send) {
		s.op, s.rkey = ib.WRRDMARead, resp.m.rkey+0x5500
	})},
	{name: "FETCH_ADD, unknown rkey", typ: ib.QPTypeRC, run: refused(ib.WCRemAccessErr, func(_, resp *end, s *send) {
		s.op, s.rkey = ib.WRAtomicFetchAndAdd, resp.m.rkey+0x5500
	})},
	{name: "WRITE across the end", typ: ib.QPTypeRC, run: refused(ib.WCRemAccessErr, func(_, resp *end, s *send) {
		s.op, s.raddr = ib.WRRDMAWrite, resp.m.addr+endBytes-4
	})},
	{name: "WRITE of several packets across the end", typ: ib.QPTypeRC, run: refused(ib.WCRemAccessErr, func(_, resp *end, s *send) {
		s.op, s.n, s.raddr = ib.WRRDMAWrite, 5000, resp.m.addr+endBytes-4999
	})},
	{name: "READ before the beginning", typ: ib.QPTypeRC, run: refused(ib.WCRemAccessErr, func(_, resp *end, s *send) {
		s.op, s.raddr = ib.WRRDMARead, resp.m.addr-1
	})},
	{name: "WRITE to memory without REMOTE_WRITE", typ: ib.QPTypeRC, run: refusedByRights(ib.WRRDMAWrite)},
	{name: "READ from memory without REMOTE_READ", typ: ib.QPTypeRC, run: refusedByRights(ib.WRRDMARead)},
	{name: "CMP_SWP on memory without REMOTE_ATOMIC", typ: ib.QPTypeRC, run: refusedByRights(ib.WRAtomicCmpAndSwp)},
	{name: "WRITE to memory deregistered", typ: ib.QPTypeRC, run: refused(ib.WCRemAccessErr, func(_, resp *end, s *send) {
		m := resp.reg(1, 4096, allAccess)
		resp.dereg(m)
		s.op, s.raddr, s.rkey = ib.WRRDMAWrite, m.addr, m.rkey
	})},
	{name: "WRITE through a QP without REMOTE_WRITE", typ: ib.QPTypeRC, edit: noRights,
		run: refused(ib.WCRemInvReqErr, func(_, _ *end, s *send) { s.op = ib.WRRDMAWrite })},
	{name: "READ through a QP without REMOTE_READ", typ: ib.QPTypeRC, edit: noRights,
		run: refused(ib.WCRemInvReqErr, func(_, _ *end, s *send) { s.op = ib.WRRDMARead })},
	{name: "FETCH_ADD through a QP without REMOTE_ATOMIC", typ: ib.QPTypeRC, edit: noRights,
		run: refused(ib.WCRemInvReqErr, func(_, _ *end, s *send) { s.op = ib.WRAtomicFetchAndAdd })},
	{name: "READ with max_dest_rd_atomic 0", typ: ib.QPTypeRC, edit: func(req, resp *params) { resp.rd = 0 },
		run: refused(ib.WCRemInvReqErr, func(_, _ *end, s *send) { s.op = ib.WRRDMARead })},

	{name: "SEND too long", typ: ib.QPTypeRC, run: tooLong(100, 64)},
	{name: "SEND of several packets too long", typ: ib.QPTypeRC, run: tooLong(5000, 4500)},
	{name: "receive with a bad lkey", typ: ib.QPTypeRC, run: badRecv},
	{name: "SEND with a bad lkey", typ: ib.QPTypeRC, run: badSend},
	{name: "SEND_WITH_INV, unknown rkey", typ: ib.QPTypeRC, run: invalidateUnknown},
	{name: "misaligned atomic", typ: ib.QPTypeRC, run: misaligned},

	{name: "receive posted late", typ: ib.QPTypeRC, edit: func(_, resp *params) { resp.rnrTimer = 14 }, run: lateReceive},
	{name: "RNR retries used up", typ: ib.QPTypeRC, edit: func(req, _ *params) { req.rnr = 1 }, run: rnrExceeded},
	{name: "RNR retry 0", typ: ib.QPTypeRC, edit: func(req, _ *params) { req.rnr = 0 }, run: rnrExceeded},
	{name: "WRITE with immediate, RNR", typ: ib.QPTypeRC, edit: func(req, _ *params) { req.rnr = 1 }, run: rnrWrite},
	{name: "peer's QP destroyed", typ: ib.QPTypeRC, edit: fewRetries, run: peerGone(func(e *end) { e.destroyQP(e.qp) })},
	{name: "peer's QP in RESET", typ: ib.QPTypeRC, edit: fewRetries, run: peerGone(func(e *end) { e.setState(e.qp, ib.StateReset) })},
	{name: "peer's QP in ERR", typ: ib.QPTypeRC, edit: fewRetries, run: peerGone(func(e *end) { e.setState(e.qp, ib.StateErr) })},

	{name: "WRITE, unknown rkey", typ: ib.QPTypeUC, run: ucDrops},
	{name: "SEND too long", typ: ib.QPTypeUC, run: datagramTooLong},
	{name: "SEND too long", typ: ib.QPTypeUD, run: datagramTooLong},
}

// TestFailures checks statuses and states on both sides.
func TestFailures(t *testing.T) {
	guest(t)
	if !oldKernel(t) {
		t.Skipf("statuses are those of rxe in Linux 6.1; this is %s", guest(t).Kernel)
	}
	for i, s := range failures {
		if !*full && i%5 != 0 { // a selection
			continue
		}
		forEach(t, s, options{profile: qp.ProfileRXE})
	}
}

func noRights(_, resp *params)  { resp.access = ib.AccessLocalWrite }
func fewRetries(req, _ *params) { req.retry, req.timeout = 2, 14 }

// refused posts a request that the responder refuses, and a good one behind it.
func refused(status ib.WCStatus, bad func(req, resp *end, s *send)) func(*testing.T, *end, *end) {
	return func(t *testing.T, req, resp *end) {
		before := resp.fill(1, endBytes-8192, 8192)
		for wr := range uint64(2) {
			resp.recv(resp.qp, recv{wr: wr, m: resp.m, off: srcOff, n: 64})
		}
		s := send{wr: 10, m: req.m, off: srcOff, n: 8, raddr: resp.m.addr + dstOff, rkey: resp.m.rkey}
		bad(req, resp, &s)
		req.fill(2, srcOff, s.n)
		req.post(s)
		req.post(send{wr: 11, op: ib.WRSend, m: req.m, n: 8})
		req.expect(lab.SendCQ, want{wr: 10, status: status}, want{wr: 11, status: ib.WCWRFlushErr})
		resp.expect(lab.RecvCQ, want{wr: 0, status: ib.WCWRFlushErr}, want{wr: 1, status: ib.WCWRFlushErr})
		req.inState(ib.StateErr)
		resp.inState(ib.StateErr)
		resp.holds(endBytes-8192, before[:8192-4999])
	}
}

func refusedByRights(op ib.WROpcode) func(*testing.T, *end, *end) {
	return refused(ib.WCRemAccessErr, func(_, resp *end, s *send) {
		rights := map[ib.WROpcode]ib.Access{
			ib.WRRDMAWrite: ib.AccessRemoteWrite, ib.WRRDMARead: ib.AccessRemoteRead, ib.WRAtomicCmpAndSwp: ib.AccessRemoteAtomic,
		}
		m := resp.reg(1, 4096, allAccess&^rights[op])
		s.op, s.raddr, s.rkey = op, m.addr, m.rkey
	})
}

// tooLong sends more than the receive takes.
func tooLong(n, room int) func(*testing.T, *end, *end) {
	return func(t *testing.T, req, resp *end) {
		resp.recv(resp.qp, recv{wr: 0, m: resp.m, off: dstOff, n: room})
		resp.recv(resp.qp, recv{wr: 1, m: resp.m, off: dstOff, n: room})
		req.post(send{wr: 10, op: ib.WRSend, m: req.m, n: n})
		req.post(send{wr: 11, op: ib.WRSend, m: req.m, n: 8})
		req.expect(lab.SendCQ, want{wr: 10, status: ib.WCRemOpErr}, want{wr: 11, status: ib.WCWRFlushErr})
		resp.expect(lab.RecvCQ, want{wr: 0, status: ib.WCLocQPOpErr}, want{wr: 1, status: ib.WCWRFlushErr})
		req.inState(ib.StateErr)
		resp.inState(ib.StateErr)
	}
}

func badRecv(_ *testing.T, req, resp *end) {
	resp.recv(resp.qp, recv{wr: 0, m: resp.m, off: dstOff, n: 64, badKey: true})
	req.post(send{wr: 10, op: ib.WRSend, m: req.m, n: 8})
	req.failed(lab.SendCQ, 10, ib.WCRemOpErr)
	resp.failed(lab.RecvCQ, 0, ib.WCLocQPOpErr)
}

// badSend fails before anything is sent; the responder does not notice.
func badSend(_ *testing.T, req, resp *end) {
	resp.recv(resp.qp, recv{wr: 0, m: resp.m, off: dstOff, n: 64})
	req.post(send{wr: 10, op: ib.WRSend, m: req.m, n: 8, badKey: true})
	req.failed(lab.SendCQ, 10, ib.WCLocQPOpErr)
	req.inState(ib.StateErr)
	resp.quiet(lab.RecvCQ)
	resp.stays(ib.StateRTS)
}

// invalidateUnknown succeeds at the requester: rxe acknowledges before it invalidates.
func invalidateUnknown(_ *testing.T, req, resp *end) {
	resp.recv(resp.qp, recv{wr: 0, m: resp.m, off: dstOff, n: 64})
	req.post(send{wr: 10, op: ib.WRSendWithInv, m: req.m, n: 8, inv: 0x55aa00})
	req.sent(10, ib.WCSend)
	resp.failed(lab.RecvCQ, 0, ib.WCRemInvReqErr)
	resp.inState(ib.StateErr)
	req.stays(ib.StateRTS)
}

func misaligned(t *testing.T, req, resp *end) {
	err := req.send(req.qp, send{wr: 10, op: ib.WRAtomicFetchAndAdd, m: req.m, n: 8, raddr: resp.m.addr + 4, rkey: resp.m.rkey, add: 1})
	require.True(t, errors.Is(err, ib.EINVAL), "%v", err)
	req.stays(ib.StateRTS)
}

// lateReceive posts the receive 100 ms after the send, which is repeated until then.
func lateReceive(t *testing.T, req, resp *end) {
	b := req.fill(1, srcOff, 3000)
	req.post(send{wr: 10, op: ib.WRSend, m: req.m, n: 3000})
	req.post(send{wr: 11, op: ib.WRSend, m: req.m, n: 3000})
	require.Empty(t, req.poll(lab.SendCQ, 1, 100*time.Millisecond))
	for wr := range uint64(2) {
		resp.recv(resp.qp, recv{wr: wr, m: resp.m, off: dstOff + int(wr)*3000, n: 3000})
	}
	req.expect(lab.SendCQ, want{wr: 10, op: ib.WCSend}, want{wr: 11, op: ib.WCSend})
	resp.got(0, 3000)
	resp.got(1, 3000)
	resp.holds(dstOff, append(b, b...))
}

func rnrExceeded(_ *testing.T, req, resp *end) {
	req.post(send{wr: 10, op: ib.WRSend, m: req.m, n: 8})
	req.post(send{wr: 11, op: ib.WRSend, m: req.m, n: 8})
	req.expect(lab.SendCQ, want{wr: 10, status: ib.WCRNRRetryExcErr}, want{wr: 11, status: ib.WCWRFlushErr})
	req.inState(ib.StateErr)
	resp.stays(ib.StateRTS)
}

// rnrWrite leaves the target as it was.
func rnrWrite(_ *testing.T, req, resp *end) {
	req.fill(1, srcOff, 64)
	req.post(send{wr: 10, op: ib.WRRDMAWriteWithImm, m: req.m, n: 64, raddr: resp.m.addr + dstOff, rkey: resp.m.rkey})
	req.failed(lab.SendCQ, 10, ib.WCRNRRetryExcErr)
	resp.holds(dstOff, make([]byte, 64))
	resp.stays(ib.StateRTS)
}

// peerGone sends once, then takes the peer's QP away and sends again.
func peerGone(away func(*end)) func(*testing.T, *end, *end) {
	return func(_ *testing.T, req, resp *end) {
		resp.recv(resp.qp, recv{wr: 0, m: resp.m, off: dstOff, n: 8})
		req.post(send{wr: 9, op: ib.WRSend, m: req.m, n: 8})
		req.sent(9, ib.WCSend)
		resp.got(0, 8)
		away(resp)
		req.post(send{wr: 10, op: ib.WRSend, m: req.m, n: 8})
		req.post(send{wr: 11, op: ib.WRSend, m: req.m, n: 8})
		req.expect(lab.SendCQ, want{wr: 10, status: ib.WCRetryExcErr}, want{wr: 11, status: ib.WCWRFlushErr})
		req.inState(ib.StateErr)
	}
}

// ucDrops sends a WRITE that is dropped; what follows is served.
func ucDrops(_ *testing.T, req, resp *end) {
	resp.recv(resp.qp, recv{wr: 0, m: resp.m, off: dstOff, n: 8})
	req.post(send{wr: 10, op: ib.WRRDMAWrite, m: req.m, n: 8, raddr: resp.m.addr, rkey: resp.m.rkey + 0x5500})
	req.post(send{wr: 11, op: ib.WRSend, m: req.m, n: 8})
	req.expect(lab.SendCQ, want{wr: 10, op: ib.WCRDMAWrite}, want{wr: 11, op: ib.WCSend})
	resp.got(0, 8)
	resp.stays(ib.StateRTS)
}

// datagramTooLong takes the receiver's QP to ERR, as rxe does for UC and UD.
func datagramTooLong(_ *testing.T, req, resp *end) {
	for wr := range uint64(2) {
		resp.recv(resp.qp, recv{wr: wr, m: resp.m, off: dstOff, n: 64})
	}
	req.post(send{wr: 10, op: ib.WRSend, m: req.m, n: 100, qpn: resp.qpn, qkey: testQKey})
	req.sent(10, ib.WCSend)
	resp.expect(lab.RecvCQ, want{wr: 0, status: ib.WCLocQPOpErr}, want{wr: 1, status: ib.WCWRFlushErr})
	resp.inState(ib.StateErr)
	req.stays(ib.StateRTS)
}

// TestTooLongByTheBook runs our side with profile "ibta": its NAK of a SEND that is too
// long is "invalid request", and the kernel reports that; of the kernel's own NAK we
// report "remote operation error".
func TestTooLongByTheBook(t *testing.T) {
	guest(t)
	if !oldKernel(t) {
		t.Skipf("statuses are those of rxe in Linux 6.1; this is %s", guest(t).Kernel)
	}
	forEach(t, scenario{name: "SEND too long", typ: ib.QPTypeRC, run: func(_ *testing.T, req, resp *end) {
		local, remote := ib.WCLocQPOpErr, ib.WCRemOpErr
		if _, weListen := resp.side.(*ours); weListen {
			local, remote = ib.WCLocLenErr, ib.WCRemInvReqErr
		}
		resp.recv(resp.qp, recv{wr: 0, m: resp.m, off: dstOff, n: 64})
		req.post(send{wr: 10, op: ib.WRSend, m: req.m, n: 100})
		req.failed(lab.SendCQ, 10, remote)
		resp.failed(lab.RecvCQ, 0, local)
	}}, options{profile: qp.ProfileIBTA})
}
