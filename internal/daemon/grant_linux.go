package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/buildid"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// engineVersion is raised when what a daemon grants, or expects of an engine, changes.
const engineVersion = 4

// engineBuild names, inside an engine, the build of rvtsim that it belongs to (package
// buildid). The linker sets it, as package shim tells it to.
var engineBuild string

// grant is what a program needs to host its part of a node itself. The node's socket for
// it comes along as a descriptor.
type grant struct {
	Version int        `json:"version"`
	Build   string     `json:"build,omitempty"` // of the daemon; empty if unknown
	Node    NodeConfig `json:"node"`
	ABI     string     `json:"abi"`
	Seat    seat       `json:"seat"`
	Port    udp.Config `json:"port"` // without Now
	PortUp  bool       `json:"port_up"`
	Lanes   bool       `json:"lanes,omitempty"` // by memory to other programs
}

// fits says whether an engine of a build can do what the daemon grants. One that was linked
// without a name for its build is held to the version alone.
func (g *grant) fits(build string) error {
	if g.Version != engineVersion {
		return fmt.Errorf("engine: the daemon is of version %d, this is %d: %w", g.Version, engineVersion, unix.ENOEXEC)
	}
	if g.Build != "" && build != "" && g.Build != build {
		return fmt.Errorf("engine: the daemon is of build %s, this belongs to %s: %w", g.Build, build, unix.ENOEXEC)
	}
	return nil
}

// ownBuild is the build of this program, or nothing if it cannot be read.
func ownBuild(log *slog.Logger) string {
	id, err := buildid.Own()
	if err != nil {
		log.Warn("which build this is stays unknown", "error", err)
	}
	return id
}

// seat is a device's place at an address that several devices share.
type seat struct {
	Index int    `json:"index"` // 0 is the daemon's own
	Start ib.QPN `json:"start"` // the first QPN to give out
}

// span is the range of QPNs of a seat. The first number of all is the device's default.
func (s seat) span() (first, last ib.QPN) {
	if s.Index == 0 {
		return 0, udp.ShareQPNs - 1
	}
	first = ib.QPN(s.Index * udp.ShareQPNs)
	return first, first + udp.ShareQPNs - 1
}

// seats are the places at a node's address. The daemon keeps every socket that it has
// opened: the kernel would renumber the others if one closed.
type seats struct {
	mu   sync.Mutex
	free []socketOf // those that programs have left, the oldest first
	all  []int      // descriptors
}

type socketOf struct{ index, fd int }

// take returns a seat nobody has. What a program before has left in the socket is gone,
// and its QPNs are not likely to be given out again soon: peers may still be sending.
func (s *seats) take(p *udp.Port, cfg udp.Config) (seat, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var k socketOf
	if len(s.free) > 0 {
		k, s.free = s.free[0], s.free[1:]
		udp.Drain(k.fd)
	} else {
		var err error
		if k.index, k.fd, err = p.Share(cfg); err != nil {
			return seat{}, -1, err
		}
		s.all = append(s.all, k.fd)
	}
	g := seat{Index: k.index}
	first, _ := g.span()
	g.Start = first + rand.N[ib.QPN](udp.ShareQPNs/2)
	return g, k.fd, nil
}

func (s *seats) leave(index, fd int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = append(s.free, socketOf{index, fd})
}

// close closes every socket. Whoever has one of the seats keeps his own descriptor.
func (s *seats) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fd := range s.all {
		_ = unix.Close(fd)
	}
	s.all, s.free = nil, nil
}

// program is a process that hosts its part of a node itself: the daemon knows what it
// says, and that it is alive.
type program struct {
	c    *conn
	h    *hosted
	seat seat
	fd   int // the seat's socket
	lane int // its number in the inboxes of others; negative: none was left
	self int // its process number as it sees it

	mu       sync.Mutex // guards everything below
	last     NodeReport
	reported chan struct{} // closed by the next report
	orders   uint64        // how many there were
	answers  map[uint64]chan obeyed
	stopped  bool // as last seen; see Daemon.plight
	inbox    inboxOf
}

// Why a node serves every program from the daemon.
var (
	errBound     = errors.New("the node follows a network device")
	errGuarded   = errors.New("the node is strict")
	errSites     = errors.New("the node is to say where calls are made")
	errImperfect = errors.New("the node's network is imperfect")
)

// hostProgram serves HOST: the program is to host its part of the node itself.
func (c *conn) hostProgram(rq *request) error {
	if c.ctx != nil || c.prog != nil || c.d.faults == nil {
		return c.fail(ib.Errno(unix.EPROTO))
	}
	c.comm = commOf(c.pid)
	if !c.d.cfg.allows(c.uid, os.Getuid()) {
		_ = c.fail(ib.Errno(unix.EACCES))
		return refused(c.uid)
	}
	h := c.d.find(rq.node)
	if h == nil || h.node.Err() != nil {
		return c.fail(ib.Errno(unix.ENODEV))
	}
	// A fault that comes meanwhile waits, and then finds the program.
	c.d.faults.mu.Lock()
	defer c.d.faults.mu.Unlock()
	p, b, err := c.grant(h)
	if err != nil {
		c.d.log.Info("the daemon serves the program", "node", h.cfg.Name, "pid", c.pid, "comm", c.comm, "because", err)
		return c.fail(ib.Errno(unix.EOPNOTSUPP))
	}
	p.self = int(rq.pid)
	if err := c.d.seat(p, b); err != nil {
		return err
	}
	c.d.log.Info("attach", "node", h.cfg.Name, "pid", c.pid, "uid", c.uid, "comm", c.comm, "engine", "program")
	return nil
}

// grant finds a place for a program, or says why there is none. The lock of faults is
// held.
func (c *conn) grant(h *hosted) (*program, []byte, error) {
	switch {
	case h.udp == nil:
		return nil, nil, errBound
	case h.cfg.Sites && !h.cfg.Strict.Any():
		return nil, nil, errSites
	case h.guard != nil:
		return nil, nil, errGuarded
	case c.d.faults.imperfect(h):
		return nil, nil, errImperfect
	}
	s, fd, err := h.seats.take(h.udp, h.port)
	if err != nil {
		return nil, nil, err
	}
	g := grant{Version: engineVersion, Build: ownBuild(c.d.log), Node: h.cfg, ABI: h.abi, Seat: s, Port: h.port, Lanes: c.d.cfg.Wire != WireUDP}
	h.Do(func(d *rvt.Device, _ vtime.Time) { g.PortUp = d.PortUp() })
	g.Port.GSOSegments = h.segments
	g.Port.DisableGSO = h.segments < 2
	if g.Port.DisableGSO {
		g.Port.GSOSegments = udp.MaxSegments
	}
	b, err := json.Marshal(&g)
	if err != nil {
		h.seats.leave(s.Index, fd)
		return nil, nil, err
	}
	return &program{c: c, h: h, seat: s, fd: fd, inbox: inboxOf{-1, -1}, reported: make(chan struct{})}, b, nil
}

// seat notes a program that hosts itself, and gives it its grant, which comes before
// anything else that may be said to it.
func (d *Daemon) seat(p *program, granted []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := p.c.send(&reply{out: granted}, p.fd); err != nil {
		p.h.seats.leave(p.seat.Index, p.fd)
		return err
	}
	p.lane = d.lanes.take()
	d.programs[p] = struct{}{}
	p.c.prog = p
	return nil
}

// unseat forgets a program that has ended. What it counted stays.
func (d *Daemon) unseat(p *program) {
	d.mu.Lock()
	delete(d.programs, p)
	d.lanes.leave(p.lane)
	p.mu.Lock()
	p.h.past.add(&p.last)
	p.mu.Unlock()
	d.mu.Unlock()
	p.closeInbox()
	p.h.seats.leave(p.seat.Index, p.fd)
}

// tellPrograms says to the programs that host themselves on a node that it goes away.
func (d *Daemon) tellPrograms(h *hosted) {
	b, _ := appendReply(nil, &reply{kind: repFatal})
	for _, p := range d.programsOf(h) {
		_ = p.c.sock.send(b, nil)
	}
}

// letGo is how long a program has to give up the address of a node that has died.
const letGo = 2 * time.Second

// dismiss ends the engines of programs on a node that has died, so that another one may
// have its address.
func (d *Daemon) dismiss(h *hosted) {
	d.tellPrograms(h)
	all := d.programsOf(h)
	for _, p := range all {
		_ = unix.Shutdown(p.c.sock.fd, unix.SHUT_WR) // the engine ends, and then the connection
	}
	late := time.NewTimer(letGo)
	defer late.Stop()
	for _, p := range all {
		select {
		case <-p.c.left:
		case <-late.C:
			late.Reset(0)
			p.c.sock.shutdown()
		}
	}
	h.seats.close()
}

// programsOf lists the programs that host themselves on a node.
func (d *Daemon) programsOf(h *hosted) []*program {
	d.mu.Lock()
	defer d.mu.Unlock()
	var all []*program
	for p := range d.programs {
		if p.h == h {
			all = append(all, p)
		}
	}
	return all
}

// askFor is how long a report waits for programs. One that is stopped does not answer:
// then what it said last counts.
const askFor = 250 * time.Millisecond

// ask asks the programs of a node for news and returns what is known of each.
func (d *Daemon) ask(h *hosted) []NodeReport {
	all := d.programsOf(h)
	waits := make([]chan struct{}, len(all))
	for i, p := range all {
		p.mu.Lock()
		waits[i] = p.reported
		p.mu.Unlock()
		b, _ := appendReply(nil, &reply{kind: repAsk})
		_ = p.c.sock.send(b, nil)
	}
	late := time.NewTimer(askFor)
	defer late.Stop()
	out := make([]NodeReport, len(all))
	for i, p := range all {
		select {
		case <-waits[i]:
		case <-late.C:
			late.Reset(0)
		}
		p.mu.Lock()
		out[i] = p.last
		p.mu.Unlock()
	}
	return out
}

// reported serves REPORT: what a program says about its part of the node.
func (c *conn) reported(files []int) error {
	defer closeAll(files)
	p := c.prog
	if p == nil || len(files) != 1 {
		return fmt.Errorf("daemon: a report that nobody expects")
	}
	r, err := readReport(files[0])
	if err != nil || len(r.Nodes) != 1 {
		return fmt.Errorf("daemon: report of a program: %w", err)
	}
	n := r.Nodes[0]
	for i := range n.Contexts {
		n.Contexts[i].Engine = engineProgram
		for j := range n.Contexts[i].Processes {
			if q := &n.Contexts[i].Processes[j]; q.PID == p.self {
				q.PID, q.UID, q.Comm = c.pid, c.uid, c.comm
			}
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = n
	close(p.reported)
	p.reported = make(chan struct{})
	return nil
}

// maxReport bounds what a program can make the daemon read.
const maxReport = 64 << 20

// readReport reads a report from a file that comes from another process.
func readReport(fd int) (*Report, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > maxReport {
		return nil, errTooLong
	}
	b := make([]byte, st.Size)
	n, err := unix.Pread(fd, b, 0)
	if err != nil {
		return nil, os.NewSyscallError("pread", err)
	}
	var r Report
	if err := json.Unmarshal(b[:n], &r); err != nil {
		return nil, fmt.Errorf("daemon: report: %w", err)
	}
	return &r, nil
}

// reportFile puts what becomes JSON into a file without a name.
func reportFile(r any) (*os.File, error) {
	b, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	fd, err := unix.MemfdCreate("rvtsim-report", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "report")
	if _, err := f.Write(b); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// add sums what two parts of a node have counted.
func (n *NodeReport) add(m *NodeReport) {
	n.SentPackets += m.SentPackets
	n.ReceivedPackets += m.ReceivedPackets
	n.DroppedPackets += m.DroppedPackets
	n.Retransmitted += m.Retransmitted
	n.SendCalls += m.SendCalls
	n.ReceiveCalls += m.ReceiveCalls
	for r, k := range m.Drops {
		n.dropped(r, k)
	}
	n.Troubles = append(n.Troubles, m.Troubles...)
	n.Troubles = n.Troubles[max(0, len(n.Troubles)-maxTroubles):]
}
