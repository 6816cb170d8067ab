package topology

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml/token"
	"github.com/stretchr/testify/require"
)

func itoa(i int) string { return strconv.Itoa(i) }

// problems parses text, which must be bad.
func problems(t *testing.T, text string) []string {
	t.Helper()
	f, err := Parse("t.yaml", []byte(text))
	require.Error(t, err, text)
	require.Nil(t, f)
	return strings.Split(err.Error(), "\n")
}

// Everything wrong with a file is reported at once, in order, with its place.
func TestAllProblemsAreReported(t *testing.T) {
	require.Equal(t, []string{
		`t.yaml:2:1: unknown key "sead"; expected one of version, name, seed, duration, timeout, defaults, nodes, network, links, switches, traffic, faults, random_faults, expect; did you mean "seed"?`,
		`t.yaml:4:11: nodes[0].name: found "a b"; expected a name of up to 64 letters, digits, '.', '_' and '-'`,
		`t.yaml:5:10: nodes[0].mtu: found "1500"; expected an MTU of 256, 512, 1024, 2048 or 4096 bytes`,
		`t.yaml:6:5: nodes[1]: unknown key "adress"; expected one of count, name, address, netdev, profile, strict, mtu, distinct_keys, dcqcn, limits; did you mean "address"?`,
		`t.yaml:6:5: nodes[1]: key "name" is missing; expected name`,
		`t.yaml:8:20: network.latency: found "5"; expected a duration such as 10us, 1.5ms or 2s`,
		`t.yaml:10:11: traffic[0].from: unknown node "n9"; expected one of n2; did you mean "n2"?`,
		`t.yaml:12:9: traffic[0].op: unknown operation "sendd"; expected one of send, send_imm, send_inv, write, write_imm, read, cmp_swp, fetch_add; did you mean "send"?`,
		`t.yaml:13:5: traffic[0]: key "size" is given twice, first on line 11`,
	}, problems(t, `version: 1
sead: 2
nodes:
  - name: a b
    mtu: 1500
  - adress: 127.0.0.1
  - name: n2
network: {latency: 5}
traffic:
  - from: n9
    size: 4
    op: sendd
    size: 5
    to: n2
`))
}

func TestStructureProblems(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       `t.yaml:1:1: found an empty file; expected a topology that begins with "version: 1"`,
		"# nothing\n":                            `t.yaml:1:1: found an empty file; expected a topology that begins with "version: 1"`,
		"hello":                                  `t.yaml:1:1: found "hello"; expected a mapping with the keys of the file`,
		"- a\n":                                  `t.yaml:1:1: found a list; expected a mapping with the keys of the file`,
		"version: 2\nnodes: [{name: a}]\n":       `t.yaml:1:10: version: found "2"; expected 1, the version of the schema that this program reads`,
		"nodes: [{name: a}]\n":                   `t.yaml:1:1: key "version" is missing; expected 1`,
		"version: 1\n":                           `t.yaml:1:1: key "nodes" is missing; expected list`,
		"version: 1\nnodes: []\n":                `t.yaml:2:8: nodes: found an empty list; expected at least one node`,
		"version: 1\nnodes: {}\n":                `t.yaml:2:8: nodes: found a mapping; expected a list of nodes`,
		"version: 1\nnodes:\n":                   `t.yaml:2:7: nodes: found nothing; expected a list of nodes`,
		"version: 1\nnodes: [a]\n":               `t.yaml:2:9: nodes[0]: found "a"; expected a mapping with the keys of nodes`,
		"version: 1\n---\nnodes: []\n":           `t.yaml:3:1: found a second document after "---"; expected one document`,
		"version: 1\nnodes: [\n":                 `t.yaml:2:8: not valid YAML: sequence end token ']' not found`,
		"version: 1\nnodes:\n\t- a\n":            "t.yaml:3:1: not valid YAML: found character '\t' that cannot start any token",
		"a: >=1\n":                               `t.yaml:1:4: not valid YAML: invalid header option: "=1"; a value that starts with ">" needs quotes: ">=1", or write 1..`,
		"a: \xff\n":                              `t.yaml:1:4: found byte 0xff, which is not UTF-8 text; expected YAML`,
		"a: é\x00\n":                             `t.yaml:1:5: found a NUL byte; expected YAML`,
		"version: 1\nnodes: *x\n":                `t.yaml:2:8: nodes: alias *x names no anchor of this file`,
		"version: 1\nnodes: [{name: a}]\n<<: {}": `t.yaml:3:1: merge key "<<" is not supported; expected plain keys (defaults.node and defaults.flow hold what several entries share)`,
		"[1, 2]: 3\n":                            ``,
	} {
		got := problems(t, text)
		if want != "" {
			require.Contains(t, got, want, "of %q", text)
		}
	}
}

// checkMarked expects exactly one problem, at the place where text has a @.
func checkMarked(t *testing.T, text, want string) {
	t.Helper()
	before, after, ok := strings.Cut(text, "@")
	require.True(t, ok, text)
	line := strings.Count(before, "\n") + 1
	column := len(before) - strings.LastIndex(before, "\n")
	require.Equal(t, []string{"t.yaml:" + itoa(line) + ":" + itoa(column) + ": " + want}, problems(t, before+after), text)
}

// Each case replaces the flow of the minimal file.
func TestFlowProblems(t *testing.T) {
	for flow, want := range map[string]string{
		"@{from: n1, to: n2}":                                                 `traffic[0]: key "op" is missing; expected "op" or "mix"`,
		"@{to: n2, op: send}":                                                 `traffic[0]: key "from" is missing; expected a node name`,
		"{from: n1, to: n2, op: send, mix: @{send: 1}}":                       `traffic[0].mix: found "mix" beside "op"; expected one or the other`,
		"{from: n1, to: n2, mix: @{}}":                                        `traffic[0].mix: found an empty mapping; expected a mapping of operations to weights such as {send: 3, read: 1}`,
		"{from: n1, to: n2, mix: {@sned: 1}}":                                 `traffic[0].mix: unknown operation "sned"; expected one of send, send_imm, send_inv, write, write_imm, read, cmp_swp, fetch_add; did you mean "send"?`,
		"{from: n1, to: n2, mix: {send: @0}}":                                 `traffic[0].mix.send: found "0"; expected a whole number from 1 to 1000000`,
		"{from: n1, to: n2, op: @read, transport: uc}":                        `traffic[0].op: operation read does not exist on transport uc; expected one of send, send_imm, write, write_imm`,
		"{from: n1, to: n2, mix: {send: 1, write: @1}, transport: ud}":        `traffic[0].mix.write: operation write does not exist on transport ud; expected one of send, send_imm`,
		"{from: n1, to: n2, op: send, transport: @xrc}":                       `traffic[0].transport: unknown transport "xrc"; expected one of rc, uc, ud; did you mean "rc"?`,
		"{from: n1, to: n2, op: send, transport: ud, size: @1025}":            `traffic[0].size: found messages of 1025 bytes on ud; expected at most 1024, the smaller MTU of the nodes "n1" and "n2"`,
		"{from: n1, to: n2, op: send, transport: ud, retry_cnt: @1}":          `traffic[0].retry_cnt: found a key that means nothing here: it is for transport rc`,
		"{from: n1, to: n2, op: send, transport: ud, path_mtu: @256}":         `traffic[0].path_mtu: found a key that means nothing here: transport ud has neither a path MTU nor a sequence of packets`,
		"{from: n1, to: n2, op: write, recv_depth: @3}":                       `traffic[0].recv_depth: found a key that means nothing here: no operation of the flow takes a receive`,
		"{from: n1, to: n2, op: send, rkey: @bad}":                            `traffic[0].rkey: found a key that means nothing here: no operation of the flow uses a remote key`,
		"{from: n1, to: n2, op: send, max_rd_atomic: @1}":                     `traffic[0].max_rd_atomic: found a key that means nothing here: no operation of the flow is a READ or atomic`,
		"{from: n1, to: n2, op: read, max_rd_atomic: @0}":                     `traffic[0].max_rd_atomic: found 0 with operation read; expected at least 1: READs and atomics cannot be posted without`,
		"{from: n1, to: n2, op: read, max_rd_atomic: @17}":                    `traffic[0].max_rd_atomic: found 17; expected at most 16, the max_rd_atomic of node "n1"`,
		"{from: n1, to: n2, op: fetch_add, size: @16}":                        `traffic[0].size: found a size on a flow of atomics; expected 8 or no size: atomics have 8 bytes`,
		"{from: n1, to: n2, op: send, path_mtu: @2048}":                       `traffic[0].path_mtu: found 2048; expected at most 1024, the smaller MTU of the nodes "n1" and "n2"`,
		"{from: n1, to: n2, op: send, depth: @16384}":                         `traffic[0].depth: found 16384; expected at most 16383, the max_qp_wr of node "n1"`,
		"{from: n1, to: n2, op: send, recv_depth: @16384}":                    `traffic[0].recv_depth: found 16384; expected at most 16383, the max_qp_wr of node "n2"`,
		"{from: n1, to: n2, op: send, srq: @{size: 200000}}":                  `traffic[0].srq: found 200000; expected at most 131071, the max_srq_wr of node "n2"`,
		"{from: n1, to: n2, op: send, srq: {size: 4, limit: @5}}":             `traffic[0].srq.limit: found 5; expected at most 4, the size of the queue`,
		"{from: n1, to: n2, op: send, srq: @maybe}":                           `traffic[0].srq: found "maybe"; expected true, false, or a mapping such as {size: 64, limit: 8}`,
		"{from: n1, to: n2, op: send, signal: @every 17}":                     `traffic[0].signal: found "every 17" with a depth of 16; expected at most "every 16", or the send queue fills up for ever`,
		"{from: n1, to: n2, op: send, signal: @last, count: 17}":              `traffic[0].signal: found "last" with a depth of 16; expected a count from 1 to 16, or the send queue fills up for ever`,
		"{from: n1, to: n2, op: read, inline: @true}":                         `traffic[0].inline: found inline with operation read; expected it with SEND and WRITE operations only`,
		"{from: n1, to: n2, op: send, inline: true, size: @513}":              `traffic[0].size: found 513; expected at most 512, the max_inline of node "n1"`,
		"{from: n1, to: n2, mix: {send: 1, write: 1}, solicited: @true}":      `traffic[0].solicited: found solicited with operation write; expected it with operations that take a receive`,
		"{from: n1, to: n2, op: send, count: @0}":                             `traffic[0].count: found 0, which means "until the duration is over", in a file without duration; expected a count above 0, or the key "duration"`,
		"{from: n1, to: n2, op: send, expect: {completions: {@SUCESS: all}}}": `traffic[0].expect.completions: unknown status "SUCESS"; expected one of ` + listed(statusNames) + `; did you mean "SUCCESS"?`,
		"{from: n1, to: n2, op: send, expect: {completions: {SUCCESS: @x}}}":  `traffic[0].expect.completions.SUCCESS: found "x"; expected "all", or a count such as 5, 1..5, 1.. or any (">=1" needs quotes)`,
		"{from: n1, to: n2, op: send, expect: {events: {@CQ_ER: 1}}}":         `traffic[0].expect.events: unknown event "CQ_ER"; expected one of ` + listed(eventNames) + `; did you mean "CQ_ERR"?`,
		"{from: n1, to: n2, op: send, expect: {@drops: {}}}":                  `traffic[0].expect: unknown key "drops"; expected one of completions, receives, all_complete, data_ok, retransmissions, events, max_latency, min_rate, qp_state`,
		"{from: n1, to: n2, op: send, expect: {qp_state: @err}}":              `traffic[0].expect.qp_state: unknown QP state "err"; expected one of RTS, SQD, SQE, ERR; did you mean "ERR"?`,
	} {
		checkMarked(t, strings.Replace(minimal, "{from: n1, to: n2, op: send}", flow, 1), want)
	}
}

func TestTooManyQPs(t *testing.T) {
	require.Equal(t, []string{
		`t.yaml:3:5: nodes[0]: traffic needs 40000 queue pairs on node "n1"; expected at most 32768, its max_qp`,
		`t.yaml:4:5: nodes[1]: traffic needs 40000 queue pairs on node "n2"; expected at most 32768, its max_qp`,
	}, problems(t, strings.Replace(minimal, "op: send", "op: send, qps: 40000", 1)))
}

func TestNodeLinkAndFaultProblems(t *testing.T) {
	const nodes = "version: 1\nnodes: [{name: n1}, {name: n2}]\n"
	flows := nodes + "traffic: [{name: f, from: n1, to: n2, op: send}]\n"
	for _, c := range []struct{ text, want string }{
		{"version: 1\nnodes: [{name: a}, {name: @a}]\n", `nodes[1].name: found "a", the name of the node on line 2; expected a name of its own`},
		{"version: 1\nnodes: [{name: a, address: 10.0.0.1}, {name: b, address: @10.0.0.1}]\n", `nodes[1].address: found 10.0.0.1, the address of node "a"; expected an address of its own: it is the node's GID`},
		{"version: 1\nnodes: [{name: a, address: 10.0.0.1}, {name: b, address: @10.0.0.2:99}]\n", `nodes[1].address: found port 99; expected 4791, the port of node "a": packets go to one port on all nodes`},
		{"version: 1\nnodes: [{name: a, address: 127.0.0.2}, @{name: b}]\n", `nodes[1].address: found 127.0.0.2, the address of node "a"; expected an address of its own: it is the node's GID`},
		{"version: 1\nnodes: [{name: a, profile: @rxx}]\n", `nodes[0].profile: unknown profile "rxx"; expected one of ibta, rdmavt, rxe; did you mean "rxe"?`},
		{"version: 1\nnodes: [{name: a, limits: {@max_sg: 1}}]\n", `nodes[0].limits: unknown key "max_sg"; expected one of max_qp, max_qp_wr, max_cqe, max_sge, max_inline, max_rd_atomic, max_res_rd_atomic, max_srq_wr; did you mean "max_sge"?`},
		{"version: 1\nduration: @31s\nnodes: [{name: a}]\n", `duration: found 31s; expected at most the timeout of 30s`},
		{"version: 1\nnodes: [{name: a}, {name: b, address: \"::1\"}]\ntraffic: [@{from: a, to: b, op: send}]\n", `traffic[0]: the flow goes from 127.0.0.1 to ::1; expected both ends to be IPv4 or both IPv6`},
		{"version: 1\nnodes: [{name: a, netdev: eth0, address: @10.0.0.1}]\n", `nodes[0].address: found an address beside the network device "eth0", whose addresses the node has; expected one or the other`},
		{"version: 1\nnodes: [{name: a, netdev: @a-very-long-name}]\n", `nodes[0].netdev: found "a-very-long-name"; expected the name of a network device, up to 15 characters`},
		{nodes + "defaults: {node: {@name: x}}\n", `defaults.node: unknown key "name"; expected one of netdev, profile, strict, mtu, distinct_keys, dcqcn, limits`},
		{nodes + "defaults: {flow: {op: send, mix: @{send: 1}}}\n", `defaults.flow.mix: found "mix" beside "op"; expected one or the other`},

		{nodes + "links: [@{loss: 1}]\n", `links[0]: found no nodes; expected "between: [a, b]", or "from" and "to"`},
		{nodes + "links: [@{from: n1}]\n", `links[0]: found only one of "from" and "to"; expected both, or "between"`},
		{nodes + "links: [{between: @[n1, n2], to: n2}]\n", `links[0].between: found "between" beside "from" or "to"; expected one or the other`},
		{nodes + "links: [{between: @[n1]}]\n", `links[0].between: found a list of 1; expected a list of two node names such as [n1, n2]`},
		{nodes + "links: [{between: [n1, @n3]}]\n", `links[0].between[1]: unknown node "n3"; expected one of n1, n2; did you mean "n1"?`},
		{nodes + "links: [{between: [n1, @n1]}]\n", `links[0].between[1]: found "n1" twice; expected two nodes`},
		{nodes + "links: [{between: [n1, n2]}, @{from: n2, to: n1}]\n", `links[1]: the link from "n2" to "n1" is described on line 3 already`},
		{nodes + "network: {loss: @2}\n", `network.loss: found "2"; expected a probability: 0 to 1, or 0% to 100%`},
		{nodes + "network: {rules: [@{action: delay}]}\n", `network.rules[0]: key "delay" is missing; action delay needs it`},
		{nodes + "network: {rules: [{action: drop, delay: @1us}]}\n", `network.rules[0].delay: found a delay on action drop; expected it on action delay only`},
		{nodes + "network: {rules: [{action: drop, opcode: @SEND_ONYL}]}\n", `network.rules[0].opcode: unknown packet opcode "SEND_ONYL"; expected one of ` + listed(opcodeNames) + `; did you mean "SEND_ONLY"?`},
		{nodes + "network: {rules: [{action: drop, psn: @0x1000000}]}\n", `network.rules[0].psn: found "0x1000000"; expected a whole number from 0 to 16777215`},

		{flows + "faults: [{at: 1ms, action: @explode}]\n", `faults[0].action: unknown action "explode"; expected one of partition, heal, set_impairment, set_link, modify_qp_error, pause_receiver, resume_receiver, kill_node, restart_node, port_down, port_up, revoke_key, cq_overflow, fail_post, complete_with, delay_completions, spurious_event`},
		{flows + "faults: [@{at: 1ms, action: kill_node}]\n", `faults[0]: key "node" is missing; action kill_node needs it`},
		{flows + "faults: [{at: 1ms, action: kill_node, node: n1, flow: @f}]\n", `faults[0].flow: found a key that action kill_node does not take; expected only at, action, node`},
		{flows + "faults: [{at: 1ms, action: heal, loss: @1}]\n", `faults[0].loss: found a key that action heal does not take; expected only at, action, between, from, to`},
		{flows + "faults: [{at: 1ms, action: pause_receiver, flow: @g}]\n", `faults[0].flow: unknown flow "g"; expected one of f; did you mean "f"?`},
		{flows + "faults: [{at: 1ms, action: modify_qp_error, flow: f, qp: @1}]\n", `faults[0].qp: found 1; expected less than 1, the flow's qps`},
		{flows + "faults: [{at: @30s, action: heal}]\n", `faults[0].at: found 30s; expected less than the file's timeout of 30s, at which the run ends`},
		{flows + "faults: [@{action: heal}]\n", `faults[0]: key "at" is missing; expected duration`},
		{flows + "expect: {drops: {@bad_crc: 1}}\n", `expect.drops: unknown drop reason "bad_crc"; expected one of ` + listed(dropNames) + `; did you mean "bad_icrc"?`},
		{flows + "expect: {drops: {total: 1, @total: 2}}\n", `expect.drops: key "total" is given twice`},
		{nodes + "traffic: [{name: f, from: n1, to: n2, op: send}, {name: @f, from: n1, to: n2, op: send}]\n", `traffic[1].name: found "f", the name of the flow on line 3; expected a name of its own`},
	} {
		checkMarked(t, c.text, c.want)
	}
}

// A mistake in what an anchor names is reported once, not once per alias.
func TestAnchorProblemOnce(t *testing.T) {
	got := problems(t, "version: 1\nnodes: [{name: a, limits: &l {max_qp: x}}, {name: b, limits: *l}]\n")
	require.Equal(t, `t.yaml:2:39: nodes[0].limits.max_qp: found "x"; expected a whole number from 1 to 16777216`, got[0])
	require.Len(t, got, 2) // the second path differs
}

// Files that would take the YAML parser minutes or its stack are refused in time.
func TestHostileFiles(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("[", 1<<14):               "levels of nesting",
		strings.Repeat("{a: ", 1<<14):            "levels of nesting",
		strings.Repeat(`["]",`, 1<<14):           "levels of nesting",
		strings.Repeat("- ", 1<<14):              "levels of nesting",
		strings.Repeat("? ", 1<<14):              "levels of nesting",
		strings.Repeat("a: 1\n", 1<<14):          "more than 500 keys",
		strings.Repeat("a: {}\n", 1<<14):         "more than 500 keys",
		"x: {" + strings.Repeat("a: 1, ", 1<<14): "more than 500 keys",
		strings.Repeat("&a ", 1<<14):             "in a row",
		"version: 1\nnodes: &a [*a, *a]\n":       "expected a mapping",
		"version: 1\nnodes: &a\n  - *a\n":        "expected a mapping",
	} {
		start := time.Now()
		got := problems(t, text)
		require.Contains(t, strings.Join(got, "\n"), want)
		require.Less(t, time.Since(start), 20*time.Second)
	}
}

// A file of very many tokens is refused before it is parsed.
func TestTooManyTokens(t *testing.T) {
	entry := &token.Token{Type: token.SequenceEntryType, Position: &token.Position{Line: 1, Column: 1}}
	next := &token.Token{Type: token.SequenceEntryType, Position: &token.Position{Line: 2, Column: 1}}
	tokens := make(token.Tokens, maxTokens)
	for i := range tokens {
		tokens[i] = []*token.Token{entry, next}[i%2]
	}
	require.Nil(t, checkTokens("t.yaml", tokens))
	p := checkTokens("t.yaml", append(tokens, entry))
	require.NotNil(t, p)
	require.Equal(t, "t.yaml:1:1: found more than 400000 words and signs; expected a smaller file", p.Error())
}

// FuzzParse: no input makes Parse panic; a bad file has a position inside it; a good
// one has every reference resolved.
func FuzzParse(f *testing.F) {
	f.Add([]byte(minimal))
	f.Add([]byte("version: 1\nnodes: [{name: a, address: \"::1\"}]\nexpect: {drops: {total: \">1\"}}\n"))
	f.Add([]byte("version: 1\nnodes: &a [{name: é}]\nlinks: *a\nfaults: [{at: 1us, action: heal}]\n"))
	f.Add([]byte("a: |\n  b\n? c\n: !!str d\n%YAML 1.2\n---\n"))
	for _, path := range []string{"two-nodes", "lossy", "errors"} {
		file, err := readExample(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		file, err := Parse("fuzz", b)
		if err != nil {
			checkProblems(t, b, err)
			return
		}
		for i := range file.Flows {
			checkFlowResolved(t, file, &file.Flows[i])
		}
		for _, x := range file.Faults {
			require.True(t, x.Flows.First+x.Flows.N <= len(file.Flows) && x.Nodes.First+x.Nodes.N <= len(file.Nodes))
		}
	})
}
