package conform

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Report is the results of a run, in the order of the suite.
type Report struct {
	Profile string    `json:"profile"`
	Results []*Result `json:"cases"`
}

// Count returns how many cases came to a verdict.
func (r *Report) Count(v Verdict) (n int) {
	for _, c := range r.Results {
		if c.Verdict == v {
			n++
		}
	}
	return n
}

// OK reports whether no case failed.
func (r *Report) OK() bool { return r.Count(Fail) == 0 }

// Requirement is a requirement with the cases that show it.
type Requirement struct {
	ID      string   `json:"id"`
	Verdict Verdict  `json:"verdict"` // the worst of its cases
	Cases   []string `json:"cases"`
}

// Requirements sums the results up by requirement, in alphabetical order.
func (r *Report) Requirements() []Requirement {
	byID := map[string]*Requirement{}
	var ids []string
	for _, c := range r.Results {
		for _, id := range c.Reqs {
			q := byID[id]
			if q == nil {
				q = &Requirement{ID: id, Verdict: Skip}
				byID[id] = q
				ids = append(ids, id)
			}
			q.Cases = append(q.Cases, c.Case)
			if rank(c.Verdict) > rank(q.Verdict) {
				q.Verdict = c.Verdict
			}
		}
	}
	slices.Sort(ids)
	out := make([]Requirement, 0, len(ids))
	for _, id := range ids {
		out = append(out, *byID[id])
	}
	return out
}

func rank(v Verdict) int { return slices.Index([]Verdict{Skip, Pass, Explained, Fail}, v) }

// Explain returns the differences of a result as lines: all of them, or only those that
// nobody expected.
func (c *Result) Explain(all bool) (lines []string) {
	if c.Reason != "" {
		lines = append(lines, c.Reason)
	}
	for _, d := range c.Diffs {
		if d.Explained && !all {
			continue
		}
		lines = append(lines, string(d.Cell)+":", "  kernel: "+orNothing(d.Reference), "  here:   "+orNothing(d.Got))
		if !d.Explained {
			lines = append(lines, "  wanted: "+orNothing(d.Want))
		}
		for _, w := range d.Reasons {
			lines = append(lines, fmt.Sprintf("  %s: %s", w.Rule, w.Why))
		}
		if !d.Explained && len(d.Reasons) == 0 {
			lines = append(lines, "  no rule explains it")
		}
	}
	return lines
}

func orNothing(s string) string {
	if s == "" {
		return "(nothing)"
	}
	return s
}

// The elements of a JUnit file, as the common readers take them.
type (
	junitSuites struct {
		XMLName  xml.Name   `xml:"testsuites"`
		Name     string     `xml:"name,attr"`
		Tests    int        `xml:"tests,attr"`
		Failures int        `xml:"failures,attr"`
		Errors   int        `xml:"errors,attr"`
		Skipped  int        `xml:"skipped,attr"`
		Time     string     `xml:"time,attr"`
		Suite    junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Errors   int         `xml:"errors,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Time    string        `xml:"time,attr"`
		Failure *junitProblem `xml:"failure,omitempty"`
		Skipped *junitProblem `xml:"skipped,omitempty"`
		Out     string        `xml:"system-out,omitempty"`
	}
	junitProblem struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// seconds writes a time as readers of JUnit files want it.
func seconds(d time.Duration) string { return strconv.FormatFloat(d.Seconds(), 'f', 6, 64) }

// WriteJUnit writes the results as JUnit XML. Times are those that the device waited, so
// that runs in virtual time give the same file.
func (r *Report) WriteJUnit(w io.Writer) error {
	name := "conform." + r.Profile
	s := junitSuite{Name: name, Tests: len(r.Results), Failures: r.Count(Fail), Skipped: r.Count(Skip)}
	var total time.Duration
	for _, c := range r.Results {
		total += c.Took
		j := junitCase{Class: name, Name: c.Case, Time: seconds(c.Took)}
		text := strings.Join(c.Explain(c.Verdict == Explained), "\n")
		switch c.Verdict {
		case Fail:
			j.Failure = &junitProblem{c.What, text}
		case Skip:
			j.Skipped = &junitProblem{Message: c.Reason}
		case Explained:
			j.Out = text
		case Pass:
		}
		s.Cases = append(s.Cases, j)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	s.Time = seconds(total)
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(junitSuites{Name: name, Tests: s.Tests, Failures: s.Failures, Skipped: s.Skipped, Time: s.Time, Suite: s}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
