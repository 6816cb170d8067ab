package daemon

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/rvtsim/rvtsim/mr"
)

// Writable implements mr.Prober. A copy back of what is there would undo what the process
// writes meanwhile, and one through /proc/self/mem does not ask for permission, so this
// goes by the list of the process's mappings. Where that is hidden nothing is refused.
func (m *ProcMem) Writable(addr uint64) error {
	if m.pid <= 0 {
		return nil
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", m.pid))
	if err != nil {
		return nil // it cannot be found out
	}
	defer f.Close()
	if found, writable := mapped(f, addr); found && !writable {
		return mr.ErrFault
	}
	return nil
}

// mapped looks an address up in a list of mappings as /proc/PID/maps has it.
func mapped(maps io.Reader, addr uint64) (found, writable bool) {
	for s := bufio.NewScanner(maps); s.Scan(); {
		bounds, rights, _ := strings.Cut(s.Text(), " ")
		first, end, _ := strings.Cut(bounds, "-")
		from, err1 := strconv.ParseUint(first, 16, 64)
		to, err2 := strconv.ParseUint(end, 16, 64)
		if err1 == nil && err2 == nil && from <= addr && addr < to {
			return true, len(rights) > 1 && rights[1] == 'w'
		}
	}
	return false, false
}
