package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
)

// isolatedEnv marks the process that runs in the namespace.
const isolatedEnv = "RVTSIM_INTEROP_ISOLATED"

// tools are the programs that this package runs, with the Debian packages they are in.
var tools = []struct{ name, pkg string }{
	{"qemu-system-x86_64", "qemu-system-x86"}, {"busybox", "busybox-static"}, {"cc", "gcc libc6-dev"},
	{"ip", "iproute2"}, {"rdma", "iproute2"}, {"xz", "xz-utils"}, {"apt-get", "apt"}, {"apt-cache", "apt"}, {"dpkg-deb", "dpkg"},
	{"ibv_devinfo", "ibverbs-utils"}, {"ibv_rc_pingpong", "ibverbs-utils"},
}

// Missing says why the lab cannot work on this machine, "" if nothing speaks against it.
// What can be installed is reported as "missing tool: NAME".
func Missing() string {
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		return "the virtual machine is an amd64 one with programs of this host, which is " + runtime.GOARCH
	}
	for _, t := range tools {
		if _, err := exec.LookPath(t.name); err != nil && findProgram(t.name) == "" {
			return fmt.Sprintf("missing tool: %s (apt-get install %s)", t.name, t.pkg)
		}
	}
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		return "missing tool: headers of libibverbs (apt-get install libibverbs-dev)"
	}
	if _, err := os.Stat("/usr/include/rdma/rdma_cma.h"); err != nil {
		return "missing tool: headers of librdmacm (apt-get install librdmacm-dev)"
	}
	if found, _ := filepath.Glob("/usr/lib/*/libibverbs/librxe-rdmav*.so"); len(found) == 0 {
		return "missing tool: rxe provider of libibverbs (apt-get install ibverbs-providers)"
	}
	if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil {
		return "no tap devices here: " + err.Error()
	} else {
		f.Close()
	}
	return ""
}

// ErrNotPermitted is returned by [Isolate] where this process may not make a network
// namespace, as in most containers.
var ErrNotPermitted = errors.New("network namespaces are not permitted here")

// Isolated reports whether this process runs in a namespace that Isolate made.
func Isolated() bool { return os.Getenv(isolatedEnv) != "" }

// Isolate runs this program once more, with the same arguments, in a new network
// namespace, and returns its exit status. Call it from the main goroutine before
// anything else. The namespace and all that is in it vanish with the last process in
// it, and that process is killed if this one dies.
func Isolate() (status int, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	runtime.LockOSThread() // the child is killed when the thread ends that made it
	defer runtime.UnlockOSThread()
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolatedEnv+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	// The child tidies up when it is interrupted; this process waits for it.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err = cmd.Start(); err == nil {
		go func() {
			for s := range signals {
				_ = cmd.Process.Signal(s)
			}
		}()
		err = cmd.Wait()
	}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		if exit.ExitCode() < 0 {
			return 2, nil // killed
		}
		return exit.ExitCode(), nil
	case errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EACCES), errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EINVAL):
		return 0, fmt.Errorf("%w: %w", ErrNotPermitted, err)
	}
	return 0, err
}

// Addresses on the wire.
const (
	HostIP4, GuestIP4 = "192.0.2.1", "192.0.2.2"
	HostIP6, GuestIP6 = "2001:db8::1", "2001:db8::2"

	// TapName is the wire's network device in the namespace.
	TapName   = "tap0"
	agentPort = "7000"
)

// makeWire makes the tap device and gives this side its addresses.
func makeWire() error {
	if !Isolated() {
		return errors.New("lab: not in a namespace of its own; call Isolate first")
	}
	if err := run("ip", "link", "set", "lo", "up"); err != nil {
		return err
	}
	if err := run("ip", "tuntap", "add", "dev", TapName, "mode", "tap"); err != nil {
		return err
	}
	for _, knob := range []string{"accept_dad", "router_solicitations"} {
		name := "/proc/sys/net/ipv6/conf/" + TapName + "/" + knob
		if err := os.WriteFile(name, []byte("0"), 0); err != nil {
			return err
		}
	}
	for _, line := range []string{
		"addr add " + HostIP4 + "/24 dev " + TapName,
		"addr add " + HostIP6 + "/64 dev " + TapName + " nodad",
		"link set " + TapName + " up",
		"route add 224.0.0.0/4 dev " + TapName,
	} {
		if err := run("ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	return nil
}

// run runs a system program and puts what it said into the error.
func run(name string, args ...string) error {
	path := findProgram(name)
	if path == "" {
		path = name
	}
	if out, err := exec.Command(path, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, lastLine(out))
	}
	return nil
}
