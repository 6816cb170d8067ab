package arch

import (
	"fmt"
	"slices"
	"strings"
)

// CheckImports compares the imports of pkgs with the table. Imports of tests are not
// looked at: a test may use what it needs, and the compiler forbids cycles.
func CheckImports(pkgs []*Package) []Problem { return checkImports(table, pkgs) }

func checkImports(rules []Rule, pkgs []*Package) []Problem {
	var out []Problem
	mains := make(map[string]bool)
	for _, p := range pkgs {
		mains[p.ImportPath] = p.Name == "main"
	}
	for _, p := range pkgs {
		r, ok := lookup(rules, p.Rel())
		if !ok {
			out = append(out, Problem{p.Rel(), "not in the table of internal/arch/table.go: add a rule that says what it may import, and why it exists"})
			continue
		}
		for _, imp := range p.Imports {
			why := refuse(r, imp)
			if mains[imp] {
				why = "a command is used as a built binary only"
			}
			if reason := onlyInTests(imp); reason != "" {
				why = "it is for tests only: " + reason
			}
			if why != "" {
				out = append(out, Problem{p.Rel(), fmt.Sprintf("may not import %s: %s (rule: %s)", relative(imp), why, r.Reason)})
			}
		}
		if r.Kind == Pure {
			out = append(out, checkFiles(p)...)
		}
	}
	return out
}

// onlyInTests says why nothing but tests may use a package; the empty string means that the
// rules decide.
func onlyInTests(imp string) string {
	for module, reason := range testsOnly {
		if strings.HasPrefix(imp+"/", module+"/") {
			return reason
		}
	}
	return ""
}

// refuse says why a rule forbids an import; the empty string means that it does not.
func refuse(r Rule, imp string) string {
	switch {
	case r.Kind == Open:
		return ""
	case inModule(imp):
		rel := relative(imp)
		isLeaf := slices.Contains(leaves, r.Package)
		if slices.Contains(r.Module, rel) || !isLeaf && slices.Contains(leaves, rel) {
			return ""
		}
		return "the table does not list it"
	case r.Kind == Shell:
		return ""
	case slices.Contains(pureStd, imp) || slices.Contains(r.Std, imp):
		return ""
	case isStandard(imp):
		return "not on the list of standard packages that pure code may use"
	}
	return "pure code uses no other module"
}

// isStandard follows the go command: only a module's first path element has a dot.
func isStandard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

// checkFiles rejects files of a pure package that are not plain Go.
func checkFiles(p *Package) []Problem {
	var out []Problem
	for _, files := range [][]string{p.CgoFiles, p.CFiles, p.SFiles} {
		for _, f := range files {
			out = append(out, Problem{p.Rel(), f + " is not plain Go, which is all a pure package may hold"})
		}
	}
	return out
}

// CheckConstraints rejects build constraints in pure packages, other than those that
// turn assertions on and off: given the packages under each set of tags, a file must
// be built under one of them. A file for one system only would make results depend on
// the system, and would escape CheckPurity on the others.
func CheckConstraints(loads ...[]*Package) []Problem {
	built := make(map[string]bool)
	for _, pkgs := range loads {
		for _, p := range pkgs {
			for _, f := range p.GoFiles {
				built[p.Rel()+"/"+f] = true
			}
		}
	}
	var out []Problem
	for _, p := range loads[0] {
		if r, ok := lookup(table, p.Rel()); !ok || r.Kind != Pure {
			continue
		}
		for _, f := range p.IgnoredGoFiles {
			if !built[p.Rel()+"/"+f] && !strings.HasSuffix(f, "_test.go") {
				out = append(out, Problem{p.Rel(), f + " has a build constraint; a pure package is the same on every system"})
			}
		}
	}
	return out
}
