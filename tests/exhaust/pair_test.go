package exhaust

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

const (
	bufBase  = 0x10000
	bufBytes = 8192
	mtuBytes = 256
)

// host is one device with one QP.
type host struct {
	d      *rvt.Device
	gid    ib.GID
	cq     *cq.CQ
	q      *qp.QP
	buf    []byte
	mr     *rvt.MR
	out    rvt.Outbox
	wcs    []cq.WC
	poll16 [16]cq.WC
	late   []swqe.RecvWR // posted once the sender was told to wait
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// image is what the memory of host n holds at first.
func image(n byte) []byte { return images[n] }

var images = func() (list [3][]byte) {
	for n := range list {
		b := make([]byte, bufBytes)
		for i := range b {
			b[i] = byte(i*7 + n)
		}
		clear(b[atomicAt : atomicAt+8])
		list[n] = b
	}
	return list
}()

func newHost(n byte, c *config) *host {
	cfg := rvt.DefaultConfig("rvt0", ib.GIDFromIPv4(10, 0, 0, n))
	cfg.Profile = c.profile
	cfg.Limits.WindowPackets = c.window
	d, err := rvt.New(cfg)
	must(err)
	h := &host{d: d, gid: cfg.GIDs[0], buf: bytes.Clone(image(n))}
	pd, err := d.AllocPD()
	must(err)
	h.cq, err = d.CreateCQ(64, nil)
	must(err)
	h.mr, err = d.RegMR(pd, mr.NewSlice(bufBase, h.buf), bufBase, bufBytes, bufBase, ib.AccessLocalWrite|ib.AccessRemoteMask)
	must(err)
	h.q, err = d.CreateQP(pd, &qp.InitAttr{SendCQ: h.cq, RecvCQ: h.cq, Type: ib.QPTypeRC, SQSigAll: true,
		Cap: qp.Cap{MaxSendWR: 16, MaxRecvWR: 16, MaxSendSGE: 1, MaxRecvSGE: 1}})
	must(err)
	return h
}

// firstPSN makes the PSNs of every exchange wrap.
const firstPSN ib.PSN = 0xfffffe

func (h *host) connect(peer *host, c *config) {
	a := qp.Attr{State: ib.StateInit, PortNum: 1, AccessFlags: ib.AccessRemoteMask}
	must(h.d.ModifyQP(0, h.q, &a, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccessFlags))
	a = qp.Attr{State: ib.StateRTR, AV: ib.AV{DGID: peer.gid, IsGlobal: true, PortNum: 1}, PathMTU: ib.MTU256, DestQPN: peer.q.QPN,
		RQPSN: firstPSN, MaxDestRdAtomic: c.rdAtomic, MinRNRTimer: 1}
	must(h.d.ModifyQP(0, h.q, &a, ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN|ib.AttrMaxDestRdAtomic|ib.AttrMinRNRTimer))
	a = qp.Attr{State: ib.StateRTS, SQPSN: firstPSN, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MaxRdAtomic: c.rdAtomic}
	must(h.d.ModifyQP(0, h.q, &a, ib.AttrState|ib.AttrSQPSN|ib.AttrTimeout|ib.AttrRetryCnt|ib.AttrRNRRetry|ib.AttrMaxQPRdAtomic))
}

// frame is a packet on the wire; its payload is a copy.
type frame struct {
	to   *host
	path wire.Path
	pkt  wire.Packet
}

// emit takes one packet that the device wants to send.
func (h *host) emit(now vtime.Time, peer *host) (frame, bool) {
	h.out.Reset()
	h.d.Emit(now, &h.out, 1)
	if len(h.out.Packets) == 0 {
		h.d.Commit(now)
		return frame{}, false
	}
	p := &h.out.Packets[0]
	f := frame{to: peer, path: p.Path, pkt: p.Pkt}
	if p.Len > 0 {
		f.pkt.Payload = make([]byte, p.Len)
		var b mr.Batch
		h.out.Gather(&b, 0, f.pkt.Payload)
		if len(b.Read()) > 0 {
			panic("payload could not be fetched")
		}
	}
	h.d.Commit(now)
	return f, true
}

func (h *host) receive(now vtime.Time, f *frame) {
	h.d.Receive(now, &f.path, &f.pkt)
	h.d.Commit(now)
	h.poll()
}

func (h *host) poll() {
	for {
		n := h.cq.Poll(h.poll16[:])
		h.wcs = append(h.wcs, h.poll16[:n]...)
		if n == 0 {
			return
		}
	}
}

// op is one work request of an exchange in terms of buffer offsets, so that a model can
// execute it too.
type op struct {
	kind   ib.WROpcode
	local  int
	n      int
	remote int
	a, b   uint64 // atomics: compare or add, swap
	flags  ib.SendFlags
}

const atomicAt = 4096

func (o op) wr(i int, from, to *host) swqe.SendWR {
	wr := swqe.SendWR{WRID: uint64(i), Opcode: o.kind, Flags: o.flags, CompareAdd: o.a, Swap: o.b, Imm: uint32(i) + 0xabc0,
		SGL: []mr.SGE{{Addr: bufBase + uint64(o.local), Length: uint32(o.n), LKey: from.mr.LKey}}}
	if swqe.Params(o.kind).Has(swqe.OpRDMA) {
		wr.RemoteAddr, wr.RKey = bufBase+uint64(o.remote), to.mr.RKey
	}
	return wr
}

// model executes exchanges as if each operation happened at once.
type model struct {
	a, b []byte
	recv []int // offsets of b's receives that are left
	want []cq.WC
	got  []cq.WC // completions at the receiver
}

const recvBytes = 1024

func (m *model) execute(i int, o op) {
	p := swqe.Params(o.kind)
	wc := cq.WC{WRID: uint64(i), Opcode: p.WCOpcode, ByteLen: uint32(o.n)}
	switch {
	case p.Has(swqe.OpAtomic):
		word := m.b[o.remote:]
		old := binary.LittleEndian.Uint64(word)
		binary.LittleEndian.PutUint64(m.a[o.local:], old)
		switch {
		case o.kind == ib.WRAtomicFetchAndAdd:
			binary.LittleEndian.PutUint64(word, old+o.a)
		case old == o.a:
			binary.LittleEndian.PutUint64(word, o.b)
		}
	case o.kind == ib.WRRDMARead:
		copy(m.a[o.local:o.local+o.n], m.b[o.remote:])
	case p.Has(swqe.OpRDMA):
		copy(m.b[o.remote:o.remote+o.n], m.a[o.local:])
	default:
		copy(m.b[m.recv[0]:m.recv[0]+o.n], m.a[o.local:])
	}
	if p.Has(swqe.OpCredit) {
		in := cq.WC{WRID: recvID(m.recv[0]), Opcode: ib.WCRecv, ByteLen: uint32(o.n)}
		if p.Has(swqe.OpRDMA) {
			in.Opcode = ib.WCRecvRDMAWithImm
		}
		if p.Has(swqe.OpImm) {
			in.Imm = uint32(i) + 0xabc0
		}
		m.got = append(m.got, in)
		m.recv = m.recv[1:]
	}
	m.want = append(m.want, wc)
}

func recvID(off int) uint64 { return 1<<32 | uint64(off) }

// sameWCs compares what the model and a run completed.
func sameWCs(name string, want, got []cq.WC) error {
	for i := range max(len(want), len(got)) {
		switch {
		case i >= len(got):
			return fmt.Errorf("%s: completion %d of wr %#x is missing", name, i, want[i].WRID)
		case i >= len(want):
			return fmt.Errorf("%s: completion %d of wr %#x is one too many", name, i, got[i].WRID)
		}
		w, g := want[i], got[i]
		if g.Status != ib.WCSuccess || w.WRID != g.WRID || w.Opcode != g.Opcode || w.ByteLen != g.ByteLen || w.Imm != g.Imm {
			return fmt.Errorf("%s: completion %d is wr %#x %v %v of %d bytes, imm %#x (%v); want wr %#x %v of %d bytes, imm %#x",
				name, i, g.WRID, g.Status, g.Opcode, g.ByteLen, g.Imm, g.VendorErr, w.WRID, w.Opcode, w.ByteLen, w.Imm)
		}
	}
	return nil
}
