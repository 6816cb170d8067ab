package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// wrongFiles are topology files with mistakes. After each, what must be said, one line for
// each mistake and nothing else: where, and a part of the text. Files are two nodes and one
// flow unless they begin with "version".
var wrongFiles = []struct {
	text string
	want []string // "LINE:COLUMN text"
}{
	{"version: 1\n", []string{`1:1 key "nodes" is missing`}},
	{"version: 3\nnodes: [{name: a}]\n", []string{`1:10 found "3"; expected 1`}},
	{"version: 1\nnodes: 5\n", []string{`2:8 found "5"; expected a list of nodes`}},
	{"version: 1\nnodes:\n  - name: a\n   - name: b\n", []string{`4:4 not valid YAML`}},
	{"version: 1\nnodes: [{name: a, mtu: 1500}, {name: a}]\n", []string{`2:24 found "1500"; expected an MTU`, `2:38 found "a", the name of the node on line 2`}},
	{"version: 1\nnodes: [{name: a, address: 10.0.0.300}]\n", []string{`2:28 found "10.0.0.300"; expected an IP`}},
	{"version: 1\nnodes: [{name: a, limits: {max_qp: -1, max_foo: 2}}]\n", []string{`2:36 found "-1"; expected a whole number from 1`, `2:40 unknown key "max_foo"; expected one of max_qp`}},
	{"version: 1\nnodes: [{name: a, count: 0}]\n", []string{`2:26 found "0"; expected a whole number from 1`}},
	{"version: 1\nnodes: [{name: a, profile: mlx5}]\n", []string{`2:28 unknown profile "mlx5"; expected one of ibta, rdmavt, rxe`}},
	{"version: 1\nnodes: [{name: a, netdev: averyveryverylongname}]\n", []string{`2:27 found "averyveryverylongname"; expected the name of a network device`}},
	{"netwrk: {}\n", []string{`4:1 unknown key "netwrk"`}},
	{"network: {latency: 5}\n", []string{`4:20 found "5"; expected a duration`}},
	{"network: {latency: -5us}\n", []string{`4:20 found "-5us"; expected a duration`}},
	{"network: {bandwidth: 10}\n", []string{`4:22 found "10"; expected a rate`}},
	{"network: {bandwidth: fast, queue: big}\n", []string{`4:22 found "fast"; expected a rate`, `4:35 found "big"; expected a size`}},
	{"network: {queue: 1MiB}\n", []string{`4:18 found queue without a bandwidth`}},
	{"network: {loss: 150%}\n", []string{`4:17 found "150%"; expected a probability`}},
	{"network: {loss: lots, duplicate: -1, reorder: 2, corrupt: x, tamper: []}\n", []string{`4:17 `, `4:34 `, `4:47 `, `4:59 `, `4:70 `}},
	{"network: {burst: {enter: 5%}}\n", []string{`4:18 key "leave" is missing`}},
	{"network: {ecn: {min: 10kB, max: 5kB}, bandwidth: 1Gbps}\n", []string{`4:33 found 5000; expected at least 10000`}},
	{"network: {rules: [{action: drp}, {action: drop, opcode: SENDONLY}, {action: delay}]}\n", []string{`4:28 unknown action "drp"; expected one of drop`, `4:57 unknown`, `4:68 `}},
	{"network: {rules: [{action: drop, psn: 0x1000000, nth: 0}]}\n", []string{`4:39 found "0x1000000"; expected`, `4:55 found "0"; expected`}},
	{"links: [{between: [a, c], latency: 1us}]\n", []string{`4:23 unknown node "c"; expected one of a, b`}},
	{"links: [{between: [a]}, {from: a}, {latency: 1us}]\n", []string{`4:19 found a list of 1`, `4:25 found only one of "from" and "to"`, `4:36 found no nodes`}},
	{"links: [{between: [a, b]}, {from: a, to: b}]\n", []string{`4:28 `}},
	{"switches: [{name: s, nodes: [a, z]}]\n", []string{`4:33 unknown node "z"`}},
	{"switches: [{name: s, nodes: [a, b]}, {name: s, nodes: [a]}]\n", []string{`4:45 `, `4:56 `}},
	{"switches: [{name: s, nodes: [a], switches: [t]}]\n", []string{`4:45 unknown switch "t"`}},
	{"faults: [{at: 1ms, action: explode}]\n", []string{`4:28 unknown action "explode"; expected one of partition, heal`}},
	{"faults: [{action: heal}, {at: soon, action: heal}]\n", []string{`4:10 key "at" is missing`, `4:31 found "soon"; expected a duration`}},
	{"faults: [{at: 1ms, action: kill_node}, {at: 1ms, action: kill_node, node: q}]\n", []string{`4:10 key "node" is missing; action kill_node needs it`, `4:75 unknown node "q"`}},
	{"faults: [{at: 1ms, action: partition, node: a}]\n", []string{`4:45 found a key that action partition does not take; expected only at, action, between, from, to`}},
	{"faults: [{at: 1ms, action: fail_post, flow: g}, {at: 1ms, action: fail_post, flow: f, node: a}]\n", []string{`4:45 unknown flow "g"; expected one of f`, `4:93 found "node" beside "flow"`}},
	{"faults: [{at: 1ms, action: complete_with, flow: f, status: SUCCESS}]\n", []string{`4:60 unknown status "SUCCESS"`}},
	{"faults: [{at: 1ms, action: heal, node: a}]\n", []string{`4:40 found a key that action heal does not take`}},
	{"random_faults: {count: 5}\n", []string{`4:16 key "until" is missing`}},
	{"random_faults: {count: 5, until: 1ms, from: 2ms, actions: [rain]}\n", []string{`4:34 found 1ms; expected at least 2ms, the from`, `4:60 unknown action "rain"`}},
	{"expect: {completions: {OK: 1}, drops: {bad_crc: 1}}\n", []string{`4:24 unknown status "OK"`, `4:40 `}},
	{"seed: -1\nduration: 0s\ntimeout: never\n", []string{`4:7 found "-1"; expected a whole number`, `5:11 found "0s"; expected`, `6:10 found "never"; expected a duration`}},
	{"defaults: {node: {name: x}, flow: {op: send, mix: {read: 1}}, link: {}}\n", []string{`4:19 unknown key "name"`, `4:51 found "mix" beside "op"`, `4:63 unknown key "link"`}},
	{"name: \"two words\"\nname: x\n", []string{`4:7 found "two words"; expected a name`, `5:1 key "name" is given twice, first on line 4`}},
	{"links: [{between: [a, b], ecn: {min: 1kB, max: 2kB}}]\nswitches: [{name: s, nodes: [a, b], queue: 1kB}]\n", []string{`4:32 found ecn without a bandwidth`, `5:44 found queue without a bandwidth`}},
	{"network: *nothing\n", []string{`4:10 alias *nothing names no anchor`}},
}

// TestWrongFiles: all mistakes of a file are told at once, with their places, by every
// command that reads topology files, and the exit status is 2.
func TestWrongFiles(t *testing.T) {
	require.GreaterOrEqual(t, len(wrongFiles), 40)
	const two = "version: 1\nnodes: [{name: a}, {name: b}]\ntraffic: [{name: f, from: a, to: b, op: send}]\n"
	commands := [][]string{{"run"}, {"run", "--virtual"}, {"sim"}, {"up"}, {"netns", "up"}}
	for i, c := range wrongFiles {
		text := c.text
		if !strings.HasPrefix(text, "version") {
			text = two + text
		}
		path := filepath.Join(t.TempDir(), "wrong.yaml")
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
		some := commands[i%2 : i%2+1] // all of them would take a process each
		if i%7 == 0 {
			some = commands
		}
		for _, command := range some {
			r := rvtsim(t, append(slices.Clone(command), path)...)
			require.Equal(t, 2, r.code, "%v\n%s\n%s", command, text, r.errout)
			lines := strings.Split(strings.TrimPrefix(strings.TrimSpace(r.errout), "rvtsim: "), "\n")
			require.Len(t, lines, len(c.want), "%v\n%s\n%s", command, text, r.errout)
			for i, want := range c.want {
				at, what, _ := strings.Cut(want, " ")
				require.True(t, strings.HasPrefix(lines[i], path+":"+at+": "), "%v: want %s\n%s\n%s", command, at, text, lines[i])
				require.Contains(t, lines[i], what)
			}
		}
	}
}
