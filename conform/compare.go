package conform

import (
	"strconv"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// Verdict is the outcome of a case.
type Verdict string

// The outcomes.
const (
	Pass      Verdict = "pass"      // as the reference
	Explained Verdict = "explained" // differs as expected
	Fail      Verdict = "fail"
	Skip      Verdict = "skip" // the device cannot do what the case needs
)

// Result is what became of a case.
type Result struct {
	Case    string   `json:"case"`
	What    string   `json:"what"`
	Reqs    []string `json:"requirements"`
	Verdict Verdict  `json:"verdict"`
	Reason  string   `json:"reason,omitempty"`
	Diffs   []Diff   `json:"differences,omitempty"`
	Record  Record   `json:"record"`
	// Took is how long the case waited, in the time of the device: virtual or real.
	Took time.Duration `json:"took_ns"`
}

// Diff is a cell that differs from the reference, or from what is expected.
type Diff struct {
	Cell      Cell     `json:"cell"`
	Reference string   `json:"reference"`
	Got       string   `json:"got"`
	Want      string   `json:"want,omitempty"` // if it is not what was got
	Reasons   []Reason `json:"reasons,omitempty"`
	Explained bool     `json:"explained"`
}

// vendorErrRule explains that failed completions carry a code.
var vendorErrRule = Reason{"WC-ERR-02", "vendor_err names the cause; the kernel leaves it 0"}

// judge compares a record with the reference and with what the profile is expected to
// give.
func (s *Suite) judge(c *Case, ref *Record, got *outcome) *Result {
	res := &Result{Case: c.Name, What: c.What, Reqs: c.Reqs, Verdict: Pass, Record: got.Record, Took: got.took}
	res.Record.N = ref.N
	want := s.exp.expect(c, ref, got.sent)
	reference, cells := ref.Cells(), got.Cells()
	for _, cell := range cellOrder {
		plain, codes := cells[cell], false
		if strings.HasSuffix(string(cell), ".s") || strings.HasSuffix(string(cell), ".r") {
			if s.Foreign {
				plain = mapCompletions(plain, func(c *completion) { c.Verr = "verr=0" })
			} else {
				plain, codes = withoutCauses(plain)
			}
		}
		d := Diff{Cell: cell, Reference: reference[cell], Got: cells[cell]}
		free, open := want.open[cell]
		switch {
		case open && plain == reference[cell]:
			continue
		case open:
			d.Explained, d.Reasons = true, []Reason{free}
			if res.Verdict == Pass {
				res.Verdict = Explained
			}
		case plain != want.cells[cell]:
			d.Want = want.cells[cell]
			if d.Want == "" {
				d.Want = "(nothing)"
			}
			d.Reasons = want.why[cell]
			res.Verdict = Fail
		case plain == reference[cell] && len(want.why[cell]) == 0:
			if codes {
				d.Explained, d.Reasons = true, []Reason{vendorErrRule}
			} else {
				continue
			}
		default:
			d.Explained, d.Reasons = true, want.why[cell]
			if plain == reference[cell] {
				d.Explained = false // the explanation explains nothing
				d.Reasons = append([]Reason{{"stale", "the reference gives the same: remove the expectation"}}, d.Reasons...)
				res.Verdict = Fail
			} else if res.Verdict == Pass {
				res.Verdict = Explained
			}
		}
		res.Diffs = append(res.Diffs, d)
	}
	return res
}

// withoutCauses sets vendor_err of failed completions to 0 if it is one of the documented
// causes; one that is not, or that a success carries, stays for the comparison to find.
func withoutCauses(cell string) (plain string, codes bool) {
	plain = mapCompletions(cell, func(c *completion) {
		n, err := strconv.ParseUint(strings.TrimPrefix(c.Verr, "verr="), 10, 32)
		switch {
		case err != nil:
		case c.Status == "SUCCESS":
		case n == 0:
			c.Verr = "verr=missing"
		case strings.HasPrefix(ib.Cause(n).String(), "cause 0x"):
			c.Verr = "verr=undocumented"
		default:
			c.Verr, codes = "verr=0", true
		}
	})
	return plain, codes
}
