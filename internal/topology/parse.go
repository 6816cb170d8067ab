package topology

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	yaml "github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// MaxFileBytes is the longest file that is read. Ten thousand nodes with a flow each
// take about 1 MB.
const MaxFileBytes = 2 << 20

// Load reads and checks a topology file. The error is [Problems] if the file is bad
// and an *os.PathError if it cannot be read.
func Load(path string) (*File, error) { return LoadWith(path, Options{}) }

// Options are what a command line may change in a file while it is read.
type Options struct {
	// Nodes is how many nodes there shall be in all, 0 for as many as the file says: the
	// only group of the file grows or shrinks.
	Nodes int
	// Set replaces single values of the file: by path, as messages name it
	// ("network.loss", "traffic[0].size"), what shall stand there.
	Set map[string]string
	// Live is for networks that run until somebody ends them: faults may come after the
	// file's timeout, and random faults where there are no flows.
	Live bool
}

// LoadWith is Load with options.
func LoadWith(path string, o Options) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > MaxFileBytes {
		return nil, tooLong(path, info.Size())
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return ParseWith(path, b, o)
}

// Parse checks a topology file that has been read already. name stands for it in
// messages; the run is called after it if the file gives no name. The error is
// [Problems]. Parse keeps no reference to b.
func Parse(name string, b []byte) (*File, error) { return ParseWith(name, b, Options{}) }

// ParseWith is Parse with options.
func ParseWith(name string, b []byte, o Options) (*File, error) {
	d, root, err := open(name, b, o)
	if err != nil {
		return nil, err
	}
	f := decodeFile(d, root)
	d.checkSet()
	if len(d.problems) > 0 {
		return nil, d.problems.placed(b)
	}
	if f.Name == "" {
		f.Name = runName(name)
	}
	return f, nil
}

// open turns a text into a decoder and the value to begin with.
func open(name string, b []byte, o Options) (*decoder, value, error) {
	if len(b) > MaxFileBytes {
		return nil, value{}, tooLong(name, int64(len(b)))
	}
	if p := checkText(name, b); p != nil {
		return nil, value{}, Problems{*p}
	}
	tree, problem := parseYAML(name, b)
	if problem != nil {
		return nil, value{}, Problems{*problem}.placed(b)
	}
	d := &decoder{file: name, options: o, at: map[string]position{"": {1, 1}}, anchors: map[string]ast.Node{}}
	root, ok := d.document(tree)
	if !ok {
		return nil, value{}, d.problems.placed(b)
	}
	d.collectAnchors(root)
	return d, value{root, ""}, nil
}

// runName is the base name without extension.
func runName(path string) string {
	base := filepath.Base(path)
	return strings.TrimSuffix(base, filepath.Ext(base))
}

func tooLong(name string, n int64) Problems {
	return Problems{{name, 1, 1, "", fmt.Sprintf("found %d bytes; expected at most %d", n, MaxFileBytes)}}
}

// document returns the one document of the file.
func (d *decoder) document(tree *ast.File) (ast.Node, bool) {
	var root ast.Node
	for _, doc := range tree.Docs {
		switch doc.Body.(type) {
		case nil, *ast.CommentGroupNode:
			continue
		}
		if root != nil {
			d.problemAt(nodePosition(doc.Body), "", `found a second document after "---"; expected one document`)
			return nil, false
		}
		root = doc.Body
	}
	if root == nil {
		d.problemAt(position{1, 1}, "", "found an empty file; expected a topology that begins with \"version: %d\"", Version)
	}
	return root, root != nil
}

// parseYAML turns syntax errors, and whatever panic the YAML library may still hold,
// into a problem.
func parseYAML(name string, b []byte) (tree *ast.File, problem *Problem) {
	defer func() {
		if r := recover(); r != nil {
			tree, problem = nil, &Problem{name, 1, 1, "", "not valid YAML"}
		}
	}()
	tokens := lexer.Tokenize(string(b))
	tokens = slices.DeleteFunc(tokens, func(t *token.Token) bool { return t.Type == token.CommentType })
	if p := checkTokens(name, tokens); p != nil {
		return nil, p
	}
	// Repeated keys are let through here and reported with all other problems.
	tree, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err == nil {
		return tree, nil
	}
	p := &Problem{name, 1, 1, "", "not valid YAML: " + firstLine(err.Error())}
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) {
		p.Message = "not valid YAML: " + syntax.Message + syntaxHint(syntax.Message)
		if tk := syntax.Token; tk != nil && tk.Position != nil {
			p.Line, p.Column = tk.Position.Line, tk.Position.Column
		}
	}
	return nil, p
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// syntaxHint helps with the mistakes that this schema invites.
func syntaxHint(message string) string {
	if strings.Contains(message, "invalid header option") {
		return `; a value that starts with ">" needs quotes: ">=1", or write 1..`
	}
	return ""
}
