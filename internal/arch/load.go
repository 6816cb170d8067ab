package arch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
)

// Package is the part of go list's answer that the checks read.
type Package struct {
	ImportPath     string
	Name           string
	Dir            string
	GoFiles        []string
	IgnoredGoFiles []string
	CgoFiles       []string
	CFiles         []string
	SFiles         []string
	Imports        []string
	Standard       bool
	Export         string // path of the export data, with -export
}

// Rel returns the package's path relative to the module.
func (p *Package) Rel() string { return relative(p.ImportPath) }

// relative strips the module path; the root package becomes ".".
func relative(importPath string) string {
	if importPath == Module {
		return "."
	}
	return strings.TrimPrefix(importPath, Module+"/")
}

// inModule reports whether importPath belongs to this module.
func inModule(importPath string) bool {
	return importPath == Module || strings.HasPrefix(importPath, Module+"/")
}

// Load returns every package of the module rooted at dir, as built under the given
// build tags. A package that does not compile is returned all the same.
func Load(dir string, tags ...string) ([]*Package, error) {
	return goList(dir, "-e", "-tags="+strings.Join(tags, ","), "./...")
}

func goList(dir string, args ...string) ([]*Package, error) {
	const fields = "-json=ImportPath,Name,Dir,GoFiles,IgnoredGoFiles,CgoFiles,CFiles,SFiles,Imports,Standard,Export"
	cmd := exec.Command("go", append([]string{"list", fields}, args...)...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("arch: go list: %w\n%s", err, stderr.Bytes())
	}
	var pkgs []*Package
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		p := new(Package)
		switch err := dec.Decode(p); {
		case errors.Is(err, io.EOF):
			return pkgs, nil
		case err != nil:
			return nil, fmt.Errorf("arch: go list: %w", err)
		}
		pkgs = append(pkgs, p)
	}
}
