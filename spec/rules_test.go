package spec

import (
	"encoding/binary"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/wire"
)

// transitionTable is ibv_modify_qp(3) in our own notation: what each transition of each
// transport needs ("req") and admits ("opt"). Every pair that is not here is forbidden.
const transitionTable = `
RESET INIT RC  req=PKEY_INDEX,PORT,ACCESS_FLAGS
RESET INIT UC  req=PKEY_INDEX,PORT,ACCESS_FLAGS
RESET INIT UD  req=PKEY_INDEX,PORT,QKEY
RESET INIT GSI req=PKEY_INDEX,QKEY
INIT  INIT RC  opt=PKEY_INDEX,PORT,ACCESS_FLAGS
INIT  INIT UC  opt=PKEY_INDEX,PORT,ACCESS_FLAGS
INIT  INIT UD  opt=PKEY_INDEX,PORT,QKEY
INIT  INIT GSI opt=PKEY_INDEX,QKEY
INIT  RTR  RC  req=AV,PATH_MTU,DEST_QPN,RQ_PSN,MAX_DEST_RD_ATOMIC,MIN_RNR_TIMER opt=ALT_PATH,ACCESS_FLAGS,PKEY_INDEX
INIT  RTR  UC  req=AV,PATH_MTU,DEST_QPN,RQ_PSN opt=ALT_PATH,ACCESS_FLAGS,PKEY_INDEX
INIT  RTR  UD  opt=PKEY_INDEX,QKEY
INIT  RTR  GSI opt=PKEY_INDEX,QKEY
RTR   RTS  RC  req=SQ_PSN,TIMEOUT,RETRY_CNT,RNR_RETRY,MAX_QP_RD_ATOMIC opt=CUR_STATE,ALT_PATH,ACCESS_FLAGS,PATH_MIG_STATE,MIN_RNR_TIMER
RTR   RTS  UC  req=SQ_PSN opt=CUR_STATE,ALT_PATH,ACCESS_FLAGS,PATH_MIG_STATE
RTR   RTS  UD  req=SQ_PSN opt=CUR_STATE,QKEY
RTR   RTS  GSI req=SQ_PSN opt=CUR_STATE,QKEY
RTS   RTS  RC  opt=CUR_STATE,ACCESS_FLAGS,ALT_PATH,PATH_MIG_STATE,MIN_RNR_TIMER
RTS   RTS  UC  opt=CUR_STATE,ACCESS_FLAGS,ALT_PATH,PATH_MIG_STATE
RTS   RTS  UD  opt=CUR_STATE,QKEY
RTS   RTS  GSI opt=CUR_STATE,QKEY
RTS   SQD  RC  opt=EN_SQD_ASYNC_NOTIFY
RTS   SQD  UC  opt=EN_SQD_ASYNC_NOTIFY
RTS   SQD  UD  opt=EN_SQD_ASYNC_NOTIFY
RTS   SQD  GSI opt=EN_SQD_ASYNC_NOTIFY
SQD   RTS  RC  opt=CUR_STATE,ALT_PATH,ACCESS_FLAGS,PATH_MIG_STATE,MIN_RNR_TIMER
SQD   RTS  UC  opt=CUR_STATE,ALT_PATH,ACCESS_FLAGS,PATH_MIG_STATE
SQD   RTS  UD  opt=CUR_STATE,QKEY
SQD   RTS  GSI opt=CUR_STATE,QKEY
SQD   SQD  RC  opt=PORT,AV,TIMEOUT,RETRY_CNT,RNR_RETRY,MAX_QP_RD_ATOMIC,MAX_DEST_RD_ATOMIC,ALT_PATH,ACCESS_FLAGS,PKEY_INDEX,MIN_RNR_TIMER,PATH_MIG_STATE
SQD   SQD  UC  opt=AV,ALT_PATH,ACCESS_FLAGS,PKEY_INDEX,PATH_MIG_STATE
SQD   SQD  UD  opt=PKEY_INDEX,QKEY
SQD   SQD  GSI opt=PKEY_INDEX,QKEY
SQE   RTS  UC  opt=CUR_STATE,ACCESS_FLAGS
SQE   RTS  UD  opt=CUR_STATE,QKEY
SQE   RTS  GSI opt=CUR_STATE,QKEY
`

type transitionKey struct {
	from, to ib.QPState
	typ      ib.QPType
}

type transitionRow struct{ required, optional ib.AttrMask }

func parseMask(t *testing.T, list string) (m ib.AttrMask) {
	t.Helper()
next:
	for name := range strings.SplitSeq(list, ",") {
		for bit := ib.AttrState; bit <= ib.AttrDestQPN; bit <<= 1 {
			if bit.String() == name {
				m |= bit
				continue next
			}
		}
		t.Fatalf("no attribute %q", name)
	}
	return m
}

func expectedTransitions(t *testing.T) map[transitionKey]transitionRow {
	t.Helper()
	out := map[transitionKey]transitionRow{}
	for line := range strings.SplitSeq(strings.TrimSpace(transitionTable), "\n") {
		f := strings.Fields(line)
		from, _ := stateByName(f[0])
		to, _ := stateByName(f[1])
		typ := map[string]ib.QPType{"RC": ib.QPTypeRC, "UC": ib.QPTypeUC, "UD": ib.QPTypeUD, "GSI": ib.QPTypeGSI}[f[2]]
		var row transitionRow
		for _, x := range f[3:] {
			kind, list, _ := strings.Cut(x, "=")
			if kind == "req" {
				row.required = parseMask(t, list)
			} else {
				row.optional = parseMask(t, list)
			}
		}
		out[transitionKey{from, to, typ}] = row
	}
	for s := ib.StateReset; s < ib.NumQPStates; s++ {
		for _, typ := range []ib.QPType{ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD, ib.QPTypeGSI} {
			out[transitionKey{s, ib.StateReset, typ}] = transitionRow{}
			if s != ib.StateReset {
				out[transitionKey{s, ib.StateErr, typ}] = transitionRow{}
			}
		}
	}
	return out
}

// TestTransitions holds the device's table against the one above, for every pair of
// states and every transport.
//
// req: QPS-TAB-01 QPS-TAB-02
func TestTransitions(t *testing.T) {
	want := expectedTransitions(t)
	for from := ib.StateReset; from < ib.NumQPStates; from++ {
		for to := ib.StateReset; to < ib.NumQPStates; to++ {
			for _, typ := range []ib.QPType{ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD, ib.QPTypeGSI} {
				row, allowed := want[transitionKey{from, to, typ}]
				required, optional, ok := qp.TransitionMasks(from, to, typ)
				if from == ib.StateSQE && to == ib.StateRTS && typ == ib.QPTypeRC {
					continue // an RC queue pair cannot be in SQE
				}
				require.Equal(t, allowed, ok, "%s to %s of %s", from, to, typ)
				require.Equal(t, row.required, required, "%s to %s of %s: required", from, to, typ)
				require.Equal(t, row.optional, optional, "%s to %s of %s: optional", from, to, typ)
			}
		}
	}
}

// TestModifyReadsMaskOnly: what is not in the mask is not looked at, bad or not.
//
// req: QPS-MOD-02 QPS-MOD-01
func TestModifyReadsMaskOnly(t *testing.T) {
	in := New()
	for _, line := range []string{"device A", "cq c dev=A", "qp q dev=A cq=c"} {
		require.NoError(t, in.quietly(line))
	}
	q := in.qps[0]
	bad := qp.Attr{State: ib.StateInit, PortNum: 1, Timeout: 99, RetryCnt: 99, PathMTU: 99, DestQPN: 1 << 30, CurState: ib.StateErr, MinRNRTimer: 99}
	before := q.qp.Query()
	require.Error(t, q.node.dev.ModifyQP(0, q.qp, &bad, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccessFlags|ib.AttrQKey))
	require.Equal(t, before, q.qp.Query())
	require.NoError(t, q.node.dev.ModifyQP(0, q.qp, &bad, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccessFlags))
	after := q.qp.Query()
	require.Equal(t, ib.StateInit, after.State)
	require.Zero(t, after.Timeout)
	require.Zero(t, after.DestQPN)
}

// TestStateOps is the table of what a queue pair may do in each state.
//
// req: POST-02 RQ-POST-01 QPS-RESET-02 QPS-RTR-01 QPS-SQD-01 QPS-ERR-01
func TestStateOps(t *testing.T) {
	const (
		pr, rr, fr = qp.PostRecvOK, qp.ProcessRecvOK, qp.FlushRecv
		ps, ss, ns = qp.PostSendOK, qp.ProcessSendOK, qp.ProcessNextSendOK
		fs         = qp.FlushSend
	)
	require.Equal(t, qp.Ops(0), qp.StateOps(ib.StateReset))
	require.Equal(t, pr, qp.StateOps(ib.StateInit))
	require.Equal(t, pr|rr, qp.StateOps(ib.StateRTR))
	require.Equal(t, pr|rr|ps|ss|ns, qp.StateOps(ib.StateRTS))
	require.Equal(t, pr|rr|ps|ss, qp.StateOps(ib.StateSQD))
	require.Equal(t, pr|rr|ps|fs, qp.StateOps(ib.StateSQE))
	require.Equal(t, pr|fr|ps|fs, qp.StateOps(ib.StateErr))
}

// TestOperationTable: which transport has which operation, and how it completes.
//
// req: POST-03 SQ-COMP-08
func TestOperationTable(t *testing.T) {
	for op, want := range map[ib.WROpcode]struct {
		on string
		wc ib.WCOpcode
	}{
		ib.WRSend: {"RC UC UD", ib.WCSend}, ib.WRSendWithImm: {"RC UC UD", ib.WCSend}, ib.WRSendWithInv: {"RC", ib.WCSend},
		ib.WRRDMAWrite: {"RC UC", ib.WCRDMAWrite}, ib.WRRDMAWriteWithImm: {"RC UC", ib.WCRDMAWrite}, ib.WRRDMARead: {"RC", ib.WCRDMARead},
		ib.WRAtomicCmpAndSwp: {"RC", ib.WCCompSwap}, ib.WRAtomicFetchAndAdd: {"RC", ib.WCFetchAdd},
		ib.WRLocalInv: {"RC UC", ib.WCLocalInv}, ib.WRBindMW: {"RC UC", ib.WCBindMW},
	} {
		p := swqe.Params(op)
		require.NotNil(t, p, op)
		var on []string
		for _, typ := range []ib.QPType{ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD} {
			if p.Allowed(typ) {
				on = append(on, typ.String())
			}
		}
		require.Equal(t, want.on, strings.Join(on, " "), op)
		require.Equal(t, want.wc, p.WCOpcode, op)
	}
}

// TestTimerTables: all codes of the RNR timer, the ACK timer and the credits.
//
// req: RC-RNR-02 RC-TIMER-01 WIRE-SYN-01 RC-ACKGEN-05
func TestTimerTables(t *testing.T) {
	us := []int{655360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920,
		2560, 3840, 5120, 7680, 10240, 15360, 20480, 30720, 40960, 61440, 81920, 122880, 163840, 245760, 327680, 491520}
	for code, want := range us {
		require.Equal(t, time.Duration(want)*time.Microsecond, ib.RNRTimeout(uint8(code)), "RNR code %d", code)
	}
	_, ok := ib.AckTimeout(0)
	require.False(t, ok)
	for code := uint8(1); code < 32; code++ {
		d, ok := ib.AckTimeout(code)
		require.True(t, ok)
		require.Equal(t, 4096*time.Nanosecond<<code, d)
	}
	credits := []uint32{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768}
	for code, want := range credits {
		n, ok := ib.Credits(uint8(code))
		require.True(t, ok)
		require.Equal(t, want, n)
		require.Equal(t, uint8(code), ib.CreditCode(want))
		if code > 4 {
			require.Equal(t, uint8(code-1), ib.CreditCode(want-1))
		}
	}
	_, ok = ib.Credits(31)
	require.False(t, ok)
}

// TestWireVector is a packet of a UC SEND whose ICRC is known from elsewhere: a public
// test of another implementation.
//
// req: WIRE-ICRC-01 WIRE-CODEC-01 WIRE-OP-01 WIRE-PAD-01
func TestWireVector(t *testing.T) {
	raw, err := hex.DecodeString("2460ffff000000d300cf1710" + "4630818be28935d90e9a95505401be885e50" + "0000")
	require.NoError(t, err)
	var p wire.Packet
	require.Equal(t, wire.DropNone, wire.Decode(raw, &p))
	require.Equal(t, ib.UCSendOnly, p.Opcode)
	require.True(t, p.M)
	require.Equal(t, ib.QPN(211), p.DestQP)
	require.Len(t, p.Payload, 18)
	require.Equal(t, raw, wire.AppendPacket(nil, &p))
	gid := ib.GIDFromIPv4(192, 168, 0, 7)
	path := wire.Path{Src: gid, Dst: gid, TClass: 1, HopLimit: 64, SPort: 49152, IPID: 1144}
	require.Equal(t, "78f353f3", hex.EncodeToString(binary.LittleEndian.AppendUint32(nil, wire.ICRC(&path, raw))))

	// TOS and TTL are not covered, the identification and the payload are.
	other := path
	other.TClass, other.HopLimit = 0xff, 3
	require.Equal(t, wire.ICRC(&path, raw), wire.ICRC(&other, raw))
	other.IPID++
	require.NotEqual(t, wire.ICRC(&path, raw), wire.ICRC(&other, raw))
	before := wire.ICRC(&path, raw)
	raw[13] ^= 1
	require.NotEqual(t, before, wire.ICRC(&path, raw))
}

// TestSourcePort: from the flow label, or from both QPNs, so that both directions agree.
//
// req: WIRE-SPORT-01
func TestSourcePort(t *testing.T) {
	require.Equal(t, uint16(0xc000|0x2345^0x4), wire.SourcePort(0x12345, 1, 2))
	require.Equal(t, wire.SourcePort(0, 0x11, 0x1234), wire.SourcePort(0, 0x1234, 0x11))
	require.Equal(t, uint16(0xc000|(0x11*0x13)), wire.SourcePort(0, 0x11, 0x13))
	for qpn := ib.QPN(2); qpn < 1000; qpn++ {
		require.GreaterOrEqual(t, wire.SourcePortUD(qpn), uint16(0xc000))
	}
}
