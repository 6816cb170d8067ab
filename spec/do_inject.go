package spec

import (
	"encoding/hex"
	"fmt"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// doInject gives a QP a packet that nobody sent. It arrives at once, from the QP's
// peer unless src= names another device, and prints what became of it. Fields that are
// not given are zero or what a well-formed packet would have.
func (in *Interp) doInject(a *args) error {
	q, err := in.qp(a.word("qp name"))
	if err != nil {
		return err
	}
	f := &flight{to: q.node, path: wire.Path{Src: q.qp.Attr.AV.DGID, Dst: q.node.gid, HopLimit: 64}}
	if s := a.str("src", ""); s != "" {
		n, err := in.node(s)
		if err != nil {
			return err
		}
		f.path.Src = n.gid
	}
	if s := a.str("dst", ""); s != "" {
		if f.path.Dst, err = ib.ParseGID(s); err != nil {
			return err
		}
	}
	f.damaged = a.flag("bad_icrc")
	if s := a.str("raw", ""); s != "" {
		if f.raw, err = hex.DecodeString(s); err != nil {
			return err
		}
	} else {
		pkt, err := in.packet(q, a)
		if err != nil {
			return err
		}
		f.raw = wire.AppendPacket(nil, pkt)
	}
	if err := a.done(); err != nil {
		return err
	}
	was := in.trace
	in.trace = false
	r := in.receive(f)
	in.trace = was
	if r == wire.DropNone {
		in.printf("taken\n")
	} else {
		in.printf("dropped: %s\n", r)
	}
	in.commit(q.node)
	return nil
}

// packet builds the packet that an inject describes.
func (in *Interp) packet(q *qpObj, a *args) (*wire.Packet, error) {
	p := &wire.Packet{DestQP: q.qp.QPN, PKey: ib.PKeyDefault}
	name := a.str("op", "")
	op, ok := opByName(name)
	if !ok {
		n, err := parseNum(name)
		if err != nil || n > 255 {
			return nil, fmt.Errorf("no packet opcode %q", name)
		}
		op = ib.Opcode(n)
	}
	p.Opcode = op
	p.SE, p.AckReq, p.FECN, p.BECN, p.M = a.flag("SE"), a.flag("A"), a.flag("FECN"), a.flag("BECN"), a.flag("M")
	p.PSN = ib.PSN(a.num("psn", 0, ib.PSNMask))
	p.DestQP = ib.QPN(a.num("qpn", uint64(p.DestQP), uint64(ib.QPNMask)))
	p.PKey = uint16(a.num("pkey", uint64(p.PKey), 0xffff))
	p.TVer = uint8(a.count("tver", 0, 15))
	p.AETH = wire.AETH{Syndrome: ib.Syndrome(a.count("syn", 0x1f, 255)), MSN: ib.MSN(a.num("msn", 0, ib.PSNMask))}
	p.AtomicAck = a.num("orig", 0, 1<<64-1)
	p.FETH = wire.FETH{SEL: uint8(a.num("sel", 0, 15)), PLT: uint8(a.num("plt", 1, 15))}
	p.Imm = uint32(a.num("imm", 0, 1<<32-1))
	inv, err := in.rkey(a.str("inv", "0"))
	if err != nil {
		return nil, err
	}
	p.InvRKey = inv
	p.DETH = wire.DETH{QKey: ib.QKey(a.num("qkey", 0, 1<<32-1)), SrcQP: ib.QPN(a.num("srcqp", 0, uint64(ib.QPNMask)))}
	n := a.count("len", 0, maxBytes)
	p.Payload = make([]byte, n)
	if err := fillBytes(p.Payload, a.str("fill", "count")); err != nil {
		return nil, err
	}
	p.Pad = uint8(a.num("pad", uint64(wire.PadFor(n)), 3))
	var va uint64
	var key ib.RKey
	if s := a.str("to", ""); s != "" {
		if va, key, err = in.place(s); err != nil {
			return nil, err
		}
	}
	if s := a.str("rkey", ""); s != "" {
		if key, err = in.rkey(s); err != nil {
			return nil, err
		}
	}
	va = a.num("va", va, 1<<64-1)
	p.RETH = wire.RETH{VA: va, RKey: key, DMALen: uint32(a.num("dmalen", uint64(n), 1<<32-1))}
	p.AtomicETH = wire.AtomicETH{VA: va, RKey: key, SwapAdd: a.num("swap", a.num("add", 0, 1<<64-1), 1<<64-1), Compare: a.num("compare", 0, 1<<64-1)}
	return p, nil
}
