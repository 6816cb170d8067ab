package sim

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
	"github.com/rvtsim/rvtsim/workload"
)

func mixedSpec() workload.Spec {
	s := workload.DefaultSpec()
	s.Ops = []workload.WeightedOp{{Op: ib.WRSend, Weight: 2}, {Op: ib.WRRDMAWrite, Weight: 1}, {Op: ib.WRRDMARead, Weight: 1}}
	s.Sizes, s.RecvSize = workload.Sizes{Max: 4000}, 4000
	s.Count = 100
	return s
}

func TestSameSeedSameHistory(t *testing.T) {
	run := func(seed uint64, encode bool) uint64 {
		cfg := Config{Seed: seed, Network: lossy(), Digest: DigestAll}
		cfg.Network.Encode = encode
		w := newWorld(t, cfg, 3)
		for i := range 3 {
			_, err := w.AddFlow(mixedSpec(), w.Nodes()[i], w.Nodes()[(i+1)%3])
			require.NoError(t, err)
		}
		w.Run(vtime.Time(time.Second))
		return w.Digest()
	}
	first := run(1, false)
	require.Equal(t, first, run(1, false))
	require.Equal(t, first, run(1, true), "the encoding showed")
	require.NotEqual(t, first, run(2, false))
}

// TestOrderAtOneInstant: calls, then packets, then timers.
func TestOrderAtOneInstant(t *testing.T) {
	var order []string
	cfg := Config{Network: mem.Config{Default: mem.LinkConfig{Latency: time.Millisecond}}}
	cfg.OnPacket = func(vtime.Time, *Node, *mem.Frame, wire.DropReason) { order = append(order, "packet") }
	w := newWorld(t, cfg, 2)
	w.At(5, func(vtime.Time) { order = append(order, "second call") })
	w.At(5, func(vtime.Time) { order = append(order, "third call") })
	w.At(1, func(now vtime.Time) {
		order = append(order, "first call")
		w.At(0, func(now vtime.Time) { // an instant that has passed
			require.EqualValues(t, 1, now)
			order = append(order, "late call")
		})
	})
	_, err := w.AddFlow(workload.DefaultSpec(), w.Nodes()[0], w.Nodes()[1])
	require.NoError(t, err)
	w.At(vtime.Time(time.Millisecond), func(vtime.Time) { order = append(order, "call with packet") })
	w.Run(vtime.Time(time.Millisecond))
	require.Equal(t, []string{"first call", "late call", "second call", "third call", "call with packet", "packet"}, order)
	require.EqualValues(t, time.Millisecond, w.Now())
}

// TestTimerFiresWhenDue: nothing one nanosecond before the timeout, a packet at it.
func TestTimerFiresWhenDue(t *testing.T) {
	w := newWorld(t, Config{}, 2)
	w.Partition(w.Nodes()[0], w.Nodes()[1], true)
	_, err := w.AddFlow(workload.DefaultSpec(), w.Nodes()[0], w.Nodes()[1])
	require.NoError(t, err)
	timeout, _ := ib.AckTimeout(14)
	require.EqualValues(t, timeout, w.NextAt())
	w.Run(vtime.Time(timeout - 1))
	require.EqualValues(t, 1, w.Network().Totals().Sent)
	w.Run(vtime.Time(timeout))
	require.EqualValues(t, 2, w.Network().Totals().Sent)
}

func TestWrongKeysEndInAccessErrors(t *testing.T) {
	for _, prof := range []qp.Profile{qp.ProfileIBTA, qp.ProfileRDMAVT, qp.ProfileRXE} {
		for _, key := range []workload.RKeyChoice{workload.RKeyBad, workload.RKeyNoAccess, workload.RKeyOutOfRange} {
			for _, op := range []ib.WROpcode{ib.WRRDMAWrite, ib.WRRDMARead, ib.WRAtomicFetchAndAdd, ib.WRRDMAWriteWithImm} {
				w := newWorld(t, Config{Check: true}, 0)
				for i := range 2 {
					cfg := rvt.DefaultConfig("n", ib.GIDFromIPv4(10, 0, 0, byte(i)))
					cfg.Profile = prof
					_, err := w.AddNode(cfg)
					require.NoError(t, err)
				}
				s := workload.DefaultSpec()
				s.Ops = []workload.WeightedOp{{Op: op, Weight: 1}}
				s.Sizes, s.RKey, s.Count = workload.Fixed(300), key, 10
				s.RecvSize = 300
				f, err := w.AddFlow(s, w.Nodes()[0], w.Nodes()[1])
				require.NoError(t, err)
				require.True(t, w.RunUntil(vtime.Time(time.Minute), f.Done), f.Stuck())
				require.NoError(t, w.Err())
				require.Empty(t, f.Verify(), "%v %v %v", prof.Name, key, op)
				st := f.Client.Stats()
				require.EqualValues(t, 1, st.Statuses[ib.WCRemAccessErr], "%v %v %v: %v", prof.Name, key, op, st.FirstFailure)
				require.EqualValues(t, 9, st.Statuses[ib.WCWRFlushErr])
			}
		}
	}
}

func TestFailureModes(t *testing.T) {
	setup := func(edit func(*workload.Spec)) (*World, *Flow) {
		w := newWorld(t, Config{Check: true, Network: mem.Config{Default: mem.LinkConfig{Latency: time.Microsecond}}}, 2)
		s := mixedSpec()
		s.Timeout = 8
		if edit != nil {
			edit(&s)
		}
		f, err := w.AddFlow(s, w.Nodes()[0], w.Nodes()[1])
		require.NoError(t, err)
		return w, f
	}
	finish := func(w *World, f *Flow, want ib.WCStatus) {
		t.Helper()
		require.True(t, w.RunUntil(vtime.Time(time.Minute), f.Done), f.Stuck())
		require.NoError(t, w.Err())
		require.Empty(t, f.Verify())
		require.Equal(t, want, f.Client.Stats().FirstFailure.Status)
		require.NoError(t, w.CheckConservation())
	}
	soon := vtime.Time(4500)
	t.Run("killed node", func(t *testing.T) {
		w, f := setup(nil)
		w.At(soon, func(vtime.Time) { w.Kill(w.Nodes()[1]) })
		finish(w, f, ib.WCRetryExcErr)
		require.True(t, w.Nodes()[1].Dead())
	})
	t.Run("port down for ever", func(t *testing.T) {
		w, f := setup(nil)
		w.At(soon, func(vtime.Time) { w.SetPort(w.Nodes()[1], false) })
		finish(w, f, ib.WCRetryExcErr)
		require.EqualValues(t, 1, w.Nodes()[1].Events[ib.EventPortErr])
	})
	t.Run("port down for a while", func(t *testing.T) {
		w, f := setup(nil)
		w.At(soon, func(vtime.Time) { w.SetPort(w.Nodes()[1], false) })
		w.At(soon.Add(time.Millisecond), func(vtime.Time) { w.SetPort(w.Nodes()[1], true) })
		finish(w, f, ib.WCSuccess)
	})
	t.Run("modify to ERR", func(t *testing.T) {
		w, f := setup(nil)
		w.At(soon, func(vtime.Time) { require.NoError(t, w.ModifyToError(w.Nodes()[0], f.Client.QPs()[0])) })
		finish(w, f, ib.WCWRFlushErr)
	})
	t.Run("modify to SQD, and to ERR when all is quiet", func(t *testing.T) {
		w, f := setup(nil)
		client, q := w.Nodes()[0], f.Client.QPs()[0]
		w.At(soon, func(vtime.Time) { require.True(t, w.Modify(client, q, ib.StateRTS, ib.StateSQD)) })
		w.At(soon.Add(time.Second), func(vtime.Time) { require.NoError(t, w.ModifyToError(client, q)) })
		finish(w, f, ib.WCWRFlushErr)
	})
	t.Run("receiver pauses", func(t *testing.T) {
		w, f := setup(func(s *workload.Spec) { s.RecvDepth = 2; s.RNRRetry = 7 })
		w.At(soon, func(vtime.Time) { f.Server.Pause() })
		w.At(soon.Add(5*time.Millisecond), func(vtime.Time) { f.Server.Resume(); w.Touch(w.Nodes()[1]) })
		finish(w, f, ib.WCSuccess)
		require.NotZero(t, w.Nodes()[0].Dev.Counters().RcvdRNRNAK)
	})
	t.Run("receiver hangs", func(t *testing.T) {
		w, f := setup(func(s *workload.Spec) { s.RecvDepth = 2; s.RNRRetry = 3 })
		w.At(soon, func(vtime.Time) { f.Server.Pause() })
		finish(w, f, ib.WCRNRRetryExcErr)
	})
	t.Run("no timeout", func(t *testing.T) {
		w, f := setup(func(s *workload.Spec) { s.Timeout = 0 })
		w.Partition(w.Nodes()[0], w.Nodes()[1], true)
		require.False(t, w.RunUntil(vtime.Time(time.Hour), f.Done))
		require.Contains(t, f.Stuck(), "timer never")
		require.Contains(t, f.Stuck(), "flow client: done false")
	})
}

// TestSendersWithoutEndLeaveTheInstant: datagrams complete at once, so their sender
// never waits; the world must get on all the same.
func TestSendersWithoutEndLeaveTheInstant(t *testing.T) {
	w := newWorld(t, Config{}, 2)
	s := workload.DefaultSpec()
	s.Transport, s.Count = ib.QPTypeUD, 0
	f, err := w.AddFlow(s, w.Nodes()[0], w.Nodes()[1])
	require.NoError(t, err)
	w.Run(vtime.Time(20 * time.Microsecond))
	require.NotZero(t, w.Stats().Stalls)
	require.NotZero(t, f.Server.Stats().Received)
	f.Client.Stop()
	w.Run(vtime.Time(time.Millisecond))
	require.True(t, f.Done())
	require.Empty(t, f.Verify())
	require.Equal(t, vtime.Never, w.NextAt())
}

func TestPace(t *testing.T) {
	w := newWorld(t, Config{Network: mem.Config{Default: mem.LinkConfig{Latency: time.Microsecond}}}, 2)
	s := workload.DefaultSpec()
	s.Sizes, s.RecvSize, s.Count, s.RateBitsPerSecond = workload.Fixed(1000), 1000, 101, 8e6 // 1 ms each
	s.Start = 10 * time.Millisecond
	f, err := w.AddFlow(s, w.Nodes()[0], w.Nodes()[1])
	require.NoError(t, err)
	require.True(t, w.RunUntil(vtime.Time(time.Second), f.Done))
	require.InDelta(t, 110*time.Millisecond, time.Duration(w.Now()), float64(10*time.Microsecond))
}

// TestPolledAndDrivenAppsDoTheSame compares the two ways to wait.
func TestPolledAndDrivenAppsDoTheSame(t *testing.T) {
	var got [2]workload.Stats
	for i, events := range []bool{false, true} {
		w := newWorld(t, Config{Seed: 5, Network: lossy(), Check: true}, 2)
		s := mixedSpec()
		s.Events, s.Bidirectional = events, true
		f, err := w.AddFlow(s, w.Nodes()[0], w.Nodes()[1])
		require.NoError(t, err)
		require.True(t, w.RunUntil(vtime.Time(time.Minute), f.Done), f.Stuck())
		require.Empty(t, f.Verify())
		got[i] = *f.Client.Stats()
		require.Equal(t, events, got[i].Notifications > 0)
		got[i].Notifications, got[i].LastCompletion = 0, 0
	}
	require.Equal(t, got[0], got[1])
}

// TestCheckFindsABrokenQueue breaks what Config.Check looks at.
func TestCheckFindsABrokenQueue(t *testing.T) {
	for want, break_ := range map[string]func(*qp.QP){
		"not in order":    func(q *qp.QP) { q.SAcked, q.SCur = q.STail, q.SLast },
		"count as free":   func(q *qp.QP) { q.SAvail = q.RingSize() },
		"gap":             func(q *qp.QP) { q.SNextPSN = q.SNextPSN.Add(1) },
		"no timer runs":   func(q *qp.QP) { q.STimerAt = vtime.Never },
		"max_rd_atomic":   func(q *qp.QP) { q.SNumRdAtomic = 200 },
		"is acknowledged": func(q *qp.QP) { q.SPSN = q.SLastPSN },
	} {
		w := newWorld(t, Config{Check: true, Network: mem.Config{Default: mem.LinkConfig{Latency: time.Millisecond}}}, 2)
		s := workload.DefaultSpec()
		s.Depth, s.Count = 8, 100
		f, err := w.AddFlow(s, w.Nodes()[0], w.Nodes()[1])
		require.NoError(t, err)
		require.NoError(t, checkQueues(w.Nodes()[0]))
		break_(f.Client.QPs()[0])
		require.ErrorContains(t, checkQueues(w.Nodes()[0]), want)
	}
}

func TestConservationFindsALoss(t *testing.T) {
	w := newWorld(t, Config{Network: lossy()}, 2)
	f, err := w.AddFlow(mixedSpec(), w.Nodes()[0], w.Nodes()[1])
	require.NoError(t, err)
	require.True(t, w.RunUntil(vtime.Time(time.Minute), f.Done))
	require.NoError(t, w.CheckConservation())
	w.Nodes()[0].Dev.Counters().RcvdPackets--
	require.ErrorContains(t, w.CheckConservation(), "the device took")
}

func TestMulticast(t *testing.T) {
	w := newWorld(t, Config{}, 3)
	group := ib.GIDFromIPv4(224, 0, 0, 9)
	s := workload.DefaultSpec()
	s.Transport = ib.QPTypeUD
	f, err := w.AddFlow(s, w.Nodes()[0], w.Nodes()[1])
	require.NoError(t, err)
	require.NoError(t, w.Nodes()[1].Dev.AttachMcast(f.Server.QPs()[0], group))
	require.NoError(t, w.JoinMulticast(w.Nodes()[1], group))
	before := w.Nodes()[1].Dev.Counters().RcvdPackets
	p := wire.Packet{Opcode: ib.UDSendOnly, DestQP: ib.QPNMulticast, PKey: ib.PKeyDefault}
	w.Network().Send(0, w.Nodes()[0].Index, &wire.Path{Src: w.Nodes()[0].Dev.GIDs()[0], Dst: group}, &p, nil)
	w.Run(vtime.Time(time.Millisecond))
	require.Equal(t, before+2, w.Nodes()[1].Dev.Counters().RcvdPackets)
	require.Zero(t, w.Nodes()[2].Dev.Counters().RcvdPackets)
}

func TestBadWorlds(t *testing.T) {
	_, err := New(Config{EmitBatch: -1})
	require.ErrorContains(t, err, "emit batch")
	_, err = New(Config{Network: mem.Config{Default: mem.LinkConfig{Impairment: fabric.ImpairmentConfig{Loss: 2}}}})
	require.ErrorContains(t, err, "loss")
	w := newWorld(t, Config{}, 1)
	_, err = w.AddNode(rvt.DefaultConfig("twin", w.Nodes()[0].Dev.GIDs()[0]))
	require.ErrorContains(t, err, `belongs to node "n0"`)
	_, err = w.AddNode(rvt.DefaultConfig("nobody"))
	require.ErrorContains(t, err, "no GID")
	_, err = w.AddNode(rvt.DefaultConfig("group", ib.GIDFromIPv4(224, 0, 0, 1)))
	require.ErrorContains(t, err, "cannot be a node's address")
	_, err = w.AddFlow(workload.Spec{Name: "bad"}, w.Nodes()[0], w.Nodes()[0])
	require.ErrorContains(t, err, `flow "bad"`)
	require.False(t, w.Step())
}
