package tidy

import (
	"go/ast"
	"go/token"
	"strings"
)

// selfEvident are methods whose contract is an interface that every reader knows.
var selfEvident = map[string]bool{
	"String": true, "Error": true, "Unwrap": true, "Is": true, "As": true, "Format": true, "GoString": true,
	"Len": true, "Less": true, "Swap": true, "Push": true, "Pop": true, // sort, container/heap
	"MarshalText": true, "UnmarshalText": true, "AppendText": true,
}

// checkDocs requires a comment on every exported identifier that others can name. A
// comment on a function, type or single value starts with its name, after an article if
// it must, so that searching for a name finds what it means. In a group of constants or
// variables a comment on the group, the line or the type will do.
func checkDocs(f *goFile) []Problem {
	var out []Problem
	for _, d := range f.ast.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			out = append(out, checkFuncDoc(f, d)...)
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					out = append(out, checkTypeDoc(f, d, s)...)
				case *ast.ValueSpec:
					out = append(out, checkValueDoc(f, d, s)...)
				}
			}
		}
	}
	return out
}

func checkFuncDoc(f *goFile, fn *ast.FuncDecl) []Problem {
	recv := receiver(fn)
	if !fn.Name.IsExported() || recv != "" && (!token.IsExported(recv) || selfEvident[fn.Name.Name]) {
		return nil
	}
	if startsWith(fn.Doc, fn.Name.Name) {
		return nil
	}
	name := funcName(fn)
	return []Problem{f.problem(fn.Pos(), RuleDoc, name, "%s has no comment that starts with %q", name, fn.Name.Name)}
}

func checkTypeDoc(f *goFile, d *ast.GenDecl, s *ast.TypeSpec) []Problem {
	doc := s.Doc
	if doc == nil && !d.Lparen.IsValid() {
		doc = d.Doc
	}
	if !s.Name.IsExported() || startsWith(doc, s.Name.Name) || d.Lparen.IsValid() && (s.Comment != nil || d.Doc != nil) {
		return nil
	}
	return []Problem{f.problem(s.Pos(), RuleDoc, s.Name.Name, "%s has no comment that starts with its name", s.Name.Name)}
}

func checkValueDoc(f *goFile, d *ast.GenDecl, s *ast.ValueSpec) []Problem {
	if !d.Lparen.IsValid() {
		name := s.Names[0]
		if !name.IsExported() || startsWith(d.Doc, name.Name) || len(s.Names) > 1 && d.Doc != nil {
			return nil
		}
		return []Problem{f.problem(s.Pos(), RuleDoc, name.Name, "%s has no comment that starts with its name", name.Name)}
	}
	if d.Doc != nil || s.Doc != nil || s.Comment != nil || isEnum(d) {
		return nil
	}
	for _, name := range s.Names {
		if name.IsExported() {
			return []Problem{f.problem(s.Pos(), RuleDoc, name.Name, "%s has no comment, and neither has its group", name.Name)}
		}
	}
	return nil
}

// isEnum reports whether a group lists the values of a type, whose comment speaks for
// them all.
func isEnum(d *ast.GenDecl) bool {
	first, ok := d.Specs[0].(*ast.ValueSpec)
	return ok && d.Tok == token.CONST && first.Type != nil
}

// startsWith reports whether a comment's first word, articles aside, is name.
func startsWith(doc *ast.CommentGroup, name string) bool {
	text := doc.Text()
	for _, article := range []string{"A ", "An ", "The "} {
		text = strings.TrimPrefix(text, article)
	}
	rest, ok := strings.CutPrefix(text, name)
	return ok && (rest == "" || !isWordByte(rest[0]))
}

func isWordByte(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
