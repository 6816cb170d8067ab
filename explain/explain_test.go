package explain_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/explain"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

var update = flag.Bool("update", false, "rewrite the expected texts")

const base = 0x10000

// side is one device in virtual time.
type side struct {
	t    *testing.T
	name string
	dev  *rvt.Device
	pd   *rvt.PD
	cq   *cq.CQ
	mr   *rvt.MR
	qp   *qp.QP
	gid  ib.GID
	gone bool // takes no packets
}

// world is two connected sides and a clock.
type world struct {
	a, b *side
	now  vtime.Time
}

func newSide(t *testing.T, name string, n byte) *side {
	s := &side{t: t, name: name, gid: ib.GIDFromIPv4(10, 0, 0, n)}
	var err error
	s.dev, err = rvt.New(rvt.DefaultConfig(name, s.gid))
	require.NoError(t, err)
	s.pd, err = s.dev.AllocPD()
	require.NoError(t, err)
	s.cq, err = s.dev.CreateCQ(16, nil)
	require.NoError(t, err)
	buf := make([]byte, 4096)
	s.mr, err = s.dev.RegMR(s.pd, mr.NewSlice(base, buf), base, uint64(len(buf)), base, ib.AccessLocalWrite|ib.AccessRemoteMask)
	require.NoError(t, err)
	s.qp, err = s.dev.CreateQP(s.pd, &qp.InitAttr{SendCQ: s.cq, RecvCQ: s.cq, Type: ib.QPTypeRC, SQSigAll: true,
		Cap: qp.Cap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 2, MaxRecvSGE: 2}})
	require.NoError(t, err)
	return s
}

func (s *side) modify(a qp.Attr, m ib.AttrMask) {
	require.NoError(s.t, s.dev.ModifyQP(0, s.qp, &a, m|ib.AttrState))
}

func (s *side) connect(peer *side, change func(*qp.Attr)) {
	a := qp.Attr{PortNum: 1, AccessFlags: ib.AccessRemoteMask, PathMTU: ib.MTU1024, DestQPN: peer.qp.QPN,
		RQPSN: 100, SQPSN: 100, MaxRdAtomic: 4, MaxDestRdAtomic: 4, MinRNRTimer: 12, Timeout: 14, RetryCnt: 7, RNRRetry: 3,
		AV: ib.AV{DGID: peer.gid, IsGlobal: true, PortNum: 1, HopLimit: 64}}
	if change != nil {
		change(&a)
	}
	a.State = ib.StateInit
	s.modify(a, ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccessFlags)
	a.State = ib.StateRTR
	s.modify(a, ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN|ib.AttrMaxDestRdAtomic|ib.AttrMinRNRTimer)
	a.State = ib.StateRTS
	s.modify(a, ib.AttrSQPSN|ib.AttrTimeout|ib.AttrRetryCnt|ib.AttrRNRRetry|ib.AttrMaxQPRdAtomic)
}

func newWorld(t *testing.T, change func(*qp.Attr)) *world {
	w := &world{a: newSide(t, "A", 1), b: newSide(t, "B", 2), now: vtime.Time(time.Second)}
	w.a.connect(w.b, change)
	w.b.connect(w.a, change)
	return w
}

func (s *side) sgl(n int) []mr.SGE { return []mr.SGE{{Addr: base, Length: uint32(n), LKey: s.mr.LKey}} }

func (w *world) send(wrs ...swqe.SendWR) {
	_, err := w.a.dev.PostSend(w.a.qp, wrs)
	require.NoError(w.a.t, err)
}

func (w *world) recv(wrID uint64, n int) {
	_, err := w.b.dev.PostRecv(w.b.qp, []swqe.RecvWR{{WRID: wrID, SGL: w.b.sgl(n)}})
	require.NoError(w.a.t, err)
}

// move carries packets, each of which takes 100 us, until nothing is left to do, and
// lets the time of timers pass.
func (w *world) move() {
	for range 1000 {
		moved := false
		for _, p := range [][2]*side{{w.a, w.b}, {w.b, w.a}} {
			moved = p[0].carry(&w.now, p[1]) || moved
		}
		if moved {
			continue
		}
		next := vtime.Min(w.a.dev.Deadline(), w.b.dev.Deadline())
		if next == vtime.Never {
			return
		}
		w.now = max(w.now, next)
		for _, s := range []*side{w.a, w.b} {
			s.dev.Expire(w.now)
			s.dev.Commit(w.now)
		}
	}
	w.a.t.Fatal("it never ends")
}

func (s *side) carry(now *vtime.Time, to *side) bool {
	var out rvt.Outbox
	more := s.dev.Emit(*now, &out, 16)
	var b mr.Batch
	for i := range out.Packets {
		p := &out.Packets[i]
		buf := make([]byte, p.Len)
		out.Gather(&b, i, buf)
		p.Pkt.Payload = buf
	}
	require.Empty(s.t, b.Read())
	s.dev.Commit(*now)
	for i := range out.Packets {
		*now = now.Add(100 * time.Microsecond)
		if !to.gone {
			to.dev.Receive(*now, &out.Packets[i].Path, &out.Packets[i].Pkt)
		}
	}
	to.dev.Commit(*now)
	return more || len(out.Packets) > 0
}

// explain explains all completions of a side.
func (w *world) explain(s *side) string {
	peer := w.b
	if s == w.b {
		peer = w.a
	}
	wc := make([]cq.WC, 16)
	h, ph := s.qp.History(), peer.qp.History()
	p := &explain.Peer{Name: peer.name, QP: &ph}
	if peer.gone {
		p = nil
	}
	var out []string
	for i := range wc[:s.cq.Poll(wc)] {
		out = append(out, s.name+": "+explain.Completion(&wc[i], &h, p))
	}
	return strings.Join(out, "\n\n")
}

func write(n int, w *world) swqe.SendWR {
	return swqe.SendWR{WRID: 1, Opcode: ib.WRRDMAWrite, SGL: w.a.sgl(n), RemoteAddr: base, RKey: w.b.mr.RKey}
}

var stories = []struct {
	name   string
	change func(*qp.Attr)
	run    func(w *world)
}{
	{"retry_exceeded", nil, func(w *world) {
		w.b.gone = true
		next := write(8, w)
		next.WRID = 2
		w.send(write(2000, w), next)
	}},
	{"rnr_exceeded", nil, func(w *world) { w.send(swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: w.a.sgl(8)}) }},
	{"receive_too_small", nil, func(w *world) {
		w.recv(11, 1500)
		w.recv(12, 8)
		w.send(swqe.SendWR{WRID: 1, Opcode: ib.WRSend, SGL: w.a.sgl(2000)})
	}},
	{"wrong_rkey", nil, func(w *world) {
		wr := write(8, w)
		wr.RKey += 0x100
		w.recv(11, 8)
		w.send(wr)
	}},
	{"no_right", func(a *qp.Attr) { a.AccessFlags = ib.AccessRemoteRead }, func(w *world) { w.send(write(8, w)) }},
	{"no_reads", func(a *qp.Attr) { a.MaxDestRdAtomic = 0 }, func(w *world) {
		wr := write(8, w)
		wr.Opcode = ib.WRRDMARead
		w.send(wr)
	}},
	{"wrong_lkey", nil, func(w *world) {
		wr := write(8, w)
		wr.SGL[0].LKey += 0x100
		w.send(wr)
	}},
	{"peer_in_init", nil, func(w *world) {
		w.b.modify(qp.Attr{State: ib.StateReset}, 0)
		w.b.modify(qp.Attr{State: ib.StateInit, PortNum: 1}, ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccessFlags)
		w.send(write(8, w))
	}},
	{"modify", nil, func(w *world) {
		w.recv(11, 8)
		w.recv(12, 8)
		w.recv(13, 8)
		w.b.modify(qp.Attr{State: ib.StateErr}, 0)
		w.recv(14, 8)
		w.recv(15, 8)
	}},
	{"deregistered", nil, func(w *world) {
		w.a.dev.SetPort(false) // so that it is still there
		w.send(write(8, w))
		w.a.carry(&w.now, w.b)
		require.NoError(w.a.t, w.a.dev.DeregMR(w.now, w.a.mr))
	}},
	{"cq_overflow", nil, func(w *world) {
		require.NoError(w.a.t, w.a.dev.ResizeCQ(w.a.cq, 1, nil))
		for id := range uint64(2) {
			wr := write(8, w)
			wr.WRID = 1 + id
			w.send(wr)
		}
	}},
}

// TestStories compares what both sides are told with texts that a person has read.
func TestStories(t *testing.T) {
	for _, s := range stories {
		t.Run(s.name, func(t *testing.T) {
			w := newWorld(t, s.change)
			s.run(w)
			w.move()
			got := strings.TrimSpace(w.explain(w.a)+"\n\n"+w.explain(w.b)) + "\n"
			if s.name == "cq_overflow" || s.name == "modify" { // without a completion
				h := w.a.qp.History()
				if len(h.Failures) == 0 {
					h = w.b.qp.History()
				}
				got += "\n" + explain.QP(&h, nil) + "\n"
			}
			golden(t, s.name, got)
		})
	}
}

func golden(t *testing.T, name, got string) {
	file := filepath.Join("testdata", name+".txt")
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

// TestForgedResponse: a failure that no adapter causes.
func TestForgedResponse(t *testing.T) {
	w := newWorld(t, nil)
	wr := write(8, w)
	wr.Opcode = ib.WRRDMARead
	w.send(wr)
	w.b.gone = true
	w.a.carry(&w.now, w.b)
	w.a.dev.Receive(w.now, &wire.Path{Src: w.b.gid, Dst: w.a.gid}, &wire.Packet{Opcode: ib.OpAtomicAck, DestQP: w.a.qp.QPN, PSN: 100, PKey: ib.PKeyDefault})
	w.a.dev.Commit(w.now)
	golden(t, "forged_response", w.explain(w.a)+"\n")
}

func TestLookup(t *testing.T) {
	for _, name := range []string{"RETRY_EXC_ERR", "ibv_wc_retry_exc_err", "12", "0x304", "IBV_EVENT_QP_ACCESS_ERR", "ENOMEM", "post_send ENOMEM",
		"post_send: qp 0x11: wr 3 (SEND): the send queue is full (ENOMEM)", "ibv_modify_qp EINVAL", "STRICT-SQ-01",
		"REJECTED 8", "cma event RDMA_CM_EVENT_UNREACHABLE, error -110", "rdma_bind_addr EADDRINUSE", "ADDR_ERROR"} {
		text, ok := explain.Lookup(name)
		require.True(t, ok, name)
		require.NotEmpty(t, text)
	}
	post, _ := explain.Lookup("post_send ENOMEM")
	require.Contains(t, post, "The send queue is full")
	grh, _ := explain.Lookup("modify_qp: qp 0x11: address vector: is_global is 0: an Ethernet port needs a GRH (EINVAL)")
	require.Contains(t, grh, "is_global = 1")
	for _, name := range []string{"", "nonsense", "0x999", "99", "post_send"} {
		_, ok := explain.Lookup(name)
		require.False(t, ok, name)
	}
	golden(t, "index", explain.Index()+"\n")
}

// TestEverythingIsSaid: no cause, status, event or errno is without words.
func TestEverythingIsSaid(t *testing.T) {
	for c := ib.Cause(1); c < 0x1000; c++ {
		_, known := explain.Lookup("0x" + strings.TrimPrefix(c.String(), "cause 0x"))
		if named := !strings.HasPrefix(c.String(), "cause 0x"); named {
			require.Contains(t, explain.Cause(c), "\n  - ", "0x%x", uint32(c))
		} else if c >= ib.NumWCStatuses {
			require.False(t, known, "0x%x", uint32(c))
		}
	}
	for s := range ib.WCStatus(ib.NumWCStatuses) {
		require.Greater(t, len(explain.Status(s)), 40)
	}
	for e := range ib.EventWQFatal + 1 {
		require.Greater(t, len(explain.Event(e)), 30)
	}
	for _, e := range explain.Errnos() {
		require.Contains(t, explain.Call(ib.NewVerbError(e, "x", "", "y")), "\n  - ")
	}
}

// TestNothingRemembered: a QP that was reset has no history, and the texts say so.
func TestNothingRemembered(t *testing.T) {
	h := &qp.History{QPN: 0x11, State: ib.StateErr}
	require.Contains(t, explain.Completion(&cq.WC{WRID: 1, Status: ib.WCWRFlushErr, VendorErr: ib.CauseFlushAfter}, h, nil), "It was not carried out: the queue pair was in ERR. Nothing is remembered of why.")
	require.Contains(t, explain.Completion(&cq.WC{WRID: 1, Status: ib.WCLocProtErr, VendorErr: ib.CauseLKeyUnknown}, h, nil), "Nothing more is remembered of it")
	_, flushed := h.Find(&cq.WC{Status: ib.WCWRFlushErr})
	require.True(t, flushed)
	_, flushed = h.Find(&cq.WC{Status: ib.WCLocProtErr})
	require.False(t, flushed)
}

// TestAbandoned: a receive that failed with its message alone has a story of its own, and is
// not what a later end of the queue pair is put down to.
// req: UC-07
func TestAbandoned(t *testing.T) {
	av := qp.Attr{DestQPN: 0x11, AV: ib.AV{DGID: ib.GIDFromIPv4(10, 0, 0, 1)}}
	h := &qp.History{QPN: 0x21, Type: ib.QPTypeUC, State: ib.StateRTS, SRQ: true, Failures: []qp.Failure{{
		Kind: qp.FailedRecv, WRID: 50, Status: ib.WCRemAbortErr, Cause: ib.CauseMessageCut, From: ib.StateRTS, To: ib.StateRTS, Attr: av,
		Request: qp.Request{Opcode: ib.TransportUC | ib.OpSendLast, PSN: 102, Payload: 88}, Room: 600, Got: 256, Expected: 101}}}
	wc := &cq.WC{WRID: 50, Status: ib.WCRemAbortErr, VendorErr: ib.CauseMessageCut}
	golden(t, "abandoned", explain.Completion(wc, h, nil)+"\n")
	require.Empty(t, explain.QP(h, nil), "nothing ended it")

	h.State = ib.StateErr
	verb := qp.Failure{Kind: qp.FailedByVerb, Cause: ib.CauseFlushModify, From: ib.StateRTS, To: ib.StateErr}
	h.Failures = append([]qp.Failure{verb}, h.Failures...) // it was reset and used again between
	require.Contains(t, explain.Completion(wc, h, nil), "The queue pair stayed in RTS then, and is in ERR now.")
	f, flushed := h.Find(&cq.WC{WRID: 9, Status: ib.WCWRFlushErr, VendorErr: ib.CauseFlushModify})
	require.True(t, flushed)
	require.Equal(t, qp.FailedByVerb, f.Kind)
}
