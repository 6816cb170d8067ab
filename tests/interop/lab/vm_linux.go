package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Config describes a virtual machine. The zero value is ready to use.
type Config struct {
	// Kernel is the package of the kernel; empty means DefaultKernel.
	Kernel string
	// Cache is the folder for unpacked kernels; empty means rvtsim/interop in the
	// user's cache folder.
	Cache string
	// Pcap names a file for everything on the wire; empty means none.
	Pcap string
	// Logf takes progress messages; nil discards them.
	Logf func(string, ...any)
	// Programs are copied from this host besides the usual ones, with the libraries that
	// they need, each to /bin. A path is taken as it is, a name is looked up.
	Programs []string
	// Accelerator runs the machine's processors: "tcg", the emulator, which works
	// everywhere the same, or "kvm"; empty means tcg.
	Accelerator string
	// MemoryMiB is the machine's memory; 0 means 512.
	MemoryMiB int
}

// Guest is a running virtual machine.
type Guest struct {
	// Kernel is the package that its kernel is from.
	Kernel string

	dir  string
	cmd  *exec.Cmd
	done chan struct{} // closed when QEMU has ended
}

// bootTimeout is long because the machine is emulated, perhaps on a busy host: an idle
// one needs five seconds.
const bootTimeout = 2 * time.Minute

// fill replaces what is empty.
func (c *Config) fill() error {
	if c.Logf == nil {
		c.Logf = func(string, ...any) {}
	}
	if c.Kernel == "" {
		c.Kernel = DefaultKernel
	}
	if c.Accelerator == "" {
		c.Accelerator = "tcg"
	}
	if c.MemoryMiB == 0 {
		c.MemoryMiB = 512
	}
	if c.Cache == "" {
		dir, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		c.Cache = filepath.Join(dir, "rvtsim", "interop")
	}
	return nil
}

// Fetch makes sure that the cache has the kernel. Call it before [Isolate]: where the
// machine runs there is no other network.
func Fetch(cfg Config) error {
	if err := cfg.fill(); err != nil {
		return err
	}
	_, err := fetchKernel(cfg.Cache, cfg.Kernel, cfg.Logf)
	return err
}

// Boot makes the wire and starts the machine, with a kernel that [Fetch] has put into the
// cache. It returns when the agent answers. The process must be [Isolated].
func Boot(ctx context.Context, cfg Config) (*Guest, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	if err := makeWire(); err != nil {
		return nil, err
	}
	k, err := cachedKernel(cfg.Cache, cfg.Kernel)
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rvtsim-interop-")
	if err != nil {
		return nil, err
	}
	g := &Guest{Kernel: k.pkg, dir: dir, done: make(chan struct{})}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		_ = os.RemoveAll(dir)
		os.Exit(130) // the machine dies with this process
	}()
	if err := g.boot(ctx, k, &cfg); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return g, nil
}

func (g *Guest) boot(ctx context.Context, k *kernel, cfg *Config) error {
	own, err := compileOwn(g.dir)
	if err != nil {
		return err
	}
	initrd := filepath.Join(g.dir, "initramfs")
	if err := writeInitramfs(initrd, k, own, cfg.Programs); err != nil {
		return err
	}
	if err := g.start(k.image, initrd, cfg); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	if err := g.answers(ctx); err != nil {
		g.kill()
		return fmt.Errorf("the machine does not answer: %w; the end of its console:\n%s", err, g.Console(20))
	}
	return nil
}

// start starts QEMU.
func (g *Guest) start(image, initrd string, cfg *Config) error {
	accel := cfg.Accelerator
	if accel == "tcg" {
		accel += ",thread=multi"
	}
	args := []string{
		"-accel", accel, "-machine", "q35", "-cpu", "max", "-smp", "2", "-m", strconv.Itoa(cfg.MemoryMiB),
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-kernel", image, "-initrd", initrd,
		"-append", "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr tsc=reliable no_timer_check" +
			" lab.ip4=" + GuestIP4 + "/24 lab.ip6=" + GuestIP6 + "/64",
		"-serial", "file:" + filepath.Join(g.dir, "console"),
		// Without a virtio header the host's kernel cuts trains of datagrams up, as it
		// does for a network card that cannot.
		"-netdev", "tap,id=n0,ifname=" + TapName + ",script=no,downscript=no,vnet_hdr=off",
		"-device", "virtio-net-pci,netdev=n0,mac=52:54:00:00:02:02,romfile=", "-device", "virtio-rng-pci",
	}
	if cfg.Pcap != "" {
		args = append(args, "-object", "filter-dump,id=f0,netdev=n0,file="+cfg.Pcap+",maxlen=9200")
	}
	g.cmd = exec.Command("qemu-system-x86_64", args...)
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.Create(filepath.Join(g.dir, "qemu"))
	if err != nil {
		return err
	}
	g.cmd.Stdout, g.cmd.Stderr = log, log
	started := make(chan error)
	go func() {
		// QEMU is killed when the thread ends that made it, so the thread waits here.
		runtime.LockOSThread()
		defer close(g.done)
		defer log.Close()
		err := g.cmd.Start()
		started <- err
		if err == nil {
			_ = g.cmd.Wait()
		}
	}()
	return <-started
}

// answers waits until a shell command works.
func (g *Guest) answers(ctx context.Context) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		_, err := g.Shell(attempt, "true")
		cancel()
		if err == nil {
			return nil
		}
		select {
		case <-g.done:
			log, _ := os.ReadFile(filepath.Join(g.dir, "qemu"))
			return fmt.Errorf("QEMU ended: %s", lastLine(log))
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Console returns the last lines of the machine's console.
func (g *Guest) Console(lines int) string {
	b, _ := os.ReadFile(filepath.Join(g.dir, "console"))
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// Close stops the machine and removes its files.
func (g *Guest) Close() error {
	g.kill()
	return os.RemoveAll(g.dir)
}

func (g *Guest) kill() {
	_ = g.cmd.Process.Kill()
	<-g.done
}

// SetMTU sets the MTU of both ends of the wire. The machine's adapter derives its own
// from it; one of this process must be opened after the change.
func (g *Guest) SetMTU(ctx context.Context, bytes int) error {
	mtu := strconv.Itoa(bytes)
	if err := run("ip", "link", "set", TapName, "mtu", mtu); err != nil {
		return err
	}
	_, err := g.Shell(ctx, "ip link set eth0 mtu "+mtu)
	return err
}

// dial connects to the agent and sends the line that says what the session is.
func (g *Guest) dial(ctx context.Context, first string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(GuestIP4, agentPort))
	if err != nil {
		return nil, err
	}
	if _, err := c.Write([]byte(first + "\n")); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}
