package rvt

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
)

// link carries packets between two devices without allocating.
type link struct {
	a, b   *Device
	oa, ob Outbox
	batch  mr.Batch
	arena  []byte
	wcs    [64]cq.WC
	events [64]Event
}

func newLink(a, b *host) *link { return &link{a: a.d, b: b.d, arena: make([]byte, 1<<17)} }

// hop moves what from has to say to to, and reports whether there was anything.
func (l *link) hop(from, to *Device, out *Outbox) bool {
	out.Reset()
	from.Emit(0, out, 64)
	used := 0
	for i := range out.Packets {
		p := &out.Packets[i]
		buf := l.arena[used : used+p.Len]
		used += p.Len
		out.Gather(&l.batch, i, buf)
		p.Pkt.Payload = buf
	}
	l.batch.Read()
	from.Commit(0)
	for i := range out.Packets {
		to.Receive(0, &out.Packets[i].Path, &out.Packets[i].Pkt)
	}
	to.Commit(0)
	return len(out.Packets) > 0
}

// settle runs until both are quiet and both completion queues are empty.
func (l *link) settle(a, b *host) (completions int) {
	for l.hop(l.a, l.b, &l.oa) || l.hop(l.b, l.a, &l.ob) {
	}
	completions = a.cq.Poll(l.wcs[:]) + b.cq.Poll(l.wcs[:])
	a.d.PollEvents(l.events[:])
	b.d.PollEvents(l.events[:])
	return completions
}

func TestHotPathsDoNotAllocate(t *testing.T) {
	if invariants.Race {
		t.Skip("the race detector allocates")
	}
	for _, prof := range fuzzProfiles {
		a, b, qa, qb := rcPair(t, withProfile(prof))
		l := newLink(a, b)
		remote := swqe.SendWR{RemoteAddr: bufBase, RKey: b.mr.RKey}
		wr := func(op ib.WROpcode, n int) swqe.SendWR {
			w := remote
			w.Opcode, w.SGL = op, a.sge(1<<18, n)
			return w
		}
		inline := swqe.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: []byte("0123456789abcdef")}
		for _, c := range []struct {
			name string
			wr   swqe.SendWR
		}{
			{"SEND", wr(ib.WRSend, 64)}, {"SEND of 5 packets", wr(ib.WRSend, 5000)}, {"SEND_WITH_IMM", wr(ib.WRSendWithImm, 64)}, {"inline", inline},
			{"WRITE", wr(ib.WRRDMAWrite, 5000)}, {"WRITE_WITH_IMM", wr(ib.WRRDMAWriteWithImm, 64)}, {"READ", wr(ib.WRRDMARead, 5000)},
			{"FETCH_ADD", wr(ib.WRAtomicFetchAndAdd, 8)}, {"CMP_SWP", wr(ib.WRAtomicCmpAndSwp, 8)},
		} {
			wrs := []swqe.SendWR{c.wr, c.wr, c.wr, c.wr}
			rwrs := []swqe.RecvWR{{SGL: b.sge(1<<19, 8192)}, {SGL: b.sge(1<<19, 8192)}, {SGL: b.sge(1<<19, 8192)}, {SGL: b.sge(1<<19, 8192)}}
			round := func() {
				if qb.RQ.Len() < 4 {
					_, _ = b.d.PostRecv(qb, rwrs)
				}
				n, err := a.d.PostSend(qa, wrs)
				if n != 4 || err != nil || l.settle(a, b) < 4 {
					t.Fatalf("%s: posted %d: %v", c.name, n, err)
				}
				a.d.ReqNotify(a.cq, false)
			}
			for range 300 { // once around every ring
				round()
			}
			require.Zero(t, testing.AllocsPerRun(100, round), "%s, profile %s", c.name, prof.Name)
		}
	}
}

func TestDatagramsDoNotAllocate(t *testing.T) {
	if invariants.Race {
		t.Skip("the race detector allocates")
	}
	for _, typ := range []ib.QPType{ib.QPTypeUC, ib.QPTypeUD} {
		a, b := newHost(t, 1, nil), newHost(t, 2, nil)
		qa, qb := a.qp(typ), b.qp(typ)
		a.connect(qa, b, qb.QPN)
		b.connect(qb, a, qa.QPN)
		l := newLink(a, b)
		wrs := []swqe.SendWR{{Opcode: ib.WRSend, SGL: a.sge(0, 64), RemoteQPN: qb.QPN, RemoteQKey: 0x1111}}
		var err error
		wrs[0].AH, err = a.d.CreateAH(a.pd, ib.AV{DGID: b.gid, IsGlobal: true, PortNum: 1})
		require.NoError(t, err)
		rwrs := []swqe.RecvWR{{SGL: b.sge(0, 256)}}
		round := func() {
			_, _ = b.d.PostRecv(qb, rwrs)
			_, _ = a.d.PostSend(qa, wrs)
			if l.settle(a, b) != 2 {
				t.Fatal("lost")
			}
		}
		for range 300 {
			round()
		}
		require.Zero(t, testing.AllocsPerRun(100, round), "%v", typ)
	}
}

// BenchmarkRCSend64 is a 64-byte SEND from post to poll, both devices included, in
// bursts of 16.
func BenchmarkRCSend64(b *testing.B) {
	ha, hb, qa, qb := rcPair(b, nil)
	l := newLink(ha, hb)
	wrs, rwrs := make([]swqe.SendWR, 16), make([]swqe.RecvWR, 16)
	for i := range wrs {
		wrs[i] = swqe.SendWR{WRID: uint64(i), Opcode: ib.WRSend, SGL: ha.sge(i*64, 64)}
		rwrs[i] = swqe.RecvWR{WRID: uint64(i), SGL: hb.sge(i*64, 64)}
	}
	benchRounds(b, ha, hb, qa, qb, l, wrs, rwrs)
}

// BenchmarkRCWrite4K is a WRITE of one packet at MTU 1024 times four.
func BenchmarkRCWrite4K(b *testing.B) {
	ha, hb, qa, qb := rcPair(b, nil)
	l := newLink(ha, hb)
	wrs := make([]swqe.SendWR, 16)
	for i := range wrs {
		wrs[i] = swqe.SendWR{WRID: uint64(i), Opcode: ib.WRRDMAWrite, SGL: ha.sge(i*4096, 4096), RemoteAddr: bufBase, RKey: hb.mr.RKey}
	}
	b.SetBytes(4096)
	benchRounds(b, ha, hb, qa, qb, l, wrs, nil)
}

func benchRounds(b *testing.B, ha, hb *host, qa, qb *qp.QP, l *link, wrs []swqe.SendWR, rwrs []swqe.RecvWR) {
	b.ReportAllocs()
	for i := 0; i < b.N; i += len(wrs) {
		if len(rwrs) > 0 {
			_, _ = hb.d.PostRecv(qb, rwrs)
		}
		_, _ = ha.d.PostSend(qa, wrs)
		if l.settle(ha, hb) != len(wrs)+len(rwrs) {
			b.Fatal("completions are missing")
		}
	}
	packets := ha.d.Counters().SentPackets + hb.d.Counters().SentPackets
	b.ReportMetric(float64(packets)/b.Elapsed().Seconds(), "packets/s")
}
