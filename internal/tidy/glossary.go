package tidy

import (
	"go/ast"
	"path"
	"regexp"
	"strings"
)

// glossaryEntry is a Go name that GLOSSARY.md promises, as package.Name or
// package.Type.Member.
type glossaryEntry struct {
	name string
	line int
}

var goNameRE = regexp.MustCompile("`([^`]+)`")

// parseGlossary returns the Go names in the tables of a glossary: what stands in
// backquotes in a column headed "Go".
func parseGlossary(src string) []glossaryEntry {
	var out []glossaryEntry
	column := -1
	for i, line := range strings.Split(src, "\n") {
		if !strings.HasPrefix(line, "|") {
			column = -1
			continue
		}
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for c, cell := range cells {
			switch {
			case strings.TrimSpace(cell) == "Go":
				column = c
			case c == column:
				for _, m := range goNameRE.FindAllStringSubmatch(cell, -1) {
					out = append(out, glossaryEntry{name: m[1], line: i + 1})
				}
			}
		}
	}
	return out
}

// declared returns the names that files declare, in the form of glossaryEntry: types,
// functions, variables and constants, struct fields and methods. The package part is
// the name in the package clause.
func declared(files []*goFile) map[string]bool {
	names := make(map[string]bool)
	for _, f := range files {
		pkg := f.ast.Name.Name + "."
		for _, d := range f.ast.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				names[pkg+funcName(d)] = true
			case *ast.GenDecl:
				for _, s := range d.Specs {
					declareSpec(names, pkg, s)
				}
			}
		}
	}
	return names
}

func declareSpec(names map[string]bool, pkg string, spec ast.Spec) {
	switch s := spec.(type) {
	case *ast.ValueSpec:
		for _, n := range s.Names {
			names[pkg+n.Name] = true
		}
	case *ast.TypeSpec:
		names[pkg+s.Name.Name] = true
		var members *ast.FieldList
		switch t := s.Type.(type) {
		case *ast.StructType:
			members = t.Fields
		case *ast.InterfaceType:
			members = t.Methods
		default:
			return
		}
		for _, field := range members.List {
			for _, n := range field.Names {
				names[pkg+s.Name.Name+"."+n.Name] = true
			}
		}
	}
}

// checkGlossary compares the glossary with the code. A name must exist, or stand in
// pending: the names that are planned. A pending name that exists, or that the glossary
// does not use, is a problem as well, so that the list can only shrink.
func checkGlossary(entries []glossaryEntry, names map[string]bool, pending []string) (missing, unneeded []string) {
	waiting := make(map[string]bool)
	for _, name := range pending {
		waiting[name] = true
	}
	used := make(map[string]bool)
	for _, e := range entries {
		if used[e.name] {
			continue
		}
		used[e.name] = true
		if !names[e.name] && !waiting[e.name] {
			missing = append(missing, e.name)
		}
	}
	for _, name := range pending {
		if names[name] || !used[name] {
			unneeded = append(unneeded, name)
		}
	}
	return missing, unneeded
}

// isSource reports whether a file can declare a name of the glossary.
func isSource(f *file) bool {
	return f.isGo() && !f.isTest() && !f.inTestdata() && path.Dir(f.path) != "."
}
