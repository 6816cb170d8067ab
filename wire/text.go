package wire

import (
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
)

// String returns the packet as one line; see [Packet.AppendText].
func (p *Packet) String() string { return string(p.AppendText(make([]byte, 0, 128))) }

// AppendText appends the packet to dst as one line without newline, for traces and
// golden files:
//
//	SEND_ONLY qp=0x11 psn=256 A SE pad=3 len=13
//	ACKNOWLEDGE qp=0x11 psn=256 ACK credits=31 msn=1
//
// The flags are A (acknowledge request), SE (solicited event), M (migration), FECN
// and BECN. The P_Key is shown unless it is the default one, pad unless it is 0, len
// if the opcode may carry a payload. Extended headers stand in wire order.
func (p *Packet) AppendText(dst []byte) []byte {
	info := Info(p.Opcode)
	if info == nil {
		dst = appendHex(dst, "OPCODE_", uint64(p.Opcode))
	} else {
		dst = append(dst, info.Name...)
	}
	dst = appendHex(dst, " qp=", uint64(p.DestQP))
	dst = appendDec(dst, " psn=", uint64(p.PSN))
	dst = p.appendFlags(dst)
	if p.PKey != ib.PKeyDefault {
		dst = appendHex(dst, " pkey=", uint64(p.PKey))
	}
	if p.TVer != 0 {
		dst = appendDec(dst, " tver=", uint64(p.TVer))
	}
	var m Mask
	if info != nil {
		m = info.Mask
	}
	dst = p.appendExtendedText(dst, m)
	if p.Pad != 0 {
		dst = appendDec(dst, " pad=", uint64(p.Pad))
	}
	if m&Payload != 0 {
		dst = appendDec(dst, " len=", uint64(len(p.Payload)))
	}
	return dst
}

func (p *Packet) appendFlags(dst []byte) []byte {
	if p.AckReq {
		dst = append(dst, " A"...)
	}
	if p.SE {
		dst = append(dst, " SE"...)
	}
	if p.M {
		dst = append(dst, " M"...)
	}
	if p.FECN {
		dst = append(dst, " FECN"...)
	}
	if p.BECN {
		dst = append(dst, " BECN"...)
	}
	return dst
}

func (p *Packet) appendExtendedText(dst []byte, m Mask) []byte {
	if m&HasDETH != 0 {
		dst = appendHex(dst, " qkey=", uint64(p.DETH.QKey))
		dst = appendHex(dst, " srcqp=", uint64(p.DETH.SrcQP))
	}
	if m&HasFETH != 0 {
		dst = appendDec(dst, " sel=", uint64(p.FETH.SEL))
		dst = appendHex(dst, " plt=", uint64(p.FETH.PLT))
	}
	if m&HasRETH != 0 {
		dst = appendHex(dst, " va=", p.RETH.VA)
		dst = appendHex(dst, " rkey=", uint64(p.RETH.RKey))
		dst = appendDec(dst, " dmalen=", uint64(p.RETH.DMALen))
	}
	if m&HasAtomicETH != 0 {
		dst = appendHex(dst, " va=", p.AtomicETH.VA)
		dst = appendHex(dst, " rkey=", uint64(p.AtomicETH.RKey))
		if p.Opcode.Operation() == ib.OpFetchAdd {
			dst = appendHex(dst, " add=", p.AtomicETH.SwapAdd)
		} else {
			dst = appendHex(dst, " compare=", p.AtomicETH.Compare)
			dst = appendHex(dst, " swap=", p.AtomicETH.SwapAdd)
		}
	}
	if m&HasAETH != 0 {
		dst = appendAETH(dst, p.AETH)
	}
	if m&HasAtomicAck != 0 {
		dst = appendHex(dst, " orig=", p.AtomicAck)
	}
	if m&HasImm != 0 {
		dst = appendHex(dst, " imm=", uint64(p.Imm))
	}
	if m&HasIETH != 0 {
		dst = appendHex(dst, " inv=", uint64(p.InvRKey))
	}
	return dst
}

func appendAETH(dst []byte, a AETH) []byte {
	dst = append(append(dst, ' '), a.Syndrome.String()...)
	switch a.Syndrome.Kind() {
	case ib.SyndromeACK:
		dst = appendDec(dst, " credits=", uint64(a.Syndrome.Value()))
	case ib.SyndromeRNR:
		dst = appendDec(dst, " timer=", uint64(a.Syndrome.Value()))
	case ib.SyndromeNAK:
		if a.Syndrome > ib.NAKInvalidRDReq {
			dst = appendHex(dst, "=", uint64(a.Syndrome))
		}
	default:
		dst = appendHex(dst, "=", uint64(a.Syndrome))
	}
	return appendDec(dst, " msn=", uint64(a.MSN))
}

func appendHex(dst []byte, label string, v uint64) []byte {
	dst = append(append(dst, label...), "0x"...)
	return strconv.AppendUint(dst, v, 16)
}

func appendDec(dst []byte, label string, v uint64) []byte {
	return strconv.AppendUint(append(dst, label...), v, 10)
}
