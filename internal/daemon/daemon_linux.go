package daemon

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/ib"
)

// Daemon serves the programs of other processes. Its methods may be called from any
// goroutine.
type Daemon struct {
	cfg     Config
	log     *slog.Logger
	started time.Time
	lock    *os.File
	sock    *seqSocket
	heir    *heir
	faults  *faults
	desk    *desk
	peers   *peers
	loops   []*loop        // fixed once the daemon is open
	lobby   *lobby         // likewise; nil in an engine, whose connections are few
	wg      sync.WaitGroup // accept loop and connections
	stopped chan struct{}  // closed when somebody asked for the end
	once    sync.Once

	// nodes is replaced as a whole when a node starts again, under faults' lock.
	nodes atomic.Pointer[[]*hosted]
	dead  []*hosted // nodes that were killed and replaced; programs may still hold them

	mu       sync.Mutex // guards everything below
	closing  bool
	conns    map[*conn]struct{}
	contexts map[uint64]*attached
	programs map[*program]struct{} // those that host themselves
	lanes    laneNumbers           // of these
}

// Start opens every node and the control socket. When it returns without an error,
// programs can attach.
func Start(cfg Config) (*Daemon, error) {
	if cfg.Name == "" {
		cfg.Name = DefaultName
	}
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	d := &Daemon{
		cfg: cfg, log: cfg.Log, started: time.Now(), stopped: make(chan struct{}),
		conns: map[*conn]struct{}{}, contexts: map[uint64]*attached{}, programs: map[*program]struct{}{},
	}
	if d.log == nil {
		d.log = slog.New(slog.DiscardHandler)
	}
	d.desk = newDesk(d.log)
	d.peers = &peers{ask: d.look}
	err := d.open()
	go d.desk.run(d.all)
	if err != nil {
		d.release()
		return nil, err
	}
	if t := cfg.Topology; t != nil {
		if list := t.Live(); len(list) > 0 {
			d.faults.follow(t.Path, list)
		}
	}
	d.wg.Add(1)
	go d.accept()
	return d, nil
}

func (d *Daemon) open() error {
	if err := makeDir(d.cfg.public()); err != nil {
		return err
	}
	sweep()
	var err error
	if d.lock, err = lockName(d.cfg.Name); err != nil {
		return err
	}
	_ = os.RemoveAll(viewDir(d.cfg.Name)) // of one that was killed
	if n := &d.cfg.Network; n.ID != "" {
		if err := n.keep(d.cfg.Name); err != nil {
			return err
		}
	}
	d.heir = startHeir(d.log)
	if d.faults, err = newFaults(d); err != nil {
		return err
	}
	if err := d.startLoops(); err != nil {
		return err
	}
	if d.lobby, err = newLobby(); err != nil {
		return err
	}
	for _, nc := range d.cfg.Nodes {
		h, err := d.host(nc)
		if err != nil {
			return err
		}
		all := append(slices.Clone(d.all()), h)
		d.nodes.Store(&all)
		if err := h.writeView(d.cfg.Name, d.cfg.public()); err != nil {
			return err
		}
	}
	if err := d.faults.start(); err != nil {
		return err
	}
	mode := os.FileMode(0o600)
	if d.cfg.public() {
		mode = 0o666
	}
	d.sock, err = listen(SocketPath(d.cfg.Name), mode)
	return err
}

// release undoes open.
func (d *Daemon) release() {
	if d.sock != nil {
		_ = os.Remove(SocketPath(d.cfg.Name))
		d.sock.close()
	}
	for _, h := range append(slices.Clone(d.all()), d.dead...) {
		_ = h.close()
	}
	for _, l := range d.loops {
		l.close()
	}
	if d.lobby != nil {
		d.lobby.close()
	}
	d.desk.close()
	d.heir.settle()
	if d.lock != nil {
		_ = os.RemoveAll(viewDir(d.cfg.Name))
		unlockName(d.cfg.Name, d.lock)
	}
}

// Socket is the path of the control socket.
func (d *Daemon) Socket() string { return SocketPath(d.cfg.Name) }

// Stopped is closed when somebody has asked the daemon to end.
func (d *Daemon) Stopped() <-chan struct{} { return d.stopped }

func (d *Daemon) stop() { d.once.Do(func() { close(d.stopped) }) }

// Close tells the programs that their device goes away, ends their connections and
// frees everything.
func (d *Daemon) Close() {
	d.mu.Lock()
	if d.closing {
		d.mu.Unlock()
		return
	}
	d.closing = true
	conns := make([]*conn, 0, len(d.conns))
	for c := range d.conns {
		conns = append(conns, c)
	}
	for _, a := range d.contexts {
		if a.rings != nil {
			a.rings.leaving.Store(true)
		}
	}
	d.mu.Unlock()
	d.faults.halt()
	for _, h := range d.all() {
		d.tellPrograms(h)
		h.fatal()
	}
	d.sock.shutdown()
	for _, c := range conns {
		c.sock.shutdown()
	}
	d.wg.Wait()
	d.release()
	d.stop()
	d.log.Info("daemon ends", "name", d.cfg.Name)
}

func (d *Daemon) accept() {
	defer d.wg.Done()
	for {
		s, cred, err := d.sock.accept()
		d.mu.Lock()
		closing := d.closing
		d.mu.Unlock()
		if closing {
			if err == nil {
				s.close()
			}
			return
		}
		if err != nil {
			d.log.Error("control socket", "err", err)
			if errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.ENOBUFS) {
				time.Sleep(50 * time.Millisecond) // a program that ends makes room
				continue
			}
			return
		}
		if d.lobby != nil {
			d.lobby.admit(s)
		}
		c := &conn{d: d, sock: s, pid: int(cred.Pid), uid: int(cred.Uid), since: time.Now(), left: make(chan struct{})}
		if !d.register(c) {
			s.close()
			return
		}
		go c.serve()
	}
}

// register notes a connection, so that Close finds it; false if it is too late.
func (d *Daemon) register(c *conn) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closing {
		return false
	}
	d.conns[c] = struct{}{}
	d.wg.Add(1)
	return true
}

// unregister forgets a connection, and ends its context if it was the last one.
func (d *Daemon) unregister(c *conn) {
	d.mu.Lock()
	delete(d.conns, c)
	a := c.ctx
	last := false
	if a != nil {
		delete(a.conns, c)
		if last = len(a.conns) == 0; last {
			delete(d.contexts, a.token)
		}
	}
	d.mu.Unlock()
	switch {
	case last:
		a.close()
	case a != nil && a.cm != nil:
		a.cm.ch.Refresh()
	}
}

// all are the nodes, in the order of the configuration.
func (d *Daemon) all() []*hosted {
	if l := d.nodes.Load(); l != nil {
		return *l
	}
	return nil
}

// loopOf returns the loop that drives the node of that name.
func (d *Daemon) loopOf(name string) *loop {
	i := slices.IndexFunc(d.cfg.Nodes, func(n NodeConfig) bool { return n.Name == name })
	return d.loops[max(i, 0)%len(d.loops)]
}

// startLoops starts as many loops as suit the machine. Where processors are few, nodes
// that share a thread answer each other soonest: every other thread that has to be woken
// for a message competes with the programs that wait for it.
func (d *Daemon) startLoops() error {
	for range max(1, min(runtime.NumCPU()/4, len(d.cfg.Nodes))) {
		l, err := newLoop()
		if err != nil {
			return err
		}
		d.loops = append(d.loops, l)
	}
	return nil
}

func (d *Daemon) host(nc NodeConfig) (*hosted, error) {
	h, err := host(nc, d.cfg.ABI, d.desk, d.loopOf(nc.Name), news{d.faults.moved, d.bereave, d.peers})
	if err == nil {
		h.heir, h.abi = d.heir, d.cfg.ABI
	}
	return h, err
}

// kill lets a node vanish, like a machine that loses power: its peers hear nothing more,
// its programs that their device has failed.
func (d *Daemon) kill(i int) error {
	h := d.all()[i]
	if h.node.Err() != nil {
		return errors.New("it is dead already")
	}
	h.fatal()
	h.unbind()
	err := h.node.Close()
	d.bereave(h)
	d.dismiss(h)
	return err
}

// revive puts a new node in the place of one that was killed. The lock of faults is held.
func (d *Daemon) revive(i int) error {
	old := d.all()[i]
	if old.node.Err() == nil {
		return errors.New("it is alive; kill_node comes first")
	}
	h, err := d.host(old.cfg)
	if err != nil {
		return err
	}
	if err := os.RemoveAll(old.root); err != nil {
		return errors.Join(err, h.close())
	}
	if err := h.writeView(d.cfg.Name, d.cfg.public()); err != nil {
		return errors.Join(err, h.close())
	}
	all := slices.Clone(d.all())
	all[i] = h
	d.nodes.Store(&all)
	d.dead = append(d.dead, old)
	return nil
}

// find returns a node by name.
func (d *Daemon) find(name string) *hosted {
	for _, h := range d.all() {
		if h.cfg.Name == name {
			return h
		}
	}
	return nil
}

// openContext makes a new context for c, on a device of the kind.
func (d *Daemon) openContext(c *conn, h *hosted, kind uint32) error {
	var b [8]byte
	_, _ = rand.Read(b[:])
	open := newAttached
	if kind == devCM {
		open = newAttachedCM
	}
	a, err := open(h, binary.LittleEndian.Uint64(b[:]))
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.contexts[a.token] = a
	a.conns[c] = struct{}{}
	c.ctx = a
	a.pid, a.comm = c.pid, c.comm
	return nil
}

// join adds c to a context that another process has opened. The token is the right to
// do so.
func (d *Daemon) join(c *conn, token uint64) *attached {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.contexts[token]
	if a != nil {
		a.conns[c] = struct{}{}
		c.ctx = a
	}
	return a
}

// Wait blocks until ctx ends or somebody asks the daemon to end, then closes it.
func (d *Daemon) Wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-d.stopped:
	}
	d.Close()
}

// errnoOf turns an error into what a system call of the program returns.
func errnoOf(err error) ib.Errno {
	var sys unix.Errno
	switch {
	case err == nil:
		return 0
	case errors.As(err, &sys):
		return ib.Errno(sys)
	case errors.Is(err, io.EOF):
		return ib.Errno(unix.EIO)
	}
	if e := ib.ErrnoOf(err); e != 0 {
		return e
	}
	return ib.Errno(unix.EIO)
}

func refused(uid int) error {
	return fmt.Errorf("programs of user %d may not attach; see up --allow-uid", uid)
}
