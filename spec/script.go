package spec

import (
	"errors"
	"strconv"
	"strings"
)

// Arg is one argument of a directive: a bare word (no Vals), key=value, or
// key=(value, value).
type Arg struct {
	Key  string
	Vals []string
}

// Command is one directive of a script.
type Command struct {
	// Pos is where it stands, "file:line", for messages.
	Pos   string
	Name  string
	Args  []Arg
	Input string // the lines between the directive and "----"
}

// Step is a directive with what the script says it prints.
type Step struct {
	Command
	Want string
}

// ParseScript splits a script into steps. name is the file's name for messages. The
// format is that of github.com/cockroachdb/datadriven without its subtests: a
// directive line, input lines, "----", expected lines up to an empty line; a second
// "----" line makes the expectation run to two more of them.
func ParseScript(name, text string) ([]Step, error) {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	var steps []Step
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		if line == "" || line[0] == '#' {
			continue
		}
		s := Step{Command: Command{Pos: name + ":" + strconv.Itoa(i+1)}}
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + " " + strings.TrimSpace(lines[i])
		}
		var err error
		if s.Name, s.Args, err = ParseLine(line); err != nil {
			return nil, errors.New(s.Pos + ": " + err.Error())
		}
		start := i + 1
		for i++; i < len(lines) && lines[i] != "----"; i++ {
			continue
		}
		s.Input = strings.TrimSpace(strings.Join(lines[min(start, len(lines)):min(i, len(lines))], "\n"))
		s.Want, i = expected(lines, i+1)
		steps = append(steps, s)
	}
	return steps, nil
}

// expected collects the lines of an expectation that starts at line i and returns the
// index of the last line it used.
func expected(lines []string, i int) (string, int) {
	var b strings.Builder
	if i < len(lines) && lines[i] == "----" {
		for i++; i < len(lines); i++ {
			if lines[i] == "----" && i+1 < len(lines) && lines[i+1] == "----" {
				return b.String(), i + 1
			}
			b.WriteString(lines[i] + "\n")
		}
		return b.String(), i
	}
	for ; i < len(lines) && strings.TrimSpace(lines[i]) != ""; i++ {
		b.WriteString(lines[i] + "\n")
	}
	return b.String(), i
}

var errSyntax = errors.New("cannot parse the directive: want words, key=value or key=(value, value)")

// ParseLine splits a directive line into its name and arguments.
func ParseLine(line string) (name string, args []Arg, err error) {
	line = strings.TrimSpace(line)
	name, line = cut(line, " ")
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		var a Arg
		a.Key, line = cut(line, " =")
		if a.Key == "" {
			return "", nil, errSyntax
		}
		if strings.HasPrefix(line, "=") {
			line = line[1:]
			if strings.HasPrefix(line, "(") {
				a.Vals, line, err = values(line[1:])
				if err != nil {
					return "", nil, err
				}
			} else {
				var v string
				v, line = cut(line, " ")
				a.Vals = []string{v}
			}
		}
		args = append(args, a)
	}
	return name, args, nil
}

// values reads "a, b)" and returns what follows it.
func values(line string) (vals []string, rest string, err error) {
	depth, start := 1, 0
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return append(vals, line[start:i]), line[i+1:], nil
			}
		case ',':
			if depth == 1 {
				vals = append(vals, line[start:i])
				for i+1 < len(line) && line[i+1] == ' ' {
					i++
				}
				start = i + 1
			}
		}
	}
	return nil, "", errSyntax
}

// cut splits s before the first of chars.
func cut(s, chars string) (before, after string) {
	if i := strings.IndexAny(s, chars); i >= 0 {
		return s[:i], s[i:]
	}
	return s, ""
}
