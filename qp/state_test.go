package qp_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
)

// The transition table once more, written down from ibv_modify_qp(3) and the kernel's
// qp_state_table, in words: the engine's table is built from masks.
const transitionText = `
RESET RESET  *        | -                                                  | -
RESET INIT   RC,UC    | PKEY_INDEX PORT ACCESS_FLAGS                       | -
RESET INIT   UD       | PKEY_INDEX PORT QKEY                               | -
RESET INIT   GSI      | PKEY_INDEX QKEY                                    | -
INIT  INIT   RC,UC    | -                                                  | PKEY_INDEX PORT ACCESS_FLAGS
INIT  INIT   UD       | -                                                  | PKEY_INDEX PORT QKEY
INIT  INIT   GSI      | -                                                  | PKEY_INDEX QKEY
INIT  RTR    RC       | AV PATH_MTU DEST_QPN RQ_PSN MAX_DEST_RD_ATOMIC MIN_RNR_TIMER | ALT_PATH ACCESS_FLAGS PKEY_INDEX
INIT  RTR    UC       | AV PATH_MTU DEST_QPN RQ_PSN                        | ALT_PATH ACCESS_FLAGS PKEY_INDEX
INIT  RTR    UD,GSI   | -                                                  | PKEY_INDEX QKEY
RTR   RTS    RC       | SQ_PSN TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC | CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
RTR   RTS    UC       | SQ_PSN                                             | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
RTR   RTS    UD,GSI   | SQ_PSN                                             | CUR_STATE QKEY
RTS   RTS    RC       | -                                                  | CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
RTS   RTS    UC       | -                                                  | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
RTS   RTS    UD,GSI   | -                                                  | CUR_STATE QKEY
RTS   SQD    *        | -                                                  | EN_SQD_ASYNC_NOTIFY
SQD   RTS    RC       | -                                                  | CUR_STATE ALT_PATH ACCESS_FLAGS MIN_RNR_TIMER PATH_MIG_STATE
SQD   RTS    UC       | -                                                  | CUR_STATE ALT_PATH ACCESS_FLAGS PATH_MIG_STATE
SQD   RTS    UD,GSI   | -                                                  | CUR_STATE QKEY
SQD   SQD    RC       | -                                                  | PORT AV TIMEOUT RETRY_CNT RNR_RETRY MAX_QP_RD_ATOMIC MAX_DEST_RD_ATOMIC ALT_PATH ACCESS_FLAGS PKEY_INDEX MIN_RNR_TIMER PATH_MIG_STATE
SQD   SQD    UC       | -                                                  | AV ALT_PATH ACCESS_FLAGS PKEY_INDEX PATH_MIG_STATE
SQD   SQD    UD,GSI   | -                                                  | PKEY_INDEX QKEY
SQE   RTS    UC       | -                                                  | CUR_STATE ACCESS_FLAGS
SQE   RTS    UD,GSI   | -                                                  | CUR_STATE QKEY
`

var attrBits = map[string]ib.AttrMask{}

func init() {
	for b := ib.AttrMask(1); b < ib.AttrStandardMask; b <<= 1 {
		attrBits[b.String()] = b
	}
}

var states = []ib.QPState{ib.StateReset, ib.StateInit, ib.StateRTR, ib.StateRTS, ib.StateSQD, ib.StateSQE, ib.StateErr}
var types = []ib.QPType{ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD, ib.QPTypeGSI}

type row struct{ required, optional ib.AttrMask }
type move struct {
	from, to ib.QPState
	typ      ib.QPType
}

// wantTable parses transitionText. SQE to RTS of RC has no row in the man page; every
// state may go to RESET, and every one but RESET to ERR.
func wantTable(t testing.TB) map[move]row {
	byName := map[string]ib.QPState{}
	for _, s := range states {
		byName[s.String()] = s
	}
	bits := func(s string) (m ib.AttrMask) {
		for _, f := range strings.Fields(s) {
			if f != "-" {
				require.NotZero(t, attrBits[f], f)
				m |= attrBits[f]
			}
		}
		return m
	}
	want := map[move]row{}
	for _, line := range strings.Split(strings.TrimSpace(transitionText), "\n") {
		parts := strings.Split(line, "|")
		head := strings.Fields(parts[0])
		for _, typ := range types {
			if head[2] == "*" || strings.Contains(","+head[2]+",", ","+typ.String()+",") {
				want[move{byName[head[0]], byName[head[1]], typ}] = row{bits(parts[1]), bits(parts[2])}
			}
		}
	}
	for _, typ := range types {
		for _, s := range states[1:] {
			want[move{s, ib.StateReset, typ}] = row{}
			want[move{s, ib.StateErr, typ}] = row{}
		}
	}
	return want
}

func newQP(t testing.TB, typ ib.QPType) *qp.QP {
	prof := qp.ProfileIBTA
	env := &qp.Env{Prof: &prof, Keys: mr.NewTable(16, 0), Room: new(qp.Room), GIDs: []ib.GID{ib.GIDFromIPv4(10, 0, 0, 1)}, MTU: ib.MTU4096,
		Limits: qp.Limits{MaxQPWR: 8, MaxSGE: 2, MaxInline: 64, MaxQPRdAtom: 4, MaxQPInitRdAt: 4, MaxMsgBytes: ib.MaxMsgBytes, WindowPackets: 16}}
	c := cq.New(64, nil, true)
	return qp.New(env, 0x20, 1, &qp.InitAttr{SendCQ: c, RecvCQ: c, Type: typ, Cap: qp.Cap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 2, MaxRecvSGE: 2}})
}

// goodAttr has a valid value for every attribute.
func goodAttr() qp.Attr {
	av := ib.AV{DGID: ib.GIDFromIPv4(10, 0, 0, 2), IsGlobal: true, PortNum: 1}
	return qp.Attr{PathMTU: ib.MTU1024, QKey: 5, RQPSN: 7, SQPSN: 9, DestQPN: 0x33, AccessFlags: ib.AccessRemoteWrite, AV: av, AltAV: av,
		MaxRdAtomic: 3, MaxDestRdAtomic: 2, MinRNRTimer: 12, PortNum: 1, AltPortNum: 1, Timeout: 14, RetryCnt: 3, RNRRetry: 6}
}

// bring puts a fresh QP into a state by the ordinary way. SQE comes from a failed send.
func bring(t testing.TB, typ ib.QPType, s ib.QPState) *qp.QP {
	q := newQP(t, typ)
	a := goodAttr()
	for _, to := range []ib.QPState{ib.StateInit, ib.StateRTR, ib.StateRTS, ib.StateSQD} {
		if s == ib.StateReset || q.State == s || s == ib.StateSQE && q.State == ib.StateRTS {
			break
		}
		if s == ib.StateErr && q.State == ib.StateRTS {
			break
		}
		required, _, ok := qp.TransitionMasks(q.State, to, typ)
		require.True(t, ok)
		a.State = to
		require.NoError(t, q.Modify(0, &a, required|ib.AttrState))
	}
	switch s {
	case ib.StateErr:
		a.State = s
		require.NoError(t, q.Modify(0, &a, ib.AttrState))
	case ib.StateSQE:
		q.State, q.Attr.State = s, s
	}
	require.Equal(t, s, q.State)
	return q
}

func TestEveryTransition(t *testing.T) {
	want := wantTable(t)
	for _, typ := range types {
		for _, from := range states {
			for _, to := range states {
				w, ok := want[move{from, to, typ}]
				if from == ib.StateSQE && to == ib.StateRTS && typ == ib.QPTypeRC {
					continue // an RC QP never is in SQE
				}
				required, optional, got := qp.TransitionMasks(from, to, typ)
				require.Equal(t, ok, got, "%v %v to %v", typ, from, to)
				require.Equal(t, w, row{required, optional}, "%v %v to %v", typ, from, to)
				checkTransition(t, move{from, to, typ}, w, ok)
			}
		}
	}
}

// checkTransition tries a transition with what it needs, without each attribute that
// it needs, and with each that it may not have.
func checkTransition(t *testing.T, m move, w row, ok bool) {
	try := func(mask ib.AttrMask) (*qp.QP, qp.Attr, error) {
		q := bring(t, m.typ, m.from)
		a := goodAttr()
		a.State, a.CurState = m.to, m.from
		before := q.Query()
		return q, before, q.Modify(0, &a, mask|ib.AttrState)
	}
	refused := func(mask ib.AttrMask, words ...string) {
		q, before, err := try(mask)
		require.Error(t, err, "%v %v", m, mask)
		require.ErrorIs(t, err, ib.EINVAL)
		for _, word := range words {
			require.ErrorContains(t, err, word)
		}
		require.Equal(t, before, q.Query(), "a refused call changes nothing")
	}
	if !ok {
		refused(0, m.from.String(), m.to.String())
		return
	}
	for _, mask := range []ib.AttrMask{w.required, w.required | w.optional} {
		q, _, err := try(mask)
		require.NoError(t, err, "%v with %v", m, mask)
		require.Equal(t, m.to, q.State)
		require.Equal(t, m.to, q.Query().CurState)
	}
	for name, bit := range attrBits {
		switch {
		case w.required&bit != 0:
			refused(w.required&^bit, name, "misses")
		case (w.optional|ib.AttrState|ib.AttrCurState)&bit == 0:
			refused(w.required|bit, name, "may not set")
		}
	}
}

func TestBadValuesAreRefused(t *testing.T) {
	for _, c := range []struct {
		from ib.QPState
		bit  ib.AttrMask
		edit func(*qp.Attr)
		word string
	}{
		{ib.StateInit, ib.AttrPathMTU, func(a *qp.Attr) { a.PathMTU = 0 }, "path_mtu"},
		{ib.StateInit, ib.AttrPathMTU, func(a *qp.Attr) { a.PathMTU = 6 }, "path_mtu"},
		{ib.StateInit, ib.AttrMinRNRTimer, func(a *qp.Attr) { a.MinRNRTimer = 32 }, "min_rnr_timer"},
		{ib.StateInit, ib.AttrMaxDestRdAtomic, func(a *qp.Attr) { a.MaxDestRdAtomic = 5 }, "max_dest_rd_atomic"},
		{ib.StateInit, ib.AttrDestQPN, func(a *qp.Attr) { a.DestQPN = 1 << 24 }, "dest_qp_num"},
		{ib.StateInit, ib.AttrAV, func(a *qp.Attr) { a.AV.IsGlobal = false }, "is_global"},
		{ib.StateInit, ib.AttrAV, func(a *qp.Attr) { a.AV.PortNum = 2 }, "port_num"},
		{ib.StateInit, ib.AttrAV, func(a *qp.Attr) { a.AV.DGID = ib.GID{} }, "dgid"},
		{ib.StateInit, ib.AttrAV, func(a *qp.Attr) { a.AV.DGID = ib.GID{0xfe, 0x80, 15: 1} }, "IP version"},
		{ib.StateRTR, ib.AttrTimeout, func(a *qp.Attr) { a.Timeout = 32 }, "timeout"},
		{ib.StateRTR, ib.AttrRetryCnt, func(a *qp.Attr) { a.RetryCnt = 8 }, "retry_cnt"},
		{ib.StateRTR, ib.AttrRNRRetry, func(a *qp.Attr) { a.RNRRetry = 8 }, "rnr_retry"},
		{ib.StateRTR, ib.AttrMaxQPRdAtomic, func(a *qp.Attr) { a.MaxRdAtomic = 5 }, "max_rd_atomic"},
		{ib.StateReset, ib.AttrPKeyIndex, func(a *qp.Attr) { a.PKeyIndex = 1 }, "pkey_index"},
		{ib.StateReset, ib.AttrPort, func(a *qp.Attr) { a.PortNum = 2 }, "port_num"},
		{ib.StateReset, ib.AttrPort, func(a *qp.Attr) { a.PortNum = 0 }, "port_num"},
	} {
		q := bring(t, ib.QPTypeRC, c.from)
		a := goodAttr()
		a.State = c.from + 1
		required, _, _ := qp.TransitionMasks(c.from, a.State, ib.QPTypeRC)
		require.NotZero(t, required&c.bit)
		before := q.Query()
		c.edit(&a)
		err := q.Modify(0, &a, required|ib.AttrState)
		require.ErrorContains(t, err, c.word)
		require.Equal(t, before, q.Query())
	}
	q := bring(t, ib.QPTypeRC, ib.StateInit)
	a := goodAttr()
	a.State, a.AV.SGIDIndex = ib.StateRTR, 1
	required, _, _ := qp.TransitionMasks(ib.StateInit, ib.StateRTR, ib.QPTypeRC)
	require.ErrorIs(t, q.Modify(0, &a, required|ib.AttrState), ib.ENODATA)
	require.ErrorIs(t, q.Modify(0, &a, 1<<25), ib.EOPNOTSUPP)
}

func TestStateOps(t *testing.T) {
	const pr, rr, fr, ps, ss, ns, fs = qp.PostRecvOK, qp.ProcessRecvOK, qp.FlushRecv, qp.PostSendOK, qp.ProcessSendOK, qp.ProcessNextSendOK, qp.FlushSend
	require.Equal(t, qp.Ops(0), qp.StateOps(ib.StateReset))
	require.Equal(t, pr, qp.StateOps(ib.StateInit))
	require.Equal(t, pr|rr, qp.StateOps(ib.StateRTR))
	require.Equal(t, pr|rr|ps|ss|ns, qp.StateOps(ib.StateRTS))
	require.Equal(t, pr|rr|ps|ss, qp.StateOps(ib.StateSQD))
	require.Equal(t, pr|rr|ps|fs, qp.StateOps(ib.StateSQE))
	require.Equal(t, pr|fr|ps|fs, qp.StateOps(ib.StateErr))
	require.Zero(t, qp.StateOps(99))
}

// FuzzModify makes random calls. A refused one changes nothing, an accepted one was
// allowed by the table and can be read back.
func FuzzModify(f *testing.F) {
	f.Add([]byte{0, 1, 0x31, 0, 0, 2, 0x80, 0x91, 0x12, 3, 0x2c, 0x01, 0x01})
	for i := range byte(4) {
		seed := []byte{i}
		for j := range 300 {
			seed = append(seed, byte(j*j*19+j*int(i)+1))
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		u8 := func() byte {
			if len(data) == 0 {
				return 0
			}
			v := data[0]
			data = data[1:]
			return v
		}
		q := newQP(t, types[u8()%4])
		for len(data) > 0 {
			a := randomAttr(u8)
			mask := ib.AttrMask(u8())<<16 | ib.AttrMask(u8())<<8 | ib.AttrMask(u8())
			if how := u8(); how%4 != 0 { // help it through the table
				required, optional, _ := qp.TransitionMasks(q.State, a.State, q.Type)
				mask = required | ib.AttrState | mask&optional
				if how%16 == 1 {
					mask &^= 1 << (how / 16)
				}
			}
			checkModify(t, q, &a, mask)
		}
	})
}

func randomAttr(u8 func() byte) qp.Attr {
	a := goodAttr()
	a.State, a.CurState = ib.QPState(u8()%8), ib.QPState(u8()%8)
	switch u8() % 16 {
	case 0:
		a.Timeout = u8()
	case 1:
		a.RetryCnt, a.RNRRetry = u8(), u8()
	case 2:
		a.PathMTU = ib.MTU(u8())
	case 3:
		a.MaxRdAtomic, a.MaxDestRdAtomic = u8()%8, u8()%8
	case 4:
		a.AV.PortNum, a.PortNum = u8()%3, u8()%3
	case 5:
		a.AV.SGIDIndex = u8() % 2
	case 6:
		a.RQPSN, a.SQPSN = ib.PSN(u8())<<20, ib.PSN(u8())<<20
	case 7:
		a.MinRNRTimer, a.PKeyIndex = u8(), uint16(u8()%2)
	case 8:
		a.PathMigState = ib.MigState(u8() % 3)
	}
	return a
}

func checkModify(t *testing.T, q *qp.QP, a *qp.Attr, mask ib.AttrMask) {
	before, from := q.Query(), q.State
	to := from
	if mask&ib.AttrState != 0 {
		to = a.State
	}
	required, optional, ok := qp.TransitionMasks(from, to, q.Type)
	ok = ok && mask&required == required && mask&^(required|optional|ib.AttrState) == 0
	if err := q.Modify(0, a, mask); err != nil {
		require.Equal(t, before, q.Query())
		require.NotZero(t, ib.ErrnoOf(err))
		return
	}
	require.True(t, ok, "%v to %v with %v was accepted", from, to, mask)
	now := q.Query()
	require.Equal(t, to, now.State)
	if to == ib.StateReset {
		return
	}
	for _, c := range []struct {
		bit       ib.AttrMask
		want, got any
		old       any
	}{
		{ib.AttrTimeout, a.Timeout, now.Timeout, before.Timeout}, {ib.AttrRetryCnt, a.RetryCnt, now.RetryCnt, before.RetryCnt},
		{ib.AttrPathMTU, a.PathMTU, now.PathMTU, before.PathMTU}, {ib.AttrAV, a.AV, now.AV, before.AV},
		{ib.AttrDestQPN, a.DestQPN, now.DestQPN, before.DestQPN}, {ib.AttrRQPSN, a.RQPSN & ib.PSNMask, now.RQPSN, before.RQPSN},
		{ib.AttrSQPSN, a.SQPSN & ib.PSNMask, now.SQPSN, before.SQPSN}, {ib.AttrQKey, a.QKey, now.QKey, before.QKey},
		{ib.AttrMaxQPRdAtomic, a.MaxRdAtomic, now.MaxRdAtomic, before.MaxRdAtomic}, {ib.AttrAccessFlags, a.AccessFlags, now.AccessFlags, before.AccessFlags},
	} {
		if mask&c.bit == 0 {
			c.want = c.old
		}
		require.Equal(t, c.want, c.got, "%v", c.bit)
	}
}
