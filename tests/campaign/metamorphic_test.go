package campaign

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/sim"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/workload"
)

// setting is what a program must not be able to tell by its results.
type setting struct {
	name    string
	network mem.Config
	batch   int
	window  int
	edit    func(*workload.Spec)
	profile *qp.Profile
}

func settings() []setting {
	rough := fabric.ImpairmentConfig{Loss: 0.03, Duplicate: 0.03, Reorder: 0.03, ReorderDelay: 3 * time.Microsecond, Corrupt: 0.01}
	link := func(im fabric.ImpairmentConfig) mem.Config {
		return mem.Config{Default: mem.LinkConfig{Latency: time.Microsecond, Impairment: im}}
	}
	sound := link(fabric.ImpairmentConfig{})
	encoded, slow := sound, sound
	encoded.Encode = true
	slow.Default.BandwidthBitsPerSecond = 1e9
	list := []setting{
		{name: "plain", network: sound},
		{name: "encoded", network: encoded},
		{name: "slow link", network: slow},
		{name: "no latency", network: mem.Config{}},
		{name: "rough", network: link(rough)},
		{name: "emit 1", network: sound, batch: 1},
		{name: "emit 128", network: sound, batch: 128},
		{name: "window 1", network: sound, window: 1},
		{name: "window 3, rough", network: link(rough), window: 3},
		{name: "post one", network: sound, edit: func(s *workload.Spec) { s.Batch = 1 }},
		{name: "events", network: sound, edit: func(s *workload.Spec) { s.Events = true }},
		{name: "SRQ", network: sound, edit: func(s *workload.Spec) { s.SRQSize, s.SRQLimit = 40, 7 }},
		{name: "SRQ, rough", network: link(rough), edit: func(s *workload.Spec) { s.SRQSize = 3 }},
		{name: "one receive", network: sound, edit: func(s *workload.Spec) { s.RecvDepth = 1 }},
		{name: "late receiver", network: sound, edit: func(s *workload.Spec) { s.ReceiverDelay = 3 * time.Millisecond }},
		{name: "pieces", network: sound, edit: func(s *workload.Spec) { s.SGEs = 5 }},
		{name: "inline", network: sound, edit: func(s *workload.Spec) { s.Inline = true }},
		{name: "one READ", network: sound, edit: func(s *workload.Spec) { s.MaxRdAtomic, s.MaxDestRdAtomic = 1, 1 }},
		{name: "paced", network: sound, edit: func(s *workload.Spec) { s.RateBitsPerSecond = 1e9 }},
	}
	for m := ib.MTU256; m <= ib.MTU4096; m++ {
		list = append(list, setting{name: fmt.Sprintf("MTU %v", m), network: sound, edit: func(s *workload.Spec) { s.PathMTU = m }})
		list = append(list, setting{name: fmt.Sprintf("MTU %v, rough", m), network: link(rough), edit: func(s *workload.Spec) { s.PathMTU = m }})
	}
	for _, p := range []qp.Profile{qp.ProfileRDMAVT, qp.ProfileRXE} {
		list = append(list, setting{name: p.Name, network: sound, profile: &p}, setting{name: p.Name + ", rough", network: link(rough), profile: &p})
	}
	return list
}

// result is what a program can see: the completions of each QP in order, and memory.
type result struct {
	sends, recvs [][]string
	memory       [2][]byte
}

func (st *setting) run(t *testing.T, spec workload.Spec) result {
	if st.edit != nil {
		st.edit(&spec)
	}
	w, err := sim.New(sim.Config{Seed: 7, Network: st.network, EmitBatch: st.batch, Check: true})
	require.NoError(t, err)
	for i := range 2 {
		cfg := rvt.DefaultConfig("n", ib.GIDFromIPv4(10, 0, 0, byte(i+1)))
		if st.window > 0 {
			cfg.Limits.WindowPackets = st.window
		}
		if st.profile != nil {
			cfg.Profile = *st.profile
		}
		_, err := w.AddNode(cfg)
		require.NoError(t, err)
	}
	f, err := w.AddFlow(spec, w.Nodes()[0], w.Nodes()[1])
	require.NoError(t, err)
	var r result
	for _, e := range []*workload.Endpoint{f.Client, f.Server} {
		r.watch(e)
	}
	require.True(t, w.RunUntil(vtime.Time(time.Hour), f.Done), "%v\n%s", w.Err(), f.Stuck())
	require.Empty(t, f.Verify())
	require.False(t, f.Client.Failed() || f.Server.Failed(), "%v", f.Client.Stats().FirstFailure)
	r.memory = [2][]byte{f.Client.RemoteMemory(), f.Server.RemoteMemory()}
	return r
}

// watch notes completions as a program sees them. Which receive of a queue a message
// takes is the program's own choice, so it is left out, and so are the flags and
// fields that profiles fill or not.
func (r *result) watch(e *workload.Endpoint) {
	at := map[ib.QPN]int{}
	for _, q := range e.QPs() {
		at[q.QPN] = len(r.sends)
		r.sends, r.recvs = append(r.sends, nil), append(r.recvs, nil)
	}
	e.Hooks.Completion = func(_ vtime.Time, wc *cq.WC) {
		i := at[wc.QPN]
		if wc.Opcode&ib.WCRecv != 0 {
			r.recvs[i] = append(r.recvs[i], fmt.Sprint(wc.Status, wc.Opcode, wc.ByteLen, wc.Imm))
		} else {
			r.sends[i] = append(r.sends[i], fmt.Sprint(wc.WRID, wc.Status, wc.Opcode))
		}
	}
}

// TestSettingsDoNotShow runs the same workloads under many settings: the completions
// of each QP and the memory at the end must be the same.
func TestSettingsDoNotShow(t *testing.T) {
	seeds := uint64(12)
	if invariants.Race {
		seeds = 2
	}
	for seed := range seeds {
		spec := workload.DefaultSpec()
		spec.Seed = seed
		spec.Ops = nil
		r := stream(seed, streamFlows)
		all := []ib.WROpcode{ib.WRSend, ib.WRSendWithImm, ib.WRRDMAWrite, ib.WRRDMAWriteWithImm, ib.WRRDMARead, ib.WRAtomicCmpAndSwp, ib.WRAtomicFetchAndAdd}
		for _, i := range r.Perm(len(all))[:2+r.IntN(len(all)-1)] {
			spec.Ops = append(spec.Ops, workload.WeightedOp{Op: all[i], Weight: 1 + r.Uint64N(3)})
		}
		spec.Sizes = workload.Sizes{Min: 0, Max: 3000}
		spec.RecvSize, spec.RecvDepth = 3000, 20
		spec.Count, spec.QPs, spec.Depth, spec.SignalEvery = 60, 2, 12, 1+r.IntN(6)
		spec.Bidirectional = r.IntN(2) == 0
		spec.Timeout = 9
		list := settings()
		want := list[0].run(t, spec)
		for _, st := range list[1:] {
			got := st.run(t, spec)
			require.Equal(t, want.sends, got.sends, "seed %d, %s", seed, st.name)
			require.Equal(t, want.recvs, got.recvs, "seed %d, %s", seed, st.name)
			require.Equal(t, want.memory, got.memory, "seed %d, %s", seed, st.name)
		}
	}
}

// TestEncodingIsInvisible compares whole histories: packets that travel as values and
// as bytes must arrive at the same instants and do the same.
func TestEncodingIsInvisible(t *testing.T) {
	for seed := range uint64(10) {
		p, q := draw(seed), draw(seed)
		p.network.Encode, q.network.Encode = false, true
		a, b := p.run(), q.run()
		require.Equal(t, a.digest, b.digest, "seed %d", seed)
	}
}
