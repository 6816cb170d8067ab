package daemon

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/topology"
)

// TestOrdersArriveWhole: what the daemon orders is what the engine in a program reads.
func TestOrdersArriveWhole(t *testing.T) {
	f, err := topology.Parse("x", []byte("version: 1\nnodes: [{name: a}, {name: b}]\n"))
	require.NoError(t, err)
	up := true
	for _, text := range []string{
		"{action: fail_post, node: a, count: 3, qpn: 70000}",
		"{action: complete_with, node: b, status: REM_OP_ERR}",
		"{action: revoke_key, node: a, key: 4242}",
		"{action: delay_completions, node: a, delay: 30ms}",
		"{action: spurious_event, node: a, event: SQ_DRAINED}",
		"{action: set_impairment, from: a, to: b, loss: 5%, burst: {enter: 0.1, leave: 0.2, loss: 0.5}, rules: [{action: drop, opcode: WRITE_FIRST, psn: 7, nth: 3, every: 2}]}",
	} {
		x, err := topology.ParseFault(f, text)
		require.NoError(t, err, text)
		sent := order{ID: 7, PortUp: &up, Fault: x, Links: []linkOrder{{To: ib.GID{1, 2, 3}, Impairment: x.Impairment, Seed: 1<<63 + 1, From: 1, Peer: 2}}}
		b, err := json.Marshal(&sent)
		require.NoError(t, err)
		var got order
		require.NoError(t, json.Unmarshal(b, &got))
		require.Equal(t, sent, got, text)
	}
}

// TestOutcome: a program that ends because of what it was ordered to do has done it.
func TestOutcome(t *testing.T) {
	p := &program{c: &conn{left: make(chan struct{})}}
	ch, never := make(chan obeyed, 1), make(chan time.Time)
	passed := make(chan time.Time)
	close(passed)
	a, ok := p.outcome(ch, passed)
	require.Equal(t, obeyed{}, a)
	require.False(t, ok, "it is late")
	close(p.c.left)
	a, ok = p.outcome(ch, never)
	require.Equal(t, obeyed{}, a)
	require.True(t, ok)
	for range 100 { // of two things that have happened select takes either
		ch <- obeyed{n: 3}
		a, ok = p.outcome(ch, never)
		require.Equal(t, obeyed{n: 3}, a)
		require.True(t, ok)
	}
}
