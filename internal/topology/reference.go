package topology

import (
	"fmt"
	"strings"
)

// Reference returns the manual of the schema in Markdown. It is made from the tables
// that decode the file, so it cannot fall behind them; docs/topology.md is a copy
// that a test compares.
func Reference() string {
	var b strings.Builder
	b.WriteString(referenceIntro)
	section(&b, &fileObject)
	section(&b, &defaultsObject)
	section(&b, &nodeObject)
	section(&b, &limitsObject)
	section(&b, &dcqcnObject)
	section(&b, &networkObject)
	section(&b, &ecnObject)
	section(&b, &burstObject)
	section(&b, &linkObject)
	section(&b, &ruleObject)
	section(&b, &switchObject)
	section(&b, &flowObject)
	patternTable(&b)
	operationTable(&b)
	section(&b, &srqObject)
	section(&b, &flowExpectObject)
	section(&b, &runExpectObject)
	section(&b, &faultObject)
	actionTable(&b)
	section(&b, &randomObject)
	section(&b, &sweepObject)
	b.WriteString("\n## Words\n\nStatuses of completions: " + code(statusNames) + ".\n")
	b.WriteString("\nAsynchronous events: " + code(eventNames) + ".\n")
	b.WriteString("\nReasons for drops: " + code(dropNames) + ".\n")
	b.WriteString("\nPacket opcodes: " + code(opcodeNames) + ".\n")
	return b.String()
}

// section writes the table of one kind of mapping.
func section[T any](b *strings.Builder, o *object[T]) {
	fmt.Fprintf(b, "\n## %s\n\n%s\n\n| key | value | default | meaning |\n|---|---|---|---|\n", strings.ToUpper(o.title[:1])+o.title[1:], o.doc)
	for i := range o.fields {
		f := &o.fields[i]
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", f.key, f.typ, f.def, f.doc)
	}
}

func operationTable(b *strings.Builder) {
	b.WriteString("\nOperations, the transports that have them, and what they need at the peer:\n\n| op | transports | takes a receive | uses a remote key |\n|---|---|---|---|\n")
	yes := map[bool]string{true: "yes", false: ""}
	for i := range opTable {
		o := &opTable[i]
		var transports []string
		for _, t := range o.transports {
			transports = append(transports, lower(t))
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", o.op, listed(transports), yes[o.receive], yes[o.oneSided])
	}
}

func patternTable(b *strings.Builder) {
	b.WriteString("\nPatterns. The flows of an entry are called by its name and a number, from 1:\n\n| pattern | meaning | `to` |\n|---|---|---|\n")
	for i := range patterns {
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", patterns[i].name, patterns[i].doc, patterns[i].to)
	}
}

func actionTable(b *strings.Builder) {
	b.WriteString("\nActions, and the keys each takes beside `at` and `action`:\n\n| action | keys | meaning |\n|---|---|---|\n")
	for i := range faultActions {
		a := &faultActions[i]
		fmt.Fprintf(b, "| `%s` | %s | %s |\n", a.action, code(a.keys()), a.doc)
	}
}

func code(words []string) string { return "`" + strings.Join(words, "`, `") + "`" }

const referenceIntro = "# Topology files\n" + `
One YAML file describes a run: the nodes, the network between them, the traffic,
what goes wrong, and what is expected of all that. The same file runs on UDP sockets
and in virtual time. This page is made from the program's own tables.

The shortest useful file. Nodes get the addresses 127.0.0.1 and 127.0.0.2, the flow
one SEND of 64 bytes, and the run succeeds if it completes with SUCCESS and the data
are right:

` + "```yaml" + `
version: 1
nodes:
  - name: client
  - name: server
traffic:
  - {from: client, to: server, op: send}
` + "```" + `

A larger one:

` + "```yaml" + `
version: 1
name: lossy-write
seed: 7
timeout: 20s

defaults:
  flow: {from: n1, to: n2, timeout: 4ms}

nodes:
  - name: n1
    address: 10.0.0.1
    mtu: 4096
  - name: n2
    address: 10.0.0.2
    mtu: 4096
    profile: rxe
    limits: {max_qp_wr: 1024}

network: {latency: 5us, bandwidth: 100Gbps, queue: 1MiB}

links:
  - between: [n1, n2]
    latency: 50us
    loss: 2%
    rules:
      - {action: drop, opcode: ACKNOWLEDGE, nth: 3}

traffic:
  - name: bulk
    op: write
    size: [4KiB, 64KiB, 1MiB]
    count: 200
    qps: 4
    signal: every 8
  - name: chatter
    mix: {send: 3, read: 1, fetch_add: 1}
    size: 8..512
    count: 1000
    expect:
      completions: {SUCCESS: all}
      max_latency: 1s

faults:
  - {at: 2ms, action: partition, between: [n1, n2]}
  - {at: 6ms, action: heal, between: [n1, n2]}

expect:
  retransmissions: 1..
` + "```" + `

## How values are written

| kind | examples | notes |
|---|---|---|
| count, number | ` + "`5`, `0xfffff0`" + ` | whole numbers |
| duration | ` + "`10us`, `1.5ms`, `2s`, `1m30s`" + ` | always with a unit |
| size | ` + "`64`, `4KiB`, `1MiB`, `9kB`" + ` | bytes; KiB, MiB, GiB are powers of two, kB, MB, GB powers of ten |
| rate | ` + "`100Gbps`, `2.5Mbps`" + ` | bits per second, powers of ten |
| probability | ` + "`10%`, `0.1`" + ` | |
| count in an expectation | ` + "`5`, `1..5`, `1..`, `..5`, `any`, `\">=1\"`" + ` | bounds are inclusive; a value that starts with > needs quotes |
| name | ` + "`n1`, `rc-send_2.b`" + ` | up to 64 letters, digits, dots, dashes, underscores |

Anchors and aliases of YAML work; merge keys do not, because ` + "`defaults`" + ` does that.
Unknown keys, keys that have no meaning for a flow's transport or operations, and
everything that cannot work are errors. All errors of a file are reported, each with
line and column:

` + "```" + `
two-nodes.yaml:14:11: traffic[0].op: unknown operation "sendd"; expected one of send, send_imm, send_inv, write, write_imm, read, cmp_swp, fetch_add; did you mean "send"?
` + "```" + `
`
