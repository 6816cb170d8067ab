package tidy

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strings"
)

// mentions are words that tell of somebody's machine rather than of this project. They
// are put together here so that this file passes its own check.
var mentions = []string{
	"/wo" + "rk/", "/tmp/br" + "ief", "/ro" + "ot/", "shared" + "/facts", "style-" + "anchors", "kernel-" + "abi.md",
	"launcher-and-" + "gids", "/tmp/bash" + "_jobs",
}

// checkMentions looks at any text file.
func checkMentions(f *file) []Problem {
	var out []Problem
	for i, line := range bytes.Split(f.src, []byte("\n")) {
		for _, word := range mentions {
			if bytes.Contains(line, []byte(word)) {
				out = append(out, Problem{Path: f.path, Line: i + 1, Rule: RuleMention, Item: word, Text: fmt.Sprintf("mentions %q, which means nothing to a reader", word)})
			}
		}
	}
	return out
}

// goFile is a parsed Go file.
type goFile struct {
	*file
	fset *token.FileSet
	ast  *ast.File
}

// parse returns nil and a problem when the file is not Go.
func parse(f *file) (*goFile, []Problem) {
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, f.path, f.src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, []Problem{{Path: f.path, Rule: RuleSyntax, Text: err.Error()}}
	}
	return &goFile{file: f, fset: fset, ast: tree}, nil
}

func (f *goFile) line(p token.Pos) int { return f.fset.Position(p).Line }

func (f *goFile) problem(p token.Pos, rule Rule, item, text string, args ...any) Problem {
	return Problem{Path: f.path, Line: f.line(p), Rule: rule, Item: item, Text: fmt.Sprintf(text, args...)}
}

// checkGo applies the rules that need one Go file only. pure says whether the file
// belongs to a pure package, whose exported identifiers must be documented.
func checkGo(f *goFile, pure bool) []Problem {
	if ast.IsGenerated(f.ast) {
		return nil
	}
	out := checkFormat(f)
	if n := bytes.Count(f.src, []byte("\n")); n > maxFileLines {
		out = append(out, Problem{Path: f.path, Rule: RuleFileLines, Text: fmt.Sprintf("%d lines, limit %d: split it by topic", n, maxFileLines)})
	}
	out = append(out, checkFuncs(f)...)
	out = append(out, checkSleep(f)...)
	out = append(out, checkTODO(f)...)
	if pure && !f.isTest() {
		out = append(out, checkDocs(f)...)
	}
	return out
}

func checkFormat(f *goFile) []Problem {
	want, err := format.Source(f.src)
	if err != nil || bytes.Equal(want, f.src) {
		return nil // a syntax error has been reported by parse
	}
	return []Problem{{Path: f.path, Rule: RuleFormat, Text: "gofmt would change it"}}
}

// checkFuncs measures functions from the line of "func" to that of the closing brace.
func checkFuncs(f *goFile) []Problem {
	limit := maxFuncLines
	if f.isTest() {
		limit = maxTestFuncLines
	}
	var out []Problem
	for _, d := range f.ast.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok || fn.Body == nil {
			continue
		}
		n := f.line(fn.End()) - f.line(fn.Pos()) + 1 - f.tableLines(fn.Body)
		if n > limit {
			name := funcName(fn)
			out = append(out, f.problem(fn.Pos(), RuleFuncLines, name, "%s has %d lines, limit %d: move straight-line parts out", name, n, limit))
		}
	}
	return out
}

// tableLines counts the lines between the braces of outermost table literals. Function
// literals inside a table are code and do not get off so lightly.
func (f *goFile) tableLines(body ast.Node) int {
	n := 0
	ast.Inspect(body, func(node ast.Node) bool {
		lit, ok := node.(*ast.CompositeLit)
		if !ok || !isTable(lit) {
			return true
		}
		n += max(0, f.line(lit.Rbrace)-f.line(lit.Lbrace)-1) - f.codeLines(lit)
		return false
	})
	return n
}

func isTable(lit *ast.CompositeLit) bool {
	switch lit.Type.(type) {
	case *ast.ArrayType, *ast.MapType:
		return true
	}
	return false
}

// codeLines counts the lines of multi-line function literals in n.
func (f *goFile) codeLines(n ast.Node) int {
	lines := 0
	ast.Inspect(n, func(node ast.Node) bool {
		fn, ok := node.(*ast.FuncLit)
		if !ok {
			return true
		}
		if l := f.line(fn.End()) - f.line(fn.Pos()); l > 0 {
			lines += l + 1
		}
		return false
	})
	return lines
}

// funcName is Name, or Type.Name for a method.
func funcName(fn *ast.FuncDecl) string {
	if recv := receiver(fn); recv != "" {
		return recv + "." + fn.Name.Name
	}
	return fn.Name.Name
}

// receiver is the name of a method's type; empty for a function.
func receiver(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	t := fn.Recv.List[0].Type
	for {
		switch x := t.(type) {
		case *ast.StarExpr:
			t = x.X
		case *ast.IndexExpr:
			t = x.X
		case *ast.IndexListExpr:
			t = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

// sleepAllowed is where tests meet programs that they cannot wait for in another way.
const sleepAllowed = "tests/interop"

// checkSleep rejects time.Sleep in tests. Within a call of synctest.Test the clock is
// virtual and sleeping is how a test moves it.
func checkSleep(f *goFile) []Problem {
	if !f.isTest() || f.dir() == sleepAllowed || strings.HasPrefix(f.path, sleepAllowed+"/") {
		return nil
	}
	name := importName(f.ast, "time")
	if name == "" {
		return nil
	}
	bubble := importName(f.ast, "testing/synctest")
	var out []Problem
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if fn, ok := n.Fun.(*ast.SelectorExpr); ok && bubble != "" && fn.Sel.Name == "Test" {
				x, ok := fn.X.(*ast.Ident)
				return !ok || x.Name != bubble
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == name && n.Sel.Name == "Sleep" {
				out = append(out, f.problem(n.Pos(), RuleSleep, "", "a test waits for an event, a deadline or virtual time, not for a while"))
				return false
			}
		case *ast.Ident:
			if name == "." && n.Name == "Sleep" {
				out = append(out, f.problem(n.Pos(), RuleSleep, "", "a test waits for an event, a deadline or virtual time, not for a while"))
			}
		}
		return true
	})
	return out
}

// importName is the name a file uses for a package; empty when it does not import it.
func importName(f *ast.File, importPath string) string {
	for _, imp := range f.Imports {
		if strings.Trim(imp.Path.Value, `"`) != importPath {
			continue
		}
		if imp.Name != nil {
			return imp.Name.Name
		}
		return path.Base(importPath)
	}
	return ""
}

var (
	todoRE   = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\b`)
	issuedRE = regexp.MustCompile(`\b(TODO|FIXME|XXX|HACK)\s*\(?#\d+`)
)

// checkTODO looks at comments for notes that name no issue. Words in quotes are spoken
// about and not meant.
func checkTODO(f *goFile) []Problem {
	var out []Problem
	for _, g := range f.ast.Comments {
		for _, c := range g.List {
			for i, line := range strings.Split(c.Text, "\n") {
				if todoRE.MatchString(line) && !issuedRE.MatchString(line) && !strings.ContainsAny(line, "\"`") {
					p := f.problem(c.Pos(), RuleTODO, "", "names no issue: write TODO(#123), or do it")
					p.Line += i
					out = append(out, p)
				}
			}
		}
	}
	return out
}

// checkPackageDocs requires one comment per package that says what the package owns.
// files are those of one folder.
func checkPackageDocs(files []*goFile) []Problem {
	code := slices.DeleteFunc(slices.Clone(files), func(f *goFile) bool { return f.isTest() })
	if len(code) == 0 {
		code = files // a folder that holds tests only
	}
	for _, f := range code {
		text := f.ast.Doc.Text()
		isMain := f.ast.Name.Name == "main"
		if text != "" && (isMain || strings.HasPrefix(text, "Package "+f.ast.Name.Name+" ")) {
			return nil
		}
	}
	f := code[0]
	return []Problem{{Path: f.dir(), Rule: RuleDoc, Text: fmt.Sprintf("package %s has no doc comment that starts with \"Package %s \": say what it owns and what it may not do", f.ast.Name.Name, f.ast.Name.Name)}}
}
