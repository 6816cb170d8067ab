package daemon

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rvtsim/rvtsim/mr"
)

// Writable implements mr.Prober. A copy back of what is there would undo what the process
// writes meanwhile, and one through /proc/self/mem does not ask for permission, so this
// goes by the list of the process's mappings. Where that is hidden nothing is refused.
func (m *ProcMem) Writable(addrs ...uint64) error {
	if m.pid <= 0 {
		return nil
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", m.pid))
	if err != nil {
		return nil // it cannot be found out
	}
	defer f.Close()
	if readOnly(f, addrs) {
		return mr.ErrFault
	}
	return nil
}

// readOnly reports whether a list of mappings, as /proc/PID/maps has it, has one of the
// addresses in a mapping that may not be written to.
func readOnly(maps io.Reader, addrs []uint64) bool {
	for s := bufio.NewScanner(maps); s.Scan(); {
		bounds, rights, _ := strings.Cut(s.Text(), " ")
		first, end, _ := strings.Cut(bounds, "-")
		from, err1 := strconv.ParseUint(first, 16, 64)
		to, err2 := strconv.ParseUint(end, 16, 64)
		if err1 != nil || err2 != nil || len(rights) > 1 && rights[1] == 'w' {
			continue
		}
		if slices.ContainsFunc(addrs, func(addr uint64) bool { return from <= addr && addr < to }) {
			return true
		}
	}
	return false
}
