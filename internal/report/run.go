package report

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// Mode says what carried the packets of a run.
type Mode string

// The modes.
const (
	ModeVirtual Mode = "virtual" // simulated network, virtual time
	ModeUDP     Mode = "udp"     // sockets
)

// Run is everything that a run has to show. Printing does not change it.
type Run struct {
	Name    string
	Mode    Mode
	Seed    uint64
	Elapsed time.Duration // virtual time in virtual mode
	// Digest is a checksum over the events of a virtual run; empty if there is none.
	Digest       string
	Nodes        []NodeStats
	Flows        []FlowStats
	Expectations []Check
}

// OK reports whether every expectation holds.
func (r *Run) OK() bool { return r.failed() == 0 }

func (r *Run) failed() (n int) {
	for i := range r.Expectations {
		if !r.Expectations[i].OK {
			n++
		}
	}
	return n
}

// NodeStats is what one node counted.
type NodeStats struct {
	Name    string
	Address string
	Profile string

	Completions     []CompletionStats
	PacketsSent     uint64
	PacketsReceived uint64
	BytesSent       uint64 // on the wire, from the BTH to the ICRC
	BytesReceived   uint64
	Retransmissions Retransmissions
	Drops           []DropStats
	Events          []EventStats
	Misuse          []Misuse
}

// CompletionStats counts completions of one opcode and status. Several entries of
// one node may have the same key; they are added up.
type CompletionStats struct {
	Opcode ib.WCOpcode
	Status ib.WCStatus
	Count  uint64
	Bytes  uint64
	// Latency is from post to completion; nil where it means nothing, as for receives.
	Latency *Latency
}

// Retransmissions counts packets sent again, and what made the requester go back.
type Retransmissions struct {
	Packets      uint64
	Timeouts     uint64
	SequenceNAKs uint64
	RNRNAKs      uint64
	RNRTime      time.Duration // spent waiting because of them, over all queue pairs
}

// DropStats counts packets that a node discarded for one reason, by the name of the
// wire.DropReason.
type DropStats struct {
	Reason  string
	Packets uint64
}

// Misuse is a report of strict mode.
type Misuse struct {
	Code   string
	Object string // "qp 0x11"
	What   string // the kind of misuse
	Detail string // what happened, with the state of the objects
}

// EventStats counts asynchronous events of one type.
type EventStats struct {
	Type  ib.EventType
	Count uint64
}

// FlowStats is what one flow did, both directions together.
type FlowStats struct {
	Name      string
	From, To  string
	Transport ib.QPType
	Ops       string // "send" or "send+read"

	Posted          uint64 // send work requests
	Completed       uint64 // of them done, whatever the status
	Succeeded       uint64 // of them done with SUCCESS
	Bytes           uint64 // payload of those
	Active          time.Duration
	Latency         *Latency // of those; nil if none was measured
	Retransmissions uint64   // packets
	DataVerified    uint64   // messages compared with what they should be
	DataErrors      uint64   // of them wrong
}

// Check is one expectation and what came of it.
type Check struct {
	Flow string // name; empty for the run as a whole
	What string // "completions.SUCCESS"
	Want string
	Got  string
	OK   bool
}

// rate is bytes over time in bits per second, rounded; 0 if no time passed. It
// reaches the largest int64 where the true rate is higher.
func rate(bytes uint64, over time.Duration) int64 {
	if over <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(bytes, 8*uint64(time.Second))
	if hi >= uint64(over) {
		return math.MaxInt64 // the quotient would not fit 64 bits
	}
	q, rest := bits.Div64(hi, lo, uint64(over))
	if rest >= uint64(over)-rest {
		q++
	}
	return int64(min(q, math.MaxInt64))
}

// completions returns the node's counts sorted by opcode and status, one per key.
func (n *NodeStats) completions() []CompletionStats {
	sorted := slices.Clone(n.Completions)
	slices.SortStableFunc(sorted, func(a, b CompletionStats) int {
		return cmp.Or(cmp.Compare(a.Opcode, b.Opcode), cmp.Compare(a.Status, b.Status))
	})
	var out []CompletionStats
	for _, c := range sorted {
		if k := len(out) - 1; k >= 0 && out[k].Opcode == c.Opcode && out[k].Status == c.Status {
			out[k] = addCompletions(out[k], c)
			continue
		}
		out = append(out, c)
	}
	return out
}

// operation names what completed. The opcode of a failed completion is undefined;
// which queue it came from is known all the same.
func (c *CompletionStats) operation() string {
	switch {
	case c.Status == ib.WCSuccess:
		return c.Opcode.String()
	case c.Opcode&ib.WCRecv != 0:
		return "(receive)"
	}
	return "(send)"
}

func addCompletions(a, b CompletionStats) CompletionStats {
	a.Count += b.Count
	a.Bytes += b.Bytes
	if b.Latency != nil {
		sum := NewLatency() // a.Latency belongs to the caller
		sum.Merge(a.Latency)
		sum.Merge(b.Latency)
		a.Latency = sum
	}
	return a
}

// drops returns the reasons that occurred, most frequent first.
func (n *NodeStats) drops() []DropStats {
	d := slices.DeleteFunc(slices.Clone(n.Drops), func(d DropStats) bool { return d.Packets == 0 })
	slices.SortFunc(d, func(a, b DropStats) int {
		return cmp.Or(cmp.Compare(b.Packets, a.Packets), cmp.Compare(a.Reason, b.Reason))
	})
	return d
}

// events returns the types that occurred in order of their number.
func (n *NodeStats) events() []EventStats {
	e := slices.DeleteFunc(slices.Clone(n.Events), func(e EventStats) bool { return e.Count == 0 })
	slices.SortFunc(e, func(a, b EventStats) int { return cmp.Compare(a.Type, b.Type) })
	return e
}
