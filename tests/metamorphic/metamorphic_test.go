// Package metamorphic runs one workload in many configurations that a program must not
// be able to tell apart: packet sizes, a network that loses and reorders, how much is
// sent at a time, encoded packets or values, one work request per call or lists, shared
// or own receive queues, polling or events. What the program sees must be the same each
// time: the completions of every QP, in order, and the memory that the peer may write.
//
// Nobody has to know the right answer: the plain configuration gives it. The campaign
// (tests/campaign) checks each world against rules instead, and that a seed repeats
// itself exactly.
//
//	go test ./tests/metamorphic                        each change alone, and a few together
//	go test ./tests/metamorphic -metamorphic.for=60s   more and more of them together
package metamorphic

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/sim"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/workload"
)

var (
	forFlag  = flag.Duration("metamorphic.for", 0, "try combinations for this long")
	seedFlag = flag.Uint64("metamorphic.seed", 1, "the first combination")
)

// config is one way to run the workload.
type config struct {
	spec  workload.Spec
	world sim.Config
	nodes [2]rvt.Config
}

// change turns a configuration into one that must give the same result. lossy ones need
// a transport that hides it.
type change struct {
	name  string
	lossy bool
	edit  func(c *config)
}

func bothNodes(f func(n *rvt.Config)) func(*config) {
	return func(c *config) {
		for i := range c.nodes {
			f(&c.nodes[i])
		}
	}
}

func impair(im fabric.ImpairmentConfig) func(*config) {
	return func(c *config) {
		c.world.Network.Default.Impairment = im
		bothNodes(func(n *rvt.Config) { n.Limits.WindowPackets = min(n.Limits.WindowPackets, 128) })(c)
	}
}

var changes = []change{
	{"path MTU 256", false, func(c *config) { c.spec.PathMTU = ib.MTU256 }},
	{"path MTU 512", false, func(c *config) { c.spec.PathMTU = ib.MTU512 }},
	{"path MTU 2048", false, func(c *config) { c.spec.PathMTU = ib.MTU2048 }},
	{"path MTU 4096", false, func(c *config) { c.spec.PathMTU = ib.MTU4096 }},
	{"loss", true, impair(fabric.ImpairmentConfig{Loss: 0.03})},
	{"loss in bursts", true, impair(fabric.ImpairmentConfig{Burst: fabric.Burst{GoodToBad: 0.005, BadToGood: 0.7, LossBad: 1}})},
	{"duplicates", true, impair(fabric.ImpairmentConfig{Duplicate: 0.2})},
	{"corruption", true, impair(fabric.ImpairmentConfig{Corrupt: 0.03})},
	{"reordering", true, impair(fabric.ImpairmentConfig{Reorder: 0.1, ReorderDelay: 15 * time.Microsecond})},
	{"jitter that reorders", true, impair(fabric.ImpairmentConfig{Jitter: 3 * time.Microsecond})},
	{"loss, duplicates, reordering", true, impair(fabric.ImpairmentConfig{Loss: 0.02, Duplicate: 0.05, Reorder: 0.05, ReorderDelay: 10 * time.Microsecond})},
	{"no latency", false, func(c *config) { c.world.Network.Default.Latency = 0 }},
	{"10 ms latency", false, func(c *config) { c.world.Network.Default.Latency = 10 * time.Millisecond; c.spec.Timeout = 18 }},
	{"1 Gbit/s", false, func(c *config) { c.world.Network.Default.BandwidthBitsPerSecond = 1e9; c.spec.Timeout = 18 }},
	{"packets encoded", false, func(c *config) { c.world.Network.Encode = true }},
	{"emit batch 1", false, func(c *config) { c.world.EmitBatch = 1 }},
	{"emit batch 16", false, func(c *config) { c.world.EmitBatch = 16 }},
	{"emit batch 128", false, func(c *config) { c.world.EmitBatch = 128 }},
	{"window 1", false, bothNodes(func(n *rvt.Config) { n.Limits.WindowPackets = 1 })},
	{"window 7", false, bothNodes(func(n *rvt.Config) { n.Limits.WindowPackets = 7 })},
	{"window 4096", false, bothNodes(func(n *rvt.Config) { n.Limits.WindowPackets = 4096 })},
	{"one WR per call", false, func(c *config) { c.spec.Batch = 1 }},
	{"lists of 32", false, func(c *config) { c.spec.Batch = 32 }},
	{"SRQ", false, func(c *config) { c.spec.SRQSize = c.spec.RecvDepth * c.spec.QPs }},
	{"SRQ with limit events", false, func(c *config) { c.spec.SRQSize, c.spec.SRQLimit = c.spec.RecvDepth*c.spec.QPs, 2 }},
	{"few receives", true, func(c *config) { c.spec.RecvDepth = 1; c.spec.SRQSize = 0; c.spec.SRQLimit = 0 }},
	{"slow receiver", true, func(c *config) { c.spec.ReceiverDelay = 3 * time.Millisecond }},
	{"events", false, func(c *config) { c.spec.Events = true }},
	{"one piece", false, func(c *config) { c.spec.SGEs = 1 }},
	{"four pieces", false, func(c *config) { c.spec.SGEs = 4 }},
	{"inline", false, func(c *config) { c.spec.Inline = true }},
	{"fence", false, func(c *config) { c.spec.Fence = true }},
	{"solicited", false, func(c *config) { c.spec.Solicited = true }},
	{"one READ at a time", false, func(c *config) { c.spec.MaxRdAtomic = 1 }},
	{"PSNs wrap", false, func(c *config) { psn := ib.PSN(0xffffff); c.spec.PSN = &psn }},
	{"other keys and QPNs", false, bothNodes(func(n *rvt.Config) { n.Seed += 99; n.DistinctKeys = true; n.FirstQPN = 0x4711 })},
	{"paced", false, func(c *config) { c.spec.RateBitsPerSecond = 2e9 }},
	{"delayed start", false, func(c *config) { c.spec.Start = time.Millisecond }},
}

// base is the plain configuration of a transport.
func base(transport ib.QPType) config {
	c := config{world: sim.Config{Seed: 1, EmitBatch: 64, Check: true, Digest: sim.DigestNone}}
	c.world.Network.Default.Latency = 2 * time.Microsecond
	for i := range c.nodes {
		c.nodes[i] = rvt.DefaultConfig("node"+string(rune('a'+i)), ib.GIDFromIPv4(10, 0, 0, byte(i+1)))
		c.nodes[i].Seed = uint64(i)
	}
	s := workload.DefaultSpec()
	s.Transport, s.Seed, s.Count, s.Depth, s.QPs, s.SignalEvery, s.SGEs = transport, 7, 60, 12, 2, 3, 2
	s.RecvDepth, s.Bidirectional, s.PathMTU, s.Disorder = 16, true, ib.MTU1024, false
	s.Timeout, s.MinRNRTimer = 10, 6
	s.Sizes = workload.Sizes{Min: 0, Max: 5000}
	ops := []ib.WROpcode{ib.WRSend, ib.WRSendWithImm}
	if transport != ib.QPTypeRC {
		s.RecvDepth = int(s.Count) // nothing makes up for a message that finds none
	}
	switch transport {
	case ib.QPTypeRC:
		ops = append(ops, ib.WRSendWithInv, ib.WRRDMAWrite, ib.WRRDMAWriteWithImm, ib.WRRDMARead, ib.WRAtomicCmpAndSwp, ib.WRAtomicFetchAndAdd)
	case ib.QPTypeUC:
		ops = append(ops, ib.WRRDMAWrite, ib.WRRDMAWriteWithImm)
	case ib.QPTypeUD:
		s.Sizes.Max, s.PathMTU = 256, 0
	}
	s.Ops = nil
	for _, op := range ops {
		s.Ops = append(s.Ops, workload.WeightedOp{Op: op, Weight: 1})
	}
	s.RecvSize = s.Sizes.Max
	c.spec = s
	return c
}

// result is what the programs at both ends saw.
type result struct {
	// seen are lines by "end, QP, queue".
	seen   map[string][]string
	memory [2]string // what the peer may write
}

// recorder notes the completions of one end, without what a configuration may change:
// QPNs, keys, and which receive a message took.
func (r *result) record(end int, e *workload.Endpoint) {
	index := func(wc *cq.WC) int {
		for i, q := range e.QPs() {
			if q.QPN == wc.QPN {
				return i
			}
		}
		return -1
	}
	note := func(queue string, wc *cq.WC, text string) {
		key := fmt.Sprintf("end %d, QP %d, %s", end, index(wc), queue)
		r.seen[key] = append(r.seen[key], text)
	}
	e.Hooks.Completion = func(_ vtime.Time, wc *cq.WC) {
		if wc.Opcode == ib.WCBindMW && wc.Status == ib.WCSuccess {
			return // the workload's own: how many depends on its receives
		}
		n := uint32(0)
		if wc.Opcode == ib.WCRDMARead || wc.Opcode == ib.WCCompSwap || wc.Opcode == ib.WCFetchAdd {
			n = wc.ByteLen
		}
		note("sends", wc, fmt.Sprintf("wr %#x %v %v %d", wc.WRID, wc.Status, wc.Opcode, n))
	}
	e.Hooks.RecvCompletion = func(_ vtime.Time, wc *cq.WC) {
		note("receives", wc, fmt.Sprintf("%v %v %d bytes, flags %v, imm %#x", wc.Status, wc.Opcode, wc.ByteLen, wc.Flags&^ib.WCFlagGRH, wc.Imm))
	}
}

// run carries a configuration out.
func (c *config) run() (*result, error) {
	r := &result{seen: make(map[string][]string)}
	w, err := sim.New(c.world)
	if err != nil {
		return nil, err
	}
	var nodes [2]*sim.Node
	for i := range nodes {
		if nodes[i], err = w.AddNode(c.nodes[i]); err != nil {
			return nil, err
		}
	}
	ends, infos, err := c.endpoints(nodes)
	if err != nil {
		return nil, err
	}
	for i, e := range ends {
		r.record(i, e)
		if err := e.Connect(0, infos[1-i]); err != nil {
			return nil, err
		}
	}
	w.AddApp(nodes[1], ends[1])
	w.AddApp(nodes[0], ends[0])
	limit := vtime.Time(0).Add(100*sim.LivenessBound(&c.spec, 2*c.world.Network.Default.Latency+time.Millisecond) + time.Second)
	if !w.RunUntil(limit, func() bool { return workload.PairDone(ends[0], ends[1]) }) {
		return nil, fmt.Errorf("not done at %v: %+v", w.Now(), ends[0].Stats())
	}
	w.Run(w.Now().Add(100 * time.Millisecond))
	if err := w.Err(); err != nil {
		return nil, err
	}
	if bad := workload.VerifyPair(ends[0], ends[1]); len(bad) > 0 {
		return nil, fmt.Errorf("%s", strings.Join(bad, "\n"))
	}
	for i, e := range ends {
		if r.memory[i], err = remoteMemory(e, infos[i]); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (c *config) endpoints(nodes [2]*sim.Node) (ends [2]*workload.Endpoint, infos [2]workload.Info, err error) {
	if ends[0], err = workload.NewClient(c.spec, nodes[0].Dev); err != nil {
		return ends, infos, err
	}
	if ends[1], err = workload.NewServer(c.spec, nodes[1].Dev); err != nil {
		return ends, infos, err
	}
	for i, e := range ends {
		if infos[i], err = e.Setup(0); err != nil {
			return ends, infos, err
		}
	}
	return ends, infos, nil
}

// remoteIOVA is where a workload's peer finds its memory.
const remoteIOVA = 0x7e0000000000

// remoteMemory reads what the peer of an endpoint may write.
func remoteMemory(e *workload.Endpoint, info workload.Info) (string, error) {
	if info.RKey == 0 {
		return "", nil
	}
	q := e.QPs()[0]
	seg, cause := e.Device().Keys().CheckRKey(q.PD, q.QPN, info.RKey, remoteIOVA, info.RemoteBytes, ib.AccessRemoteRead)
	if cause != ib.CauseNone {
		return "", fmt.Errorf("the remote region cannot be read: %v", cause)
	}
	buf := make([]byte, info.RemoteBytes)
	_, err := seg.Mem.ReadV([]mr.Op{{Addr: seg.Addr, Buf: buf}})
	return string(buf), err
}

// differs says where two results differ first.
func (r *result) differs(want *result) string {
	var keys []string
	for k := range want.seen {
		keys = append(keys, k)
	}
	for k := range r.seen {
		if want.seen[k] == nil {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	for _, k := range keys {
		a, b := r.seen[k], want.seen[k]
		for i := range max(len(a), len(b)) {
			switch {
			case i >= len(a):
				return fmt.Sprintf("%s: %d completions, want %d; the next is %s", k, len(a), len(b), b[i])
			case i >= len(b):
				return fmt.Sprintf("%s: %d completions, want %d; the next is %s", k, len(a), len(b), a[i])
			case a[i] != b[i]:
				return fmt.Sprintf("%s, completion %d: %s, want %s", k, i, a[i], b[i])
			}
		}
	}
	for end := range r.memory {
		a, b := r.memory[end], want.memory[end]
		if len(a) != len(b) {
			return fmt.Sprintf("end %d has %d bytes of remote memory, want %d", end, len(a), len(b))
		}
		for i := range a {
			if a[i] != b[i] {
				return fmt.Sprintf("end %d, byte %d of its remote memory: %#x, want %#x", end, i, a[i], b[i])
			}
		}
	}
	return ""
}

var transports = []ib.QPType{ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD}

// usable are the changes that a transport hides.
func usable(t ib.QPType) (out []change) {
	for _, c := range changes {
		mtu := strings.HasPrefix(c.name, "path MTU") && t == ib.QPTypeUD
		if c.lossy && t != ib.QPTypeRC || mtu {
			continue
		}
		out = append(out, c)
	}
	return out
}

func plain(t *testing.T, transport ib.QPType) *result {
	c := base(transport)
	r, err := c.run()
	require.NoError(t, err, "the plain configuration")
	sends := 0
	for k, list := range r.seen {
		if strings.HasSuffix(k, "sends") {
			sends += len(list)
		}
	}
	require.Equal(t, 4*20, sends, "signaled sends of two QPs in two directions")
	return r
}

func TestOneChange(t *testing.T) {
	for _, transport := range transports {
		if invariants.Race && transport != ib.QPTypeRC {
			continue
		}
		t.Run(transport.String(), func(t *testing.T) {
			want := plain(t, transport)
			for _, ch := range usable(transport) {
				t.Run(ch.name, func(t *testing.T) {
					c := base(transport)
					ch.edit(&c)
					got, err := c.run()
					require.NoError(t, err)
					require.Empty(t, got.differs(want))
				})
			}
		})
	}
}

// combinations of a plain run. A world is one goroutine: the race detector only has to
// see it once.
func combinations() uint64 {
	if invariants.Race {
		return 8
	}
	return 60
}

// TestChangesTogether makes a random few changes at once. The order matters: a later
// change may undo an earlier one.
func TestChangesTogether(t *testing.T) {
	want := make(map[ib.QPType]*result)
	for _, transport := range transports {
		want[transport] = plain(t, transport)
	}
	start := time.Now()
	for seed := *seedFlag; ; seed++ {
		if n := seed - *seedFlag; *forFlag == 0 && n >= combinations() || *forFlag > 0 && time.Since(start) > *forFlag {
			t.Logf("%d combinations from seed %d on", n, *seedFlag)
			return
		}
		r := rand.New(rand.NewPCG(seed, 0))
		transport := transports[max(r.IntN(8)-5, 0)]
		c, all := base(transport), usable(transport)
		c.world.Seed = seed
		var names []string
		for _, i := range r.Perm(len(all))[:2+r.IntN(6)] {
			all[i].edit(&c)
			names = append(names, all[i].name)
		}
		got, err := c.run()
		diff := ""
		if err == nil {
			diff = got.differs(want[transport])
		}
		if err != nil || diff != "" {
			t.Errorf("%v with %s: %v %s\nTo run it again:\n  go test ./tests/metamorphic -run TestChangesTogether -metamorphic.seed=%d", transport, strings.Join(names, ", "), err, diff, seed)
		}
		if t.Failed() {
			return
		}
	}
}

// TestCanFail makes a change that a program does see, so that the comparison is known
// to bite.
func TestCanFail(t *testing.T) {
	want := plain(t, ib.QPTypeRC)
	for name, edit := range map[string]func(*config){
		"every WR signaled": func(c *config) { c.spec.SignalEvery = 1 },
		"other contents":    func(c *config) { c.spec.Seed++ },
		"other sizes":       func(c *config) { c.spec.Sizes.Max-- },
	} {
		c := base(ib.QPTypeRC)
		edit(&c)
		got, err := c.run()
		require.NoError(t, err, name)
		require.NotEmpty(t, got.differs(want), name)
	}
	got := *want
	got.memory[1] = "x" + want.memory[1][1:]
	require.NotEmpty(t, got.differs(want))
}
