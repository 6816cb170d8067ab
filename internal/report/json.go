package report

import (
	"encoding/json"
	"io"
	"time"
)

// JSONSchema names the form that WriteJSON prints. Fields may be added under the same
// name; when one changes or goes, the number rises.
const JSONSchema = "rvtsim.run/1"

// The types below are the JSON form. Units are in the names: _ns nanoseconds, _bytes
// bytes, _bps bits per second; other numbers are counts. Lists are never null.

// runJSON is the outermost object.
type runJSON struct {
	Schema       string      `json:"schema"`
	Name         string      `json:"name"`
	Mode         Mode        `json:"mode"` // "virtual" or "udp"
	Seed         uint64      `json:"seed"`
	ElapsedNS    int64       `json:"elapsed_ns"` // virtual time in virtual mode
	Digest       string      `json:"digest,omitempty"`
	OK           bool        `json:"ok"` // every expectation holds
	Nodes        []nodeJSON  `json:"nodes"`
	Flows        []flowJSON  `json:"flows"`
	Expectations []checkJSON `json:"expectations"`
}

type nodeJSON struct {
	Name            string              `json:"name"`
	Address         string              `json:"address"`
	Profile         string              `json:"profile"`
	Completions     []completionJSON    `json:"completions"` // by opcode, then status
	PacketsSent     uint64              `json:"packets_sent"`
	PacketsReceived uint64              `json:"packets_received"`
	SentBytes       uint64              `json:"sent_bytes"` // BTH to ICRC
	ReceivedBytes   uint64              `json:"received_bytes"`
	Retransmissions retransmissionsJSON `json:"retransmissions"`
	Drops           []dropJSON          `json:"drops"`  // most frequent first
	Events          []eventJSON         `json:"events"` // by number
	Misuse          []misuseJSON        `json:"misuse"` // of strict nodes
}

type completionJSON struct {
	Opcode       string       `json:"opcode"` // IBV_WC_ name without the prefix; "(send)" or "(receive)" of a failed one
	Status       string       `json:"status"` // likewise
	Count        uint64       `json:"count"`
	PayloadBytes uint64       `json:"payload_bytes"`
	RateBPS      int64        `json:"rate_bps"`          // over the whole run
	Latency      *latencyJSON `json:"latency,omitempty"` // absent where none was measured
}

type latencyJSON struct {
	Count  uint64 `json:"count"`
	MinNS  int64  `json:"min_ns"`
	MeanNS int64  `json:"mean_ns"`
	P50NS  int64  `json:"p50_ns"`
	P90NS  int64  `json:"p90_ns"`
	P99NS  int64  `json:"p99_ns"`
	P999NS int64  `json:"p999_ns"`
	MaxNS  int64  `json:"max_ns"`
}

type retransmissionsJSON struct {
	Packets      uint64 `json:"packets"`
	Timeouts     uint64 `json:"timeouts"`
	SequenceNAKs uint64 `json:"sequence_naks"`
	RNRNAKs      uint64 `json:"rnr_naks"`
	// RNRTime is the time spent waiting because of them, over all queue pairs.
	RNRTime time.Duration `json:"time_in_rnr_ns"`
}

type dropJSON struct {
	Reason  string `json:"reason"`
	Packets uint64 `json:"packets"`
}

type misuseJSON struct {
	Code   string `json:"code"`
	Object string `json:"object"`
	What   string `json:"what"`
	Detail string `json:"detail"`
}

type eventJSON struct {
	Event string `json:"event"` // IBV_EVENT_ name without the prefix
	Count uint64 `json:"count"`
}

type flowJSON struct {
	Name                 string       `json:"name"`
	From                 string       `json:"from"`
	To                   string       `json:"to"`
	Transport            string       `json:"transport"` // "RC", "UC" or "UD"
	Ops                  string       `json:"ops"`
	Posted               uint64       `json:"posted"`
	Completed            uint64       `json:"completed"`
	Succeeded            uint64       `json:"succeeded"`
	PayloadBytes         uint64       `json:"payload_bytes"`
	ActiveNS             int64        `json:"active_ns"`
	RateBPS              int64        `json:"rate_bps"` // over the active time
	Latency              *latencyJSON `json:"latency,omitempty"`
	RetransmittedPackets uint64       `json:"retransmitted_packets"`
	DataVerified         uint64       `json:"data_verified"`
	DataErrors           uint64       `json:"data_errors"`
}

type checkJSON struct {
	Flow string `json:"flow"` // empty: the run as a whole
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
	OK   bool   `json:"ok"`
}

// WriteJSON prints the run as one indented JSON object and a newline.
func WriteJSON(w io.Writer, r *Run) error {
	out := runJSON{
		Schema: JSONSchema, Name: r.Name, Mode: r.Mode, Seed: r.Seed, ElapsedNS: int64(r.Elapsed), Digest: r.Digest, OK: r.OK(),
		Nodes: make([]nodeJSON, len(r.Nodes)), Flows: make([]flowJSON, len(r.Flows)), Expectations: make([]checkJSON, len(r.Expectations)),
	}
	for i := range r.Nodes {
		out.Nodes[i] = nodeToJSON(r, &r.Nodes[i])
	}
	for i := range r.Flows {
		out.Flows[i] = flowToJSON(&r.Flows[i])
	}
	for i, c := range r.Expectations {
		out.Expectations[i] = checkJSON(c)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(out)
}

func nodeToJSON(r *Run, n *NodeStats) nodeJSON {
	out := nodeJSON{
		Name: n.Name, Address: n.Address, Profile: n.Profile,
		Completions: []completionJSON{}, PacketsSent: n.PacketsSent, PacketsReceived: n.PacketsReceived,
		SentBytes: n.BytesSent, ReceivedBytes: n.BytesReceived, Retransmissions: retransmissionsJSON(n.Retransmissions),
		Drops: []dropJSON{}, Events: []eventJSON{}, Misuse: []misuseJSON{},
	}
	for _, c := range n.completions() {
		out.Completions = append(out.Completions, completionJSON{c.operation(), c.Status.String(), c.Count, c.Bytes, rate(c.Bytes, r.Elapsed), latencyToJSON(c.Latency)})
	}
	for _, d := range n.drops() {
		out.Drops = append(out.Drops, dropJSON(d))
	}
	for _, m := range n.Misuse {
		out.Misuse = append(out.Misuse, misuseJSON(m))
	}
	for _, e := range n.events() {
		out.Events = append(out.Events, eventJSON{e.Type.String(), e.Count})
	}
	return out
}

func flowToJSON(f *FlowStats) flowJSON {
	return flowJSON{
		Name: f.Name, From: f.From, To: f.To, Transport: f.Transport.String(), Ops: f.Ops,
		Posted: f.Posted, Completed: f.Completed, Succeeded: f.Succeeded, PayloadBytes: f.Bytes,
		ActiveNS: int64(f.Active), RateBPS: rate(f.Bytes, f.Active), Latency: latencyToJSON(f.Latency),
		RetransmittedPackets: f.Retransmissions, DataVerified: f.DataVerified, DataErrors: f.DataErrors,
	}
}

func latencyToJSON(l *Latency) *latencyJSON {
	if l.Count() == 0 {
		return nil
	}
	return &latencyJSON{l.Count(), l.Min(), l.Mean(), l.Percentile(50), l.Percentile(90), l.Percentile(99), l.Percentile(99.9), l.Max()}
}
