// Package tidy checks, as tests, the habits of this repository that no compiler
// checks: sizes, comments, formatting, and what a committed file may not mention. It
// owns the list of exceptions; each gives its reason, and one that is no longer needed
// is an error. It looks at files only and must work when the rest does not build.
package tidy

import "fmt"

// Limits, in lines. A file above its limit wants splitting by topic, a function above
// its limit wants its branches kept and its leaves moved out. Rows of a table, that is
// composite literals of slice, array or map type, do not count for a function.
const (
	maxFileLines     = 799
	maxFuncLines     = 69
	maxTestFuncLines = 119
)

// Problem is one thing to put right.
type Problem struct {
	Path string // relative to the root, with slashes
	Line int    // 0 when the whole file is meant
	// Rule names the check, for the list of exceptions.
	Rule Rule
	// Item is the function or identifier that is meant, for the list of exceptions.
	Item string
	Text string
}

// Rule names a check.
type Rule string

const (
	RuleFileLines Rule = "file-lines" // a Go file is too long
	RuleFuncLines Rule = "func-lines" // a function is too long
	RuleSleep     Rule = "sleep"      // a test sleeps
	RuleTODO      Rule = "todo"       // a note to self that nobody will find
	RuleDoc       Rule = "doc"        // a comment is missing or starts wrongly
	RuleMention   Rule = "mention"    // a file tells of the machine it was written on
	RuleFormat    Rule = "gofmt"      // gofmt would change the file
	RuleSyntax    Rule = "syntax"     // a Go file does not parse
)

func (p Problem) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", p.Path, p.Line, p.Rule, p.Text)
}

// Exception allows one problem to stay.
type Exception struct {
	Path   string
	Rule   Rule
	Item   string // empty for the whole file
	Reason string
}

// exceptions is what stays as it is. Prefer fixing.
var exceptions = []Exception{
	{"spec/dispatch.go", RuleFuncLines, "Interp.dispatch",
		"one case per directive with its example beside it; this is the reference of the scenario language"},
}

// filter drops the problems that exceptions allow, and adds one for each exception
// that allows nothing or gives no reason.
func filter(exceptions []Exception, problems []Problem) []Problem {
	used := make([]bool, len(exceptions))
	var out []Problem
	for _, p := range problems {
		allowed := false
		for i, e := range exceptions {
			if e.Path == p.Path && e.Rule == p.Rule && (e.Item == "" || e.Item == p.Item) {
				used[i], allowed = true, true
			}
		}
		if !allowed {
			out = append(out, p)
		}
	}
	for i, e := range exceptions {
		if !used[i] {
			out = append(out, Problem{Path: e.Path, Rule: e.Rule, Item: e.Item, Text: "the exception is no longer needed: remove it"})
		}
		if e.Reason == "" {
			out = append(out, Problem{Path: e.Path, Rule: e.Rule, Item: e.Item, Text: "the exception gives no reason"})
		}
	}
	return out
}
