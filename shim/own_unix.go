//go:build unix

package shim

import (
	"os"
	"syscall"
)

// own reports whether path exists and belongs to this user: nobody else may decide what
// code is loaded into his programs.
func own(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSymlink != 0 {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Getuid()
}
