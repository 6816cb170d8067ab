package verbs

import (
	"fmt"

	"github.com/rvtsim/rvtsim/ib"
)

// ConnParams is what two programs usually agree on to connect their QPs. Start from
// [DefaultConnParams].
type ConnParams struct {
	// Access is what the peer may do through the QP (RC, UC).
	Access ib.Access
	// QKey guards a datagram QP.
	QKey ib.QKey

	// The peer (RC, UC).
	Dest    AV
	DestQPN ib.QPN
	PathMTU ib.MTU
	RQPSN   ib.PSN // what the peer's SQPSN is

	SQPSN ib.PSN

	// RC only.
	MaxRdAtomic, MaxDestRdAtomic uint8
	MinRNRTimer                  uint8
	Timeout, RetryCnt, RNRRetry  uint8
}

// DefaultConnParams suits a quiet network: an ACK timeout of 67 ms, 7 retries, and
// waiting for receives for ever.
func DefaultConnParams(peer GID, dest ib.QPN) ConnParams {
	return ConnParams{
		Access: ib.AccessLocalWrite | ib.AccessRemoteMask,
		QKey:   0x11111111,
		Dest:   AV{DGID: peer, IsGlobal: true, HopLimit: 64, PortNum: 1}, DestQPN: dest, PathMTU: ib.MTU1024,
		MaxRdAtomic: 16, MaxDestRdAtomic: 16, MinRNRTimer: 12,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7,
	}
}

// ToInit moves a QP from RESET to INIT. Receives can be posted from then on.
func (q *QP) ToInit(p ConnParams) error {
	m := ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccessFlags
	if q.typ.IsDatagram() {
		m = ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrQKey
	}
	return q.Modify(&QPAttr{State: ib.StateInit, PortNum: 1, AccessFlags: p.Access, QKey: p.QKey}, m)
}

// ToRTR moves a QP from INIT to RTR: it receives from then on.
func (q *QP) ToRTR(p ConnParams) error {
	m := ib.AttrState
	if !q.typ.IsDatagram() {
		m |= ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
	}
	if q.typ == ib.QPTypeRC {
		m |= ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
	}
	return q.Modify(&QPAttr{State: ib.StateRTR, AV: p.Dest, PathMTU: p.PathMTU, DestQPN: p.DestQPN, RQPSN: p.RQPSN,
		MaxDestRdAtomic: p.MaxDestRdAtomic, MinRNRTimer: p.MinRNRTimer}, m)
}

// ToRTS moves a QP from RTR to RTS: it sends from then on.
func (q *QP) ToRTS(p ConnParams) error {
	m := ib.AttrState | ib.AttrSQPSN
	if q.typ == ib.QPTypeRC {
		m |= ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrMaxQPRdAtomic
	}
	return q.Modify(&QPAttr{State: ib.StateRTS, SQPSN: p.SQPSN, MaxRdAtomic: p.MaxRdAtomic,
		Timeout: p.Timeout, RetryCnt: p.RetryCnt, RNRRetry: p.RNRRetry}, m)
}

// Connect takes two QPs of one process from RESET to RTS, connected with each other if
// their transport has connections: for tests and examples. The path MTU is the largest
// that both ports have.
func Connect(a, b *QP) error {
	pa, err := a.Device().QueryPort(1)
	if err != nil {
		return err
	}
	pb, err := b.Device().QueryPort(1)
	if err != nil {
		return err
	}
	params := func(peer *QP) ConnParams {
		p := DefaultConnParams(peer.Device().GID(), peer.QPN())
		p.PathMTU = min(pa.ActiveMTU, pb.ActiveMTU)
		return p
	}
	qps := []*QP{a, b}
	for _, step := range []struct {
		to ib.QPState
		do func(*QP, ConnParams) error
	}{{ib.StateInit, (*QP).ToInit}, {ib.StateRTR, (*QP).ToRTR}, {ib.StateRTS, (*QP).ToRTS}} {
		for i, q := range qps {
			if err := step.do(q, params(qps[1-i])); err != nil {
				return fmt.Errorf("verbs: connect %v to %v: %w", q, step.to, err)
			}
		}
	}
	return nil
}
