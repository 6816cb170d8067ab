package sim

import (
	"fmt"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/workload"
)

// Flow is a workload between two nodes of a world.
type Flow struct {
	Client, Server         *workload.Endpoint
	ClientNode, ServerNode *Node

	clientGen, serverGen int // generations of the nodes
}

// ClientGone reports whether the client's node was killed since; ServerGone the
// server's.
func (f *Flow) ClientGone() bool { return f.ClientNode.dead || f.ClientNode.generation != f.clientGen }

// ServerGone reports whether the server's node was killed since the flow began.
func (f *Flow) ServerGone() bool { return f.ServerNode.dead || f.ServerNode.generation != f.serverGen }

// AddFlow sets a flow up and starts it. from and to may be the same node.
func (w *World) AddFlow(spec workload.Spec, from, to *Node) (*Flow, error) {
	c, err := workload.NewClient(spec, from.Dev)
	if err != nil {
		return nil, err
	}
	s, err := workload.NewServer(spec, to.Dev)
	if err != nil {
		return nil, err
	}
	c.Share(&w.scratch)
	s.Share(&w.scratch)
	ci, err := c.Setup(w.now)
	if err != nil {
		return nil, err
	}
	si, err := s.Setup(w.now)
	if err != nil {
		return nil, err
	}
	c.Hooks.Completion = func(_ vtime.Time, wc *cq.WC) { w.Completion(from, wc) }
	s.Hooks.Completion = func(_ vtime.Time, wc *cq.WC) { w.Completion(to, wc) }
	if err := s.Connect(w.now, ci); err != nil {
		return nil, err
	}
	if err := c.Connect(w.now, si); err != nil {
		return nil, err
	}
	// The server comes first, so that its receives are posted when packets arrive.
	w.AddApp(to, s)
	w.AddApp(from, c)
	return &Flow{c, s, from, to, from.generation, to.generation}, nil
}

// Done reports whether the flow has come to its end, good or bad: nothing more will
// happen on its own account.
func (f *Flow) Done() bool {
	if client, server := f.ClientGone(), f.ServerGone(); client || server {
		return (client || f.Client.SendsDone()) && (server || f.Server.SendsDone())
	}
	return workload.PairDone(f.Client, f.Server)
}

// Verify returns what is wrong with a flow that is done, nil if nothing is.
func (f *Flow) Verify() []string { return workload.VerifyPair(f.Client, f.Server) }

// Stuck explains why a flow is not done: the QPs that still have work, at both ends.
func (f *Flow) Stuck() string {
	var b strings.Builder
	for _, e := range []*workload.Endpoint{f.Client, f.Server} {
		st := e.Stats()
		fmt.Fprintf(&b, "%s: done %v, posted %d, retired with success %d, received %d", e.Name(), e.Done(), st.Posted, st.Completed, st.Received)
		if err := e.Err(); err != nil {
			fmt.Fprintf(&b, ", gave up: %v", err)
		}
		b.WriteByte('\n')
		for _, q := range e.QPs() {
			fmt.Fprintf(&b, "  %s\n", Describe(q))
		}
	}
	return b.String()
}

// LivenessBound returns how long a flow may take at most on a network that loses
// nothing any more and takes at most rtt to and fro: each message may need a full
// series of timeouts and receiver-not-ready waits.
func LivenessBound(s *workload.Spec, rtt time.Duration) time.Duration {
	ack, ok := ib.AckTimeout(s.Timeout)
	if !ok {
		ack = 0
	}
	// The timer may be whole jiffies of 4 ms, and a wait may just have begun.
	wait := 4*(ack+4*time.Millisecond) + 4*ib.RNRTimeout(s.MinRNRTimer) + 4*rtt
	messages := time.Duration(s.Count) * time.Duration(s.QPs)
	perMessage := rtt + ib.RNRTimeout(s.MinRNRTimer)
	if s.RateBitsPerSecond > 0 {
		perMessage += time.Duration(float64(s.Sizes.Longest()) * 8 / float64(s.RateBitsPerSecond) * float64(time.Second))
	}
	return s.Start + s.ReceiverDelay + wait + messages*perMessage
}
