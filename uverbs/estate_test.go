package uverbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
)

// estateOf lays out a completion queue and the rings of one queue pair, with the sends
// and receives that are given outstanding, behind indices that are about to wrap.
func estateOf(t *testing.T, abi string, cqe int, sends, recvs []uint64) (*Estate, func(uint64, int) []byte) {
	t.Helper()
	const slots, stride = 8, 256
	base, firstOff, endOff := rxeHeader, rxeConsOff, rxeProdOff
	if abi == ABIRVT {
		base, firstOff, endOff = rvtEntries, rvtTailOff, rvtHeadOff
	}
	mem := map[uint64][]byte{}
	ringOf := func(off uint64, ids []uint64) Span {
		if ids == nil {
			return Span{}
		}
		b := make([]byte, base+slots*stride)
		mem[off] = b
		const first = slots - 2
		for i, id := range ids {
			native.PutUint64(b[base+(first+i)%slots*stride:], id)
		}
		storeWord(b, firstOff, first)
		storeWord(b, endOff, uint32(first+len(ids))%slots)
		return Span{Offset: off, Size: len(b), Slots: slots, Stride: stride}
	}
	mem[1] = make([]byte, 1<<16)
	e := &Estate{ABI: abi, Objects: map[uint32]Bequest{
		1: {CQ: Span{Offset: 1, Size: 1 << 16, Slots: cqe + 1, Stride: 64}},
		2: {QPN: 77, SendCQ: 1, RecvCQ: 1, SQ: ringOf(2, sends), RQ: ringOf(3, recvs)},
		3: {QPN: 78, SendCQ: 9, RecvCQ: 9, RQ: Span{Offset: 99, Size: 1, Slots: 1, Stride: 1}}, // its queue is not known
	}}
	return e, func(off uint64, _ int) []byte { return mem[off] }
}

// found takes the completions out of the estate's queue.
func found(e *Estate, at func(uint64, int) []byte) []cq.WC {
	q := e.openCQ(at(1, 0), &Span{Slots: e.Objects[1].CQ.Slots})
	var wcs []cq.WC
	for i := q.ring.LoadTail(); i != q.head; i = (i + 1) % q.slots {
		var wc cq.WC
		q.ring.(interface{ Peek(uint32, *cq.WC) }).Peek(i, &wc)
		wcs = append(wcs, wc)
	}
	return wcs
}

func TestSettle(t *testing.T) {
	flushed := func(id uint64) cq.WC { return cq.WC{WRID: id, Status: ib.WCWRFlushErr, QPN: 77} }
	for _, abi := range []string{ABIRXE, ABIRVT} {
		t.Run(abi, func(t *testing.T) {
			e, at := estateOf(t, abi, 15, []uint64{10, 11, 12}, []uint64{20, 21})
			e.Settle(at)
			require.Equal(t, []cq.WC{flushed(10), flushed(11), flushed(12), flushed(20), flushed(21)}, found(e, at))

			e, at = estateOf(t, abi, 3, []uint64{10, 11, 12}, []uint64{20, 21})
			e.Settle(at)
			require.Equal(t, []cq.WC{flushed(10), flushed(11), flushed(12)}, found(e, at), "what fits")

			fatal := cq.WC{Status: ib.WCFatalErr, QPN: 77}
			e, at = estateOf(t, abi, 15, nil, nil)
			e.Settle(at)
			require.Equal(t, []cq.WC{fatal}, found(e, at), "nothing was outstanding")

			e, at = estateOf(t, abi, 3, nil, []uint64{20})
			q := e.openCQ(at(1, 0), &Span{Slots: 4})
			for id := range uint64(3) {
				require.True(t, q.enter(&cq.WC{WRID: id}))
			}
			e.Settle(at)
			require.Equal(t, []cq.WC{{WRID: 0}, {WRID: 1}, fatal}, found(e, at), "the queue is full")
		})
	}
}

// TestJournal wraps the journal of a queue pair whose sends come inside the write(): the
// heir finds those that are under way.
func TestJournal(t *testing.T) {
	const maxWR = 3
	size := journalBytes(maxWR)
	b := make([]byte, size)
	j := newJournal(b, maxWR)
	queue := make([]byte, 1<<16)
	under := func() (ids []uint64) {
		e := &Estate{ABI: ABIRVT, Objects: map[uint32]Bequest{
			1: {CQ: Span{Offset: 1, Size: 1 << 16, Slots: 16, Stride: 64}},
			2: {QPN: 77, SendCQ: 1, RecvCQ: 1, SQ: j.span(ring{offset: 2, size: size})},
		}}
		clear(queue)
		e.Settle(func(off uint64, _ int) []byte { return map[uint64][]byte{1: queue, 2: b}[off] })
		for _, wc := range found(e, func(uint64, int) []byte { return queue }) {
			if wc.Status == ib.WCWRFlushErr {
				ids = append(ids, wc.WRID)
			}
		}
		return ids
	}
	require.Empty(t, under())
	for id := range uint64(10) {
		for k := range uint64(maxWR) {
			j.add(3*id + k)
		}
		require.Equal(t, []uint64{3 * id, 3*id + 1, 3*id + 2}, under(), "all slots")
		j.Retired()
		require.Equal(t, []uint64{3*id + 1, 3*id + 2}, under())
		if id%2 == 0 {
			j.Retired()
			j.Retired()
		} else {
			j.reset()
		}
		require.Empty(t, under())
	}
}
