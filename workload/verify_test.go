package workload

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// host drives one device by hand: this package may not know the world that does it.
type host struct {
	d   *rvt.Device
	e   *Endpoint
	out rvt.Outbox
}

// pump moves packets between two hosts until both are quiet. alter may change a
// packet's payload, or lose it by returning false.
func pump(a, b *host, alter func(*host, *rvt.Outbox, int) bool) {
	now := vtime.Time(0)
	for _, h := range []*host{b, a} {
		// Bind the windows, then post the receives: RNR waits have no place here.
		h.out.Reset()
		h.d.Emit(now, &h.out, 64)
		h.d.Commit(now)
		h.e.stepReceives(now)
		h.e.pollSends(now)
		h.e.stepReceives(now)
	}
	for busy := true; busy; {
		busy = false
		for _, h := range []*host{b, a} {
			peer := b
			if h == b {
				peer = a
			}
			busy = h.e.Step(now) || busy
			h.out.Reset()
			h.d.Emit(now, &h.out, 64)
			for i := range h.out.Packets {
				p := &h.out.Packets[i]
				buf := make([]byte, p.Len)
				var batch mr.Batch
				h.out.Gather(&batch, i, buf)
				batch.Read()
				p.Pkt.Payload = buf
				if alter == nil || alter(h, &h.out, i) {
					peer.d.Receive(now, &p.Path, &p.Pkt)
				}
				busy = true
			}
			h.d.Commit(now)
			peer.d.Commit(now)
			var evs [8]rvt.Event
			for n := h.d.PollEvents(evs[:]); n > 0; n = h.d.PollEvents(evs[:]) {
				for _, ev := range evs[:n] {
					h.e.OnEvent(ev)
				}
			}
		}
	}
}

func pair(t *testing.T, s Spec) (a, b *host) {
	hosts := [2]*host{}
	infos := [2]Info{}
	for i := range hosts {
		d, err := rvt.New(rvt.DefaultConfig("rvt0", ib.GIDFromIPv4(10, 0, 0, byte(i))))
		require.NoError(t, err)
		e, err := newEndpoint(s, d, i == 0)
		require.NoError(t, err)
		infos[i], err = e.Setup(0)
		require.NoError(t, err)
		hosts[i] = &host{d: d, e: e}
	}
	for i, h := range hosts {
		require.NoError(t, h.e.Connect(0, infos[1-i]))
	}
	return hosts[0], hosts[1]
}

func everything() Spec {
	s := DefaultSpec()
	s.Ops = []WeightedOp{{ib.WRSend, 1}, {ib.WRSendWithImm, 1}, {ib.WRSendWithInv, 1}, {ib.WRRDMAWrite, 2}, {ib.WRRDMAWriteWithImm, 1},
		{ib.WRRDMARead, 2}, {ib.WRAtomicCmpAndSwp, 1}, {ib.WRAtomicFetchAndAdd, 2}}
	s.Sizes, s.RecvSize = Sizes{Max: 3000}, 3000
	s.Count, s.Depth, s.QPs, s.SGEs, s.SignalEvery = 200, 8, 2, 3, 3
	return s
}

func TestEverythingOnASoundWire(t *testing.T) {
	for _, edit := range []func(*Spec){
		func(*Spec) {},
		func(s *Spec) { s.Bidirectional = true },
		func(s *Spec) { s.SRQSize, s.SRQLimit = 60, 59 },
		func(s *Spec) { s.Events, s.Fence, s.Inline = true, true, true },
		func(s *Spec) { s.Verify = false },
		func(s *Spec) { s.Transport, s.Ops = ib.QPTypeUC, s.Ops[:2] },
		func(s *Spec) { s.Transport, s.Ops, s.SRQSize, s.SRQLimit = ib.QPTypeUC, s.Ops[:2], 60, 59 },
		func(s *Spec) { s.Transport, s.Ops, s.Sizes.Max = ib.QPTypeUD, s.Ops[:2], 1000 },
	} {
		s := everything()
		edit(&s)
		a, b := pair(t, s)
		pump(a, b, nil)
		require.True(t, PairDone(a.e, b.e), "%+v %+v %+v", s, a.e.stats, b.e.stats)
		require.True(t, a.e.Done() && b.e.Done())
		require.Empty(t, VerifyPair(a.e, b.e))
		require.EqualValues(t, 400, a.e.Stats().Completed)
		if s.SRQSize > 0 {
			require.NotZero(t, b.e.Stats().Events[ib.EventSRQLimitReached])
		}
	}
}

// TestVerifyNotices tampers with the outcome of a sound run.
func TestVerifyNotices(t *testing.T) {
	for name, c := range map[string]struct {
		tamper func(a, b *host)
		want   string
	}{
		"canary":       {func(a, b *host) { b.e.buf[0]++ }, "belongs to nothing"},
		"client":       {func(a, b *host) { a.e.buf[len(a.e.buf)-1]++ }, "belongs to nothing"},
		"read zone":    {func(a, b *host) { b.e.buf[b.e.lay.readAt+9]++ }, "only read has changed"},
		"write slot":   {func(a, b *host) { b.e.buf[b.e.lay.writeSlot(1)]++ }, "left is"},
		"atomic":       {func(a, b *host) { b.e.buf[b.e.lay.atomicWord(0)]++ }, "atomic word of qp"},
		"shared word":  {func(a, b *host) { b.e.buf[b.e.lay.atomicWord(2)]++ }, "shared atomic word"},
		"received":     {func(a, b *host) { b.e.qps[1].recv.got++ }, "the peer sent"},
		"shared queue": {func(a, b *host) { b.e.srqRing.free = append(b.e.srqRing.free, 0) }, "shared queue"},
		"msn":          {func(a, b *host) { b.e.qps[1].q.RMSN++ }, "MSN"},
	} {
		t.Run(name, func(t *testing.T) {
			s := everything()
			if name == "shared queue" {
				s.SRQSize = 60
			}
			a, b := pair(t, s)
			pump(a, b, nil)
			require.Empty(t, VerifyPair(a.e, b.e))
			c.tamper(a, b)
			got := VerifyPair(a.e, b.e)
			require.Len(t, got, 1)
			require.Contains(t, got[0], c.want)
		})
	}
}

// TestEndpointNotices damages or repeats traffic in ways that a correct device cannot
// hide.
func TestEndpointNotices(t *testing.T) {
	damage := func(h *host, o *rvt.Outbox, i int) bool {
		if p := &o.Packets[i].Pkt; len(p.Payload) > 20 {
			p.Payload[20]++
		}
		return true
	}
	only := func(t ib.QPType, op ib.WROpcode) Spec {
		s := everything()
		s.Transport, s.Ops, s.Sizes = t, []WeightedOp{{op, 1}}, Sizes{Min: 100, Max: 900}
		return s
	}
	for name, c := range map[string]struct {
		spec  Spec
		alter func(*host, *rvt.Outbox, int) bool
		want  string
	}{
		"send":      {only(ib.QPTypeRC, ib.WRSend), damage, "byte 20 is"},
		"write imm": {only(ib.QPTypeRC, ib.WRRDMAWriteWithImm), damage, "was announced, but byte"},
		"read":      {only(ib.QPTypeRC, ib.WRRDMARead), damage, "not what the peer's memory holds"},
		"datagram":  {only(ib.QPTypeUD, ib.WRSend), damage, "byte 20 is"},
		"atomic": {only(ib.QPTypeRC, ib.WRAtomicFetchAndAdd), func(h *host, o *rvt.Outbox, i int) bool {
			o.Packets[i].Pkt.AtomicAck++
			return true
		}, "found"},
		"imm": {only(ib.QPTypeRC, ib.WRSendWithImm), func(h *host, o *rvt.Outbox, i int) bool {
			o.Packets[i].Pkt.Imm++
			return true
		}, "immediate data"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := pair(t, c.spec)
			pump(a, b, c.alter)
			got := VerifyPair(a.e, b.e)
			require.NotEmpty(t, got)
			require.Contains(t, got[0], c.want)
		})
	}
}

func TestUDRepeatsAreNoticed(t *testing.T) {
	s := everything()
	s.Transport, s.Ops, s.Sizes, s.Count = ib.QPTypeUD, []WeightedOp{{ib.WRSend, 1}}, Fixed(100), 5
	for _, disorder := range []bool{false, true} {
		s.Disorder = disorder
		a, b := pair(t, s)
		pump(a, b, func(h *host, o *rvt.Outbox, i int) bool {
			p := &o.Packets[i]
			b.d.Receive(0, &p.Path, &p.Pkt)
			return true
		})
		if disorder {
			require.Empty(t, VerifyPair(a.e, b.e))
			require.EqualValues(t, 10, b.e.Stats().Disordered)
		} else {
			require.Contains(t, VerifyPair(a.e, b.e)[0], "arrived again")
		}
	}
}

func TestPostingErrorsEndTheFlow(t *testing.T) {
	s := everything()
	s.Ops, s.MaxRdAtomic = []WeightedOp{{ib.WRRDMARead, 1}}, 0
	a, b := pair(t, s)
	pump(a, b, nil)
	require.ErrorContains(t, a.e.Err(), "max_rd_atomic")
	require.True(t, a.e.SendsDone())
}

func TestSetupReportsWhatTheDeviceRefuses(t *testing.T) {
	cfg := rvt.DefaultConfig("rvt0", ib.GIDFromIPv4(10, 0, 0, 1))
	cfg.Limits.MaxQPWR = 4
	d, err := rvt.New(cfg)
	require.NoError(t, err)
	s := DefaultSpec()
	e, err := NewClient(s, d)
	require.NoError(t, err)
	_, err = e.Setup(0)
	require.ErrorContains(t, err, "max_send_wr 16 exceeds")
	s.Name = ""
	s.Depth = -1
	_, err = NewServer(s, d)
	require.Error(t, err)
}

func TestStopEndsOnASignaledRequest(t *testing.T) {
	s := DefaultSpec()
	s.Count, s.Depth, s.SignalEvery = 0, 8, 4
	a, b := pair(t, s)
	steps := 0
	pump(a, b, func(*host, *rvt.Outbox, int) bool {
		if steps++; steps == 101 {
			a.e.Stop()
		}
		return true
	})
	require.True(t, a.e.Done())
	require.Empty(t, VerifyPair(a.e, b.e))
	require.Zero(t, a.e.Stats().Posted%4)
}

// TestStepDoesNotAllocate covers post, poll, check and receive of a verified flow.
func TestStepDoesNotAllocate(t *testing.T) {
	s := everything()
	s.Count = 0
	s.Ops = []WeightedOp{{ib.WRSend, 1}, {ib.WRRDMAWrite, 1}}
	a, b := pair(t, s)
	limit := uint64(0)
	lose := func(*host, *rvt.Outbox, int) bool { return a.e.Stats().Posted < limit }
	limit = 500
	pump(a, b, lose)
	n := testing.AllocsPerRun(100, func() { a.e.Step(0); b.e.Step(0) })
	require.Zero(t, n)
}
