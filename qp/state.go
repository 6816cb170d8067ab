package qp

import "github.com/rvtsim/rvtsim/ib"

// Ops (kernel: ib_rvt_state_ops) is what a QP may do in a state.
type Ops uint8

const (
	PostRecvOK        Ops = 1 << iota // RVT_POST_RECV_OK
	ProcessRecvOK                     // RVT_PROCESS_RECV_OK
	FlushRecv                         // RVT_FLUSH_RECV
	PostSendOK                        // RVT_POST_SEND_OK
	ProcessSendOK                     // RVT_PROCESS_SEND_OK
	ProcessNextSendOK                 // RVT_PROCESS_NEXT_SEND_OK
	FlushSend                         // RVT_FLUSH_SEND
)

var stateOps = [ib.NumQPStates]Ops{
	ib.StateReset: 0,
	ib.StateInit:  PostRecvOK,
	ib.StateRTR:   PostRecvOK | ProcessRecvOK,
	ib.StateRTS:   PostRecvOK | ProcessRecvOK | PostSendOK | ProcessSendOK | ProcessNextSendOK,
	ib.StateSQD:   PostRecvOK | ProcessRecvOK | PostSendOK | ProcessSendOK,
	ib.StateSQE:   PostRecvOK | ProcessRecvOK | PostSendOK | FlushSend,
	ib.StateErr:   PostRecvOK | FlushRecv | PostSendOK | FlushSend,
}

// can reports whether the QP's state allows all of ops.
func (q *QP) can(ops Ops) bool { return stateOps[q.State]&ops == ops }

// StateOps returns what a QP may do in state s.
func StateOps(s ib.QPState) Ops {
	if int(s) >= len(stateOps) {
		return 0
	}
	return stateOps[s]
}

// Transition (kernel: qp_state_table) is one allowed change of state with the
// attributes it must and may bring. AttrState is implied.
type Transition struct {
	From, To ib.QPState
	Required [numKinds]ib.AttrMask
	Optional [numKinds]ib.AttrMask
}

// kind indexes the columns of the transition table.
type kind uint8

const (
	kindRC kind = iota
	kindUC
	kindUD
	kindGSI
	numKinds
)

func kindOf(t ib.QPType) kind {
	switch t {
	case ib.QPTypeRC:
		return kindRC
	case ib.QPTypeUC:
		return kindUC
	case ib.QPTypeUD:
		return kindUD
	}
	return kindGSI
}

type masks = [numKinds]ib.AttrMask

func all(m ib.AttrMask) masks { return masks{m, m, m, m} }

const (
	rtrConnected = ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
	rtsConnOpt   = ib.AttrCurState | ib.AttrAltPath | ib.AttrAccessFlags | ib.AttrPathMigState
	sqdUCOpt     = ib.AttrAV | ib.AttrAltPath | ib.AttrAccessFlags | ib.AttrPKeyIndex | ib.AttrPathMigState
	sqdRCOpt     = sqdUCOpt | ib.AttrPort | ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrMaxQPRdAtomic | ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
	udOpt        = ib.AttrCurState | ib.AttrQKey
	pkeyQKey     = ib.AttrPKeyIndex | ib.AttrQKey
)

var transitions = buildTransitions()

func buildTransitions() []Transition {
	t := []Transition{
		{From: ib.StateReset, To: ib.StateReset},
		{From: ib.StateReset, To: ib.StateInit, Required: masks{
			ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccessFlags, ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccessFlags,
			ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey, pkeyQKey}},
		{From: ib.StateInit, To: ib.StateInit, Optional: masks{
			ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccessFlags, ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccessFlags,
			ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey, pkeyQKey}},
		{From: ib.StateInit, To: ib.StateRTR,
			Required: masks{rtrConnected | ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer, rtrConnected, 0, 0},
			Optional: masks{ib.AttrAltPath | ib.AttrAccessFlags | ib.AttrPKeyIndex, ib.AttrAltPath | ib.AttrAccessFlags | ib.AttrPKeyIndex, pkeyQKey, pkeyQKey}},
		{From: ib.StateRTR, To: ib.StateRTS,
			Required: masks{ib.AttrSQPSN | ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrMaxQPRdAtomic, ib.AttrSQPSN, ib.AttrSQPSN, ib.AttrSQPSN},
			Optional: masks{rtsConnOpt | ib.AttrMinRNRTimer, rtsConnOpt, udOpt, udOpt}},
		{From: ib.StateRTS, To: ib.StateRTS, Optional: masks{rtsConnOpt | ib.AttrMinRNRTimer, rtsConnOpt, udOpt, udOpt}},
		{From: ib.StateRTS, To: ib.StateSQD, Optional: all(ib.AttrEnSQDAsyncNotify)},
		{From: ib.StateSQD, To: ib.StateRTS, Optional: masks{rtsConnOpt | ib.AttrMinRNRTimer, rtsConnOpt, udOpt, udOpt}},
		{From: ib.StateSQD, To: ib.StateSQD, Optional: masks{sqdRCOpt, sqdUCOpt, pkeyQKey, pkeyQKey}},
		{From: ib.StateSQE, To: ib.StateRTS, Optional: masks{0, ib.AttrCurState | ib.AttrAccessFlags, udOpt, udOpt}},
	}
	for _, s := range []ib.QPState{ib.StateInit, ib.StateRTR, ib.StateRTS, ib.StateSQD, ib.StateSQE, ib.StateErr} {
		t = append(t, Transition{From: s, To: ib.StateReset}, Transition{From: s, To: ib.StateErr})
	}
	return t
}

// findTransition returns the row for a change of state, nil if there is none.
func findTransition(from, to ib.QPState) *Transition {
	for i := range transitions {
		if transitions[i].From == from && transitions[i].To == to {
			return &transitions[i]
		}
	}
	return nil
}

// TransitionMasks returns what a change of state requires and allows on a QP of type
// t; ok is false if the change is not allowed at all.
func TransitionMasks(from, to ib.QPState, t ib.QPType) (required, optional ib.AttrMask, ok bool) {
	tr := findTransition(from, to)
	if tr == nil {
		return 0, 0, false
	}
	k := kindOf(t)
	return tr.Required[k], tr.Optional[k], true
}
