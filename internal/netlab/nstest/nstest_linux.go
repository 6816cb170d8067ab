package nstest

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/internal/netlab"
)

// inside marks the process that runs in the namespace.
const inside = "RVTSIM_NSTEST"

// refused is why there is no namespace, empty if there is one.
var refused string

// Main is for TestMain: it runs the tests of this program once more in a new network
// namespace, whose loopback device is up, and ends. Where that is not permitted the tests run here, and those that call
// [Need] are skipped.
func Main(m *testing.M) {
	if os.Getenv(inside) != "" {
		if lo, err := netlink.LinkByName("lo"); err != nil || netlink.LinkSetUp(lo) != nil {
			fmt.Fprintln(os.Stderr, "nstest: the loopback device does not start:", err)
			os.Exit(1)
		}
		os.Exit(m.Run())
	}
	runtime.LockOSThread() // the child is killed when the thread ends that made it
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	netlab.Contain(cmd, unix.CLONE_NEWNET)
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit):
		os.Exit(max(exit.ExitCode(), 1))
	case !netlab.Refused(err):
		fmt.Fprintln(os.Stderr, "nstest:", err)
		os.Exit(1)
	}
	refused = netlab.ErrNotPermitted.Error() + ": " + err.Error()
	os.Exit(m.Run())
}

// Need skips the test if it does not run in a namespace of its own.
func Need(t testing.TB) {
	t.Helper()
	if os.Getenv(inside) == "" {
		if refused == "" {
			t.Fatal("nstest: TestMain does not call nstest.Main")
		}
		t.Skip(refused)
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("missing tool: ip (apt-get install iproute2)")
	}
}

// IP runs the program ip, whose arguments are in one string.
func IP(t testing.TB, args string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}
