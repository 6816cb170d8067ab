package daemon

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Report is what a daemon says about itself.
type Report struct {
	Name    string       `json:"name"`
	PID     int          `json:"pid"`
	Socket  string       `json:"socket"`
	ABI     string       `json:"abi"`
	Network string       `json:"network,omitempty"` // id of the network of namespaces, if the daemon has made one
	UserNS  string       `json:"user_ns"`           // user namespace of the daemon, as /proc/PID/ns/user calls it
	Started time.Time    `json:"started"`
	Nodes   []NodeReport `json:"nodes"`
	Faults  []string     `json:"faults"` // what is wrong with the links between nodes
	// Schedule is how far the schedule of faults is; nil if there is none.
	Schedule *ScheduleReport `json:"schedule,omitempty"`
}

// NodeReport describes a node.
type NodeReport struct {
	Name     string          `json:"name"`
	Address  string          `json:"address"` // IP address and UDP port; of several the first that is not link-local
	Netdev   string          `json:"netdev,omitempty"`
	Netns    string          `json:"netns,omitempty"` // path of the network namespace of Netdev, if not the daemon's
	Device   string          `json:"device"`
	GID      string          `json:"gid"`  // index 0
	GIDs     []string        `json:"gids"` // the whole table; an empty entry is an empty string
	Profile  string          `json:"profile"`
	MTU      int             `json:"mtu"`   // active, bytes
	State    string          `json:"state"` // "active", "down", or why the node failed
	Root     string          `json:"root"`  // its view of sysfs
	Contexts []ContextReport `json:"contexts"`
	// Troubles are what the programs of the node ran into, also of those that are gone;
	// oldest first.
	Troubles []Trouble `json:"troubles"`

	SentPackets     uint64 `json:"sent_packets"`
	ReceivedPackets uint64 `json:"received_packets"`
	DroppedPackets  uint64 `json:"dropped_packets"`
	Retransmitted   uint64 `json:"retransmitted_packets"`
	// Drops are the dropped packets by reason (wire.DropReason), without those that are 0.
	Drops map[string]uint64 `json:"drops,omitempty"`

	// Tight are the send and completion queues of a strict node that came within a tenth of
	// full.
	Tight []string `json:"tight,omitempty"`

	// System calls that moved packets, or looked for some in vain.
	SendCalls    uint64 `json:"send_calls"`
	ReceiveCalls uint64 `json:"receive_calls"`
}

// ContextReport describes an open device file.
type ContextReport struct {
	Engine    string          `json:"engine"` // who works for it: "daemon", or "program" itself
	Processes []ProcessReport `json:"processes"`
	Objects   int             `json:"objects"` // PDs, CQs, QPs, MRs and so on
	QPs       []QPReport      `json:"qps"`
	// IDs are the ids of an rdma_cm device file, as text.
	IDs []string `json:"ids,omitempty"`
}

// Values of ContextReport.Engine.
const (
	engineDaemon  = "daemon"
	engineProgram = "program"
)

// ProcessReport describes a process that is attached.
type ProcessReport struct {
	PID   int       `json:"pid"`
	UID   int       `json:"uid"`
	Comm  string    `json:"comm"`
	Since time.Time `json:"since"`
	// Stopped says that it stands still: by SIGSTOP, in a debugger, or in a container that
	// is paused.
	Stopped bool `json:"stopped,omitempty"`
}

// QPReport describes a queue pair.
type QPReport struct {
	QPN     uint32 `json:"qpn"`
	Type    string `json:"type"`
	State   string `json:"state"`
	DestQPN uint32 `json:"dest_qpn"`
	Remote  string `json:"remote"` // destination GID, of a connected QP
}

// OwnUserNS names the user namespace of this process.
func OwnUserNS() string {
	s, _ := os.Readlink("/proc/self/ns/user")
	return s
}

// Report describes the daemon as it is now.
func (d *Daemon) Report() Report {
	r := Report{Name: d.cfg.Name, PID: os.Getpid(), Socket: d.Socket(), ABI: d.cfg.ABI, Network: d.cfg.Network.ID, UserNS: OwnUserNS(), Started: d.started, Nodes: []NodeReport{}}
	for _, h := range d.all() {
		r.Nodes = append(r.Nodes, d.reportNode(h))
	}
	r.markStopped()
	r.Faults, r.Schedule = d.faults.inForce(), d.faults.progress()
	return r
}

// Settled is Report, once everything that happened before is in it: packets too, which lie in
// the sockets already.
func (d *Daemon) Settled() Report {
	for _, h := range d.all() {
		nothing := func(*rvt.Device, vtime.Time) {}
		h.Do(nothing)     // a pass may be under way that has looked already;
		h.node.Progress() // this one looks, or one that has begun since,
		h.Do(nothing)     // which ends here
		if h.guard != nil {
			h.Do(func(*rvt.Device, vtime.Time) { h.guard.CatchUp() })
		}
	}
	d.desk.settle()
	return d.Report()
}

// markStopped looks which of the programs are stopped.
func (r *Report) markStopped() {
	stopped := map[int]bool{}
	for _, n := range r.Nodes {
		for j := range n.Contexts {
			c := &n.Contexts[j]
			c.Processes = slices.Clone(c.Processes) // what a program has reported is kept
			for i := range c.Processes {
				p := &c.Processes[i]
				yes, known := stopped[p.PID]
				if !known {
					dir := processDir(p.PID)
					yes = threadPlight(dir) == peerStopped || frozen(dir, cgroups)
					stopped[p.PID] = yes
				}
				p.Stopped = yes
			}
		}
	}
}

func (d *Daemon) reportNode(h *hosted) NodeReport {
	n := NodeReport{
		Name: h.cfg.Name, Address: h.cfg.Address.String(), Netdev: h.cfg.Netdev, Netns: h.cfg.Netns, Device: deviceName, GIDs: []string{},
		Profile: h.cfg.Profile.Name, Root: h.root, State: "active", Contexts: []ContextReport{}, Troubles: h.troubles.all(),
	}
	contexts, processes := d.contextsOf(h)
	err := h.node.Do(func(dev *rvt.Device, _ vtime.Time) {
		n.MTU = dev.Config().MTU.Bytes()
		for _, g := range dev.GIDs() {
			text := ""
			if !g.IsZero() {
				text = g.String()
			}
			n.GIDs = append(n.GIDs, text)
		}
		n.GID = n.GIDs[0]
		if h.bound != nil {
			n.Address = addressOf(dev.GIDs(), h.cfg.Address.Port()).String()
		}
		if !dev.PortUp() {
			n.State = "down"
		}
		ctr := dev.Counters()
		n.SentPackets, n.ReceivedPackets, n.Retransmitted = ctr.SentPackets, ctr.RcvdPackets, ctr.RetransPackets
		port := h.node.Port().Counters()
		n.SendCalls, n.ReceiveCalls = port.TxSyscalls, port.RxSyscalls
		for r, k := range ctr.Dropped {
			n.DroppedPackets += k
			n.dropped(wire.DropReason(r).String(), k)
		}
		if h.guard != nil {
			for _, m := range h.guard.Tight() {
				n.Tight = append(n.Tight, m.String())
			}
		}
		for i, a := range contexts {
			if a.cm != nil || !a.open {
				continue
			}
			c := a.report(dev)
			c.Processes = processes[i]
			n.Contexts = append(n.Contexts, c)
		}
	})
	if err != nil {
		n.State = err.Error()
	}
	for i, a := range contexts {
		if a.cm != nil {
			c := a.cm.report(h.cm)
			c.Processes = processes[i]
			n.Contexts = append(n.Contexts, c)
		}
	}
	for _, m := range d.ask(h) {
		n.add(&m)
		n.Contexts = append(n.Contexts, m.Contexts...)
	}
	d.mu.Lock()
	n.add(&h.past)
	d.mu.Unlock()
	return n
}

// dropped adds packets that were dropped for a reason.
func (n *NodeReport) dropped(reason string, k uint64) {
	if k == 0 {
		return
	}
	if n.Drops == nil {
		n.Drops = map[string]uint64{}
	}
	n.Drops[reason] += k
}

// contextsOf lists a node's contexts in the order of their oldest process.
func (d *Daemon) contextsOf(h *hosted) ([]*attached, [][]ProcessReport) {
	type entry struct {
		a *attached
		p []ProcessReport
	}
	var all []entry
	d.mu.Lock()
	for _, a := range d.contexts {
		if a.h != h {
			continue
		}
		e := entry{a: a}
		for c := range a.conns {
			e.p = append(e.p, ProcessReport{PID: c.pid, UID: c.uid, Comm: c.comm, Since: c.since})
		}
		slices.SortFunc(e.p, func(x, y ProcessReport) int {
			return cmp.Or(x.Since.Compare(y.Since), cmp.Compare(x.PID, y.PID))
		})
		all = append(all, e)
	}
	d.mu.Unlock()
	slices.SortFunc(all, func(x, y entry) int {
		return cmp.Or(x.p[0].Since.Compare(y.p[0].Since), cmp.Compare(x.a.token, y.a.token))
	})
	contexts, processes := make([]*attached, len(all)), make([][]ProcessReport, len(all))
	for i, e := range all {
		contexts[i], processes[i] = e.a, e.p
	}
	return contexts, processes
}

// mayControl reports whether the peer may stop the daemon: the same user, or root. Those
// whose programs may attach may ask as well.
func (c *conn) mayControl() bool { return c.uid == os.Getuid() || c.uid == 0 }

// list serves LIST. The report may be longer than a message, so it goes in a file.
func (c *conn) list() error {
	if !c.mayControl() && !c.d.cfg.allows(c.uid, os.Getuid()) {
		return c.fail(ib.Errno(unix.EACCES))
	}
	return c.sendFile(c.d.Report())
}

// sendFile answers with v in JSON.
func (c *conn) sendFile(v any) error {
	f, err := reportFile(v)
	if err != nil {
		return c.fail(errnoOf(err))
	}
	defer f.Close()
	return c.send(&reply{}, int(f.Fd()))
}

// stop serves STOP. The answer is that the connection ends, when all is done.
func (c *conn) stop() error {
	if !c.mayControl() {
		return c.fail(ib.Errno(unix.EACCES))
	}
	c.d.stop()
	return nil
}

// ErrNotRunning reports that no daemon listens.
var ErrNotRunning = errors.New("no daemon is running")

// call sends a request to the daemon at path and returns the answer and its file.
func call(path string, rq *request) (*os.File, error) {
	s, err := dial(path)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ECONNREFUSED) {
		return nil, ErrNotRunning
	}
	if err != nil {
		return nil, err
	}
	defer s.close()
	rq.pid = uint32(os.Getpid())
	if err := s.send(appendRequest(nil, rq), nil); err != nil {
		return nil, err
	}
	b := make([]byte, maxReply)
	n, files, err := s.recv(b)
	if err != nil {
		return nil, err
	}
	if n < repLen || len(files) > 1 {
		closeAll(files)
		return nil, errShort
	}
	if e := replyErrno(b); e != 0 {
		closeAll(files)
		return nil, fmt.Errorf("daemon: %w", unix.Errno(e))
	}
	if len(files) == 0 {
		return nil, nil
	}
	return os.NewFile(uintptr(files[0]), "report"), nil
}

// Ask returns the report of the daemon whose control socket is at path.
func Ask(path string) (*Report, error) {
	var r Report
	if err := ask(path, &request{op: opList}, &r); err != nil {
		return nil, err
	}
	return &r, nil
}

// ask sends a request and reads the JSON that comes back.
func ask(path string, rq *request, answer any) error {
	f, err := call(path, rq)
	if err != nil {
		return err
	}
	if f == nil {
		return errShort
	}
	defer f.Close()
	if _, err := f.Seek(0, 0); err != nil {
		return err
	}
	if err := json.NewDecoder(f).Decode(answer); err != nil {
		return fmt.Errorf("daemon: answer: %w", err)
	}
	return nil
}

// faultAnswer is the outcome of a FAULT.
type faultAnswer struct {
	Done  string `json:"done"`
	Error string `json:"error,omitempty"`
}

// fault serves FAULT.
func (c *conn) fault(rq *request) error {
	if !c.mayControl() {
		return c.fail(ib.Errno(unix.EACCES))
	}
	if c.d.faults == nil { // an engine in a program: the daemon's is the one to ask
		return c.fail(ib.Errno(unix.EOPNOTSUPP))
	}
	var a faultAnswer
	var err error
	if a.Done, err = c.d.faults.answer(rq); err != nil {
		a.Error = err.Error()
	} else {
		what, _, _ := strings.Cut(string(rq.data), "\x00")
		c.d.log.Info("fault", "fault", what, "done", a.Done)
	}
	return c.sendFile(a)
}

// Inject lets something go wrong in the network of the daemon whose control socket is at
// path, or right again; see [topology.ParseFault] for the text. It returns what it has
// happened to: "2 links", "1 queue pair".
func Inject(path, text string) (string, error) {
	return askFault(path, &request{op: opFault, kind: faultOne, data: []byte(text)})
}

// FaultError says why a fault was not carried out.
type FaultError struct{ What string }

func (e *FaultError) Error() string { return e.What }

// Stop ends the daemon whose control socket is at path, and returns when it has closed
// everything.
func Stop(path string) error {
	_, err := call(path, &request{op: opStop})
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	// The daemon keeps its name locked until everything is closed.
	f, err := os.OpenFile(strings.TrimSuffix(path, ".sock")+".lock", os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != unix.EINTR {
			return os.NewSyscallError("flock", err)
		}
	}
}
