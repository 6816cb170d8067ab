// Mutate shows whether the tests bite: it plants small faults in the protocol core and
// counts how many of them a set of tests notices.
//
//	go run ./tools/mutate                        200 faults drawn with seed 1
//	go run ./tools/mutate -n 0                   all of them
//	go run ./tools/mutate -only 'qp/resp.go:1[0-9]{2}'
//
// All faults are compiled into one copy of the tree, each behind a switch (mutant
// schemata: Untch, Offutt and Harrold, 1993), and a run of a test program turns one of
// them on. So the tests are compiled once, not once per fault. The first run, with none
// on, also records which faults each package's tests reach at all; only those tests run.
//
// Exit codes: 0 done, whatever survived; 2 usage; 3 the tree does not build, or its
// tests fail without a fault.
package main

import (
	"bytes"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// switches is the source of the package that the changed files import.
//
//go:embed switches.go.txt
var switches []byte

const (
	modulePath   = "github.com/rvtsim/rvtsim"
	switchesPath = "internal/mutants"
)

type options struct {
	root    string
	targets []string // packages that get faults
	tests   []string // packages whose tests must notice
	n       int
	seed    uint64
	jobs    int
	limit   time.Duration // of all runs together
	tags    string
	only    *regexp.Regexp
	list    bool
	keep    bool
	verbose bool
	control int
}

func main() {
	o := options{}
	var targets, tests, only string
	flag.StringVar(&targets, "in", "qp,cq,swqe", "packages to plant faults in")
	flag.StringVar(&tests, "tests", "cq,swqe,qp,internal/replay,spec,sim,rvt,explain,strict,conform", "packages whose tests must notice")
	flag.IntVar(&o.n, "n", 200, "how many faults to try, 0 for all")
	flag.Uint64Var(&o.seed, "seed", 1, "which ones are drawn")
	flag.IntVar(&o.jobs, "j", 2, "test programs at a time")
	flag.DurationVar(&o.limit, "for", 0, "stop after this time, 0 for never")
	flag.StringVar(&o.tags, "tags", "invariants", "build tags")
	flag.StringVar(&only, "only", "", "only faults whose line in the list matches this expression")
	flag.BoolVar(&o.list, "list", false, "print the faults and stop")
	flag.IntVar(&o.control, "control", 0, "first run all tests this many times without a fault, under the same load: what fails then is no evidence")
	flag.BoolVar(&o.verbose, "v", false, "say what became of every fault, and which tests noticed it")
	flag.BoolVar(&o.keep, "keep", false, "leave the changed copy of the tree behind, and say where")
	flag.Parse()
	o.targets, o.tests = strings.Split(targets, ","), strings.Split(tests, ",")
	var err error
	if o.only, err = regexp.Compile(only); err != nil || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "mutate: usage:", err, flag.Args())
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &o); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(3)
	}
}

// run plants the faults and tries them until it is done, the time is up or ctx ends;
// then it reports on those that were tried.
func run(ctx context.Context, o *options) error {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return fmt.Errorf("go env GOMOD: %w", err)
	}
	o.root = filepath.Dir(strings.TrimSpace(string(out)))
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return err
	}
	if o.keep {
		fmt.Println("copy of the tree:", dir)
	} else {
		defer os.RemoveAll(dir)
	}
	all, err := plant(o, dir)
	if err != nil {
		return err
	}
	chosen := choose(o, all)
	if o.list {
		for _, m := range chosen {
			fmt.Println(m)
		}
		return nil
	}
	fmt.Printf("%d of %d faults in %s, seed %d\n", len(chosen), len(all), strings.Join(o.targets, " "), o.seed)
	r, err := prepare(ctx, o, dir)
	if err != nil {
		return err
	}
	r.control(ctx)
	r.runAll(ctx, chosen)
	report(os.Stdout, chosen)
	fmt.Printf("\n%d failures did not happen again with the same fault; they do not count\n", r.doubtful.Load())
	return nil
}

// plant copies the tree to dir with every fault in place, and returns the faults.
func plant(o *options, dir string) ([]*mutant, error) {
	if err := copyTree(o.root, dir); err != nil {
		return nil, err
	}
	at := filepath.Join(dir, filepath.FromSlash(switchesPath))
	if err := os.MkdirAll(at, 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(at, "mutants.go"), switches, 0o644); err != nil {
		return nil, err
	}
	imp, fset, err := newImporter(dir, o.targets)
	if err != nil {
		return nil, err
	}
	var all []*mutant
	for _, t := range o.targets {
		p, err := loadPackage(fset, imp, dir, t)
		if err != nil {
			return nil, err
		}
		for i, f := range p.files {
			if slices.Contains(untouched, p.names[i]) {
				continue
			}
			g := newGenerator(p, f, p.names[i], len(all))
			src := g.generate()
			if len(g.mutants) == 0 {
				continue
			}
			all = append(all, g.mutants...)
			if err := os.WriteFile(filepath.Join(dir, p.names[i]), src, 0o644); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// untouched are files whose faults would be faults of the checks.
var untouched = []string{"qp/invariants.go"}

func copyTree(from, to string) error {
	skip := []string{".git", "bin", "out"}
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	args := []string{"-R"}
	for _, e := range entries {
		if !slices.Contains(skip, e.Name()) {
			args = append(args, filepath.Join(from, e.Name()))
		}
	}
	if out, err := exec.Command("cp", append(args, to)...).CombinedOutput(); err != nil {
		return fmt.Errorf("cp: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}

// choose draws the faults to try, in the order of the source.
func choose(o *options, all []*mutant) []*mutant {
	var c []*mutant
	for _, m := range all {
		if o.only.MatchString(m.String()) {
			c = append(c, m)
		}
	}
	if o.n <= 0 || o.n >= len(c) {
		return c
	}
	r := rand.New(rand.NewPCG(o.seed, 0))
	r.Shuffle(len(c), func(i, j int) { c[i], c[j] = c[j], c[i] })
	c = c[:o.n]
	slices.SortFunc(c, func(a, b *mutant) int { return a.id - b.id })
	return c
}
