package interop

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/tests/interop/lab"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/vtime"
)

func itoa(n int) string { return strconv.Itoa(n) }

// ours is a program on our adapter, in this process.
type ours struct {
	t    *testing.T
	port *udp.Port
	dev  *verbs.Device
	pd   *verbs.PD
	ch   *verbs.CompChannel
	cqs  [2]*verbs.CQ
	mrs  map[int]*verbs.MR
	qps  map[int]*verbs.QP
	srqs map[int]*verbs.SRQ
	ahs  map[int]*verbs.AH
	mws  map[int]*verbs.MW
}

// options are how our side is opened.
type options struct {
	profile qp.Profile
	faults  fabric.ImpairmentConfig
	inLoss  float64     // share of the packets that arrive and are ignored
	inDrop  []ib.Opcode // the first of each that arrives is ignored
	seed    uint64
	noGSO   bool
	mtu     ib.MTU
}

func openOurs(t *testing.T, f family, o options) *ours {
	t.Helper()
	guest(t) // there is no address before
	gid, _, err := udp.ParseAddr(f.host)
	require.NoError(t, err)
	cfg := udp.DefaultConfig(gid)
	cfg.Now, cfg.DisableGSO = node.Now, o.noGSO
	h := &ours{t: t, mrs: map[int]*verbs.MR{}, qps: map[int]*verbs.QP{}, srqs: map[int]*verbs.SRQ{}, ahs: map[int]*verbs.AH{}, mws: map[int]*verbs.MW{}}
	h.port, err = udp.Open(cfg)
	require.NoError(t, err)
	var port fabric.Port = h.port
	if !o.faults.IsZero() {
		policy, err := fabric.NewImpairment(o.faults, o.seed)
		require.NoError(t, err)
		port = fabric.NewImpaired(port, policy, node.Now)
	}
	if o.inLoss > 0 || len(o.inDrop) > 0 {
		port = &deaf{Port: port, Waiter: port.(fabric.Waiter), loss: o.inLoss, rng: rand.New(rand.NewPCG(o.seed, 1)), first: slices.Clone(o.inDrop)}
	}
	h.dev, err = verbs.Open(verbs.Config{Port: port, Profile: o.profile, MTU: o.mtu, Seed: o.seed, DistinctKeys: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, h.dev.Shutdown()) })
	h.pd, err = h.dev.AllocPD()
	require.NoError(t, err)
	h.ch, err = h.dev.CreateCompChannel()
	require.NoError(t, err)
	for i := range h.cqs {
		h.cqs[i], err = h.dev.CreateCQ(4096, h.ch)
		require.NoError(t, err)
	}
	return h
}

func (h *ours) must(err error) {
	h.t.Helper()
	require.NoError(h.t, err)
}

func (h *ours) name() string { return "rvtsim" }
func (h *ours) gid() ib.GID  { return h.dev.GID() }

func (h *ours) mtu() ib.MTU {
	a, err := h.dev.QueryPort(1)
	h.must(err)
	return a.ActiveMTU
}

func (h *ours) reg(n, bytes int, access ib.Access) mem {
	m, err := h.pd.RegMR(make([]byte, bytes), access)
	h.must(err)
	h.mrs[n] = m
	return mem{n: n, addr: m.Addr(0), rkey: m.RKey(), bytes: bytes}
}

// put and get hold the adapter still. That a peer's write has come is known from the peer
// alone, over a way that the race detector does not see.
func (h *ours) put(m mem, off int, b []byte) {
	h.must(h.dev.Node().Do(func(*rvt.Device, vtime.Time) { copy(h.mrs[m.n].Bytes()[off:], b) }))
}

func (h *ours) get(m mem, off, bytes int) (b []byte) {
	h.must(h.dev.Node().Do(func(*rvt.Device, vtime.Time) { b = slices.Clone(h.mrs[m.n].Bytes()[off : off+bytes]) }))
	return b
}

func (h *ours) dereg(m mem) { h.must(h.mrs[m.n].Dereg()) }

func (h *ours) createSRQ(n, entries int) {
	s, err := h.pd.CreateSRQ(verbs.SRQAttr{MaxWR: entries, MaxSGE: 1})
	h.must(err)
	h.srqs[n] = s
}

func (h *ours) createQP(n int, typ ib.QPType, entries, srq int) ib.QPN {
	a := verbs.QPInitAttr{Type: typ, SendCQ: h.cqs[lab.SendCQ], RecvCQ: h.cqs[lab.RecvCQ],
		Cap: verbs.QPCap{MaxSendWR: entries, MaxRecvWR: entries, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}}
	if srq >= 0 {
		a.SRQ = h.srqs[srq]
	}
	q, err := h.pd.CreateQP(a)
	h.must(err)
	h.qps[n] = q
	return q.QPN()
}

func (p *params) verbs() verbs.ConnParams {
	c := verbs.DefaultConnParams(p.peer, p.peerQPN)
	c.Access, c.QKey, c.PathMTU, c.SQPSN, c.RQPSN = p.access, p.qkey, p.mtu, p.psn, p.peerPSN
	c.MaxRdAtomic, c.MaxDestRdAtomic, c.MinRNRTimer = uint8(p.rd), uint8(p.rd), uint8(p.rnrTimer)
	c.Timeout, c.RetryCnt, c.RNRRetry = uint8(p.timeout), uint8(p.retry), uint8(p.rnr)
	return c
}

func (h *ours) toInit(n int, p params) { h.must(h.qps[n].ToInit(p.verbs())) }
func (h *ours) toRTR(n int, p params)  { h.must(h.qps[n].ToRTR(p.verbs())) }
func (h *ours) toRTS(n int, p params)  { h.must(h.qps[n].ToRTS(p.verbs())) }

func (h *ours) setState(n int, s ib.QPState) {
	h.must(h.qps[n].Modify(&verbs.QPAttr{State: s}, ib.AttrState))
}

func (h *ours) state(n int) ib.QPState {
	a, err := h.qps[n].Query()
	h.must(err)
	return a.State
}

func (h *ours) destroyQP(n int) { h.must(h.qps[n].Destroy(timeout(h.t, 5*time.Second))) }

func (h *ours) createAH(n int, dgid ib.GID) {
	ah, err := h.pd.CreateAH(verbs.AV{DGID: dgid, IsGlobal: true, HopLimit: 64, PortNum: 1})
	h.must(err)
	h.ahs[n] = ah
}

func (h *ours) attach(n int, group ib.GID) { h.must(h.qps[n].AttachMcast(group)) }

func (h *ours) allocMW(n int) ib.RKey {
	w, err := h.pd.AllocMW(ib.MWType2)
	h.must(err)
	h.mws[n] = w
	return w.RKey()
}

func (h *ours) bind(qp, mw int, m mem, off, bytes int, access ib.Access, rkey ib.RKey, wr uint64) {
	h.must(h.qps[qp].PostSend(verbs.SendWR{WRID: wr, Opcode: ib.WRBindMW, Flags: ib.SendSignaled, Bind: &verbs.BindInfo{
		MW: h.mws[mw], RKey: rkey, MR: h.mrs[m.n], Addr: m.addr + uint64(off), Length: uint64(bytes), Access: access}}))
}

func (h *ours) sge(m mem, off, n int, bad bool) []verbs.SGE {
	if n == 0 {
		return nil
	}
	s := h.mrs[m.n].SGE(off, n)
	s.LKey += ib.LKey(badKey(bad))
	return []verbs.SGE{s}
}

func (h *ours) recv(qp int, r recv) {
	h.must(h.qps[qp].PostRecv(verbs.RecvWR{WRID: r.wr, SGL: h.sge(r.m, r.off, r.n, r.badKey)}))
}

func (h *ours) recvSRQ(srq int, r recv) {
	h.must(h.srqs[srq].PostRecv(verbs.RecvWR{WRID: r.wr, SGL: h.sge(r.m, r.off, r.n, r.badKey)}))
}

func (h *ours) send(qp int, s send) error {
	return h.qps[qp].PostSend(verbs.SendWR{
		WRID: s.wr, Opcode: s.op, Flags: s.flags | ib.SendSignaled, SGL: h.sge(s.m, s.off, s.n, s.badKey),
		Imm: s.imm, InvRKey: s.inv, RemoteAddr: s.raddr, RKey: s.rkey, CompareAdd: s.add, Swap: s.swap,
		AH: h.ahs[s.ah], RemoteQPN: s.qpn, RemoteQKey: s.qkey,
	})
}

func (h *ours) poll(queue, max int, d time.Duration) []cq.WC {
	out := make([]cq.WC, max)
	n := 0
	for end := time.Now().Add(d); n < max; {
		got, err := h.cqs[queue].Poll(out[n:])
		h.must(err)
		n += got
		if got == 0 {
			if time.Now().After(end) {
				break
			}
			time.Sleep(50 * time.Microsecond) // the emulator needs both processors
		}
	}
	return out[:n]
}

func (h *ours) arm(queue int, solicitedOnly bool) { h.must(h.cqs[queue].ReqNotify(solicitedOnly)) }

func (h *ours) event(d time.Duration) int {
	c, err := h.ch.Get(timeout(h.t, d))
	if err != nil {
		return -1
	}
	h.must(c.AckEvents(1))
	if c == h.cqs[lab.RecvCQ] {
		return lab.RecvCQ
	}
	return lab.SendCQ
}

// details returns a copy of the port's figures.
func (h *ours) details() (d udp.Details) {
	h.must(h.dev.Node().Do(func(*rvt.Device, vtime.Time) { d = *h.port.Details() }))
	return d
}
