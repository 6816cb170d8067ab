package spec

import (
	"fmt"
	"strings"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/swqe"
)

// sendOps are the names of operations in work request lines. op=N makes an opcode
// that has no name.
var sendOps = []struct {
	name string
	op   ib.WROpcode
}{
	{"send", ib.WRSend}, {"send-imm", ib.WRSendWithImm}, {"send-inv", ib.WRSendWithInv}, {"write", ib.WRRDMAWrite},
	{"write-imm", ib.WRRDMAWriteWithImm}, {"read", ib.WRRDMARead}, {"cas", ib.WRAtomicCmpAndSwp}, {"faa", ib.WRAtomicFetchAndAdd},
	{"local-inv", ib.WRLocalInv}, {"bind-mw", ib.WRBindMW}, {"tso", ib.WRTSO}, {"flush", ib.WRFlush}, {"atomic-write", ib.WRAtomicWrite}, {"op", 200},
}

// lines returns the work request lines of a directive: those of its input, or the rest
// of the directive line itself.
func wrLines(a *args, input string) ([]*args, error) {
	if input == "" {
		return []*args{a}, nil
	}
	if err := a.done(); err != nil {
		return nil, err
	}
	var out []*args
	for line := range strings.SplitSeq(input, "\n") {
		name, list, err := ParseLine(line)
		if err != nil {
			return nil, err
		}
		if name != "" {
			word, vals, isPair := strings.Cut(name, "=")
			first := Arg{Key: word}
			if isPair {
				first.Vals = []string{vals}
			}
			out = append(out, newArgs(append([]Arg{first}, list...)))
		}
	}
	return out, nil
}

// repeat reads n= and every=: a line stands for n work requests with ids that count
// up; only each every-th of them is signaled.
func repeat(a *args) (n, every int) {
	return a.count("n", 1, maxWRs), a.count("every", 1, maxWRs)
}

// sendWRs reads the send work requests of a directive.
func (in *Interp) sendWRs(q *qpObj, a *args, input string) ([]swqe.SendWR, error) {
	lines, err := wrLines(a, input)
	if err != nil {
		return nil, err
	}
	var out []swqe.SendWR
	for _, l := range lines {
		n, every := repeat(l)
		wr, err := in.sendWR(q, l)
		if err == nil {
			err = l.done()
		}
		if err == nil && len(out)+n > maxWRs {
			err = fmt.Errorf("more than %d work requests", maxWRs)
		}
		if err != nil {
			return nil, err
		}
		for i := range n {
			w := wr
			w.WRID += uint64(i)
			if every > 1 && (i+1)%every != 0 {
				w.Flags &^= ib.SendSignaled
			}
			out = append(out, w)
		}
	}
	return out, nil
}

// sendWR reads one work request. It is SIGNALED unless it says "unsignaled".
func (in *Interp) sendWR(q *qpObj, a *args) (wr swqe.SendWR, err error) {
	for _, f := range []struct {
		word string
		bit  ib.SendFlags
	}{{"fence", ib.SendFence}, {"solicited", ib.SendSolicited}, {"inline", ib.SendInline}} {
		if a.flag(f.word) {
			wr.Flags |= f.bit
		}
	}
	if !a.flag("unsignaled") {
		wr.Flags |= ib.SendSignaled
	}
	name := a.word("operation")
	op, ok := find(sendOps, func(o struct {
		name string
		op   ib.WROpcode
	}) string {
		return o.name
	}, name)
	if !ok {
		return wr, fmt.Errorf("no operation %q", name)
	}
	wr.Opcode = op.op
	if a.has("opcode") {
		wr.Opcode = ib.WROpcode(a.count("opcode", 0, 255))
	}
	wr.WRID = a.num("id", 0, 1<<64-1)
	if wr.SGL, err = in.sges(a.vals("sge")); err != nil {
		return wr, err
	}
	wr.Imm = uint32(a.num("imm", 0, 1<<32-1))
	wr.CompareAdd = a.num("compare", a.num("add", 0, 1<<64-1), 1<<64-1)
	wr.Swap = a.num("swap", 0, 1<<64-1)
	if wr.InvRKey, err = in.rkey(a.str("inv", "0")); err != nil {
		return wr, err
	}
	wr.Flush = swqe.FlushInfo{Length: uint32(a.num("flush", 0, 1<<32-1)), Type: ib.FlushType(a.num("type", 1, 255)), Level: ib.FlushLevel(a.num("level", 0, 255))}
	if wr.Flags&ib.SendInline != 0 {
		if wr.Inline, err = in.inlineData(wr.SGL); err != nil {
			return wr, err
		}
	}
	if err := in.remote(q, a, &wr); err != nil {
		return wr, err
	}
	return wr, in.bind(a, &wr)
}

// remote reads the destination: to= of RDMA, ah=, qp= and qkey= of a datagram.
func (in *Interp) remote(q *qpObj, a *args, wr *swqe.SendWR) (err error) {
	if s := a.str("to", ""); s != "" {
		e, key, err := in.place(s)
		if err != nil {
			return err
		}
		wr.RemoteAddr, wr.RKey = e, key
	}
	wr.RemoteAddr = a.num("raddr", wr.RemoteAddr, 1<<64-1)
	if s := a.str("rkey", ""); s != "" {
		if wr.RKey, err = in.rkey(s); err != nil {
			return err
		}
	}
	if s := a.str("ah", ""); s != "" {
		h, err := in.ah(s)
		if err != nil {
			return err
		}
		wr.AH = h.ah
		wr.RemoteQKey = ib.QKey(a.num("qkey", 0x1111, 1<<32-1))
	}
	if s := a.str("qp", ""); s != "" {
		peer, err := in.qp(s)
		if err != nil {
			return err
		}
		wr.RemoteQPN = peer.qp.QPN
	}
	wr.RemoteQPN = ib.QPN(a.num("qpn", uint64(wr.RemoteQPN), uint64(ib.QPNMask)))
	return nil
}

// bind reads what BIND_MW binds.
func (in *Interp) bind(a *args, wr *swqe.SendWR) error {
	s := a.str("mw", "")
	if s == "" {
		return nil
	}
	w, err := in.mw(s)
	if err != nil {
		return err
	}
	b := &wr.Bind
	b.MW = w.mw
	b.RKey = w.mw.RKey&^0xff | (w.mw.RKey+1)&0xff // what ibv_inc_rkey gives
	if s := a.str("key", ""); s != "" {
		if b.RKey, err = in.rkey(s); err != nil {
			return err
		}
	}
	b.Access = a.access("access", ib.AccessRemoteMask)
	if s := a.str("range", ""); s != "" {
		sge, err := in.sge(s)
		if err != nil {
			return err
		}
		b.Addr, b.Length = sge.Addr, uint64(sge.Length)
		m, err := in.mr(rangeName(s))
		if err != nil {
			return err
		}
		b.MR = m.mr.Region
	}
	return nil
}

// recvWRs reads the receive work requests of a directive.
func (in *Interp) recvWRs(a *args, input string) ([]swqe.RecvWR, error) {
	lines, err := wrLines(a, input)
	if err != nil {
		return nil, err
	}
	var out []swqe.RecvWR
	for _, l := range lines {
		n, _ := repeat(l)
		wr := swqe.RecvWR{WRID: l.num("id", 0, 1<<64-1)}
		if wr.SGL, err = in.sges(l.vals("sge")); err == nil {
			err = l.done()
		}
		if err == nil && len(out)+n > maxWRs {
			err = fmt.Errorf("more than %d work requests", maxWRs)
		}
		if err != nil {
			return nil, err
		}
		for i := range n {
			w := wr
			w.WRID += uint64(i)
			out = append(out, w)
		}
	}
	return out, nil
}

// sges reads a scatter/gather list.
func (in *Interp) sges(list []string) ([]mr.SGE, error) {
	if len(list) > maxWRs {
		return nil, fmt.Errorf("more than %d entries", maxWRs)
	}
	var out []mr.SGE
	for _, s := range list {
		e, err := in.sge(s)
		if err != nil {
			return nil, err
		}
		out = append(out, e)
	}
	return out, nil
}

// badKey is a key that no region of a script has.
const badKey = 0xdead00

// rangeName is the region of "ma+16:64".
func rangeName(s string) string {
	name, _ := cut(s, "+:")
	return name
}

// sge reads one piece of memory: ma+16:64 are 64 bytes from offset 16 of region ma,
// bad:64 are 64 bytes behind a key that does not exist.
func (in *Interp) sge(s string) (mr.SGE, error) {
	where, n, ok := strings.Cut(s, ":")
	length, err := parseNum(n)
	if !ok || err != nil || length > 1<<32-1 {
		return mr.SGE{}, fmt.Errorf("%q is not name+offset:length", s)
	}
	if where == "bad" {
		return mr.SGE{Addr: mrSpacing, Length: uint32(length), LKey: badKey}, nil
	}
	m, off, err := in.spot(where)
	if err != nil {
		return mr.SGE{}, err
	}
	return mr.SGE{Addr: m.mr.IOVA + off, Length: uint32(length), LKey: m.mr.LKey}, nil
}

// spot reads "ma+16".
func (in *Interp) spot(s string) (*mrObj, uint64, error) {
	name, plus, ok := strings.Cut(s, "+")
	off := uint64(0)
	if ok {
		var err error
		if off, err = parseNum(plus); err != nil {
			return nil, 0, fmt.Errorf("%q is not name+offset", s)
		}
	}
	m, err := in.mr(name)
	return m, off, err
}

// place reads a remote address, "mb+16" of a region or "w+16" of a window: its address
// and rkey.
func (in *Interp) place(s string) (uint64, ib.RKey, error) {
	name, plus, _ := strings.Cut(s, "+")
	if w, err := in.mw(name); err == nil {
		off, err := parseNum("0" + plus)
		return off, w.mw.RKey, err
	}
	m, off, err := in.spot(s)
	if err != nil {
		return 0, 0, err
	}
	return m.mr.IOVA + off, m.mr.RKey, nil
}

// rkey reads a key: a number, or the name of a region or window.
func (in *Interp) rkey(s string) (ib.RKey, error) {
	if n, err := parseNum(s); err == nil {
		return ib.RKey(n), nil
	}
	if s == "bad" {
		return badKey, nil
	}
	_, key, err := in.place(s)
	return key, err
}

// inlineData copies the bytes that an SGE list names, whatever its keys.
func (in *Interp) inlineData(sgl []mr.SGE) ([]byte, error) {
	var out []byte
	for _, e := range sgl {
		if e.Length > maxBytes {
			return nil, fmt.Errorf("%d bytes inline", e.Length)
		}
		b := make([]byte, e.Length)
		for _, m := range in.mrs {
			if off := e.Addr - m.mr.IOVA; e.Addr >= m.mr.IOVA && off < uint64(len(m.buf)) {
				copy(b, m.buf[off:])
			}
		}
		out = append(out, b...)
	}
	return out, nil
}
