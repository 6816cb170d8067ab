package daemon

import (
	"encoding/json"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/uverbs"
)

// A program that polls its queues makes no system call, so it cannot notice that the
// daemon was killed. Therefore a second process, the heir, knows where the rings of all
// contexts are. When its socket says that the daemon is gone, it completes what is
// outstanding with errors and sends DEVICE_FATAL. When the daemon ends by itself it leaves
// that to the heir too, so there is one way to go.

// roleHeir is the name under which this binary runs itself as the heir.
const roleHeir = "rvtsim-heir"

// heirSocket is the number of the socket in the heir.
const heirSocket = 3

// init takes over in a process that startHeir has started.
func init() {
	if len(os.Args) == 1 && os.Args[0] == roleHeir {
		(&inheritance{contexts: map[uint64]*legacy{}}).run(&seqSocket{fd: heirSocket})
		os.Exit(0)
	}
}

// heirPatience is how long the daemon waits for its heir at the end.
const heirPatience = 5 * time.Second

// Operations of the daemon's messages to its heir.
const (
	heirOpen   = "open"   // a context; comes with its memfd
	heirEvents = "events" // comes with the write end of a file of asynchronous events
	heirSet    = "set"    // an object
	heirDrop   = "drop"   // an object is gone
	heirClose  = "close"  // a context is gone
	heirTold   = "told"   // every program has got DEVICE_FATAL already
)

type heirMessage struct {
	Op      string         `json:"op"`
	Context uint64         `json:"context,omitempty"` // its token
	ABI     string         `json:"abi,omitempty"`
	Handle  uint32         `json:"handle,omitempty"`
	Object  uverbs.Bequest `json:"object,omitzero"`
}

// heir is the daemon's side. A nil *heir knows nothing of anything. Its methods may be
// called from any goroutine.
type heir struct {
	cmd  *exec.Cmd
	sock *seqSocket
	log  *slog.Logger

	mu     sync.Mutex // guards the socket
	failed bool
}

// startHeir starts the process. Without one, programs that only poll do not notice that
// the daemon was killed; that is no reason not to work.
func startHeir(log *slog.Logger) *heir {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		log.Warn("no heir", "err", err)
		return nil
	}
	exe, err := os.Executable()
	if err != nil || unix.Access(exe, unix.X_OK) != nil {
		exe = "/proc/self/exe"
	}
	theirs := os.NewFile(uintptr(p[1]), "heir")
	defer theirs.Close()
	cmd := exec.Command(exe)
	cmd.Args, cmd.Dir, cmd.ExtraFiles = []string{roleHeir}, "/", []*os.File{theirs}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // what ends the daemon must not end it
	if err := cmd.Start(); err != nil {
		_ = unix.Close(p[0])
		log.Warn("no heir", "err", err)
		return nil
	}
	return &heir{cmd: cmd, sock: &seqSocket{fd: p[0]}, log: log}
}

// tell passes something on. It waits for nobody: an heir that does not keep up is
// given up.
func (h *heir) tell(m *heirMessage, files ...int) {
	if h == nil {
		return
	}
	b, err := json.Marshal(m)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed {
		return
	}
	if err == nil {
		err = h.sock.send(b, files)
	}
	if err != nil {
		h.failed = true
		h.log.Warn("the heir is lost: programs that only poll will not notice if the daemon is killed", "err", err)
	}
}

// settle lets the heir tell the programs of the contexts that are left, and waits for it.
// The daemon no longer touches their rings.
func (h *heir) settle() {
	if h == nil {
		return
	}
	h.tell(&heirMessage{Op: heirTold})
	h.mu.Lock()
	h.failed = true
	h.sock.close()
	h.mu.Unlock()
	late := time.AfterFunc(heirPatience, func() { _ = h.cmd.Process.Kill() })
	_ = h.cmd.Wait()
	late.Stop()
}

// legator tells the heir of the rings of one context.
type legator struct {
	*rings
	heir    *heir
	context uint64
	own     *legacy // for a device that goes away while its daemon stays
	// leaving says that the program stays and the daemon goes: what it frees for itself
	// is still there for the program.
	leaving atomic.Bool
}

var _ uverbs.Heir = (*legator)(nil)

// Bequeath implements uverbs.Heir.
func (l *legator) Bequeath(handle uint32, b uverbs.Bequest) {
	l.own.Objects[handle] = b
	l.heir.tell(&heirMessage{Op: heirSet, Context: l.context, Handle: handle, Object: b})
}

// Withdraw implements uverbs.Heir.
func (l *legator) Withdraw(handle uint32) {
	if !l.leaving.Load() {
		delete(l.own.Objects, handle)
		l.heir.tell(&heirMessage{Op: heirDrop, Context: l.context, Handle: handle})
	}
}

// BequeathEvents implements uverbs.Heir.
func (l *legator) BequeathEvents(w *os.File) {
	if raw, err := w.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			l.heir.tell(&heirMessage{Op: heirEvents, Context: l.context}, int(fd))
		})
	}
}

// Free implements uverbs.RingMemory.
func (l *legator) Free(off uint64) {
	if !l.leaving.Load() {
		l.rings.Free(off)
	}
}

// close frees everything.
func (l *legator) close() {
	if l.leaving.Load() {
		l.rings.leave()
		return
	}
	l.rings.close()
	l.heir.tell(&heirMessage{Op: heirClose, Context: l.context})
}

// inheritance is the heir's side.
type inheritance struct {
	contexts map[uint64]*legacy
	told     bool
}

// legacy is what the heir knows of one context.
type legacy struct {
	uverbs.Estate
	memory int
	events []int
	mapped [][]byte
}

func (in *inheritance) run(s *seqSocket) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	unix.CloseOnExec(s.fd)
	b := make([]byte, 4096)
	for {
		n, files, err := s.recv(b)
		if err != nil {
			break
		}
		var m heirMessage
		if json.Unmarshal(b[:n], &m) != nil || !in.note(&m, files) {
			closeAll(files)
		}
	}
	for _, c := range in.contexts {
		c.settle(!in.told)
	}
}

// note remembers what a message says. It reports whether it keeps the files.
func (in *inheritance) note(m *heirMessage, files []int) bool {
	if m.Op == heirOpen && len(files) == 1 {
		in.contexts[m.Context] = &legacy{Estate: uverbs.Estate{ABI: m.ABI, Objects: map[uint32]uverbs.Bequest{}}, memory: files[0]}
		return true
	}
	in.told = in.told || m.Op == heirTold
	c := in.contexts[m.Context]
	if c == nil {
		return false
	}
	switch m.Op {
	case heirEvents:
		c.events = append(c.events, files...)
		return true
	case heirSet:
		c.Objects[m.Handle] = m.Object
	case heirDrop:
		delete(c.Objects, m.Handle)
	case heirClose:
		closeAll(append(c.events, c.memory))
		delete(in.contexts, m.Context)
	}
	return false
}

// settle tells the program of one context. From the first step on its doorbells are
// answered, with an error because nobody is there, so what it has posted is in the rings
// when these are looked at.
func (c *legacy) settle(fatal bool) {
	if page := c.at(0, ringAlign); page != nil {
		for i := range gateWords {
			(*atomic.Uint32)(unsafe.Pointer(&page[4*(gateFirst+i)])).Store(0)
		}
	}
	c.Settle(c.at)
	for _, b := range c.mapped {
		_ = unix.Munmap(b)
	}
	c.mapped = nil
	if !fatal {
		return
	}
	for _, w := range c.events {
		_, _ = unix.Write(w, uverbs.FatalEvent())
	}
}

// at maps a ring, until the end of settle.
func (c *legacy) at(off uint64, size int) []byte {
	b, err := unix.Mmap(c.memory, int64(off), size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	c.mapped = append(c.mapped, b)
	return b
}

// bereave completes with errors what is outstanding at a node that has been closed while its
// programs go on, who would wait for ever. From then on their posts fail, and what they read
// events from reads as closed.
func (d *Daemon) bereave(h *hosted) {
	d.mu.Lock() // a context that is in the map keeps its rings
	defer d.mu.Unlock()
	for _, a := range d.contexts {
		if a.h == h && a.rings != nil {
			a.rings.own.settle(false)
			a.ctx.Close() // nobody waits for events for ever, either
		}
	}
}
