package verbs

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/loopback"
	"github.com/rvtsim/rvtsim/strict"
)

// strictPair opens two hosts in strict mode with a connected RC QP each, whose sends are
// signaled only if they say so.
type strictPair struct {
	*testing.T
	a, b   *host
	qa, qb *QP
}

func newStrictPair(t *testing.T, sqSigAll bool, change func(*ConnParams)) *strictPair {
	was := strictTests
	strictTests = true
	defer func() { strictTests = was }()
	da, db := openSwitch(t)
	p := &strictPair{T: t, a: newHost(t, da), b: newHost(t, db)}
	p.qa, p.qb = p.qp(p.a, ib.QPTypeRC, sqSigAll), p.qp(p.b, ib.QPTypeRC, sqSigAll)
	p.connect(p.qa, p.qb, change)
	p.connect(p.qb, p.qa, change)
	return p
}

func (p *strictPair) qp(h *host, typ ib.QPType, sqSigAll bool) *QP {
	q, err := h.pd.CreateQP(QPInitAttr{Type: typ, SendCQ: h.cq, RecvCQ: h.cq, SQSigAll: sqSigAll,
		Cap: QPCap{MaxSendWR: 4, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}})
	require.NoError(p, err)
	return q
}

func (p *strictPair) connect(q, peer *QP, change func(*ConnParams)) {
	c := DefaultConnParams(peer.Device().GID(), peer.QPN())
	if change != nil {
		change(&c)
	}
	require.NoError(p, q.ToInit(c))
	require.NoError(p, q.ToRTR(c))
	require.NoError(p, q.ToRTS(c))
}

func (p *strictPair) write(id uint64, flags ib.SendFlags) SendWR {
	return SendWR{WRID: id, Opcode: ib.WRRDMAWrite, Flags: flags, SGL: p.a.sgl(int(id)*64, 64), RemoteAddr: p.b.mr.Addr(0), RKey: p.b.mr.RKey()}
}

// reported requires exactly one report of a device, with this code, that names the
// object and, if file is not empty, a call in that file.
func (p *strictPair) reported(d *Device, code *strict.Code, object fmt.Stringer, place string) StrictReport {
	p.Helper()
	rs := d.Reports()
	require.Len(p, rs, 1, "%v", rs)
	require.Equal(p, code.ID, rs[0].Code)
	require.Equal(p, object.String(), rs[0].Object)
	if place != "" {
		require.Contains(p, strings.Join(rs[0].Places, "\n"), place)
		require.Contains(p, strings.Join(rs[0].Places, "\n"), "strict_test.go:")
	}
	return rs[0]
}

func (p *strictPair) silent() {
	p.Helper()
	require.Empty(p, p.a.d.Reports())
	require.Empty(p, p.b.d.Reports())
}

// field report libfabric-sigall
func TestStrictAllUnsignaled(t *testing.T) {
	p := newStrictPair(t, false, nil)
	for id := range uint64(4) {
		require.NoError(t, p.qa.PostSend(p.write(id, 0)))
	}
	p.reported(p.a.d, &strict.SQNeverFrees, p.qa, "post_send of wr 3 (RDMA_WRITE)")
	require.Eventually(t, func() bool { p.a.d.Progress(); return p.a.d.Counters().Device.MessagesSent == 4 }, 20*time.Second, time.Millisecond)
	err := p.qa.PostSend(p.write(4, ib.SendSignaled))
	require.ErrorIs(t, err, ib.ENOMEM, "acknowledged, but no completion will ever be polled")
	require.ErrorContains(t, err, "4 of 4 slots hold work whose completion was not polled, nor a later one; 4 of them are carried out, 0 signaled")
}

// field reports brpc-window, spdk-post-enomem, tensorpipe-sq-size
func TestStrictSlotsNeedAPoll(t *testing.T) {
	p := newStrictPair(t, false, nil)
	for id := range uint64(4) {
		flags := ib.SendFlags(0)
		if id == 2 {
			flags = ib.SendSignaled
		}
		require.NoError(t, p.qa.PostSend(p.write(id, flags)))
	}
	require.Eventually(t, func() bool { p.a.d.Progress(); return p.a.d.Counters().Device.MessagesSent == 4 }, 20*time.Second, time.Millisecond)
	err := p.qa.PostSend(p.write(0, 0), p.write(1, 0))
	var bad *BadWR
	require.ErrorAs(t, err, &bad)
	require.Equal(t, 0, bad.Index)
	require.ErrorContains(t, err, "1 completion waits in the queue to be polled")
	p.reported(p.a.d, &strict.SQNotPolled, p.qa, "post_send")
	p.a.ok(1) // wr 2: three slots are free, that of wr 3 is not
	err = p.qa.PostSend(p.write(0, 0), p.write(1, 0), p.write(2, 0), p.write(3, 0))
	require.ErrorAs(t, err, &bad)
	require.Equal(t, 3, bad.Index)
}

func TestStrictBufferChanged(t *testing.T) {
	p := newStrictPair(t, true, nil)
	send := SendWR{WRID: 1, Opcode: ib.WRSend, SGL: p.a.sgl(0, 64)}
	p.a.mr.Bytes()[0] = 1
	require.NoError(t, p.qa.PostSend(send))
	_, err := p.a.d.node.Begin() // keeps the race detector and the adapter out
	require.NoError(t, err)
	p.a.mr.Bytes()[0] = 2
	p.a.d.node.End(1)
	require.NoError(t, p.qb.PostRecv(RecvWR{SGL: p.b.sgl(0, 64)}))
	p.a.ok(1)
	p.reported(p.a.d, &strict.BufferChanged, p.qa, "post_send of wr 1 (SEND)")
}

// TestStrictBufferPipelines: a WRITE that forwards what a READ before it fetches is no
// misuse, nor is inline data that is reused at once.
func TestStrictBufferPipelines(t *testing.T) {
	p := newStrictPair(t, true, nil)
	p.b.mr.Bytes()[100] = 9
	require.NoError(t, p.qa.PostSend(
		SendWR{WRID: 1, Opcode: ib.WRRDMARead, SGL: p.a.sgl(0, 64), RemoteAddr: p.b.mr.Addr(64), RKey: p.b.mr.RKey()},
		SendWR{WRID: 2, Opcode: ib.WRRDMAWrite, Flags: ib.SendFence, SGL: p.a.sgl(0, 64), RemoteAddr: p.b.mr.Addr(4096), RKey: p.b.mr.RKey()}))
	p.a.ok(2)
	require.Equal(t, byte(9), p.b.mr.Bytes()[4096+36])
	inline := make([]byte, 8)
	require.NoError(t, p.qb.PostRecv(RecvWR{SGL: p.b.sgl(0, 64)}))
	require.NoError(t, p.qa.PostSend(SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: inline}))
	inline[0]++
	p.a.ok(1)
	p.b.ok(1)
	p.silent()
}

func TestStrictOverlappingReceives(t *testing.T) {
	p := newStrictPair(t, true, nil)
	require.NoError(t, p.qb.PostRecv(RecvWR{WRID: 1, SGL: p.b.sgl(0, 64)}, RecvWR{WRID: 2, SGL: p.b.sgl(64, 64)}))
	p.silent()
	require.NoError(t, p.qb.PostRecv(RecvWR{WRID: 3, SGL: p.b.sgl(100, 64)}))
	r := p.reported(p.b.d, &strict.RecvOverlap, p.qb, "post_recv of wr 3")
	require.Contains(t, r.Text, "28 bytes of receive wr 3 belong to receive wr 2")
}

// field report torchcomms-prepost
func TestStrictEmptyReceiveQueue(t *testing.T) {
	p := newStrictPair(t, true, nil)
	require.NoError(t, p.qa.PostSend(SendWR{Opcode: ib.WRSend, SGL: p.a.sgl(0, 8)}))
	require.Eventually(t, func() bool { p.b.d.Progress(); return len(p.b.d.Reports()) > 0 }, 20*time.Second, time.Millisecond)
	p.reported(p.b.d, &strict.RecvEmpty, p.qb, "")
	require.NoError(t, p.qb.PostRecv(RecvWR{SGL: p.b.sgl(0, 64)}))
	p.a.ok(1)
	require.NotZero(t, p.b.d.Counters().Device.SentRNRNAK)
	require.NotZero(t, p.a.d.Counters().Device.RcvdRNRNAK)
}

func TestStrictLostWakeup(t *testing.T) {
	p := newStrictPair(t, true, nil)
	require.NoError(t, p.qa.PostSend(p.write(0, 0)))
	require.Eventually(t, func() bool { p.a.d.Progress(); return p.a.d.Counters().Device.MessagesSent == 1 }, 20*time.Second, time.Millisecond)
	require.NoError(t, p.a.cq.ReqNotify(false)) // the completion is there already
	_, err := p.a.ch.Get(over())
	require.Error(t, err)
	p.reported(p.a.d, &strict.LostWakeup, p.a.cq, "req_notify_cq")
	// The right order: arm, poll, wait.
	q := newStrictPair(t, true, nil)
	require.NoError(t, q.a.cq.ReqNotify(false))
	require.NoError(t, q.qa.PostSend(q.write(0, 0)))
	_, err = q.a.ch.Get(within(t))
	require.NoError(t, err)
	require.NoError(t, q.a.cq.AckEvents(1))
	require.NoError(t, q.a.cq.ReqNotify(false))
	q.a.ok(1)
	_, err = q.a.ch.Get(over())
	require.Error(t, err)
	q.silent()
	// One of two is polled.
	r := newStrictPair(t, true, nil)
	require.NoError(t, r.qa.PostSend(r.write(0, 0), r.write(1, 0)))
	require.Eventually(t, func() bool { r.a.d.Progress(); return r.a.d.Counters().Device.MessagesSent == 2 }, 20*time.Second, time.Millisecond)
	require.NoError(t, r.a.cq.ReqNotify(false))
	n, err := r.a.cq.Poll(make([]WC, 1))
	require.NoError(t, err)
	require.Equal(t, 1, n)
	_, err = r.a.ch.Get(over())
	require.Error(t, err)
	r.reported(r.a.d, &strict.LostWakeup, r.a.cq, "get_cq_event")
}

// field report ucx-ack-wrong-cq: two queues at one channel, and both events acknowledged to one
// of them. The other one cannot be destroyed, and strict mode says why.
func TestFieldAckOfAnotherQueue(t *testing.T) {
	p := newStrictPair(t, true, nil)
	other, err := p.a.d.CreateCQ(4, p.a.ch)
	require.NoError(t, err)
	q, err := p.a.pd.CreateQP(QPInitAttr{Type: ib.QPTypeRC, SendCQ: other, RecvCQ: other, SQSigAll: true, Cap: QPCap{MaxSendWR: 4, MaxSendSGE: 1}})
	require.NoError(t, err)
	require.NoError(t, Connect(q, p.b.qp(ib.QPTypeRC, nil)))
	for _, x := range []struct {
		q *QP
		c *CQ
	}{{p.qa, p.a.cq}, {q, other}} {
		require.NoError(t, x.c.ReqNotify(false))
		require.NoError(t, x.q.PostSend(p.write(1, 0)))
		from, err := p.a.ch.Get(within(t))
		require.NoError(t, err)
		require.Same(t, x.c, from)
	}
	require.ErrorContains(t, other.AckEvents(2), "1", "more than there were")
	require.NoError(t, other.AckEvents(1))
	require.NoError(t, q.Destroy(within(t)))
	require.NoError(t, other.Destroy(within(t)))
	require.NoError(t, p.qa.Destroy(within(t)))
	require.Error(t, p.a.cq.Destroy(over()))
	p.reported(p.a.d, &strict.UnackedEvents, p.a.cq, "destroy_cq")
	require.NoError(t, p.a.cq.AckEvents(1))
}

// field reports ucx-ack-wrong-cq, core-cq-ack-python
func TestStrictUnackedEvents(t *testing.T) {
	p := newStrictPair(t, true, nil)
	require.NoError(t, p.a.cq.ReqNotify(false))
	require.NoError(t, p.qa.PostSend(p.write(0, 0)))
	_, err := p.a.ch.Get(within(t))
	require.NoError(t, err)
	p.a.ok(1)
	require.NoError(t, p.qa.Destroy(within(t)))
	var unacked *UnackedError
	require.ErrorAs(t, p.a.cq.Destroy(over()), &unacked)
	p.reported(p.a.d, &strict.UnackedEvents, p.a.cq, "destroy_cq")
	require.NoError(t, p.a.cq.AckEvents(1))
}

// field report core-arm-null-channel
func TestStrictArmWithoutChannel(t *testing.T) {
	p := newStrictPair(t, true, nil)
	c, err := p.a.d.CreateCQ(4, nil)
	require.NoError(t, err)
	require.NoError(t, c.ReqNotify(false))
	p.reported(p.a.d, &strict.ArmWithoutChannel, c, "req_notify_cq")
}

// field report perftest-shared-cq
func TestStrictCQTooSmall(t *testing.T) {
	p := newStrictPair(t, true, nil)
	require.NoError(t, p.a.cq.Resize(2))
	for id := range uint64(3) {
		require.NoError(t, p.qa.PostRecv(RecvWR{WRID: id, SGL: p.a.sgl(int(id)*64, 64)}))
	}
	p.reported(p.a.d, &strict.CQTooSmall, p.a.cq, "post_recv of wr 2")
}

func TestStrictTimers(t *testing.T) {
	for _, c := range []struct {
		change func(*ConnParams)
		code   *strict.Code
	}{
		{func(c *ConnParams) { c.Timeout = 0 }, &strict.WaitsForHours},
		{func(c *ConnParams) { c.Timeout = 27 }, &strict.WaitsForHours}, // 9 minutes, 8 times
		{func(c *ConnParams) { c.MinRNRTimer = 0 }, &strict.LongestRNR},
	} {
		p := newStrictPair(t, true, c.change)
		p.reported(p.a.d, c.code, p.qa, "modify_qp")
	}
}

func TestStrictFreedRegion(t *testing.T) {
	p := newStrictPair(t, true, nil)
	m, err := p.a.pd.RegMR(make([]byte, 64), ib.AccessLocalWrite)
	require.NoError(t, err)
	require.NoError(t, p.qa.PostRecv(RecvWR{WRID: 7, SGL: []SGE{m.SGE(0, 64)}}))
	require.NoError(t, m.Dereg())
	r := p.reported(p.a.d, &strict.FreedMR, namedKey(m.LKey()), "dereg_mr")
	require.Contains(t, strings.Join(r.Places, "\n"), "post_recv of wr 7")
}

type namedKey ib.LKey

func (k namedKey) String() string { return "mr " + ib.LKey(k).String() }

// field report rdma-example-lkey
func TestStrictLKeyAsRKey(t *testing.T) {
	p := newStrictPair(t, true, nil)
	wr := p.write(1, 0)
	wr.RKey = ib.RKey(p.b.mr.LKey())
	require.NoError(t, p.qa.PostSend(wr))
	require.Equal(t, ib.WCRemAccessErr, p.a.wait(1)[0].Status)
	p.reported(p.b.d, &strict.LKeyAsRKey, p.qb, "")
}

// field reports spdk-rxe-destroy-crash, spdk-rxe-abort
func TestStrictCompletionOfDestroyedQP(t *testing.T) {
	p := newStrictPair(t, true, nil)
	require.NoError(t, p.qa.PostSend(p.write(1, 0)))
	require.Eventually(t, func() bool { p.a.d.Progress(); return p.a.d.Counters().Device.MessagesSent == 1 }, 20*time.Second, time.Millisecond)
	require.NoError(t, p.qa.Destroy(within(t)))
	p.a.ok(1)
	p.reported(p.a.d, &strict.DeadQP, p.qa, "")
}

// field reports libfabric-opcode-err, spdk-opcode-assert, tensorpipe-opcode,
// libfabric-rma-ctx: nothing but wr_id, status, qp_num and vendor_err can be used.
func TestStrictPoison(t *testing.T) {
	ops := []ib.WROpcode{ib.WRRDMAWrite, ib.WRRDMARead, ib.WRAtomicFetchAndAdd, ib.WRAtomicCmpAndSwp}
	for i, id := range []uint64{0, 1, 1 << 63, 1<<64 - 1} {
		p := newStrictPair(t, true, nil)
		wr := p.write(0, 0)
		wr.WRID, wr.RKey, wr.Opcode, wr.SGL = id, wr.RKey+0x100, ops[i], p.a.sgl(0, 8)
		require.NoError(t, p.qa.PostRecv(RecvWR{WRID: id, SGL: p.a.sgl(64, 8)}))
		require.NoError(t, p.qa.PostSend(wr))
		for _, wc := range p.a.wait(2) {
			require.Equal(t, id, wc.WRID)
			require.Equal(t, p.qa.QPN(), wc.QPN)
			require.NotEqual(t, ib.WCSuccess, wc.Status)
			require.NotZero(t, wc.VendorErr)
			require.Equal(t, cq.PoisonOpcode, wc.Opcode)
			require.Equal(t, uint32(cq.PoisonWord), wc.ByteLen)
			require.Equal(t, uint32(cq.PoisonWord), wc.Imm)
			require.Equal(t, cq.PoisonFlags, wc.Flags)
		}
	}
}

// field report ucx-ud-grh: over IPv4 the first half of the header area means nothing.
func TestStrictPoisonsGRH(t *testing.T) {
	p := newStrictPair(t, true, nil)
	qa, qb := p.qp(p.a, ib.QPTypeUD, true), p.qp(p.b, ib.QPTypeUD, true)
	require.NoError(t, Connect(qa, qb))
	ah, err := p.a.pd.CreateAH(AV{DGID: p.b.d.GID(), IsGlobal: true, PortNum: 1, HopLimit: 64})
	require.NoError(t, err)
	require.NoError(t, qb.PostRecv(RecvWR{SGL: p.b.sgl(0, 48)}))
	require.NoError(t, qa.PostSend(SendWR{Opcode: ib.WRSend, SGL: p.a.sgl(0, 8), AH: ah, RemoteQPN: qb.QPN(), RemoteQKey: 0x11111111}))
	p.b.ok(1)
	for i, c := range p.b.mr.Bytes()[:40] {
		switch {
		case i < 20:
			require.Equal(t, byte(0xe5), c)
		case i == 20:
			require.Equal(t, byte(0x45), c)
		}
	}
}

// field report tensorcast-fifo: the order of each queue holds, that across queues does
// not, and the seed decides.
func TestStrictFreedom(t *testing.T) {
	was := strictTests
	strictTests = true
	defer func() { strictTests = was }()
	da, db := openSwitch(t)
	a, b := newHost(t, da), newHost(t, db)
	var qs []*QP
	for range 4 {
		x, y := a.qp(ib.QPTypeRC, nil), b.qp(ib.QPTypeRC, nil)
		require.NoError(t, Connect(x, y))
		qs = append(qs, x)
	}
	next, swapped := map[ib.QPN]uint64{}, false
	for round := range uint64(200) {
		for _, q := range qs {
			require.NoError(t, q.PostSend(SendWR{WRID: round, Opcode: ib.WRRDMAWrite, SGL: a.sgl(0, 8), RemoteAddr: b.mr.Addr(0), RKey: b.mr.RKey()}))
		}
		require.Eventually(t, func() bool { da.Progress(); return da.Counters().Device.MessagesSent == 4*(round+1) }, 20*time.Second, 10*time.Microsecond)
		for i, wc := range a.ok(4) {
			require.Equal(t, next[wc.QPN], wc.WRID)
			next[wc.QPN]++
			swapped = swapped || wc.QPN != qs[i].QPN()
		}
	}
	require.True(t, swapped)
	require.Empty(t, da.Reports())
}

// TestStrictSilent: a correct program is told nothing. It sends both ways with windows,
// signals every fourth send, uses each buffer again when it may, sleeps in a channel, and
// takes everything down in the right order.
func TestStrictSilent(t *testing.T) {
	for _, typ := range []ib.QPType{ib.QPTypeRC, ib.QPTypeUC} {
		t.Run(typ.String(), func(t *testing.T) { strictSilent(t, typ) })
	}
}

func strictSilent(t *testing.T, typ ib.QPType) {
	was := strictTests
	strictTests = true
	defer func() { strictTests = was }()
	da, db := openSwitch(t)
	a, b := newHost(t, da), newHost(t, db)
	p := &strictPair{T: t, a: a, b: b}
	p.qa, p.qb = p.qp(a, typ, false), p.qp(b, typ, false)
	ca, cb := DefaultConnParams(db.GID(), p.qb.QPN()), DefaultConnParams(da.GID(), p.qa.QPN())
	require.NoError(t, p.qa.ToInit(ca))
	require.NoError(t, p.qb.ToInit(cb))
	const window, rounds = 8, 1000
	require.NoError(t, a.cq.Resize(4)) // no larger than it has to be
	require.NoError(t, b.cq.Resize(window))
	recv := func(i int) {
		require.NoError(t, p.qb.PostRecv(RecvWR{WRID: uint64(i), SGL: b.sgl(i%window*64, 64)}))
	}
	for i := range window {
		recv(i)
	}
	require.NoError(t, p.qa.ToRTR(ca))
	require.NoError(t, p.qb.ToRTR(cb))
	require.NoError(t, p.qa.ToRTS(ca))
	require.NoError(t, p.qb.ToRTS(cb))
	ctx := within(t)
	events, received, polled := 0, 0, 0
	wc := make([]WC, 4)
	for sent := 0; received < rounds; {
		for sent < rounds && sent-received < window && sent-polled < 4 {
			a.mr.Bytes()[sent%4*64]++ // free: its send was polled
			flags := ib.SendFlags(0)
			if sent%4 == 3 || sent == rounds-1 {
				flags = ib.SendSignaled
			}
			require.NoError(t, p.qa.PostSend(SendWR{WRID: uint64(sent), Opcode: ib.WRSend, Flags: flags, SGL: a.sgl(sent%4*64, 64)}))
			sent++
		}
		if k, err := a.cq.Poll(wc); k > 0 {
			require.NoError(t, err)
			polled = int(wc[k-1].WRID) + 1
		}
		require.NoError(t, b.cq.ReqNotify(false))
		k, err := b.cq.Poll(wc)
		require.NoError(t, err)
		for range k {
			recv(received + window)
			received++
		}
		if k == 0 && sent-polled == 4 && sent > received {
			if _, err := b.ch.Get(ctx); err == nil {
				events++
			}
		}
	}
	require.NoError(t, b.cq.AckEvents(events))
	for _, q := range []*QP{p.qa, p.qb} {
		require.NoError(t, q.Modify(&QPAttr{State: ib.StateErr}, ib.AttrState))
	}
	b.wait(window)
	for _, h := range []*host{a, b} {
		for k := 1; k > 0; {
			var err error
			k, err = h.cq.Poll(wc)
			require.NoError(t, err)
		}
	}
	ack(p)
	require.NoError(t, p.qa.Destroy(ctx))
	require.NoError(t, p.qb.Destroy(ctx))
	for _, h := range []*host{a, b} {
		require.NoError(t, h.mr.Dereg())
		require.NoError(t, h.cq.Destroy(ctx))
		require.NoError(t, h.ch.Destroy())
		require.NoError(t, h.pd.Dealloc())
	}
	p.silent()
}

// ack fetches and acknowledges events that nobody fetched.
func ack(p *strictPair) {
	for _, h := range []*host{p.a, p.b} {
		for {
			if c, err := h.ch.TryGet(); err != nil {
				break
			} else if c.AckEvents(1) != nil {
				p.Fatal("ack")
			}
		}
	}
}

// TestStrictChangesNothing runs the package's other tests in strict mode: programs that
// work without go on to work. (Their receives share memory, which is reported.)
func TestStrictChangesNothing(t *testing.T) {
	strictTests = true
	defer func() { strictTests = false }()
	for name, f := range map[string]func(*testing.T){
		"operations": TestEveryOperation, "unreliable": TestUnreliableTransports, "bad posts": TestPostStopsAtTheFirstBad, "destruction": TestOrderOfDestruction,
		"windows": TestMemoryWindows, "events": TestEventAfterArm, "wakeups": TestNoLostWakeup, "getters": TestSeveralGetters,
		"acks": TestDestroyWaitsForAcks, "async": TestAsyncEvents, "accounting": TestEveryWRIsAccountedFor, "destroy": TestDestroyUnderFire,
		"modify": TestModifyAndQuery, "shutdown": TestShutdownEndsEveryWait,
	} {
		t.Run(name, f)
	}
}

func TestStrictChecksAreSeparate(t *testing.T) {
	var got []string
	d, err := Open(Config{Address: loopback.Node(3, testPort), StrictChecks: strict.Checks{Events: true}, StrictReport: func(r StrictReport) { got = append(got, r.String()) }})
	require.NoError(t, err)
	defer d.Shutdown()
	c, err := d.CreateCQ(4, nil)
	require.NoError(t, err)
	require.NoError(t, c.ReqNotify(false))
	require.NoError(t, c.ReqNotify(false)) // said once
	require.Len(t, got, 1)
	require.True(t, strings.HasPrefix(got[0], "STRICT-EV-03: "+c.String()+": "), got[0])
	require.Nil(t, (&Device{}).Reports())
	require.NoError(t, c.Destroy(context.Background()))
}

// TestStrictReset: what RESET drops is forgotten, slots and memory are free again, and
// the bookkeeping goes on.
func TestStrictReset(t *testing.T) {
	p := newStrictPair(t, true, nil)
	for range 3 {
		require.NoError(t, p.qa.PostRecv(RecvWR{WRID: 9, SGL: p.a.sgl(0, 64)}))
		for id := range uint64(4) {
			require.NoError(t, p.qa.PostSend(p.write(id, 0)))
		}
		for _, q := range []*QP{p.qa, p.qb} {
			require.NoError(t, q.Modify(&QPAttr{State: ib.StateReset}, ib.AttrState))
		}
		for k := 1; k > 0; {
			var err error
			k, err = p.a.cq.Poll(make([]WC, 8))
			require.NoError(t, err)
		}
		p.connect(p.qa, p.qb, nil)
		p.connect(p.qb, p.qa, nil)
	}
	for id := range uint64(4) {
		require.NoError(t, p.qa.PostSend(p.write(id, 0)))
	}
	for i, wc := range p.a.ok(4) {
		require.Equal(t, uint64(i), wc.WRID)
	}
	for id := range uint64(4) {
		require.NoError(t, p.qa.PostSend(p.write(id, 0)), "the slots are free again")
	}
	p.a.ok(4)
	p.silent()
}

// TestStrictSharedHeaders: the headers of all datagrams may go to one place.
func TestStrictSharedHeaders(t *testing.T) {
	p := newStrictPair(t, true, nil)
	q := p.qp(p.b, ib.QPTypeUD, true)
	require.NoError(t, q.ToInit(DefaultConnParams(p.b.d.GID(), 0)))
	for i := range 3 {
		require.NoError(t, q.PostRecv(RecvWR{SGL: []SGE{p.b.mr.SGE(0, 40), p.b.mr.SGE(64+i*64, 64)}}))
	}
	p.silent()
	require.NoError(t, q.PostRecv(RecvWR{SGL: []SGE{p.b.mr.SGE(0, 40), p.b.mr.SGE(64, 64)}}))
	p.reported(p.b.d, &strict.RecvOverlap, q, "post_recv")
}
