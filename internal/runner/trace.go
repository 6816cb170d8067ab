package runner

import (
	"fmt"
	"slices"

	"github.com/rvtsim/rvtsim/fabric/mem"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/sim"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// tracer keeps the last packets that devices took or dropped.
type tracer struct {
	file  *topology.File
	until *Moment // told of drops and NAKs
	lines []string
	next  int
}

func newTracer(f *topology.File, n int, until *Moment) *tracer {
	return &tracer{file: f, until: until, lines: make([]string, 0, max(n, 0))}
}

// packet is sim.Config.OnPacket.
func (t *tracer) packet(now vtime.Time, n *sim.Node, f *mem.Frame, r wire.DropReason) {
	if u := t.until; u != nil && u.What != "" {
		syn := f.Packet.AETH.Syndrome
		ack := f.Packet.Opcode == ib.OpAcknowledge
		switch u.What {
		case "drop":
			u.reached = u.reached || r != wire.DropNone
		case "nak":
			u.reached = u.reached || ack && syn.Kind() == ib.SyndromeNAK
		case "rnr":
			u.reached = u.reached || ack && syn.Kind() == ib.SyndromeRNR
		}
	}
	if cap(t.lines) == 0 {
		return
	}
	line := fmt.Sprintf("%14v  %s > %s  %s", now, t.file.Nodes[f.From].Name, n.Name, f.Packet.String())
	if r != wire.DropNone {
		line += "  DROPPED: " + r.String()
	}
	if len(t.lines) < cap(t.lines) {
		t.lines = append(t.lines, line)
		return
	}
	t.lines[t.next] = line
	t.next = (t.next + 1) % len(t.lines)
}

// last returns the lines, oldest first.
func (t *tracer) last() []string {
	return slices.Concat(t.lines[t.next:], t.lines[:t.next])
}
