package model

import (
	"fmt"
	"time"

	"pgregory.net/rapid"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/sim"
	"github.com/rvtsim/rvtsim/swqe"
)

// Memory of one side. Each pair has an area of its own, so that operations of different
// QPs, which have no order, never meet.
const (
	areaBytes  = 16 << 10
	localAt    = 0       // the side's own operations read and write here
	remoteAt   = 4 << 10 // the peer's one-sided operations
	recvAt     = 8 << 10
	recvSlot   = 2 << 10
	maxMessage = recvSlot
	rqDepth    = (areaBytes - recvAt) / recvSlot
	sqDepth    = 12
	maxInline  = 64
	maxSGE     = 3
	memBase    = 0x10000
)

// Regions of each side.
const (
	keyFull     = iota // everything, all rights
	keyLocal           // no remote rights
	keyReadOnly        // no right to write
	keyDead            // deregistered
	numKeys
)

var keyAccess = [numKeys]ib.Access{
	keyFull:     ib.AccessLocalWrite | ib.AccessRemoteMask,
	keyLocal:    ib.AccessLocalWrite,
	keyReadOnly: ib.AccessRemoteRead,
}

// plan is what a world is made of.
type plan struct {
	profile qp.Profile
	net     mem.Config
	// lossy: the network loses or reorders packets. Then the last answer of a peer that
	// goes to ERR may never count (a NAK that overtakes a READ response is dropped with
	// it), and the requester sees RETRY_EXC_ERR. So no program for such a network makes
	// the peer refuse anything.
	lossy  bool
	batch  int
	window int
	mtu    ib.MTU
	seed   uint64
	pairs  int
	srq    [2]bool
	psn    ib.PSN
	// Per pair and side.
	sigAll [maxPairs][2]bool
	access [maxPairs][2]ib.Access
	rnr    [maxPairs][2]uint8
	rdAtom uint8
}

const maxPairs = 2

// link is one half of a pair in both worlds.
type link struct {
	*half
	node     int
	pair     int
	q        *qp.QP
	nextRecv *int // counts the receives posted to the queue, for their slots
	checkedS int
	checkedR int
}

func (l *link) String() string { return fmt.Sprintf("pair %d side %d", l.pair, l.node) }

func (l *link) area() int { return l.pair * areaBytes }

// recvArea is where its receives are; those of an SRQ are in the first pair's area.
func (l *link) recvArea() int {
	if l.shared {
		return recvAt
	}
	return l.area() + recvAt
}

type node struct {
	*sim.Node
	side *side
	buf  []byte
	pd   *rvt.PD
	mrs  [numKeys]*rvt.MR
	cq   *cq.CQ
	srq  *swqe.SRQ
}

// world is the device under test and the reference beside it.
type world struct {
	t     *rapid.T
	p     *plan
	w     *sim.World
	nodes [2]*node
	links []*link
	ids   uint64
	wcs   map[*qp.QP]*[2][]completion
}

func newWorld(t *rapid.T, p *plan) *world {
	t.Logf("profile %s, MTU %v, window %d, %d pairs, srq %v, network %+v", p.profile.Name, p.mtu, p.window, p.pairs, p.srq, p.net.Default.Impairment)
	w := &world{t: t, p: p, wcs: make(map[*qp.QP]*[2][]completion)}
	var err error
	w.w, err = sim.New(sim.Config{Seed: p.seed, Network: p.net, EmitBatch: p.batch, Check: true, Digest: sim.DigestNone})
	w.must(err)
	for i := range w.nodes {
		w.nodes[i] = w.addNode(i)
	}
	for pair := range p.pairs {
		a, b := w.addLink(pair, 0), w.addLink(pair, 1)
		a.peer, b.peer = b.half, a.half
		w.connect(a, b)
	}
	return w
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Fatalf("refused: %v", err)
	}
}

func (w *world) addNode(i int) *node {
	cfg := rvt.DefaultConfig("node"+string(rune('a'+i)), ib.GIDFromIPv4(10, 0, 0, byte(i+1)))
	cfg.Profile, cfg.Seed, cfg.Limits.WindowPackets = w.p.profile, w.p.seed+uint64(i), w.p.window
	cfg.DistinctKeys = w.p.seed&1 != 0
	sn, err := w.w.AddNode(cfg)
	w.must(err)
	size := maxPairs * areaBytes
	n := &node{Node: sn, buf: make([]byte, size), side: &side{mem: make([]byte, size), unknown: make([]bool, size)}}
	for j := range n.buf {
		n.buf[j] = byte(uint64(j)*2654435761>>8) ^ byte(i+1)
	}
	copy(n.side.mem, n.buf)
	n.pd, err = n.Dev.AllocPD()
	w.must(err)
	n.cq, err = n.Dev.CreateCQ(4096, nil)
	w.must(err)
	for k := range n.mrs {
		n.mrs[k], err = n.Dev.RegMR(n.pd, mr.NewSlice(memBase, n.buf), memBase, uint64(size), memBase, keyAccess[k])
		w.must(err)
		r := region{0, size, keyAccess[k]}
		if k == keyDead {
			w.must(n.Dev.DeregMR(0, n.mrs[k]))
			r = region{-1, -1, 0}
		}
		n.side.regions = append(n.side.regions, r)
	}
	if w.p.srq[i] {
		n.srq, err = n.Dev.CreateSRQ(n.pd, rvt.SRQAttr{MaxWR: rqDepth, MaxSGE: maxSGE}, nil)
		w.must(err)
	}
	return n
}

func (w *world) addLink(pair, side int) *link {
	n, p := w.nodes[side], w.p
	l := &link{node: side, pair: pair, nextRecv: new(int), half: &half{side: n.side, rules: ruleSets[p.profile.Name], state: ib.StateRTS,
		sigAll: p.sigAll[pair][side], rnrForever: p.rnr[pair][side] == 7, access: p.access[pair][side],
		recvs: new([]recvOp), shared: n.srq != nil}}
	if l.shared && pair > 0 {
		first := w.links[side]
		l.recvs, l.nextRecv = first.recvs, first.nextRecv
	}
	var err error
	l.q, err = n.Dev.CreateQP(n.pd, &qp.InitAttr{SendCQ: n.cq, RecvCQ: n.cq, SRQ: n.srq, Type: ib.QPTypeRC, SQSigAll: l.sigAll,
		Cap: qp.Cap{MaxSendWR: sqDepth, MaxRecvWR: rqDepth, MaxSendSGE: maxSGE, MaxRecvSGE: maxSGE, MaxInlineData: maxInline}})
	w.must(err)
	w.wcs[l.q] = new([2][]completion)
	w.links = append(w.links, l)
	return l
}

func (w *world) modify(l *link, a qp.Attr, m ib.AttrMask) {
	w.t.Logf("%v: to %v", l, a.State)
	w.must(w.nodes[l.node].Dev.ModifyQP(w.w.Now(), l.q, &a, m|ib.AttrState))
	w.w.Touch(w.nodes[l.node].Node)
}

// connect takes both halves from RESET to RTS.
func (w *world) connect(a, b *link) {
	for _, l := range []*link{a, b} {
		peer := b
		if l == b {
			peer = a
		}
		at := qp.Attr{State: ib.StateInit, PortNum: 1, AccessFlags: l.access}
		w.modify(l, at, ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccessFlags)
		at.State, at.PathMTU, at.DestQPN, at.RQPSN = ib.StateRTR, w.p.mtu, peer.q.QPN, w.p.psn.Add(peer.node)
		at.AV = ib.AV{DGID: ib.GIDFromIPv4(10, 0, 0, byte(peer.node+1)), IsGlobal: true, PortNum: 1, HopLimit: 64}
		at.MaxDestRdAtomic, at.MinRNRTimer = w.p.rdAtom, 8
		w.modify(l, at, ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN|ib.AttrMaxDestRdAtomic|ib.AttrMinRNRTimer)
		at.State, at.SQPSN, at.Timeout, at.RetryCnt = ib.StateRTS, w.p.psn.Add(l.node), 10, 6
		at.RNRRetry, at.MaxRdAtomic = w.p.rnr[l.pair][l.node], w.p.rdAtom
		w.modify(l, at, ib.AttrSQPSN|ib.AttrTimeout|ib.AttrRetryCnt|ib.AttrRNRRetry|ib.AttrMaxQPRdAtomic)
	}
}

// sgl turns pieces into SGEs.
func (w *world) sgl(n int, ps []piece) []mr.SGE {
	var out []mr.SGE
	for _, p := range ps {
		out = append(out, mr.SGE{Addr: memBase + uint64(p.off), Length: uint32(p.n), LKey: w.nodes[n].mrs[p.key].LKey})
	}
	return out
}

func (w *world) sendWR(l *link, o *sendOp) swqe.SendWR {
	return swqe.SendWR{WRID: o.id, Opcode: o.op, Flags: o.flags, SGL: w.sgl(l.node, o.local), Inline: o.inline, Imm: o.imm,
		RemoteAddr: memBase + uint64(o.remote), RKey: w.nodes[1-l.node].mrs[o.rkey].RKey, CompareAdd: o.add, Swap: o.swap}
}

// postSends posts to both worlds, the real one in calls of at most per each.
func (w *world) postSends(l *link, ops []sendOp, per int) {
	var wrs []swqe.SendWR
	for i := range ops {
		w.t.Logf("%v: post %+v", l, ops[i])
		wrs = append(wrs, w.sendWR(l, &ops[i]))
		l.postSend(ops[i])
	}
	for len(wrs) > 0 {
		n := min(per, len(wrs))
		got, err := w.nodes[l.node].Dev.PostSend(l.q, wrs[:n])
		if err != nil || got != n {
			w.t.Fatalf("%v: %d of %d sends posted: %v", l, got, n, err)
		}
		w.w.Touch(w.nodes[l.node].Node)
		wrs = wrs[n:]
	}
}

func (w *world) postRecvs(l *link, ops []recvOp) {
	d, n := w.nodes[l.node].Dev, 0
	var wrs []swqe.RecvWR
	for i := range ops {
		w.t.Logf("%v: post %+v", l, ops[i])
		wrs = append(wrs, swqe.RecvWR{WRID: ops[i].id, SGL: w.sgl(l.node, ops[i].local)})
		l.postRecv(ops[i])
	}
	var err error
	if l.shared {
		n, err = d.PostSRQRecv(w.nodes[l.node].srq, wrs)
	} else {
		n, err = d.PostRecv(l.q, wrs)
	}
	if err != nil || n != len(wrs) {
		w.t.Fatalf("%v: %d of %d receives posted: %v", l, n, len(wrs), err)
	}
	w.w.Touch(w.nodes[l.node].Node)
}

func (w *world) modifyTo(l *link, s ib.QPState) { w.modify(l, qp.Attr{State: s}, 0) }

// Settling: what the reference says must have happened after patience, and nothing
// more after grace.
const (
	patience = 5 * time.Second
	grace    = 30 * time.Millisecond
)

// settle lets both worlds come to rest and compares them.
func (w *world) settle() {
	var hs []*half
	for _, l := range w.links {
		hs = append(hs, l.half)
	}
	run(hs)
	for end := w.w.Now().Add(patience); w.w.Now() < end && !w.caughtUp(); {
		w.w.Run(w.w.Now().Add(2 * time.Millisecond))
	}
	w.w.Run(w.w.Now().Add(grace))
	w.poll()
	w.compare()
}

// caughtUp reports whether the device has done as much as the reference.
func (w *world) caughtUp() bool {
	w.poll()
	for _, l := range w.links {
		got := w.wcs[l.q]
		if l.q.Outstanding() > len(l.sends) || len(got[0]) < len(l.sendWCs) || len(got[1]) < len(l.recvWCs) || l.q.State != l.state {
			return false
		}
	}
	return true
}

func (w *world) poll() {
	var buf [64]cq.WC
	for _, n := range w.nodes {
		for k := n.cq.Poll(buf[:]); k > 0; k = n.cq.Poll(buf[:]) {
			for i := range buf[:k] {
				w.take(n, &buf[i])
			}
		}
	}
	if err := w.w.Err(); err != nil {
		w.t.Fatalf("%v", err)
	}
}

// recvID marks the wr_ids of receives: a failed completion has no valid opcode.
const recvID = 1 << 32

func (w *world) take(n *node, wc *cq.WC) {
	c := completion{ID: wc.WRID, Status: wc.Status}
	which := 0
	if wc.WRID&recvID != 0 {
		which = 1
	}
	if wc.Status == ib.WCSuccess {
		c.Opcode = wc.Opcode
		switch {
		case which == 1:
			c.Len, c.Flags = wc.ByteLen, wc.Flags&(ib.WCFlagWithImm|ib.WCFlagWithInv)
			if c.Flags&ib.WCFlagWithImm != 0 {
				c.Imm = wc.Imm
			}
		case wc.Opcode == ib.WCRDMARead || wc.Opcode == ib.WCCompSwap || wc.Opcode == ib.WCFetchAdd:
			c.Len = wc.ByteLen
		}
	}
	q := n.Dev.QP(wc.QPN)
	if q == nil {
		w.t.Fatalf("a completion names QP %v, which does not exist: %+v", wc.QPN, wc)
	}
	w.wcs[q][which] = append(w.wcs[q][which], c)
	seen[c.Status]++
}

func (w *world) compare() {
	for _, l := range w.links {
		got := w.wcs[l.q]
		w.compareWCs(l, "send", &l.checkedS, got[0], l.sendWCs)
		w.compareWCs(l, "receive", &l.checkedR, got[1], l.recvWCs)
		if l.q.State != l.state {
			w.t.Fatalf("%v is in %v, want %v", l, l.q.State, l.state)
		}
		if n := l.q.Outstanding(); n != len(l.sends) {
			w.t.Fatalf("%v has %d sends outstanding, want %d", l, n, len(l.sends))
		}
		if n := l.q.RQ; n != nil && !l.shared && n.Len() != len(*l.recvs) {
			w.t.Fatalf("%v has %d receives posted, want %d", l, n.Len(), len(*l.recvs))
		}
	}
	for i, n := range w.nodes {
		if n.srq != nil && n.srq.RQ.Len() != len(*w.links[i].recvs) {
			w.t.Fatalf("the SRQ of side %d has %d receives, want %d", i, n.srq.RQ.Len(), len(*w.links[i].recvs))
		}
		for j, b := range n.side.mem {
			if b != n.buf[j] && !n.side.unknown[j] {
				w.t.Fatalf("side %d, byte %d of its memory (area %d, offset %d): %#x, want %#x", i, j, j/areaBytes, j%areaBytes, n.buf[j], b)
			}
		}
	}
}

func (w *world) compareWCs(l *link, kind string, from *int, got, want []completion) {
	for i := *from; i < max(len(got), len(want)); i++ {
		switch {
		case i >= len(got):
			w.t.Fatalf("%v: no %s completion after %d of them at %v, want %+v", l, kind, i, w.w.Now(), want[i])
		case i >= len(want):
			w.t.Fatalf("%v: %s completion %d is one too many: %+v", l, kind, i, got[i])
		case got[i] != want[i]:
			w.t.Fatalf("%v: %s completion %d:\n got %+v\nwant %+v", l, kind, i, got[i], want[i])
		}
	}
	*from = len(want)
}

// adopt takes what failures left in memory over into the reference.
func (w *world) adopt(n int) {
	s := w.nodes[n].side
	for i, u := range s.unknown {
		if u {
			s.mem[i], s.unknown[i] = w.nodes[n].buf[i], false
		}
	}
}
