package main

import (
	"bufio"
	"bytes"
	"fmt"
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// loaded is a package with its syntax and types.
type loaded struct {
	fset  *token.FileSet
	files []*ast.File
	names []string // relative to the root, with slashes
	src   [][]byte
	types *types.Package
	info  *types.Info
}

// newImporter reads dependencies from export data, which the go command builds.
func newImporter(dir string, targets []string) (types.Importer, *token.FileSet, error) {
	args := []string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	for _, t := range targets {
		args = append(args, "./"+t)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, nil, fmt.Errorf("go list: %w\n%s", err, stderr.Bytes())
	}
	export := make(map[string]string)
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		path, file, _ := strings.Cut(s.Text(), " ")
		export[path] = file
	}
	fset := token.NewFileSet()
	return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		if export[path] == "" {
			return nil, fmt.Errorf("no export data for %q", path)
		}
		return os.Open(export[path])
	}), fset, nil
}

func loadPackage(fset *token.FileSet, imp types.Importer, dir, target string) (*loaded, error) {
	bp, err := build.ImportDir(filepath.Join(dir, filepath.FromSlash(target)), 0)
	if err != nil {
		return nil, err
	}
	p := &loaded{fset: fset}
	for _, name := range bp.GoFiles {
		src, err := os.ReadFile(filepath.Join(bp.Dir, name))
		if err != nil {
			return nil, err
		}
		rel := target + "/" + name
		f, err := parser.ParseFile(fset, rel, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		p.files, p.names, p.src = append(p.files, f), append(p.names, rel), append(p.src, src)
	}
	p.info = &types.Info{Types: make(map[ast.Expr]types.TypeAndValue), Uses: make(map[*ast.Ident]types.Object), Defs: make(map[*ast.Ident]types.Object)}
	conf := types.Config{Importer: imp}
	p.types, err = conf.Check(modulePath+"/"+target, fset, p.files, p.info)
	return p, err
}
