package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func itoa(n int) string { return strconv.Itoa(n) }

// result is what became of a fault.
type result uint8

const (
	untried   result = iota // the time was up
	killed                  // a test failed
	timedOut                // a test did not end, which counts as noticed
	survived                // all tests passed
	unreached               // no test runs the place
	numResults
)

var resultNames = [numResults]string{"untried", "killed", "timeout", "survived", "unreached"}

// memoryKB bounds a test program, because some faults make one collect without end.
const memoryKB = 6 << 20

// suite is the compiled tests of one package.
type suite struct {
	pkg, bin, dir string
	took          time.Duration
	reached       map[int]bool
}

type runner struct {
	o      *options
	suites []*suite // the quick ones first
	// doubtful counts failures that a second run with the same fault did not have.
	doubtful atomic.Int32
}

// prepare compiles the tests and runs each package's once without a fault.
func prepare(ctx context.Context, o *options, dir string) (*runner, error) {
	r := &runner{o: o}
	for _, p := range o.tests {
		s := &suite{pkg: p, dir: filepath.Join(dir, filepath.FromSlash(p)), bin: filepath.Join(dir, strings.ReplaceAll(p, "/", "-")+".test")}
		if _, err := os.Stat(s.dir); err != nil {
			fmt.Println("no package", p)
			continue
		}
		cmd := exec.Command("go", "test", "-c", "-tags", o.tags, "-o", s.bin, "./"+p)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("compile the tests of %s: %w\n%s", p, err, out)
		}
		record := s.bin + ".reached"
		start := time.Now()
		out, res := s.run(ctx, -1, 5*time.Minute, "MUTANT_REACHED="+record)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if res != survived {
			return nil, fmt.Errorf("the tests of %s without a fault: %s\n%s", p, resultNames[res], out)
		}
		s.took = time.Since(start)
		var err error
		if s.reached, err = readReached(record); err != nil {
			return nil, err
		}
		fmt.Printf("%-20s %6.1f s, reaches %d\n", p, s.took.Seconds(), len(s.reached))
		r.suites = append(r.suites, s)
	}
	slices.SortStableFunc(r.suites, func(a, b *suite) int { return int(a.took - b.took) })
	return r, nil
}

func readReached(name string) (map[int]bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	m := make(map[int]bool)
	for s := bufio.NewScanner(f); s.Scan(); {
		id, err := strconv.Atoi(s.Text())
		if err != nil {
			return nil, err
		}
		m[id] = true
	}
	return m, nil
}

// run runs the tests of a package with one fault on.
func (s *suite) run(ctx context.Context, id int, limit time.Duration, env ...string) (string, result) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	script := fmt.Sprintf("ulimit -v %d; exec %q -test.failfast -test.timeout=0", memoryKB, s.bin)
	cmd := exec.CommandContext(ctx, "sh", "-c", script)
	cmd.Dir = s.dir
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), append(env, "MUTANT="+itoa(id))...)
	out, err := cmd.CombinedOutput()
	switch {
	case err == nil:
		return string(out), survived
	case ctx.Err() != nil:
		return string(out), timedOut
	}
	return string(out), killed
}

// runAll tries the faults, in random order so that a run that is cut short is a sample.
func (r *runner) runAll(ctx context.Context, chosen []*mutant) {
	todo := make(chan *mutant)
	var wg sync.WaitGroup
	var mu sync.Mutex
	start, done := time.Now(), 0
	for range r.o.jobs {
		wg.Go(func() {
			for m := range todo {
				r.try(ctx, m)
				mu.Lock()
				done++
				if r.o.verbose || m.result == survived || m.result == unreached || done%25 == 0 {
					fmt.Printf("%5.0f s %4d/%d %-9s %-5s %s\n", time.Since(start).Seconds(), done, len(chosen), resultNames[m.result], m.by, m)
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range shuffled(chosen, r.o.seed) {
		if r.o.limit > 0 && time.Since(start) > r.o.limit || ctx.Err() != nil {
			break
		}
		todo <- m
	}
	close(todo)
	wg.Wait()
}

func (r *runner) try(ctx context.Context, m *mutant) {
	m.result = unreached
	for _, s := range r.suites {
		if !s.reached[m.id] {
			continue
		}
		_, m.result = s.run(ctx, m.id, 20*time.Second+5*s.took)
		if ctx.Err() != nil {
			m.result = untried
			return
		}
		if m.result == killed {
			// Tests that fail now and then would notice faults that nobody can notice.
			if _, again := s.run(ctx, m.id, 20*time.Second+5*s.took); again == survived {
				m.result = survived
				r.doubtful.Add(1)
			}
		}
		if m.result != survived {
			m.by = s.pkg
			return
		}
	}
}

// control runs every package's tests without a fault, as many at a time as later, and
// prints how often they failed.
func (r *runner) control(ctx context.Context) {
	for _, s := range r.suites {
		if r.o.control <= 0 {
			return
		}
		var failed atomic.Int32
		var wg sync.WaitGroup
		var left atomic.Int32
		left.Store(int32(r.o.control))
		for range r.o.jobs {
			wg.Go(func() {
				for left.Add(-1) >= 0 && ctx.Err() == nil {
					if _, res := s.run(ctx, -1, 20*time.Second+5*s.took); res != survived {
						failed.Add(1)
					}
				}
			})
		}
		wg.Wait()
		fmt.Printf("control: %-20s failed %d of %d times without a fault\n", s.pkg, failed.Load(), r.o.control)
	}
}
