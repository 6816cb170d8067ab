package replay

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/wire"
)

// comparison collects the differences of one part.
type comparison struct {
	player *player
	prof   qp.Profile
	part   *Part
}

func (c *comparison) diff(d Diff) {
	if d.Why == "" {
		d.Why = c.explain(&d)
	}
	c.part.Diffs = append(c.part.Diffs, d)
}

// packets compares what we sent with what the real adapter sent, in order.
func (c *comparison) packets(theirs []frame) {
	ours := c.player.sent
	i, j := 0, 0
	for i < len(ours) || j < len(theirs) {
		switch {
		case i < len(ours) && j < len(theirs) && sameKind(&ours[i], &theirs[j]):
			c.fields(&ours[i], &theirs[j])
			c.part.Compared++
			i, j = i+1, j+1
		case j < len(theirs) && (i >= len(ours) || !occurs(&ours[i], theirs[j:])):
			if i < len(ours) && !occurs(&theirs[j], ours[i:]) {
				// Neither has the other's packet: they stand for each other.
				c.fields(&ours[i], &theirs[j])
				c.part.Compared++
				i, j = i+1, j+1
				continue
			}
			c.missing(theirs, j)
			j++
		case i < len(ours) && j < len(theirs) && occurs(&theirs[j], ours[i:]), j >= len(theirs):
			c.surplus(&ours[i])
			i++
		default:
			c.missing(theirs, j)
			j++
		}
	}
}

func sameKind(a, b *frame) bool {
	return a.pkt.Opcode == b.pkt.Opcode && a.pkt.PSN == b.pkt.PSN && a.pkt.AETH.Syndrome.Kind() == b.pkt.AETH.Syndrome.Kind()
}

func occurs(f *frame, in []frame) bool {
	for i := range in {
		if sameKind(f, &in[i]) {
			return true
		}
	}
	return false
}

func (c *comparison) missing(theirs []frame, j int) {
	d := Diff{Where: fmt.Sprintf("packet %d (%s)", theirs[j].number, describe(&theirs[j])), Field: "packet", Ours: "not sent", Theirs: theirs[j].pkt.String()}
	if j > 0 && bytes.Equal(theirs[j].raw, theirs[j-1].raw) {
		d.Why = "kernel-sends-twice: after an RNR wait the kernel's retransmission timer fires as well"
	}
	c.diff(d)
}

func (c *comparison) surplus(f *frame) {
	c.diff(Diff{Where: "after the packets of the capture", Field: "packet", Ours: f.pkt.String(), Theirs: "not sent"})
}

// fields compares two packets that stand for each other.
func (c *comparison) fields(a, b *frame) {
	where := fmt.Sprintf("packet %d (%s)", b.number, describe(b))
	check := func(field string, ours, theirs any) {
		if ours != theirs {
			c.diff(Diff{Where: where, Field: field, Ours: show(ours), Theirs: show(theirs)})
		}
	}
	p, q := &a.pkt, &b.pkt
	check("opcode", wire.Info(p.Opcode).Name, wire.Info(q.Opcode).Name)
	check("bth.se", p.SE, q.SE)
	check("bth.m", p.M, q.M)
	check("bth.pad", p.Pad, q.Pad)
	check("bth.tver", p.TVer, q.TVer)
	check("bth.pkey", p.PKey, q.PKey)
	check("bth.fecn_becn", [2]bool{p.FECN, p.BECN}, [2]bool{q.FECN, q.BECN})
	check("bth.dest_qp", p.DestQP, q.DestQP)
	check("bth.ack_req", p.AckReq, q.AckReq)
	check("bth.psn", p.PSN, q.PSN)
	check("reth", p.RETH, q.RETH)
	check("aeth.syndrome", syndrome(p.AETH.Syndrome), syndrome(q.AETH.Syndrome))
	check("aeth.msn", p.AETH.MSN, q.AETH.MSN)
	check("atomic_eth", p.AtomicETH, q.AtomicETH)
	check("atomic_ack", p.AtomicAck, q.AtomicAck)
	check("deth", p.DETH, q.DETH)
	check("imm", p.Imm, q.Imm)
	check("ieth", p.InvRKey, q.InvRKey)
	check("payload", hex.EncodeToString(p.Payload), hex.EncodeToString(q.Payload))
	check("ip.src", a.path.Src, b.path.Src)
	check("ip.dst", a.path.Dst, b.path.Dst)
	check("ip.traffic_class", a.path.TClass, b.path.TClass)
	check("ip.hop_limit", a.path.HopLimit, b.path.HopLimit)
	check("ip.flow_label", a.path.FlowLabel, b.path.FlowLabel)
	check("udp.source_port", a.path.SPort, b.path.SPort)
	if !bytes.Equal(a.raw, b.raw) && len(c.part.Diffs) == 0 {
		c.diff(Diff{Where: where, Field: "bytes", Ours: hex.EncodeToString(a.raw), Theirs: hex.EncodeToString(b.raw)})
	}
}

// syndrome prints kind and value: two ACKs may differ in their credits.
func syndrome(s ib.Syndrome) string {
	if s.Kind() == ib.SyndromeNAK {
		return s.String()
	}
	return fmt.Sprintf("%s(%d)", s, s.Value())
}

func show(v any) string {
	s := fmt.Sprintf("%v", v)
	if len(s) > 96 {
		s = s[:96] + "…"
	}
	return s
}

// completions compares what the program polled.
func (c *comparison) completions() {
	side := c.player.side
	if c.player.refused != nil {
		c.refused()
		return
	}
	ours := c.player.wcs
	for i := 0; i < max(len(ours), len(side.WC)); i++ {
		switch {
		case i >= len(side.WC):
			c.diff(Diff{Where: fmt.Sprintf("completion %d (wr %d)", i+1, ours[i].WRID), Field: "completion", Ours: ours[i].Status.String(), Theirs: "none"})
		case i >= len(ours):
			c.diff(Diff{Where: fmt.Sprintf("completion %d (wr %d)", i+1, side.WC[i].WRID), Field: "completion", Ours: "none", Theirs: side.WC[i].Status})
		default:
			c.completion(i, &ours[i], &side.WC[i])
			c.part.Completed++
		}
	}
	if q := c.player.qp; q != nil && q.State != side.State {
		c.diff(Diff{Where: "QP afterwards", Field: "qp_state", Ours: q.State.String(), Theirs: side.State.String()})
	}
}

func (c *comparison) completion(i int, a *cq.WC, b *WC) {
	where := fmt.Sprintf("completion %d (wr %d)", i+1, b.WRID)
	check := func(field string, ours, theirs any) {
		if ours != theirs {
			c.diff(Diff{Where: where, Field: field, Ours: show(ours), Theirs: show(theirs)})
		}
	}
	check("wc.wr_id", a.WRID, b.WRID)
	st, known := statusOf(b.Status)
	if !known {
		c.diff(Diff{Where: where, Field: "wc.status", Ours: a.Status.String(), Theirs: b.Status})
		return
	}
	check("wc.status", a.Status, st)
	if st != ib.WCSuccess || a.Status != ib.WCSuccess {
		return // nothing else is defined
	}
	if b.Opcode != nil {
		check("wc.opcode", a.Opcode, ib.WCOpcode(*b.Opcode))
	}
	if b.ByteLen != nil {
		check("wc.byte_len", a.ByteLen, *b.ByteLen)
	}
	if b.Flags != nil {
		check("wc.wc_flags", a.Flags, kernelFlags(*b.Flags))
	}
	if b.SrcQP != nil {
		check("wc.src_qp", a.SrcQP, *b.SrcQP)
	}
}

// kernelFlags turns the flags that soft-RoCE put into the user's ring into those of
// the C API: the kernel's own bit 2 (WITH_INVALIDATE) is the user's IP_CSUM_OK.
func kernelFlags(f uint32) ib.WCFlags {
	w := ib.WCFlags(f)
	if w&ib.WCFlagIPCsumOK != 0 {
		w = w&^ib.WCFlagIPCsumOK | ib.WCFlagWithInv
	}
	return w
}

// refused handles a side that our device did not let start.
func (c *comparison) refused() {
	if len(c.player.side.WC) == 0 && c.player.flow.Client.Note != "" {
		c.diff(Diff{Where: "program", Field: "call", Ours: c.player.refused.Error(), Theirs: "accepted, or refused by its library", Why: c.refusal()})
		return
	}
	c.diff(Diff{Where: "program", Field: "call", Ours: c.player.refused.Error(), Theirs: "accepted"})
}

func (c *comparison) refusal() string {
	s := c.player.refused.Error()
	switch {
	case strings.Contains(s, "multiple of 8"):
		return "misaligned-atomic: post_send refuses it on both sides"
	case strings.Contains(s, "path_mtu"):
		return "path-mtu-over-port: the kernel accepts the MTU and then sends nothing"
	}
	return ""
}

// memory compares what the conversation left in memory, where the file tells.
func (c *comparison) memory() {
	p, s := c.player, c.player.side
	check := func(field string, ours, theirs string) {
		if ours != theirs {
			c.diff(Diff{Where: "memory", Field: field, Ours: ours, Theirs: theirs})
		}
	}
	if s.AtomicNow != 0 {
		check("atomic target", fmt.Sprintf("%#x", le64(p.buf[offAtomic:])), fmt.Sprintf("%#x", uint64(s.AtomicNow)))
	}
	for i, v := range s.AtomicOld {
		check(fmt.Sprintf("atomic result %d", i), fmt.Sprintf("%#x", le64(p.buf[offResult+8*i:])), fmt.Sprintf("%#x", uint64(v)))
	}
	if n := len(s.RecvHead) / 2; n > 0 && n <= len(p.buf) {
		check("receive buffer", hex.EncodeToString(p.buf[:n]), s.RecvHead)
	}
}

func le64(b []byte) (v uint64) {
	for i := 7; i >= 0; i-- {
		v = v<<8 | uint64(b[i])
	}
	return v
}
