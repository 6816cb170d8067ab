package topology

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rvtsim/rvtsim/dcqcn"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/strict"
)

// File is a topology file with every default filled in. Slices keep the order of the
// file, except Faults, which is in order of time. The reader of a File owns it;
// nothing in it is shared with another File.
type File struct {
	Path     string // the name given to Load or Parse
	Name     string // defaults to the file's base name without its extension
	Seed     uint64
	Duration time.Duration // flows post nothing after this; 0: no limit
	Timeout  time.Duration // the run has failed if it is not done by then
	Nodes    []Node        // groups are written out
	Groups   []Group       // entries of nodes, one node or several
	Network  Link          // every pair of nodes that no entry of Links names
	Form     Form          // of the network between namespaces
	Links    []Link
	Switches []Switch // groups are written out
	Flows    []Flow   // "traffic" in the file, patterns written out
	Entries  []Entry  // entries of traffic
	Faults   []Fault  // those of RandomFaults are not among them
	Random   RandomFaults
	Expect   RunExpect
}

// Form is what joins nodes that are in network namespaces.
type Form string

// The forms of a network.
const (
	FormBridge Form = "bridge" // one switch: all nodes are neighbours
	FormRouted Form = "routed" // a router with a link to each node
)

// Span is a run of things by index: First and the N-1 after it.
type Span struct{ First, N int }

// One is the span of one index.
func One(i int) Span { return Span{i, 1} }

// Has reports whether the span holds index i.
func (s Span) Has(i int) bool { return i >= s.First && i < s.First+s.N }

// Group is an entry of nodes: one node, or count identical ones.
type Group struct {
	Name  string
	Nodes Span
	Count bool // the entry has a count, so its nodes are called Name-1 and so on
}

// Entry is an entry of traffic and the flows that it stands for.
type Entry struct {
	Name    string
	Flows   Span
	Pattern Pattern // "" if it is one flow
	From    Span    // nodes
	To      Span
	Peers   int // PatternRandom: flows of each node
}

// Pattern is a traffic matrix: who sends to whom.
type Pattern string

// The patterns.
const (
	PatternPairwise      Pattern = "pairwise"
	PatternIncast        Pattern = "incast"
	PatternAllToAll      Pattern = "all_to_all"
	PatternRing          Pattern = "ring"
	PatternRingAllReduce Pattern = "ring_all_reduce"
	PatternPermutation   Pattern = "permutation"
	PatternRandom        Pattern = "random"
)

// Switch is one switch. Every cable that its entry attaches has the same properties.
type Switch struct {
	Name     string
	Nodes    []Span // nodes plugged into it
	Switches []int  // switches that its entry has a trunk to, by index
	Port     Link   // Pair and Impairment mean nothing
}

// ECN says when a queue marks packets; see the manual. The zero value marks nothing.
type ECN struct {
	Min, Max    int64 // bytes that wait
	Probability float64
}

// Node is one simulated machine with one adapter.
type Node struct {
	Name    string
	Address netip.AddrPort // GID and UDP socket; the port is never 0
	Netdev  string         // on sockets, the device whose addresses the node has; "" if Address counts
	Profile Profile
	Strict  strict.Checks // none: the adapter lets misuse pass, like others
	MTU     ib.MTU        // active MTU of the port
	Limits  Limits
	DCQCN   *dcqcn.Params // congestion control; nil: none. Shared by the nodes of a group.

	DistinctKeys bool // rkeys differ from lkeys
}

// Profile names whose choices an adapter follows where the sources differ.
type Profile string

// The profiles.
const (
	ProfileIBTA   Profile = "ibta"
	ProfileRDMAVT Profile = "rdmavt"
	ProfileRXE    Profile = "rxe"
)

// Limits are what an adapter reports and enforces, by the names of
// struct ibv_device_attr and struct ibv_qp_cap.
type Limits struct {
	MaxQP       int
	MaxQPWR     int // per send queue and per receive queue
	MaxCQE      int
	MaxSGE      int
	MaxInline   int // bytes
	MaxRdAtomic int // READs and atomics outstanding, either direction
	MaxSRQWR    int
	// MaxResRdAtomic is for all queue pairs of the node together; 0: no such limit.
	MaxResRdAtomic int
}

// Link describes one direction between two nodes, or both. Pair is zero in
// File.Network.
type Link struct {
	Pair      Pair
	Latency   time.Duration
	Jitter    time.Duration // each packet takes Latency plus 0 to Jitter
	Bandwidth Rate          // 0: unlimited
	Queue     int64         // bytes that wait for bandwidth; more are dropped; 0: unlimited
	MTU       ib.MTU        // largest payload that passes; 0: any
	ECN       ECN
	Impairment
}

// Impairment is what a link does wrong. Probabilities are 0 to 1, per packet.
type Impairment struct {
	Loss         float64
	Duplicate    float64
	Reorder      float64       // probability of being held back by ReorderDelay
	ReorderDelay time.Duration // longer than the gaps between packets to have effect
	Corrupt      float64       // one bit flipped, so that the ICRC is wrong
	Tamper       float64       // one bit of the payload flipped, and the ICRC fits
	Burst        Burst
	Rules        []Rule // looked at in order before the probabilities; first match wins
}

// Burst is loss that comes in runs: a state that packets enter and leave by chance.
type Burst struct {
	Enter, Leave float64 // probability per packet
	Loss         float64 // of a packet within a burst
}

// Rule picks single packets. A packet matches if Opcode and PSN, where given, are
// its own. Of the matching packets, counted per direction of the link from 1, the
// rule acts on the Nth and the following, Count in all.
type Rule struct {
	Action    RuleAction
	HasOpcode bool
	Opcode    ib.Opcode
	HasPSN    bool
	PSN       ib.PSN
	HasDestQP bool
	DestQP    ib.QPN
	Nth       uint64        // from 1
	Every     uint64        // then every Every-th match after the Nth; 1: each
	Count     uint64        // how often it acts at most; 0: without end
	Delay     time.Duration // for RuleDelay
}

// RuleAction is what a Rule does to its packet.
type RuleAction string

// The actions of rules.
const (
	RuleDrop      RuleAction = "drop"
	RuleDuplicate RuleAction = "duplicate"
	RuleCorrupt   RuleAction = "corrupt"
	RuleDelay     RuleAction = "delay"
	RuleTamper    RuleAction = "tamper"
)

// Pair selects directions between nodes, by index into File.Nodes.
type Pair struct {
	All      bool // every pair; the other fields mean nothing
	From, To Span
	Both     bool // To to From as well
}

// Covers reports whether the pair selects the direction from one node to another.
func (p Pair) Covers(from, to int) bool {
	return p.All || p.From.Has(from) && p.To.Has(to) || p.Both && p.From.Has(to) && p.To.Has(from)
}

// Flow is a stream of work requests from one node to another. Field comments give
// the unit; the manual (docs/topology.md) gives the meaning.
type Flow struct {
	Name      string
	From, To  int       // indices into File.Nodes
	Entry     int       // index into File.Entries
	After     int       // PatternRingAllReduce: a message may go out for each that this flow has brought, and one more; -1: none
	Transport ib.QPType // RC, UC or UD
	Ops       []WeightedOp
	Sizes     Sizes
	Count     uint64 // work requests per QP and direction; 0: until File.Duration
	Depth     int    // work requests outstanding per QP; max_send_wr
	QPs       int
	Signal    Signal
	Inline    bool
	Solicited bool
	Fence     bool

	SRQ           *SRQ          // nil: each QP has its own receive queue
	RecvDepth     int           // receives posted per QP; 0 if no operation takes one
	RecvSize      int           // bytes
	ReceiverDelay time.Duration // before the receiver posts its first receive
	Notify        Notify

	PathMTU         ib.MTU
	PSN             *ib.PSN // first PSN of the first QP; nil: drawn from the seed
	Timeout         uint8   // local ACK timeout code
	RetryCnt        uint8
	RNRRetry        uint8
	MinRNRTimer     uint8 // RNR timer code
	MaxRdAtomic     int
	MaxDestRdAtomic int
	RKey            RKeyChoice
	Verify          bool
	Start           time.Duration
	Bidirectional   bool
	Rate            Rate // payload per QP and direction; 0: as fast as it goes
	Expect          FlowExpect
}

// WeightedOp is one operation of a mix; weights are relative.
type WeightedOp struct {
	Op     Op
	Weight uint64
}

// Sizes are the lengths of a flow's messages. Atomics are always 8 bytes.
type Sizes struct {
	Kind   SizeKind
	Values []int64 // SizeFixed: one; SizeRange: min and max; SizeList: taken in turn
}

// SizeKind says how Sizes.Values are meant.
type SizeKind uint8

// The kinds of Sizes.
const (
	SizeFixed SizeKind = 1
	SizeRange SizeKind = 2 // drawn evenly from the seed
	SizeList  SizeKind = 3
)

// Max returns the longest length in bytes.
func (s Sizes) Max() int64 {
	var m int64
	for _, v := range s.Values {
		m = max(m, v)
	}
	return m
}

// Signal says which send work requests ask for a completion.
type Signal struct {
	Kind  SignalKind
	Every uint64 // for SignalEvery
}

// SignalKind is the kind of a Signal.
type SignalKind uint8

// The kinds of Signal.
const (
	SignalAll   SignalKind = 1
	SignalEvery SignalKind = 2 // each Every-th, and the last
	SignalLast  SignalKind = 3
)

// SRQ asks for one shared receive queue at each receiving node of a flow.
type SRQ struct {
	Size  int // max_wr; 0 in the file means qps * recv_depth
	Limit int // SRQ_LIMIT_REACHED is raised below this; 0: not armed
}

// Notify says how completions are waited for.
type Notify string

// The ways to wait.
const (
	NotifyPoll  Notify = "poll"
	NotifyEvent Notify = "event" // completion channel
)

// RKeyChoice says which rkey one-sided operations use.
type RKeyChoice string

// The choices of rkey. All but the first end in REM_ACCESS_ERR.
const (
	RKeyGood       RKeyChoice = "good"
	RKeyBad        RKeyChoice = "bad"          // no region has it
	RKeyNoAccess   RKeyChoice = "no_access"    // its region lacks the remote rights
	RKeyOutOfRange RKeyChoice = "out_of_range" // the address leaves its region
)

// Fault is one entry of the schedule. Which fields count follows from Action.
type Fault struct {
	At         time.Duration // since the start of the run
	Action     FaultAction
	Pair       Pair       // Partition, Heal, SetImpairment, SetLink
	Impairment Impairment // SetImpairment
	Link       Link       // SetLink; its Pair and Impairment mean nothing
	Switches   Span       // SetLink: by index into File.Switches, in place of Pair
	Flows      Span       // by index into File.Flows: those it happens to
	QP         int        // which QP of each flow, from 0; -1: all
	Receiver   bool       // at the flow's receiver, else at its sender
	Nodes      Span       // by index into File.Nodes: those it happens to, all ends of flows there if Flows is empty
	QPN        ib.QPN     // which QP of each node; 0: all
	Count      int        // FailPost: how many posts
	Status     ib.WCStatus
	Delay      time.Duration // DelayCompletions
	Event      ib.EventType  // SpuriousEvent
	Notify     bool          // SpuriousEvent: a notification of a completion queue instead
}

// AtReceiver reports whether a fault of a flow happens at its receiver: some can happen
// nowhere else.
func (x *Fault) AtReceiver() bool { return x.Receiver || x.onlyReceivers() }

func (x *Fault) onlyReceivers() bool {
	switch x.Action {
	case PauseReceiver, ResumeReceiver, RevokeKey:
		return true
	}
	return false
}

// Ends calls do for each end of a flow that a fault happens to which is about flows.
func (f *File) Ends(x *Fault, do func(flow int, receiver bool)) {
	for i := x.Flows.First; i < x.Flows.First+x.Flows.N; i++ {
		do(i, x.AtReceiver())
	}
	if x.Flows.N > 0 {
		return
	}
	for i := range f.Flows {
		fl := &f.Flows[i]
		if x.Nodes.Has(fl.From) && (fl.Bidirectional || !x.onlyReceivers()) {
			do(i, false)
		}
		if x.Nodes.Has(fl.To) {
			do(i, true)
		}
	}
}

// RandomFaults asks for faults that are drawn from the seed; see [File.WithSeed].
type RandomFaults struct {
	Count       int
	From, Until time.Duration
	Actions     []FaultAction
	Duration    time.Duration // until what was broken is repaired
}

// FaultAction is what a Fault does.
type FaultAction string

// The actions of faults.
const (
	Partition      FaultAction = "partition"
	Heal           FaultAction = "heal"
	SetImpairment  FaultAction = "set_impairment"
	SetLink        FaultAction = "set_link"
	ModifyQPError  FaultAction = "modify_qp_error"
	PauseReceiver  FaultAction = "pause_receiver"
	ResumeReceiver FaultAction = "resume_receiver"
	KillNode       FaultAction = "kill_node"

	RestartNode      FaultAction = "restart_node"
	PortDown         FaultAction = "port_down"
	PortUp           FaultAction = "port_up"
	CQOverflow       FaultAction = "cq_overflow"
	RevokeKey        FaultAction = "revoke_key"
	FailPost         FaultAction = "fail_post"
	CompleteWith     FaultAction = "complete_with"
	DelayCompletions FaultAction = "delay_completions"
	SpuriousEvent    FaultAction = "spurious_event"
)

// Expect is what both a flow and the run as a whole may be expected to show. A nil
// pointer or zero duration or rate means "not checked".
type Expect struct {
	Completions     []StatusCount // of send work requests; nil: not checked
	Receives        []StatusCount // of receive work requests; nil: not checked
	AllComplete     bool          // every posted send work request is done at the end
	DataOK          bool          // every byte that arrived with SUCCESS is right
	Retransmissions *Range        // packets sent again
	Events          []EventCount  // asynchronous events; those not listed are not checked
	MaxLatency      time.Duration // from post to completion, of successful work requests
	MinRate         Rate          // payload
}

// FlowExpect is what one flow is expected to show.
type FlowExpect struct {
	Expect
	QPState *ib.QPState // of every sending QP, at the end
}

// RunExpect is what the run as a whole is expected to show: sums over all flows and
// nodes.
type RunExpect struct {
	Expect
	Drops  []DropCount // those not listed are not checked
	Misuse *Range      // reports of strict nodes
}

// StatusCount is how many completions of a status are expected. A status that a
// list does not name must not occur.
type StatusCount struct {
	Status ib.WCStatus
	Count  Count
}

// EventCount is how many asynchronous events of a type are expected.
type EventCount struct {
	Event ib.EventType
	Range Range
}

// DropCount is how many packets are expected to be dropped for a reason, by the
// name that reports print; "total" for all of them.
type DropCount struct {
	Reason string
	Range  Range
}

// Rate is bits per second; 0 means unlimited or not checked.
type Rate int64

// LinkBetween returns the description of the direction from one node to another, by
// index: the entry of Links that covers it, else Network.
func (f *File) LinkBetween(from, to int) Link {
	if i := f.linkIndex(from, to); i >= 0 {
		return f.Links[i]
	}
	l := f.Network
	l.Pair = Pair{From: One(from), To: One(to)}
	return l
}

// linkIndex is the entry of Links for a direction between two nodes, -1 if there is none.
func (f *File) linkIndex(from, to int) int {
	return slices.IndexFunc(f.Links, func(l Link) bool { return l.Pair.Covers(from, to) })
}

// linked reports whether two nodes have a link of their own, in that direction.
func (f *File) linked(from, to int) bool { return f.linkIndex(from, to) >= 0 }

// NameOf is how the file calls nodes: the name of a node or of a group.
func (f *File) NameOf(s Span) string {
	if s.N == 1 {
		return f.Nodes[s.First].Name
	}
	for i := range f.Groups {
		if f.Groups[i].Nodes == s {
			return f.Groups[i].Name
		}
	}
	return ""
}

// NodeIndex returns the index of the node of that name, or -1.
func (f *File) NodeIndex(name string) int {
	for i := range f.Nodes {
		if f.Nodes[i].Name == name {
			return i
		}
	}
	return -1
}

// TakesReceives reports whether any operation of the flow consumes receive work
// requests at the peer.
func (f *Flow) TakesReceives() bool {
	for _, o := range f.Ops {
		if o.Op.TakesReceive() {
			return true
		}
	}
	return false
}
