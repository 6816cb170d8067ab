// Package buildid tells builds of this program apart, also those of one version.
package buildid

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"sync"
)

// Own names the build of the program that runs, also if another file has taken its place
// since: what Go has noted in it, which changes with whatever was compiled into it, or a
// digest of the file if it has no note. It is the same in all calls, from any goroutine.
var Own = sync.OnceValues(func() (string, error) { return Of("/proc/self/exe") })

// Of names the build of a program in a file.
func Of(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("buildid: %w", err)
	}
	defer f.Close()
	if id := noted(f); id != "" {
		return id, nil
	}
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("buildid: %w", err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// noted is the text of Go's note in an ELF file, or nothing. The note's header is the
// lengths of name and text, a number for the kind, and the name.
func noted(f io.ReaderAt) string {
	e, err := elf.NewFile(f)
	if err != nil {
		return ""
	}
	s := e.Section(".note.go.buildid")
	if s == nil {
		return ""
	}
	b, err := s.Data()
	if err != nil || len(b) < 16 || !bytes.Equal(b[12:16], []byte("Go\x00\x00")) {
		return ""
	}
	n := e.ByteOrder.Uint32(b[4:])
	return string(b[16:min(16+int64(n), int64(len(b)))])
}
