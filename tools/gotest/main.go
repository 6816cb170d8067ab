// Gotest runs "go test -json" with the arguments it is given and prints what a reader
// of a log needs: one line per package, the whole output of what failed, and at the end
// every skipped test with its reason. go test itself hides skips unless it prints
// everything, so a test that never runs looks like one that passes.
//
// A test that lacks a program skips itself with a reason that starts with
// "missing tool:". With CI=true in the environment that counts as a failure.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	cmd := exec.Command("go", append([]string{"test", "-json"}, os.Args[1:]...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(3)
	}
	sum := newSummary(os.Stdout)
	sum.read(stdout)
	failed := cmd.Wait() != nil
	if !sum.finish(os.Getenv("CI") == "true") || failed {
		os.Exit(1)
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
	w       io.Writer
	output  map[testID][]string
	skips   []skip
	passed  int
	failed  int
	foreign bool // a line was not JSON, so something went wrong before any test
}

func newSummary(w io.Writer) *summary {
	return &summary{w: w, output: make(map[testID][]string)}
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
		s.failed++
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
		s.failed++
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

// finish prints the totals and reports whether all is well.
func (s *summary) finish(ci bool) bool {
	// A test that was running when its package died has no end of its own.
	var unfinished []testID
	for id := range s.output {
		if id.test != "" {
			unfinished = append(unfinished, id)
		}
	}
	slices.SortFunc(unfinished, func(a, b testID) int { return strings.Compare(a.pkg+a.test, b.pkg+b.test) })
	for _, id := range unfinished {
		fmt.Fprintf(s.w, "UNFINISHED %s %s\n", id.pkg, id.test)
		s.print(id)
	}
	ok := s.failed == 0 && len(unfinished) == 0 && !s.foreign
	for _, k := range s.skips {
		label := "SKIP"
		if ci && strings.HasPrefix(k.reason, missingTool) {
			label, ok = "FAIL (skipped in CI)", false
		}
		fmt.Fprintf(s.w, "%s  %s %s: %s\n", label, k.pkg, k.test, k.reason)
	}
	fmt.Fprintf(s.w, "%d passed, %d failed, %d skipped\n", s.passed, s.failed, len(s.skips))
	return ok
}
