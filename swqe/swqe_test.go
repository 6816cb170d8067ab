package swqe

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
)

func TestOperationTable(t *testing.T) {
	const all, conn, rc, none = "RC UC UD GSI", "RC UC", "RC", ""
	for _, c := range []struct {
		op    ib.WROpcode
		types string
		wc    ib.WCOpcode
		flags OpFlags
	}{
		{ib.WRSend, all, ib.WCSend, OpInline | OpCredit | OpSolicit},
		{ib.WRSendWithImm, all, ib.WCSend, OpInline | OpCredit | OpSolicit | OpImm},
		{ib.WRSendWithInv, rc, ib.WCSend, OpInline | OpCredit | OpSolicit},
		{ib.WRRDMAWrite, conn, ib.WCRDMAWrite, OpInline | OpRDMA},
		{ib.WRRDMAWriteWithImm, conn, ib.WCRDMAWrite, OpInline | OpRDMA | OpCredit | OpSolicit | OpImm},
		{ib.WRRDMARead, rc, ib.WCRDMARead, OpRDMA | OpRdAtomic | OpLocalWrite},
		{ib.WRAtomicCmpAndSwp, rc, ib.WCCompSwap, OpRDMA | OpAtomic | OpRdAtomic | OpLocalWrite},
		{ib.WRAtomicFetchAndAdd, rc, ib.WCFetchAdd, OpRDMA | OpAtomic | OpRdAtomic | OpLocalWrite},
		{ib.WRLocalInv, conn, ib.WCLocalInv, OpLocal},
		{ib.WRBindMW, conn, ib.WCBindMW, OpLocal},
		{ib.WRAtomicWrite, rc, ib.WCAtomicWrite, OpInline | OpRDMA | OpRdAtomic | OpPlacement},
		{ib.WRFlush, rc, ib.WCFlush, OpRDMA | OpRdAtomic | OpPlacement},
		{ib.WRTSO, none, ib.WCTSO, OpReserved},
	} {
		p := Params(c.op)
		require.NotNil(t, p)
		require.Equal(t, c.op.String(), p.Name)
		require.Equal(t, c.wc, p.WCOpcode)
		require.Equal(t, c.flags, p.Flags, p.Name)
		got := ""
		for _, typ := range []ib.QPType{ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD, ib.QPTypeGSI} {
			if p.Allowed(typ) {
				if got != "" {
					got += " "
				}
				got += typ.String()
			}
		}
		require.Equal(t, c.types, got, p.Name)
	}
	for _, op := range []ib.WROpcode{11, 12, 13, 16, 255} {
		require.Nil(t, Params(op))
	}
}

func TestSetCopies(t *testing.T) {
	var w SWQE
	sgl, inline := []mr.SGE{{Addr: 1, Length: 2, LKey: 3}}, []byte("abc")
	ah := &AH{AV: ib.AV{FlowLabel: 9}}
	w.Set(&SendWR{WRID: 1, SGL: sgl, AH: ah})
	sgl[0].Addr, ah.AV.FlowLabel = 99, 99
	require.EqualValues(t, 1, w.WR.SGL[0].Addr)
	require.EqualValues(t, 9, w.AV.FlowLabel, "an AH may be destroyed right after the post")
	w.PSN, w.Retries = 5, 6
	w.Set(&SendWR{WRID: 2, Flags: ib.SendInline, SGL: sgl, Inline: inline})
	inline[0] = 'X'
	require.Equal(t, "abc", string(w.WR.Inline))
	require.Empty(t, w.WR.SGL, "INLINE takes no notice of the list")
	require.Zero(t, w.PSN)
	require.Zero(t, w.Retries)
}

// TestSetForgets fills one entry again and again: nothing of what was there before shows.
func TestSetForgets(t *testing.T) {
	ah := &AH{AV: ib.AV{DGID: ib.GID{15: 1}}, Live: true}
	sge := []mr.SGE{{Addr: 1, Length: 2, LKey: 3}, {Addr: 4, Length: 5, LKey: 6}}
	wrs := []SendWR{
		{WRID: 1, Opcode: ib.WRSend, SGL: sge[:1]},
		{WRID: 2, Opcode: ib.WRSend, Inline: []byte("abc"), Flags: ib.SendInline},
		{WRID: 3, Opcode: ib.WRSend, AH: ah, RemoteQPN: 4, RemoteQKey: 5, SGL: sge},
		{WRID: 4, Opcode: ib.WRSend, PKeyIndex: 1},
		{WRID: 5, Opcode: ib.WRAtomicFetchAndAdd, CompareAdd: 8, RemoteAddr: 9, RKey: 10},
		{WRID: 6, Opcode: ib.WRAtomicCmpAndSwp, Swap: 11},
		{WRID: 7, Opcode: ib.WRFlush, Flush: FlushInfo{Length: 1, Type: ib.FlushGlobal}},
		{WRID: 8, Opcode: ib.WRBindMW, Bind: BindInfo{RKey: 7}},
		{WRID: 9, Opcode: ib.WRSendWithInv, InvRKey: 12, Imm: 13, Flags: ib.SendSignaled, SGL: sge},
	}
	var w SWQE
	for i := range wrs {
		for j := range wrs {
			for _, k := range []int{i, j, i} {
				w.Set(&wrs[k])
				require.Equal(t, wrs[k].AH != nil, w.AV != ib.AV{})
				got, want := w.WR, wrs[k]
				require.Equal(t, string(want.Inline), string(got.Inline))
				require.Len(t, got.SGL, len(want.SGL))
				for n := range want.SGL {
					require.Equal(t, want.SGL[n], got.SGL[n])
				}
				want.SGL, want.Inline, want.AH, got.SGL, got.Inline = nil, nil, nil, nil, nil
				require.Equal(t, want, got)
				w.PSN, w.LPSN, w.Packets, w.SSN, w.Length, w.Sent, w.Retries, w.RNRNAKs, w.FirstSent, w.LastSent = 1, 1, 1, 1, 1, 1, 1, 1, 1, 1
			}
		}
	}
	w.Set(&SendWR{})
	require.Equal(t, SWQE{WR: SendWR{SGL: w.WR.SGL, Inline: w.WR.Inline}}, w)
	require.EqualValues(t, 256, reflect.TypeFor[SWQE]().Size())
}

func TestSRQLimitFiresOnce(t *testing.T) {
	rq := NewRQ(8, 1)
	s := SRQ{RQ: rq, Limit: 2}
	for i := range uint64(4) {
		require.NoError(t, rq.Post("post_srq_recv", &s, &RecvWR{WRID: i}))
	}
	var e RWQE
	for i, fires := range []bool{false, false, true, false} { // 3, 2, 1, 0 are left
		ok, _ := rq.Take(&e)
		require.True(t, ok)
		require.EqualValues(t, i, e.WRID)
		require.Equal(t, fires, s.CheckLimit(), "after %d", i)
	}
	require.Zero(t, s.Limit)
}

// FuzzRQ compares a receive queue with a slice: posting and taking around empty, full
// and the wrap, and resizing with receives in it.
func FuzzRQ(f *testing.F) {
	f.Add([]byte{3, 0, 0, 0, 0, 1, 0, 1, 1, 1, 1, 0, 2, 5, 1, 3, 0})
	f.Add([]byte{0, 0, 1, 2, 4, 0, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		size := int(data[0] % 9)
		q := NewRQ(size, 2)
		var want []uint64
		var e RWQE
		for i, op := range data[1:] {
			switch op % 4 {
			case 0, 3:
				wr := RecvWR{WRID: uint64(i), SGL: make([]mr.SGE, int(op/4)%4)}
				err := q.Post("post_recv", &SRQ{}, &wr)
				require.Equal(t, len(wr.SGL) <= 2 && len(want) < size, err == nil)
				if err == nil {
					want = append(want, wr.WRID)
				}
			case 1:
				ok, bad := q.Take(&e)
				require.False(t, bad)
				require.Equal(t, len(want) > 0, ok)
				if ok {
					require.Equal(t, want[0], e.WRID)
					want = want[1:]
				}
			case 2:
				if op > 250 {
					q.Drop()
					want = nil
					break
				}
				n := int(op / 4 % 12)
				err := q.Resize(n)
				require.Equal(t, len(want) > n, err != nil)
				if err == nil {
					size = n
				}
			}
			require.Equal(t, len(want), q.Len())
			require.Equal(t, size, q.Cap())
		}
	})
}
