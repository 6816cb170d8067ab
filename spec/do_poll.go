package spec

import (
	"fmt"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
)

// doPoll polls a completion queue and prints what it gives, up to n= completions. Of a
// failed one only the fields that are valid are shown; "all" shows the others too.
func (in *Interp) doPoll(a *args) error {
	c, err := in.cq(a.word("cq name"))
	if err != nil {
		return err
	}
	n, all := a.count("n", maxWRs, maxWRs), a.flag("all")
	if err := a.done(); err != nil {
		return err
	}
	wcs := make([]cq.WC, n)
	got := c.node.dev.PollCQ(c.cq, wcs)
	if got == 0 {
		in.printf("(empty)\n")
	}
	for i := range wcs[:got] {
		in.printf("%s\n", in.wcText(c.node, &wcs[i], all))
	}
	return nil
}

// wcText is a completion as one line.
func (in *Interp) wcText(n *node, wc *cq.WC, all bool) string {
	s := fmt.Sprintf("wr_id=%d %s qp=%s", wc.WRID, wc.Status, in.qpName(n, wc.QPN))
	failed := wc.Status != ib.WCSuccess
	if failed || wc.VendorErr != 0 {
		s += fmt.Sprintf(" vendor_err=0x%x (%s)", uint32(wc.VendorErr), wc.VendorErr)
	}
	if failed && !all {
		return s
	}
	s += fmt.Sprintf(" %s len=%d", wc.Opcode, wc.ByteLen)
	if wc.Flags&ib.WCFlagWithImm != 0 || all && wc.Imm != 0 {
		s += fmt.Sprintf(" imm=0x%x", wc.Imm)
	}
	if wc.Flags&ib.WCFlagWithInv != 0 || all && wc.InvRKey != 0 {
		s += " inv=" + in.keyName(n, wc.InvRKey)
	}
	if wc.SrcQP != 0 || all {
		s += " src_qp=" + wc.SrcQP.String()
	}
	if wc.Flags != 0 || all {
		s += " flags=" + wc.Flags.String()
	}
	if all {
		s += fmt.Sprintf(" pkey_index=%d slid=%d sl=%d path_bits=%d port=%d", wc.PKeyIndex, wc.SLID, wc.SL, wc.DLIDPathBits, wc.PortNum)
	}
	return s
}

// keyName names an rkey of a device: the window or region that has it.
func (in *Interp) keyName(n *node, key ib.RKey) string {
	for _, w := range in.mws {
		if w.node == n && w.mw.RKey == key {
			return w.name
		}
	}
	for _, m := range in.mrs {
		if m.node == n && m.mr.RKey == key {
			return m.name
		}
	}
	return key.String()
}
