package topology

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Problem is one mistake in a topology file.
type Problem struct {
	File    string // as given to Load or Parse
	Line    int    // from 1
	Column  int    // from 1, in characters
	Path    string // of the value: "traffic[0].op"; empty for the file as a whole
	Message string // what was found and what was expected
}

// Error gives the problem on one line: "two-nodes.yaml:14:11: traffic[0].op: ...".
func (p Problem) Error() string {
	s := p.File + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column) + ": "
	if p.Path != "" {
		s += p.Path + ": "
	}
	return s + p.Message
}

// Problems is the error of a bad file: every problem that was found, in the order of
// the file, never empty.
type Problems []Problem

// Error gives one line per problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.As find each Problem.
func (p Problems) Unwrap() []error {
	errs := make([]error, len(p))
	for i := range p {
		errs[i] = p[i]
	}
	return errs
}

// placed orders by position, after moving positions into the file: the YAML library
// puts what is missing at the end beyond it. Exact repeats, which an alias of a
// broken anchor gives, are dropped.
func (p Problems) placed(b []byte) Problems {
	lines := strings.Split(newlines.Replace(string(b)), "\n")
	for i := range p {
		x := &p[i]
		if x.Line > len(lines) {
			x.Line, x.Column = len(lines), 1
		}
		x.Line = max(x.Line, 1)
		x.Column = max(min(x.Column, utf8.RuneCountInString(lines[x.Line-1])+1), 1)
	}
	slices.SortStableFunc(p, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(p)
}

// newlines makes the three line ends that YAML knows one.
var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// listed joins names for "expected one of ...".
func listed(names []string) string { return strings.Join(names, ", ") }

// didYouMean returns `; did you mean "x"?` for the candidate nearest to got, or
// nothing where none is near.
func didYouMean(got string, candidates []string) string {
	if s, ok := nearest(got, candidates); ok {
		return fmt.Sprintf("; did you mean %q?", s)
	}
	return ""
}

// nearest finds the candidate with the smallest edit distance, at most a third of
// its length (at least 1, so that short words match too). Case does not count.
func nearest(got string, candidates []string) (string, bool) {
	const longest = 64 // nobody mistypes a key of this length; bounds the work
	if len(got) > longest {
		return "", false
	}
	best, bestDistance := "", 1<<30
	for _, c := range candidates {
		d := editDistance(strings.ToLower(got), strings.ToLower(c))
		if d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best, best != "" && bestDistance <= max(1, len(best)/3)
}

// editDistance is the optimal string alignment distance: insertions, deletions,
// substitutions and swaps of neighbours each count 1.
func editDistance(a, b string) int {
	before, above := make([]int, len(b)+1), make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := above[j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			row[j] = min(change, above[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}
