package tidy

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// skip is what is not part of the repository, relative to its root: folders, and the
// file .git of a linked working tree.
var skip = []string{".git", "bin", "out"}

// maxTextBytes bounds what is read as text; longer files are data.
const maxTextBytes = 4 << 20

// file is one file of the repository.
type file struct {
	path string // relative to the root, with slashes
	src  []byte
}

// dir is the folder a file is in; "." for the root.
func (f *file) dir() string { return path.Dir(f.path) }

func (f *file) isGo() bool   { return strings.HasSuffix(f.path, ".go") }
func (f *file) isTest() bool { return strings.HasSuffix(f.path, "_test.go") }

// inTestdata reports whether the go command ignores the file.
func (f *file) inTestdata() bool {
	return strings.Contains("/"+f.path, "/testdata/")
}

// readAll returns the text files below root. A file that vanishes meanwhile is passed over.
func readAll(root string) ([]file, error) {
	var out []file
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return ignoreMissing(err)
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		switch {
		case slices.Contains(skip, rel) && d.IsDir():
			return filepath.SkipDir
		case slices.Contains(skip, rel) || d.IsDir():
			return nil
		}
		if info, err := d.Info(); err != nil || !info.Mode().IsRegular() || info.Size() > maxTextBytes {
			return ignoreMissing(err)
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return ignoreMissing(err)
		}
		if !bytes.Contains(src, []byte{0}) {
			out = append(out, file{path: rel, src: src})
		}
		return nil
	})
	return out, err
}

func ignoreMissing(err error) error {
	if os.IsNotExist(err) {
		return nil
	}
	return err
}
