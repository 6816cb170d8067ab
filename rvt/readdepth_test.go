package rvt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
)

// TestReadDepths: the requester keeps to max_rd_atomic, whatever the responder has room for;
// one that was told of more than there is meets a NAK at the first READ beyond. (Field report
// spdk-rr-16-8.)
func TestReadDepths(t *testing.T) {
	for _, asks := range []int{1, 4, 16} {
		for _, has := range []int{1, 4, 16} {
			a, b := newHost(t, 1, nil), newHost(t, 2, nil)
			qa, qb := a.qp(ib.QPTypeRC), b.qp(ib.QPTypeRC)
			a.connectReads(qa, b, qb.QPN, asks, 16)
			b.connectReads(qb, a, qa.QPN, 16, has)
			for id := range uint64(16) {
				_, err := a.d.PostSend(qa, []swqe.SendWR{{WRID: id, Opcode: ib.WRRDMARead, SGL: a.sge(0, 8), RemoteAddr: bufBase, RKey: b.mr.RKey}})
				require.NoError(t, err)
			}
			require.Len(t, a.emit(0), asks, "READs on the wire at a time")
			b.receive(0, a.pkts)
			answers := b.emit(0)
			if asks > has {
				require.Len(t, answers, has+1)
				require.Equal(t, ib.NAKInvalidReq, answers[has].pkt.AETH.Syndrome)
				a.receive(0, answers)
				wcs := a.poll()
				require.Equal(t, ib.WCRemInvReqErr, wcs[has].Status, "asks %d, has %d", asks, has)
				require.Equal(t, ib.StateErr, qa.State)
				continue
			}
			a.receive(0, answers)
			settle(0, a, b)
			wcs := a.poll()
			require.Len(t, wcs, 16)
			for _, wc := range wcs {
				require.Equal(t, ib.WCSuccess, wc.Status)
			}
		}
	}
}

// connectReads is connect with these depths: as requester, and as responder.
func (h *host) connectReads(q *qp.QP, peer *host, dest ib.QPN, asks, has int) {
	h.connect(q, peer, dest)
	require.NoError(h.t, h.d.ModifyQP(0, q, &qp.Attr{State: ib.StateSQD}, ib.AttrState))
	at := qp.Attr{State: ib.StateSQD, MaxRdAtomic: uint8(asks), MaxDestRdAtomic: uint8(has)}
	require.NoError(h.t, h.d.ModifyQP(0, q, &at, ib.AttrState|ib.AttrMaxQPRdAtomic|ib.AttrMaxDestRdAtomic))
	require.NoError(h.t, h.d.ModifyQP(0, q, &qp.Attr{State: ib.StateRTS}, ib.AttrState))
}
