package conform

import (
	"fmt"
	"strconv"
	"strings"
)

// Case is one case of the suite.
type Case struct {
	Name, What string
	File       string
	Reqs       []string
	Needs      []string // "packets", "port": see [Network]
	Steps      []Step
}

// Step is one line of a case: a verb, words, and key=value pairs.
type Step struct {
	Line  int
	Label string // of "call": what the result is recorded as; empty if it is not
	Call  bool
	Verb  string
	Words []string
	Args  []Arg
}

// Arg is one key=value pair.
type Arg struct{ Key, Val string }

// Limits of the format; they keep a bad file from costing much.
const (
	maxCases = 1000
	maxSteps = 200
)

// Parse reads a file of cases. See README.md for the format.
func Parse(file, text string) ([]*Case, error) {
	var cases []*Case
	for i, line := range strings.Split(text, "\n") {
		words, err := split(line)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
		if len(words) == 0 {
			continue
		}
		if words[0] == "case" {
			if len(words) != 2 || len(cases) >= maxCases {
				return nil, fmt.Errorf("%s:%d: want \"case NAME\", in at most %d cases", file, i+1, maxCases)
			}
			cases = append(cases, &Case{Name: words[1], File: file})
			continue
		}
		if len(cases) == 0 {
			return nil, fmt.Errorf("%s:%d: %q outside a case", file, i+1, words[0])
		}
		if err := cases[len(cases)-1].line(i+1, line, words); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, i+1, err)
		}
	}
	return cases, nil
}

// line takes one line inside a case.
func (c *Case) line(n int, line string, words []string) error {
	switch words[0] {
	case "what":
		c.What = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "what"))
		return nil
	case "req":
		c.Reqs = append(c.Reqs, words[1:]...)
		return nil
	case "needs":
		c.Needs = append(c.Needs, words[1:]...)
		return nil
	}
	s := Step{Line: n}
	if words[0] == "call" {
		if len(words) < 3 {
			return fmt.Errorf("want \"call LABEL STEP...\"")
		}
		s.Call, s.Label = true, words[1]
		words = words[2:]
	}
	s.Verb = words[0]
	if s.Verb == "note" {
		// The text is taken as it stands, quotes included.
		_, text, _ := strings.Cut(line, "note")
		s.Words = []string{strings.TrimSpace(text)}
	} else {
		for _, w := range words[1:] {
			if k, v, ok := strings.Cut(w, "="); ok {
				s.Args = append(s.Args, Arg{k, v})
			} else {
				s.Words = append(s.Words, w)
			}
		}
	}
	if len(c.Steps) == maxSteps {
		return fmt.Errorf("more than %d steps", maxSteps)
	}
	c.Steps = append(c.Steps, s)
	return nil
}

// split divides a line into words. Quotes hold blanks together; # starts a comment.
func split(line string) (words []string, err error) {
	var b strings.Builder
	in, any := false, false
	flush := func() {
		if any {
			words = append(words, b.String())
		}
		b.Reset()
		any = false
	}
	for _, r := range line {
		switch {
		case r == '"':
			in, any = !in, true
		case in:
			b.WriteRune(r)
		case r == '#' && !any:
			flush()
			return words, nil
		case r == ' ' || r == '\t' || r == '\r':
			flush()
		default:
			b.WriteRune(r)
			any = true
		}
	}
	if in {
		return nil, fmt.Errorf("a quotation is not closed")
	}
	flush()
	return words, nil
}

// args hands out the pairs of a step and notices those that nobody asked for.
type args struct {
	step *Step
	used []bool
	word int
	err  error
}

func newArgs(s *Step) *args { return &args{step: s, used: make([]bool, len(s.Args))} }

func (a *args) fail(format string, v ...any) {
	if a.err == nil {
		a.err = fmt.Errorf(format, v...)
	}
}

// next returns the next word, "" if there is none.
func (a *args) next() string {
	if a.word >= len(a.step.Words) {
		return ""
	}
	a.word++
	return a.step.Words[a.word-1]
}

// name returns the next word, which must be there.
func (a *args) name(what string) string {
	w := a.next()
	if w == "" {
		a.fail("%s: %s is missing", a.step.Verb, what)
	}
	return w
}

// flag reports whether the word is among those that are left.
func (a *args) flag(word string) bool {
	for i := a.word; i < len(a.step.Words); i++ {
		if a.step.Words[i] == word {
			a.step = &Step{Line: a.step.Line, Label: a.step.Label, Call: a.step.Call, Verb: a.step.Verb, Args: a.step.Args,
				Words: append(append([]string(nil), a.step.Words[:i]...), a.step.Words[i+1:]...)}
			return true
		}
	}
	return false
}

func (a *args) str(key, def string) string {
	for i := range a.step.Args {
		if a.step.Args[i].Key == key && !a.used[i] {
			a.used[i] = true
			return a.step.Args[i].Val
		}
	}
	return def
}

func (a *args) num(key string, def int64) int64 {
	s := a.str(key, "")
	if s == "" {
		return def
	}
	n, err := strconv.ParseInt(s, 0, 64)
	if err != nil {
		a.fail("%s: %s=%s is not a number", a.step.Verb, key, s)
	}
	return n
}

func (a *args) int(key string, def int) int { return int(a.num(key, int64(def))) }

// done returns the first problem, including arguments that mean nothing.
func (a *args) done() error {
	for i, u := range a.used {
		if !u {
			a.fail("%s: %s= means nothing here", a.step.Verb, a.step.Args[i].Key)
		}
	}
	if w := a.next(); w != "" {
		a.fail("%s: %q means nothing here", a.step.Verb, w)
	}
	return a.err
}
