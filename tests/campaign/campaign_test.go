// Package campaign runs worlds that are drawn from seeds: random traffic between
// random devices over a random bad network, with every checker on. Each world runs
// twice and must do the same twice.
//
//	go test ./tests/campaign                               a slice of seeds
//	go test ./tests/campaign -campaign.seeds=100..200      these
//	go test ./tests/campaign -campaign.for=60s             as many as fit
//
// A failing seed prints the command that runs it alone.
package campaign

import (
	"flag"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/invariants"
)

var (
	seedsFlag = flag.String("campaign.seeds", "", "seeds to run, A..B inclusive, or one")
	forFlag   = flag.Duration("campaign.for", 0, "run seeds for this long, from the first of campaign.seeds on")
	traceFlag = flag.Bool("campaign.trace", false, "print every packet")
)

// Seeds of a plain run. The race detector makes a world about ten times slower.
const (
	defaultSeeds     = 1500
	defaultSeedsRace = 60
	// defaultFor keeps a plain run short on slow machines.
	defaultFor = 20 * time.Second
)

func parseSeeds(s string) (from, to uint64, err error) {
	a, b, isRange := strings.Cut(s, "..")
	if from, err = strconv.ParseUint(a, 0, 64); err != nil || !isRange {
		return from, from, err
	}
	to, err = strconv.ParseUint(b, 0, 64)
	return from, to, err
}

func TestCampaign(t *testing.T) {
	from, to := uint64(1), uint64(defaultSeeds)
	if invariants.Race {
		to = defaultSeedsRace
	}
	limit := defaultFor
	if *seedsFlag != "" {
		var err error
		from, to, err = parseSeeds(*seedsFlag)
		require.NoError(t, err, "-campaign.seeds")
		limit = 0
	}
	if *forFlag > 0 {
		limit = *forFlag
		if *seedsFlag == "" {
			to = 1<<63 - 1
		}
	}
	start := time.Now()
	var sum outcome
	n := 0
	for seed := from; seed <= to; seed++ {
		if limit > 0 && time.Since(start) > limit {
			break
		}
		n++
		o := runSeed(t, seed)
		sum.events += o.events
		sum.messages += o.messages
		sum.failures += o.failures
	}
	t.Logf("%d worlds from seed %d on, each twice: %d events, %d messages, %d flows with a failed QP", n, from, sum.events, sum.messages, sum.failures)
}

// runSeed runs one world twice and reports what is wrong with it.
func runSeed(t *testing.T, seed uint64) outcome {
	p := draw(seed)
	o := guarded(p)
	if again := guarded(draw(seed)); again.digest != o.digest {
		o.problem("the second run had digest %#x, the first one %#x", again.digest, o.digest)
	}
	if len(o.problems) > 0 {
		t.Errorf("seed %d:\n%s\n%s\nTo run it again:\n  go test ./tests/campaign -run 'TestCampaign$' -campaign.seeds=%d -v", seed, strings.Join(o.problems, "\n"), p.describe(), seed)
	}
	return o
}

// guarded turns a panic into a problem, so that the seed is printed with it.
func guarded(p *plan) (o outcome) {
	defer func() {
		if r := recover(); r != nil {
			if *seedsFlag != "" && !strings.Contains(*seedsFlag, "..") {
				panic(r) // one seed: show where
			}
			o.problem("panic: %v", r)
		}
	}()
	return p.run()
}

// describe prints a plan for the reader of a failure.
func (p *plan) describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "network: %+v, heals at %v, emit batch %d\n", p.network.Default, p.healAt, p.batch)
	for i := range p.nodes {
		n := &p.nodes[i]
		fmt.Fprintf(&b, "node %d: profile %s, MTU %v, window %d\n", i, n.Profile.Name, n.MTU, n.Limits.WindowPackets)
	}
	for _, f := range p.flows {
		fmt.Fprintf(&b, "flow from %d to %d: %+v\n", f.from, f.to, f.spec)
	}
	for _, f := range p.faults {
		fmt.Fprintf(&b, "fault: %v\n", f)
	}
	return b.String()
}
