// Gotest runs "go test -json" and prints what a reader of a log needs: one line per package, the whole output of what failed, and at the end
// every skipped test with its reason. go test itself hides skips unless it prints
// everything, so a test that never runs looks like one that passes.
//
// A test that lacks a program skips itself with a reason that starts with
// "missing tool:". With CI=true in the environment that counts as a failure.
//
//	gotest [-again=REGEXP] FLAG... -- PACKAGE...
//
// FLAG are go test's. A test that failed in a package that REGEXP matches gets a second
// chance when all others have ended.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

func main() {
	a, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(3)
	}
	sum := newSummary(os.Stdout)
	passed := goTest(sum, slices.Concat([]string{"test", "-json"}, a.flags, a.packages))
	if !sum.finish(os.Getenv("CI") == "true") || !passed {
		if sum.skippedInCI || !sum.retry(a, func(id testID) bool { return runAlone(os.Stdout, a.flags, id) }) {
			os.Exit(1)
		}
	}
}

// event is one line of go test -json (go doc test2json).
type event struct {
	Action     string
	Package    string
	ImportPath string
	Test       string
	Elapsed    float64 // seconds
	Output     string
}

// skip is a test that did not run.
type skip struct{ pkg, test, reason string }

type testID struct{ pkg, test string }

// summary digests events.
type summary struct {
	w           io.Writer
	output      map[testID][]string
	skips       []skip
	passed      int
	failures    map[testID]bool // without a test: of a package
	foreign     bool            // a line was not JSON, so something went wrong before any test
	skippedInCI bool            // a test was skipped that may not be
}

func newSummary(w io.Writer) *summary {
	return &summary{w: w, output: make(map[testID][]string), failures: make(map[testID]bool)}
}

func (s *summary) read(r io.Reader) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, 16<<20)
	for sc.Scan() {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			s.foreign = true
			fmt.Fprintln(s.w, sc.Text())
			continue
		}
		s.add(&e)
	}
	if err := sc.Err(); err != nil {
		s.foreign = true
		fmt.Fprintln(s.w, "gotest: reading the output of go test:", err)
	}
}

func (s *summary) add(e *event) {
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "output":
		s.output[id] = append(s.output[id], e.Output)
	case "build-output":
		fmt.Fprint(s.w, e.Output)
	case "pass", "fail", "skip":
		if e.Test == "" {
			s.endPackage(e)
		} else {
			s.endTest(e)
		}
		delete(s.output, id)
	}
}

func (s *summary) endPackage(e *event) {
	switch e.Action {
	case "pass":
		fmt.Fprintf(s.w, "ok    %7.2fs  %s\n", e.Elapsed, e.Package)
	case "fail":
		s.failures[testID{e.Package, ""}] = true
		fmt.Fprintf(s.w, "FAIL  %7.2fs  %s\n", e.Elapsed, e.Package)
		s.print(testID{e.Package, ""})
	}
}

func (s *summary) endTest(e *event) {
	id := testID{e.Package, e.Test}
	switch e.Action {
	case "pass":
		s.passed++
	case "skip":
		s.skips = append(s.skips, skip{e.Package, e.Test, skipReason(s.output[id])})
	case "fail":
		s.failures[id] = true
		s.print(id)
	}
}

func (s *summary) print(id testID) {
	for _, line := range s.output[id] {
		fmt.Fprint(s.w, "      ", line)
	}
}

// skipReason finds what t.Skip was given among the lines a test printed: the last line
// that is not a mark of the testing package, without its file and line.
func skipReason(lines []string) string {
	for _, line := range slices.Backward(lines) {
		text := strings.TrimSpace(line)
		if text == "" || strings.HasPrefix(text, "---") || strings.HasPrefix(text, "===") {
			continue
		}
		if file, reason, ok := strings.Cut(text, ": "); ok && strings.Contains(file, ".go:") {
			return reason
		}
		return text
	}
	return "no reason given"
}

// missingTool starts the reason of a test that lacks a program.
const missingTool = "missing tool:"

// unfinished are the tests that were running when their package died: they have no end of
// their own.
func (s *summary) unfinished() (tests []testID) {
	for id := range s.output {
		if id.test != "" {
			tests = append(tests, id)
		}
	}
	slices.SortFunc(tests, func(a, b testID) int { return strings.Compare(a.pkg+a.test, b.pkg+b.test) })
	return tests
}

// finish prints the totals and reports whether all is well.
func (s *summary) finish(ci bool) bool {
	unfinished := s.unfinished()
	for _, id := range unfinished {
		fmt.Fprintf(s.w, "UNFINISHED %s %s\n", id.pkg, id.test)
		s.print(id)
	}
	for _, k := range s.skips {
		label := "SKIP"
		if ci && strings.HasPrefix(k.reason, missingTool) {
			label, s.skippedInCI = "FAIL (skipped in CI)", true
		}
		fmt.Fprintf(s.w, "%s  %s %s: %s\n", label, k.pkg, k.test, k.reason)
	}
	fmt.Fprintf(s.w, "%d passed, %d failed, %d skipped\n", s.passed, len(s.failures), len(s.skips))
	return len(s.failures) == 0 && len(unfinished) == 0 && !s.foreign && !s.skippedInCI
}
