package daemon

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/shm"
	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/vtime"
)

// Programs that host themselves on nodes of one daemon reach each other by lanes in memory
// (package shm). Each gives the daemon its inbox when it starts. When one of them connects
// a queue pair it asks for the inbox of the program that the other end belongs to. The
// daemon answers with the inbox, or with nothing if there is no such program here: then
// packets go by UDP. That comes before the first packet, so no two packets of a queue pair
// go different ways.

// Wires that a daemon can be told to use.
const (
	WireMemory = "memory" // lanes where they are possible, else UDP
	WireUDP    = "udp"
)

// inboxOf is what the daemon has of the inbox of a program.
type inboxOf struct {
	file, bell int // descriptors; -1: it has none
}

// lane numbers tell the writers of an inbox apart. They are the daemon's.
type laneNumbers struct {
	taken [shm.Lanes]bool
}

// take returns a number that nobody has, or -1.
func (l *laneNumbers) take() int {
	k := slices.Index(l.taken[:], false)
	if k >= 0 {
		l.taken[k] = true
	}
	return k
}

func (l *laneNumbers) leave(k int) {
	if k >= 0 {
		l.taken[k] = false
	}
}

// offered serves INBOX: the inbox of a program.
func (c *conn) offered(files []int) error {
	p := c.prog
	if p == nil || len(files) != 2 {
		closeAll(files)
		return c.fail(ib.Errno(unix.EPROTO))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inbox.file >= 0 {
		closeAll(files)
		return nil
	}
	p.inbox = inboxOf{files[0], files[1]}
	return nil
}

// closeInbox tells those who write to a program's inbox that it has ended.
func (p *program) closeInbox() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.inbox.file >= 0 {
		shm.MarkGone(p.inbox.file)
		closeAll([]int{p.inbox.file, p.inbox.bell})
		p.inbox = inboxOf{-1, -1}
	}
}

// reach serves REACH: which inbox belongs to a destination.
func (c *conn) reach(rq *request) error {
	peer, ok := askedAbout(rq)
	if c.prog == nil || !ok {
		return c.fail(ib.Errno(unix.EPROTO))
	}
	r := reply{kind: repReached, token: rq.token, errno: ib.Errno(unix.ENOENT)}
	to := c.d.seatedAt(peer)
	// Who has an inbox can look into all its lanes, so strangers get none.
	if to == nil || to.c.uid != c.uid || c.prog.lane < 0 || c.d.cfg.Wire == WireUDP {
		return c.send(&r)
	}
	to.mu.Lock()
	defer to.mu.Unlock()
	if to.inbox.file < 0 {
		return c.send(&r)
	}
	r.errno, r.out = 0, binary.LittleEndian.AppendUint32(nil, uint32(c.prog.lane))
	return c.send(&r, to.inbox.file, to.inbox.bell)
}

// lanes are the ways of an engine to other programs.
type lanes struct {
	port  *shm.Port
	inbox *shm.Inbox

	mu      sync.Mutex // guards what follows: one question at a time
	asked   uint64
	answers chan reached // of the daemon, in order

	// What queue pairs that are being connected are connected to. The owner of the device
	// adds, and whoever has carried out the command takes.
	wantedMu sync.Mutex
	wanted   []shm.Peer
}

// reached is the answer to a question.
type reached struct {
	token uint64
	lane  int // negative: there is no way
	files []int
}

// openLanes puts an inbox in front of the sockets of an engine.
func openLanes(p *udp.Port, cfg udp.Config) (*lanes, error) {
	in, err := shm.NewInbox()
	if err != nil {
		return nil, err
	}
	return &lanes{port: shm.New(p, in, cfg.Port, node.Now, node.Pace()), inbox: in, answers: make(chan reached, 1)}, nil
}

// offer gives the daemon the inbox.
func (l *lanes) offer(ctl *seqSocket) error {
	return ctl.send(appendRequest(nil, &request{op: opInbox}), []int{l.inbox.FD(), l.port.EventFD()})
}

// Connecting implements uverbs.Connector.
func (h *hosted) Connecting(dst ib.GID, qpn ib.QPN) {
	if l := h.lanes; l != nil {
		l.wantedMu.Lock()
		defer l.wantedMu.Unlock()
		l.wanted = append(l.wanted, shm.Peer{GID: dst, Seat: uint8(qpn / udp.ShareQPNs)})
	}
}

// reachFor is how long a command waits for the daemon to say where a peer is.
const reachFor = 250 * time.Millisecond

// connect makes lanes to what queue pairs have been connected to. It is not called by the
// owner of the device.
func (e *Engine) connect() {
	l := e.h.lanes
	if l == nil {
		return
	}
	l.wantedMu.Lock()
	wanted := l.wanted
	l.wanted = nil
	l.wantedMu.Unlock()
	for _, to := range wanted {
		l.reach(e, to)
	}
}

// explore makes lanes to those that datagrams are sent to. The packets until then go by
// UDP, and are received before what comes by the lane.
func (l *lanes) explore(e *Engine) {
	for {
		select {
		case to := <-l.port.Unknown():
			l.reach(e, to)
		case <-e.h.node.Done():
			return
		}
	}
}

// reach asks the daemon for the inbox of a peer and makes the lane to it.
func (l *lanes) reach(e *Engine, to shm.Peer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if to.Seat == 0 || l.port.Reaches(to) { // seat 0 is the daemon's own
		return
	}
	l.asked++
	rq := about(opReach, to)
	rq.token = l.asked
	if e.ctl.send(appendRequest(nil, rq), nil) != nil {
		return
	}
	late := time.NewTimer(reachFor)
	defer late.Stop()
	for {
		select {
		case a := <-l.answers:
			if a.token != l.asked { // to a question that was given up
				closeAll(a.files)
				continue
			}
			l.join(e.h, to, &a)
		case <-late.C:
		}
		return
	}
}

// join makes a lane of an answer.
func (l *lanes) join(h *hosted, to shm.Peer, a *reached) {
	if len(a.files) != 2 || a.lane < 0 {
		closeAll(a.files)
		return
	}
	lane, err := shm.OpenLane(a.files[0], a.files[1], a.lane)
	_ = unix.Close(a.files[0])
	if err != nil {
		_ = unix.Close(a.files[1])
		return
	}
	h.Do(func(*rvt.Device, vtime.Time) { l.port.Join(to, lane) })
}

// answered takes an answer to reach. The descriptors are the caller's no more.
func (l *lanes) answered(b []byte, files []int) {
	a := reached{token: binary.LittleEndian.Uint64(b[8:]), lane: -1, files: files}
	if len(b) >= repLen+4 && replyErrno(b) == 0 {
		a.lane = int(binary.LittleEndian.Uint32(b[repLen:]))
	}
	select {
	case l.answers <- a:
	default: // nobody asked
		closeAll(files)
	}
}

// inFront is what packets of the node go through first.
func (h *hosted) inFront(port fabric.Port) fabric.Port {
	if h.lanes != nil {
		return h.lanes.port
	}
	return port
}
