package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// Tests that go by the wall clock, or start other programs, can fail because the machine
// did something else for a while. A test of a package that -again names gets a second
// chance, under terms that a fault of ours hardly meets: alone, when everything else has
// ended, and it must pass againRuns times in a row. What passes then is reported as FLAKY
// at the end, with its first output above, and is to be mended all the same. More than
// maxFlaky of them in one run are no accident.
const (
	againRuns = 3
	maxFlaky  = 3
)

// arguments are what gotest was given.
type arguments struct {
	again    *regexp.Regexp // packages whose tests get a second chance; nil: none
	flags    []string       // of go test
	packages []string
}

// parse understands [-again=REGEXP] FLAG... -- PACKAGE..., where FLAG are go test's.
func parse(args []string) (a arguments, err error) {
	if len(args) > 0 {
		if text, ok := strings.CutPrefix(args[0], "-again="); ok {
			if a.again, err = regexp.Compile(text); err != nil {
				return a, err
			}
			args = args[1:]
		}
	}
	i := slices.Index(args, "--")
	if i < 0 {
		return a, fmt.Errorf("no -- before the packages in %q", args)
	}
	a.flags, a.packages = args[:i], args[i+1:]
	return a, nil
}

// second names the tests that get a second chance: the topmost ones of those that failed.
// ok is false if something failed that gets none.
func (s *summary) second(again *regexp.Regexp) (tests []testID, ok bool) {
	if s.foreign || s.unfinished() != nil || again == nil {
		return nil, false
	}
	for id := range s.failures {
		if id.test == "" {
			// A package fails with each of its tests; without one it is another matter.
			if !slices.ContainsFunc(s.failedTests(), func(t testID) bool { return t.pkg == id.pkg }) {
				return nil, false
			}
			continue
		}
		if !again.MatchString(id.pkg) {
			return nil, false
		}
		if !strings.Contains(id.test, "/") {
			tests = append(tests, id)
		}
	}
	slices.SortFunc(tests, func(a, b testID) int { return strings.Compare(a.pkg+a.test, b.pkg+b.test) })
	return tests, len(tests) <= maxFlaky
}

func (s *summary) failedTests() (tests []testID) {
	for id := range s.failures {
		if id.test != "" {
			tests = append(tests, id)
		}
	}
	return tests
}

// retry runs the tests that get a second chance and reports whether nothing is left that
// failed.
func (s *summary) retry(a arguments, run func(testID) bool) bool {
	tests, ok := s.second(a.again)
	if !ok {
		return false
	}
	for _, id := range tests {
		fmt.Fprintf(s.w, "AGAIN  %s %s, %d times, alone\n", id.pkg, id.test, againRuns)
		if !run(id) {
			fmt.Fprintf(s.w, "FAILED AGAIN  %s %s\n", id.pkg, id.test)
			return false
		}
	}
	for _, id := range tests {
		fmt.Fprintf(s.w, "FLAKY  %s %s: it failed once, above, and passed %d times alone\n", id.pkg, id.test, againRuns)
	}
	return true
}

// runAlone runs one test againRuns times with the flags of the first run.
func runAlone(w io.Writer, flags []string, id testID) bool {
	args := append([]string{"test", "-json"}, flags...)
	args = append(args, fmt.Sprintf("-count=%d", againRuns), "-failfast", "-run", "^"+regexp.QuoteMeta(id.test)+"$", id.pkg)
	sum := newSummary(w)
	failed := !goTest(sum, args)
	return !failed && sum.finish(os.Getenv("CI") == "true")
}

// goTest feeds what go test prints to sum and reports whether it ended well.
func goTest(sum *summary, args []string) bool {
	cmd := exec.Command("go", args...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(3)
	}
	sum.read(stdout)
	return cmd.Wait() == nil
}
