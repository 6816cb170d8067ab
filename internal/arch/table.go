package arch

import (
	"slices"
	"strings"
)

// Rule says what one package, or one tree of packages, may import.
type Rule struct {
	// Package is relative to the module. A trailing "/..." covers the package and
	// everything below it; an exact rule is preferred to a tree, a longer tree to a
	// shorter one.
	Package string
	// Kind decides about the standard library and other modules.
	Kind Kind
	// Module lists the packages of this module that may be imported, besides the
	// leaves. It is ignored for Open packages.
	Module []string
	// Std lists standard packages allowed in addition to pureStd.
	Std []string
	// Reason is printed with every violation.
	Reason string
}

// Kind is the degree of freedom of a package.
type Kind uint8

const (
	// Pure packages compute. They import from pureStd, Rule.Std and Rule.Module, and
	// CheckPurity reads their source.
	Pure Kind = 1
	// Shell packages connect the core to the outside. They may import any standard
	// package and any other module, but of this module only what Rule.Module lists.
	Shell Kind = 2
	// Open packages sit at the edge and may import anything that is not a command.
	Open Kind = 3
)

// pureStd is what a pure package may take from the standard library. It has no os,
// net, sync, context, log, unsafe, runtime or reflect, and no maps, whose iterators
// come in map order. Of time only Duration is allowed; CheckPurity sees to it.
var pureStd = []string{
	"bytes", "cmp", "container/heap", "encoding/binary", "encoding/hex", "errors",
	"fmt", "hash", "hash/crc32", "hash/fnv", "iter", "math", "math/bits",
	"math/rand/v2", "slices", "strconv", "strings", "time",
}

// leaves may be imported by every package but each other.
var leaves = []string{"vtime", "internal/invariants", "internal/crcfold", "internal/uaccess"}

// testsOnly are modules that only tests may use, and why.
var testsOnly = map[string]string{
	"github.com/nats-io/nats-server": "a timer starts with it in every program that is linked with it, so an idle daemon would wake each second",
}

// Groups of packages, each with everything below it.
var (
	belowQP     = []string{"ib", "wire", "mr", "cq", "swqe"}
	belowRVT    = append(slices.Clone(belowQP), "dcqcn", "qp")
	belowShells = append(slices.Clone(belowRVT), "rvt")
	belowSim    = append(slices.Clone(belowShells), "fabric", "fabric/mem", "workload")
	belowSpec   = append(slices.Clone(belowSim), "sim")
)

// table is the architecture. Keep it in the order of the layers.
var table = []Rule{
	// Leaves.
	{Package: "vtime", Kind: Pure,
		Reason: "time is a number; whoever owns the run owns the clock"},
	{Package: "internal/invariants", Kind: Shell,
		Reason: "imported by every pure package, so it may depend on none"},
	{Package: "internal/crcfold", Kind: Shell,
		Reason: "arithmetic in assembly, which asks the processor what it can; the answer never depends on that"},
	{Package: "internal/uaccess", Kind: Shell,
		Reason: "copies in assembly, which a fault ends; what they copy never depends on that"},

	// The core.
	{Package: "ib", Kind: Pure,
		Reason: "the vocabulary must be importable from everywhere"},
	{Package: "wire", Kind: Pure, Module: []string{"ib"},
		Reason: "packets are values; qp and fabric share them without knowing each other"},
	{Package: "mr", Kind: Pure, Module: []string{"ib"},
		// Std: []string{"sync/atomic"} if memory must be polled while the core writes it.
		Reason: "memory regions sit below the work requests that name them and the QPs that check keys"},
	{Package: "cq", Kind: Pure, Module: []string{"ib"}, Std: []string{"sync/atomic"},
		Reason: "a completion queue knows completions, not the QPs that make them; its ring is read by another goroutine or process"},
	{Package: "swqe", Kind: Pure, Module: []string{"ib", "mr"}, Std: []string{"sync/atomic"},
		Reason: "work requests hold resolved memory, not protocol state; their ring is filled by another goroutine or process"},
	{Package: "dcqcn", Kind: Pure,
		Reason: "congestion control is arithmetic on rates and instants; what packets are is the QP's business"},
	{Package: "qp", Kind: Pure, Module: append(slices.Clone(belowQP), "dcqcn"),
		Reason: "the protocol must not know how packets travel"},
	{Package: "rvt", Kind: Pure, Module: belowRVT,
		Reason: "a device turns inputs into outputs; ports, clocks and goroutines belong to its host"},

	// Virtual time.
	{Package: "fabric", Kind: Pure, Module: []string{"ib", "wire"}, Std: []string{"io"},
		Reason: "a fabric moves packets and must not know QPs"},
	{Package: "fabric/mem", Kind: Pure, Module: []string{"ib", "wire", "fabric"}, Std: []string{"io"},
		Reason: "the simulated network must be replayable from its seed"},
	{Package: "workload", Kind: Pure, Module: belowShells,
		Reason: "one workload drives virtual and real devices, so it may know neither host"},
	{Package: "sim", Kind: Pure, Module: belowSim,
		Reason: "a world must be replayable from its seed"},
	{Package: "spec", Kind: Pure, Module: append(slices.Clone(belowSpec), "cm"),
		Reason: "a scenario must print the same text everywhere; the test beside it reads the files"},

	// Real time.
	{Package: "rvt/node", Kind: Shell, Module: append(slices.Clone(belowShells), "fabric"),
		Reason: "the real-time host of a device knows ports only through the fabric.Port interface"},
	{Package: "fabric/udp", Kind: Open,
		Reason: "sockets; may use golang.org/x/net and golang.org/x/sys"},
	{Package: "fabric/shm", Kind: Open,
		Reason: "memory that programs share; uses golang.org/x/sys"},
	{Package: "fabric/pcap", Kind: Open,
		Reason: "capture files, written with a pcapng library"},
	{Package: "verbs/...", Kind: Open,
		Reason: "the goroutine-safe API for Go programs"},
	{Package: "uverbs/...", Kind: Open,
		Reason: "the kernel's user ABI for foreign programs"},
	{Package: "internal/callsite", Kind: Shell,
		Reason: "reads programs' files, for the daemon's explanations"},
	{Package: "internal/fdspace", Kind: Shell,
		Reason: "called by everything that opens descriptors, so it may depend on none"},
	{Package: "internal/buildid", Kind: Shell,
		Reason: "the engine and the daemon must be of one build; used by the one who builds and the one who checks"},
	{Package: "shim/...", Kind: Open,
		Reason: "the preload library for foreign programs and its builder"},
	{Package: "strict", Kind: Pure, Module: belowShells,
		Reason: "the checker of programs follows work requests; locks, clocks and call sites belong to its host"},
	{Package: "explain", Kind: Pure, Module: append(slices.Clone(belowShells), "cm", "strict"),
		Reason: "an explanation is a function of what happened, the same in virtual and real time"},
	{Package: "cm", Kind: Pure, Module: []string{"ib", "wire"},
		Reason: "the communication manager is a state machine like the core"},

	{Package: "cm/gsi", Kind: Shell, Module: append(slices.Clone(belowShells), "cm", "rvt/node"),
		Reason: "gives the connection manager QP1 and a clock; who its programs are is its host's business"},

	// Commands and what only they need.
	{Package: "cmd/rvtsim", Kind: Open, Reason: "the command"},
	{Package: "cmd/rvtsim-engine", Kind: Open, Reason: "the boundary to C of the engine inside a program"},
	{Package: "internal/topology", Kind: Open, Reason: "reads topology files"},
	{Package: "internal/runner", Kind: Open, Reason: "carries out a topology file in virtual time or on sockets"},
	{Package: "internal/prefetch", Kind: Shell, Reason: "asks the processor for memory; nothing that is computed depends on it"},
	{Package: "internal/hugepages", Kind: Shell, Reason: "asks the kernel for huge pages; nothing that is computed depends on it"},
	{Package: "internal/report", Kind: Open, Reason: "prints results"},
	{Package: "internal/simreport", Kind: Open, Reason: "prints results of simulations: tables, plots, JSON, CSV"},
	{Package: "internal/sweep", Kind: Open, Reason: "spreads simulations over machines by NATS"},
	{Package: "internal/shrink", Kind: Open, Reason: "makes files that fail smaller"},
	{Package: "internal/replay", Kind: Open, Reason: "re-runs a recorded run"},
	{Package: "internal/daemon/...", Kind: Open, Reason: "hosts devices for other processes"},
	{Package: "internal/gidtable", Kind: Pure, Module: []string{"ib"},
		Reason: "a GID table is a function of addresses; where these come from is another matter"},
	{Package: "internal/netdev", Kind: Open, Reason: "follows network devices by netlink"},
	{Package: "internal/neigh", Kind: Open, Reason: "asks the kernel by netlink who is on the network"},
	{Package: "internal/netlab/...", Kind: Open, Reason: "makes network namespaces"},
	{Package: "internal/notify", Kind: Open, Reason: "answers the system calls of programs, and speaks to the daemon for them"},

	// Checks and tests.
	{Package: "internal/arch", Kind: Shell, Reason: "judges the source; must build when the rest does not"},
	{Package: "internal/tidy", Kind: Shell, Module: []string{"internal/arch"},
		Reason: "judges the source; must build when the rest does not"},
	{Package: "internal/loopback", Kind: Open, Reason: "addresses for tests"},
	{Package: "internal/testdaemon", Kind: Open, Reason: "daemons for tests"},
	{Package: "internal/exhaust", Kind: Open, Reason: "enumerates small cases for tests"},
	{Package: "internal/pcaptext", Kind: Open, Reason: "prints captures for golden tests"},
	{Package: "tests/...", Kind: Open, Reason: "tests that span packages"},
	{Package: "examples/...", Kind: Open, Reason: "programs for the reader"},
	{Package: "conform", Kind: Open, Reason: "the conformance suite: cases, runner, expectations"},
	{Package: "internal/spectables", Kind: Open, Reason: "holds spec/tables against the code"},
	{Package: "tools/...", Kind: Open, Reason: "programs the Makefile runs"},
}

// lookup returns the most specific rule for a package relative to the module.
func lookup(rules []Rule, pkg string) (Rule, bool) {
	var best Rule
	bestLen := -1
	for _, r := range rules {
		tree, isTree := strings.CutSuffix(r.Package, "/...")
		switch {
		case r.Package == pkg:
			return r, true
		case isTree && (pkg == tree || strings.HasPrefix(pkg, tree+"/")) && len(tree) > bestLen:
			best, bestLen = r, len(tree)
		}
	}
	return best, bestLen >= 0
}

// PurePackages returns the pure packages of the table, relative to the module,
// whether or not they exist yet.
func PurePackages() []string {
	var out []string
	for _, r := range table {
		if r.Kind == Pure {
			out = append(out, r.Package)
		}
	}
	return out
}
