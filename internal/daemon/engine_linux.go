package daemon

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/fdspace"
	"github.com/rvtsim/rvtsim/internal/runner"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/uverbs"
	"github.com/rvtsim/rvtsim/vtime"
)

// MaxContexts is how many device files a program can have open in its engine.
const MaxContexts = 1024

// Engine hosts a program's part of a node inside the program: the same device, commands
// and rings as in the daemon, reached by calls. Children of the program, who cannot call,
// reach it as they would reach a daemon, over a socket of its own.
//
// Doorbell and Progress never wait and may be called from any thread, at the same time.
// The others may wait for a pass of somebody else.
type Engine struct {
	d    *Daemon
	h    *hosted
	mem  mr.Memory
	bell *node.Bell
	ctl  *seqSocket // to the daemon

	peers *peers

	// What lies between the nodes since an order said so; nil before.
	ways *runner.Ways
	net  *netOrder

	mu   sync.Mutex // guards opening and closing contexts
	open [MaxContexts]atomic.Pointer[conn]
}

// StartEngine makes an engine of what the daemon has granted. socket is the connection
// that the grant came over and port the descriptor of the node's socket; both belong to
// the engine. mem is the program's memory, and bell what it rings instead of calling Doorbell.
func StartEngine(granted []byte, socket, port int, mem mr.Memory, bell *node.Bell) (*Engine, error) {
	settle()
	e := &Engine{mem: mem, bell: bell, ctl: &seqSocket{fd: fdspace.Keep(socket)}}
	err := e.start(granted, fdspace.Keep(port))
	if err != nil {
		e.ctl.close()
		return nil, err
	}
	go e.control()
	return e, nil
}

// threads is how many the runtime makes at once: for the engine's goroutines that block,
// and as many as run Go code at a time.
const threads = 12

// settle makes the runtime a quiet guest. It opens its descriptors now, not later. It
// makes its threads now: to make one takes locks of the C library, which a thread of the
// program may hold while it waits for the engine, in a signal handler say.
func settle() {
	runtime.GOMAXPROCS(max(4, runtime.NumCPU())) // a thread that is inside a pass holds one
	debug.SetGCPercent(400)                      // traffic makes no garbage, commands make little
	time.Sleep(time.Microsecond)
	var wg sync.WaitGroup
	for range threads {
		wg.Go(func() { _ = unix.Nanosleep(&unix.Timespec{Nsec: 3e6}, nil) })
	}
	wg.Wait()
}

func (e *Engine) start(granted []byte, port int) error {
	var g grant
	if err := json.Unmarshal(granted, &g); err != nil {
		fdspace.Close(port)
		return fmt.Errorf("engine: grant: %w", err)
	}
	if err := g.fits(engineBuild); err != nil {
		fdspace.Close(port)
		return err
	}
	g.Port.Now, g.Port.QuietNaps = node.Now, true
	p, err := udp.OpenShared(g.Port, port)
	if err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	e.peers = &peers{ask: e.askDaemon, self: peer{GID: p.LocalGID(), Seat: uint8(g.Seat.Index)}}
	e.h = newHosted(g.Node, newDesk(log), nil, news{peers: e.peers})
	e.h.seat, e.h.bell = g.Seat, e.bell
	if g.Lanes {
		if e.h.lanes, err = openLanes(p, g.Port); err == nil {
			e.peers.standing = e.h.lanes.port.Standing
			err = e.h.lanes.offer(e.ctl)
		}
		if err != nil {
			_ = p.Close()
			return err
		}
	}
	if err := e.h.startAt(p, g.ABI); err != nil {
		_ = p.Close()
		return err
	}
	if e.h.lanes != nil {
		go e.h.lanes.explore(e)
	}
	if !g.PortUp {
		e.h.Do(func(d *rvt.Device, _ vtime.Time) { d.SetPort(false) })
	}
	var name [16]byte
	_, _ = rand.Read(name[:])
	path := "@rvtsim-" + strconv.Itoa(os.Getpid()) + "-" + hex.EncodeToString(name[:])
	sock, err := listen(path, 0)
	if err != nil {
		_ = e.h.close()
		return err
	}
	e.d = &Daemon{
		cfg: Config{Name: path, Nodes: []NodeConfig{g.Node}}, log: log, desk: e.h.desk, started: time.Now(), sock: sock,
		stopped: make(chan struct{}), conns: map[*conn]struct{}{}, contexts: map[uint64]*attached{}, programs: map[*program]struct{}{},
	}
	e.d.nodes.Store(&[]*hosted{e.h})
	go e.d.desk.run(e.d.all)
	e.d.wg.Add(1)
	go e.d.accept()
	return nil
}

// Socket is the address of the engine's socket, in the abstract name space and without
// the byte that says so.
func (e *Engine) Socket() string { return e.d.cfg.Name[1:] }

// control follows the connection to the daemon. When it ends the device goes away.
func (e *Engine) control() {
	b := make([]byte, maxReply)
	told := false
	for {
		n, files, err := e.ctl.recv(b)
		if err != nil || n < repLen {
			closeAll(files)
			break
		}
		if b[0] == repReached && e.h.lanes != nil {
			e.h.lanes.answered(b[:n], files)
			continue
		}
		closeAll(files)
		switch b[0] {
		case repAsk:
			e.Report()
		case repFatal:
			e.h.fatal()
			told = true
		case repOrder:
			e.obey(b[:n])
		case repHow:
			e.heard(b[:n])
		}
	}
	if !told {
		e.h.fatal()
	}
	_ = e.h.node.Close()
	e.ctl.shutdown() // the daemon waits for that: the address is free
	e.mu.Lock()
	defer e.mu.Unlock()
	for i := range e.open {
		if c := e.open[i].Load(); c != nil {
			c.ctx.rings.leaving.Store(true)
			c.ctx.rings.own.settle(false)
			c.ctx.ctx.Close() // its event descriptors read as closed
		}
	}
}

// Report tells the daemon how things are.
func (e *Engine) Report() {
	e.d.desk.settle()
	r := Report{Nodes: []NodeReport{e.d.reportNode(e.h)}}
	f, err := reportFile(&r)
	if err != nil {
		return
	}
	defer f.Close()
	_ = e.ctl.send(appendRequest(nil, &request{op: opReport, pid: uint32(os.Getpid())}), []int{int(f.Fd())})
}

// EngineContext is what comes with a new context.
type EngineContext struct {
	Index      int    // for the other methods
	Token      uint64 // for children, who attach
	Memory     int    // the program's descriptor of the rings, which it closes
	Event      int    // descriptor of the doorbell for children, which it closes
	BellOffset uint64
}

// Open opens the device file.
func (e *Engine) Open() (EngineContext, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	i := 0
	for i < len(e.open) && e.open[i].Load() != nil {
		i++
	}
	if i == len(e.open) {
		return EngineContext{}, unix.EMFILE
	}
	if err := e.h.node.Err(); err != nil {
		return EngineContext{}, unix.ENODEV
	}
	c := &conn{d: e.d, pid: os.Getpid(), uid: os.Getuid(), comm: commOf(os.Getpid()), since: time.Now()}
	c.caller.Mem = e.mem
	if err := e.d.openContext(c, e.h, devUverbs); err != nil {
		return EngineContext{}, err
	}
	o := EngineContext{Index: i, Token: c.ctx.token}
	var err error
	if o.Memory, err = unix.FcntlInt(uintptr(c.ctx.rings.fd), unix.F_DUPFD_CLOEXEC, 0); err == nil {
		if o.Event, err = unix.FcntlInt(uintptr(c.ctx.efd), unix.F_DUPFD_CLOEXEC, 0); err != nil {
			_ = unix.Close(o.Memory)
		}
	}
	if err != nil {
		e.d.unregister(c)
		return EngineContext{}, err
	}
	e.open[i].Store(c)
	return o, nil
}

// Close ends the program's own use of a context. It lives on while a child uses it.
func (e *Engine) Close(i int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.context(i)
	if c == nil {
		return
	}
	e.open[i].Store(nil)
	e.d.unregister(c)
	e.Report() // what it counted, should the program end now
}

func (e *Engine) context(i int) *conn {
	if uint(i) < MaxContexts {
		return e.open[i].Load()
	}
	return nil
}

// Operations of Command.
const (
	OpWrite = int(opWrite)
	OpIoctl = int(opIoctl)
)

// Command carries out a write() or an ioctl() to the device file and encodes the answer
// (struct rvtsim_rep) into out, which must have room for the longest. It returns the
// answer's length and the descriptors that belong to it, which are the program's.
func (e *Engine) Command(i, operation int, arg uint64, data, out []byte) (n int, files []int) {
	c := e.context(i)
	var rep uverbs.Reply
	switch {
	case c == nil:
		rep.Errno = ib.Errno(unix.EBADF)
	case e.h.node.Err() != nil:
		rep.Errno = ib.Errno(unix.EIO)
	case operation == OpIoctl:
		rep = c.ctx.ctx.Ioctl(&c.caller, uverbs.IoctlRequest, arg, data, inodeHere)
	default:
		rep = c.ctx.ctx.Write(&c.caller, data, inodeHere)
		if uverbs.Arms(data) {
			e.h.node.Park() // the program is about to sleep
		}
	}
	e.connect()
	r := reply{errno: rep.Errno, outAddr: rep.OutAddr, out: rep.Out}
	for _, f := range rep.Files {
		fd, err := release(f.F)
		if err != nil {
			r.errno = ib.Errno(unix.EMFILE)
			continue
		}
		files, r.offsets = append(files, fd), append(r.offsets, f.Off)
	}
	for _, w := range rep.Writes {
		r.writes = append(r.writes, memWrite{w.Addr, w.Data})
	}
	b, err := appendReply(out[:0], &r)
	if err != nil {
		b, _ = appendReply(out[:0], &reply{errno: ib.Errno(unix.EMSGSIZE)})
	}
	return len(b), files
}

// release closes a file but leaves its descriptor to the program, under the lowest number
// that is free, as the program would get it from the kernel.
func release(f *os.File) (int, error) {
	aside, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	f.Close()
	if err != nil {
		return -1, err
	}
	defer unix.Close(aside)
	return unix.FcntlInt(uintptr(aside), unix.F_DUPFD_CLOEXEC, 0)
}

// inodeHere implements uverbs.Passed for the descriptors of this process.
func inodeHere(fd int32) (uint64, bool) {
	var st unix.Stat_t
	if unix.Fstat(int(fd), &st) != nil {
		return 0, false
	}
	return st.Ino, true
}

// Doorbell takes what waits in the send ring of a QP and sends it, at once if the QP was
// idle and with what comes next otherwise. It reports false if a command is needed
// instead, because the QP may have to refuse the sends. If somebody else is driving he
// sees to it. What was told to the bell leaves at once, too.
func (e *Engine) Doorbell(i int, qp uint32) bool {
	c := e.context(i)
	if c == nil {
		return false
	}
	d := e.h.node.TryBegin()
	if d == nil {
		if e.h.node.Err() != nil || c.ctx.rings.gate(qp).Load() != qp {
			return false
		}
		e.h.node.Ring()
		return true
	}
	idle, ok := c.ctx.ctx.Post(d, qp)
	u := node.SendLater
	if e.h.node.Heard() || idle {
		u = node.SendNow
	}
	e.h.node.End(u)
	return ok
}

// Progress makes a pass if nobody else is driving.
func (e *Engine) Progress() { e.h.node.Progress() }

// Settle sends what waits to be sent, acknowledgements that were held back included. It is
// for a process that ends without further ado.
func (e *Engine) Settle() {
	if d := e.h.node.TryBegin(); d != nil {
		e.h.node.Heard()
		e.h.node.End(node.SendNow)
	}
}

// Leave is for the end of the process: it sends what waits to be sent, if nobody is in
// the way, and tells the daemon what was counted.
func (e *Engine) Leave() {
	if d := e.h.node.TryBegin(); d != nil {
		e.h.node.Heard()
		e.h.node.End(node.SendNow)
		e.Report()
	}
}
