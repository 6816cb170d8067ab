package interop

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/tests/interop/lab"
)

var (
	full   = flag.Bool("interop.full", false, "run everything and print a table, instead of a selection")
	kernel = flag.String("interop.kernel", os.Getenv("RVTSIM_INTEROP_KERNEL"), "package of the kernel to test against (default "+lab.DefaultKernel+")")
	cache  = flag.String("interop.cache", "", "folder for unpacked kernels (default in the user's cache)")
	pcap   = flag.String("interop.pcap", "", "write everything on the wire to this file")
)

// skipAll is why nothing can run here.
var skipAll string

var cfg lab.Config // of the machine

func TestMain(m *testing.M) {
	flag.Parse()
	skipAll = lab.Missing()
	cfg = lab.Config{Kernel: *kernel, Cache: *cache, Pcap: *pcap}
	if skipAll == "" && !lab.Isolated() {
		if err := lab.Fetch(cfg); err != nil {
			skipAll = "missing tool: a kernel with soft-RoCE: " + err.Error()
		}
	}
	if skipAll == "" && !lab.Isolated() {
		status, err := lab.Isolate()
		switch {
		case err == nil:
			os.Exit(status)
		case errors.Is(err, lab.ErrNotPermitted):
			skipAll = err.Error()
		default:
			fmt.Fprintln(os.Stderr, "interop:", err)
			os.Exit(1)
		}
	}
	status := m.Run()
	removeCommand()
	if machine.guest != nil {
		if err := machine.guest.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "interop:", err)
			status = max(status, 1)
		}
	}
	if *full {
		printSummary()
	}
	os.Exit(status)
}

// machine is the one virtual machine of all tests.
var machine struct {
	once  sync.Once
	guest *lab.Guest
	err   error
}

// guest returns the virtual machine, which the first caller starts.
func guest(t *testing.T) *lab.Guest {
	t.Helper()
	if skipAll != "" {
		t.Skip(skipAll)
	}
	machine.once.Do(func() {
		start := time.Now()
		machine.guest, machine.err = lab.Boot(context.Background(), cfg)
		if machine.err == nil {
			t.Logf("%s is up after %.1f s", machine.guest.Kernel, time.Since(start).Seconds())
		}
	})
	require.NoError(t, machine.err)
	return machine.guest
}

// oldKernel reports whether the kernel is of the 6.1 series, whose rxe the profile is
// modelled on.
func oldKernel(t *testing.T) bool { return strings.Contains(guest(t).Kernel, "-6.1.") }

// family is an IP version with the addresses that the two sides have.
type family struct {
	name        string
	number      int
	host, guest string
	nobody      string // an address of the wire that nobody has
}

var families = []family{
	{"IPv4", 4, lab.HostIP4, lab.GuestIP4, "192.0.2.99"},
	{"IPv6", 6, lab.HostIP6, lab.GuestIP6, "2001:db8::99"},
}

// timeout returns a context that bounds a test's waiting for the machine.
func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// results counts the lines of the table by result.
var results struct {
	sync.Mutex
	count map[string]int
}

// columns are the table's, wide enough for what the tests are called.
const columns = "%-62s  %-16s  %-7s  %-7s  %s\n"

// record makes the test a line of the table, which is printed when the test ends.
func record(t *testing.T, what, direction, family string) {
	start := time.Now()
	t.Cleanup(func() {
		result := "ok"
		switch {
		case t.Failed():
			result = "FAILED"
		case t.Skipped():
			result = "skipped"
		}
		results.Lock()
		defer results.Unlock()
		if results.count == nil {
			results.count = map[string]int{}
			if *full {
				fmt.Printf(columns, "WHAT", "DIRECTION", "NETWORK", "RESULT", "TIME")
			}
		}
		results.count[result]++
		if *full {
			took := fmt.Sprintf("%.2f s", time.Since(start).Seconds())
			fmt.Printf(columns, what, direction, cmp.Or(family, "-"), result, took)
		}
	})
}

func printSummary() {
	if skipAll != "" {
		fmt.Println("SKIP  interop:", skipAll)
		return
	}
	n := results.count
	fmt.Printf("%d ok, %d failed, %d skipped", n["ok"], n["FAILED"], n["skipped"])
	if machine.guest != nil {
		fmt.Printf(", against %s", machine.guest.Kernel)
	}
	fmt.Println()
}
