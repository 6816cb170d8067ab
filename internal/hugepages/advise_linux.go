package hugepages

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// pageBytes is the size of a huge page where the kernel has one size; with another,
// the kernel does part of what is asked.
const pageBytes = 2 << 20

// Advise asks for huge pages in the memory that the process has now, and has the kernel
// move together what is there already (Linux 6.1; otherwise the kernel does it in the
// background). It returns how many bytes lie in huge pages that it could make or that were
// there. It changes nothing that a program can see but time and the resident size, costs
// about a millisecond for 10 MiB the first time and next to nothing later, and may be called from any
// goroutine.
func Advise() (int, error) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	areas, err := anonymous(f)
	if err != nil {
		return 0, err
	}
	done := 0
	for _, a := range areas {
		done += a.advise()
	}
	return done, nil
}

// area is a range of addresses whose bounds are multiples of pageBytes.
type area struct{ from, to uint64 }

// anonymous reads the areas that are private, writable and no file's: Go's heap is among
// them.
func anonymous(maps io.Reader) (areas []area, err error) {
	s := bufio.NewScanner(maps)
	for s.Scan() {
		f := strings.Fields(s.Text())
		// address, permissions, offset, device, inode and, if there is one, a path
		if len(f) < 5 || f[1] != "rw-p" || f[4] != "0" || len(f) > 5 && !strings.HasPrefix(f[5], "[anon:") {
			continue
		}
		var a area
		if _, err := fmt.Sscanf(f[0], "%x-%x", &a.from, &a.to); err != nil {
			return nil, fmt.Errorf("hugepages: /proc/self/maps: %q: %w", s.Text(), err)
		}
		a.from, a.to = (a.from+pageBytes-1)&^(pageBytes-1), a.to&^(pageBytes-1)
		if a.from < a.to {
			areas = append(areas, a)
		}
	}
	return areas, s.Err()
}

// advise returns how many bytes are in huge pages afterwards. A page that is gone meanwhile,
// or of which nothing is in use, is no failure.
func (a area) advise() (done int) {
	_ = a.madvise(unix.MADV_HUGEPAGE)
	for at := a.from; at < a.to; at += pageBytes {
		if (area{at, at + pageBytes}).madvise(unix.MADV_COLLAPSE) == nil {
			done += pageBytes
		}
	}
	return done
}

// madvise names the area by numbers: there is no object of Go's that is all of it.
func (a area) madvise(advice int) error {
	_, _, errno := unix.Syscall(unix.SYS_MADVISE, uintptr(a.from), uintptr(a.to-a.from), uintptr(advice))
	if errno != 0 {
		return errno
	}
	return nil
}
