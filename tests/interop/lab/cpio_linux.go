package lab

import (
	"bufio"
	"fmt"
	"io"
	"path"
	"strings"
)

// archive writes an initramfs: a cpio archive in "newc" format (kernel documentation,
// driver-api/early-userspace/buffer-format). Parent directories are added as needed.
type archive struct {
	w     *bufio.Writer
	ino   int
	dirs  map[string]bool
	files map[string]bool
}

func newArchive(w io.Writer) *archive {
	return &archive{w: bufio.NewWriterSize(w, 1<<20), dirs: map[string]bool{"": true}, files: map[string]bool{}}
}

const (
	modeDir  = 0o040755
	modeFile = 0o100755
	modeLink = 0o120777
)

// file adds a file with its content, executable. A name that was added before is kept.
func (a *archive) file(name string, content []byte) error { return a.add(name, modeFile, content) }

// link adds a symbolic link.
func (a *archive) link(name, target string) error { return a.add(name, modeLink, []byte(target)) }

func (a *archive) add(name string, mode int, content []byte) error {
	name = strings.TrimPrefix(path.Clean(name), "/")
	if a.files[name] {
		return nil
	}
	a.files[name] = true
	if err := a.dir(path.Dir(name)); err != nil {
		return err
	}
	return a.entry(name, mode, content)
}

// dir adds a directory and the ones above it.
func (a *archive) dir(name string) error {
	name = strings.Trim(path.Clean(name), "/")
	if name == "." || a.dirs[name] {
		return nil
	}
	a.dirs[name] = true
	if err := a.dir(path.Dir(name)); err != nil {
		return err
	}
	return a.entry(name, modeDir, nil)
}

// entry writes one header, its name and its content, each padded to four bytes.
func (a *archive) entry(name string, mode int, content []byte) error {
	a.ino++
	fields := []int{a.ino, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0}
	fmt.Fprint(a.w, "070701")
	for _, f := range fields {
		fmt.Fprintf(a.w, "%08x", f)
	}
	n := 6 + 8*len(fields) + len(name) + 1
	a.w.WriteString(name)
	a.w.WriteByte(0)
	a.pad(n)
	a.w.Write(content)
	return a.pad(len(content))
}

func (a *archive) pad(n int) error {
	_, err := a.w.Write(make([]byte, -n&3))
	return err // bufio keeps the first error
}

// close writes the end mark.
func (a *archive) close() error {
	if err := a.entry("TRAILER!!!", 0, nil); err != nil {
		return err
	}
	return a.w.Flush()
}
