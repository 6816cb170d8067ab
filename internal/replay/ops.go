package replay

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/swqe"
)

// op is one work request of a conversation in its short form.
type op struct {
	opcode    ib.WROpcode
	imm       bool
	length    uint32
	nomatch   bool // CMP_SWP that does not match
	solicited bool
	fence     bool
	unsig     bool
	badKey    bool
	beyond    bool // remote address whose end leaves the region
	misalign  bool
	badQKey   bool
}

// parseOps reads the short form of the flows file: words such as "S13" (SEND of 13
// bytes), "SI8" (with immediate), "V13" (with invalidate), "W", "WI", "R", "C" and
// "Cx" (compare and swap that does and does not match), "F" (fetch and add); after "!"
// the letters s (solicited), f (fence), u (unsignaled), k (wrong rkey), o (out of the
// region), m (misaligned), q (wrong Q_Key).
func parseOps(s string) ([]op, error) {
	var ops []op
	for _, word := range strings.Fields(s) {
		o, err := parseOp(word)
		if err != nil {
			return nil, err
		}
		ops = append(ops, o)
	}
	return ops, nil
}

func parseOp(word string) (o op, err error) {
	main, flags, _ := strings.Cut(word, "!")
	kind := strings.TrimRight(main, "0123456789")
	if num := main[len(kind):]; num != "" {
		n, err := strconv.ParseUint(num, 10, 31)
		if err != nil {
			return o, fmt.Errorf("ops: %q: bad length", word)
		}
		o.length = uint32(n)
	}
	switch kind {
	case "S":
		o.opcode = ib.WRSend
	case "SI":
		o.opcode, o.imm = ib.WRSendWithImm, true
	case "V":
		o.opcode = ib.WRSendWithInv
	case "W":
		o.opcode = ib.WRRDMAWrite
	case "WI":
		o.opcode, o.imm = ib.WRRDMAWriteWithImm, true
	case "R":
		o.opcode = ib.WRRDMARead
	case "C", "Cx":
		o.opcode, o.nomatch = ib.WRAtomicCmpAndSwp, kind == "Cx"
	case "F":
		o.opcode = ib.WRAtomicFetchAndAdd
	default:
		return o, fmt.Errorf("ops: %q: unknown operation %q", word, kind)
	}
	for _, f := range flags {
		b := map[rune]*bool{'s': &o.solicited, 'f': &o.fence, 'u': &o.unsig, 'k': &o.badKey, 'o': &o.beyond, 'm': &o.misalign, 'q': &o.badQKey}[f]
		if b == nil {
			return o, fmt.Errorf("ops: %q: unknown flag %q", word, f)
		}
		*b = true
	}
	return o, nil
}

// The layout of both programs' buffers and the values they use.
const (
	offAtomic  = 4096  // target of atomics
	offSource  = 16384 // what SEND and WRITE send
	offTarget  = 32768 // target of WRITE, source of READ
	offResult  = 49152 // results of READ and atomics
	atomicInit = 0x1122334455667788
	swapValue  = 0xaabbccddeeff0011
	addValue   = 7
	immValue   = 0xcafebabe
	qkeyGood   = 0x11111111
	qkeyBad    = 0x22222222
	keyFlip    = 0x5500
)

// workRequest builds the i-th work request of a side.
func (o *op) workRequest(i int, s *Side, lkey ib.LKey, bufBytes int) swqe.SendWR {
	va, peer := uint64(s.VA), uint64(s.PeerVA)
	wr := swqe.SendWR{WRID: uint64(100 + i), Opcode: o.opcode, RemoteAddr: peer + offTarget, RKey: ib.RKey(s.PeerKey), InvRKey: ib.RKey(s.PeerKey)}
	sge := mr.SGE{Addr: va + offSource, Length: o.length, LKey: lkey}
	switch o.opcode {
	case ib.WRRDMARead:
		sge.Addr = va + offResult
	case ib.WRAtomicCmpAndSwp, ib.WRAtomicFetchAndAdd:
		sge = mr.SGE{Addr: va + offResult + uint64(8*i), Length: 8, LKey: lkey}
		wr.RemoteAddr = peer + offAtomic
		wr.Swap, wr.CompareAdd = swapValue, atomicInit
		if o.nomatch {
			wr.CompareAdd = 0xdead
		}
		if o.opcode == ib.WRAtomicFetchAndAdd {
			wr.CompareAdd = addValue
		}
	}
	if sge.Length > 0 {
		wr.SGL = []mr.SGE{sge}
	}
	if o.imm {
		wr.Imm = immValue
	}
	if !o.unsig {
		wr.Flags |= ib.SendSignaled
	}
	if o.solicited {
		wr.Flags |= ib.SendSolicited
	}
	if o.fence {
		wr.Flags |= ib.SendFence
	}
	if o.badKey {
		wr.RKey ^= keyFlip
	}
	if o.beyond {
		wr.RemoteAddr = peer + uint64(bufBytes) - 4
	}
	if o.misalign {
		wr.RemoteAddr += 4
	}
	return wr
}
