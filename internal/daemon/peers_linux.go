package daemon

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric/shm"
	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/vtime"
)

// An adapter in hardware goes on while its program is stopped; one inside the program does
// not, and its peers would use up their retries. So a requester that is about to give up has
// the daemon look whether the program at the other end is stopped, by SIGSTOP or by a
// debugger, and waits for as long as it is.

// peer is a program that hosts itself, as packets name it.
type peer = shm.Peer

// plight is how a peer is.
type plight uint32

const (
	peerUnheard plight = iota // the daemon has not answered yet
	peerGone                  // there is none at that place, or it has ended
	peerRuns
	peerStopped
)

// peers is what the owners of devices in a process know of the peers that do not answer
// them. Its methods may be called from any goroutine; judge is called by owners, and waits
// for nobody.
type peers struct {
	ask  func(peer) // has tell called soon, or never; must not wait
	self peer       // a peer that is not asked about
	// standing is how long a peer has not looked at what lies before it, 0 if there is nothing
	// or nobody knows; see shm.Port.Standing. It is called by owners of the device. nil: always 0.
	standing func(peer) time.Duration

	mu sync.Mutex
	of map[peer]*inquiry
}

// inquiry is about one peer, for all queue pairs that are connected with it.
type inquiry struct {
	state    plight     // as last heard
	open     bool       // an answer is due
	asked    vtime.Time // when the last question was put
	answered vtime.Time
	resumed  vtime.Time // when a peer that had been stopped was last found running
	used     vtime.Time // when judge was last called
}

const (
	// answerIn is how long an answer takes if all is well, and answerBy when nobody
	// believes in it any more.
	answerIn, answerBy = 2 * time.Millisecond, 250 * time.Millisecond
	// lookAgain is how often the daemon has to look at a peer that is stopped.
	lookAgain = 100 * time.Millisecond
	// rouse is how long a peer that runs gets to answer what waits in its socket. It may
	// have been woken just before the daemon looked. An answer that is not about a stopped
	// peer is good for holds.
	rouse, holds = 100 * time.Millisecond, 250 * time.Millisecond
	// amnesty is how long queue pairs get their retries anew after a peer was found to
	// have gone on: longer than the slowest of them waits before it asks again.
	amnesty = time.Second
	// overslept is how late a timer is if this process itself was stopped. What was
	// answered meanwhile may have found the socket full.
	overslept = 100 * time.Millisecond
	// mostSpared is how often in a row that counts, without an answer.
	mostSpared = 8
	// glance is how often a peer is looked at that has not looked yet itself. After suspicion it
	// may be stopped, and the daemon is asked; after stuck it is not believed to look ever, and
	// retries are used up.
	glance, suspicion, stuck = 20 * time.Millisecond, 250 * time.Millisecond, 2 * time.Second
	// forgotten is when an inquiry that nobody uses may go.
	forgotten = 10 * time.Second
)

// judge implements rvt.Config.Judge.
func (p *peers) judge(now vtime.Time, l qp.Plea) qp.Verdict {
	to := peer{GID: l.Peer, Seat: uint8(l.QPN / udp.ShareQPNs)}
	if p.hasNotLooked(now, to, l.Waited) {
		return qp.Verdict{Wait: glance}
	}
	if !l.Last {
		return node.Judge(now, l)
	}
	if l.Late >= overslept && l.Spared < mostSpared {
		return qp.Verdict{Again: true}
	}
	if to.Seat == 0 || to.Seat > udp.MaxShares || to == p.self {
		return node.Judge(now, l) // a device in a daemon, of another kind, or a number that nobody has
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.inquire(now, to)
	in.used = now
	waited := now.Sub(in.asked)
	switch in.state {
	case peerUnheard:
		if in.open && waited >= answerBy {
			break
		}
		if !in.open {
			p.put(now, to, in)
		}
		return qp.Verdict{Wait: answerIn}
	case peerStopped:
		if !in.open && waited < lookAgain {
			return qp.Verdict{Wait: lookAgain - waited}
		}
		if !in.open || waited >= answerBy {
			p.put(now, to, in)
		}
		return qp.Verdict{Wait: answerIn}
	case peerRuns:
		if in.resumed != 0 && now.Sub(in.resumed) < amnesty {
			return qp.Verdict{Again: true}
		}
		if heard := now.Sub(in.answered); heard < rouse {
			return qp.Verdict{Wait: rouse - heard}
		}
	}
	return qp.Verdict{}
}

// hasNotLooked reports whether a peer has taken nothing of what was sent to it since a queue
// pair began to wait: on a busy machine it has not had its turn yet. To send again would only
// fill its lane, and to give up would be wrong.
func (p *peers) hasNotLooked(now vtime.Time, to peer, waited time.Duration) bool {
	if p.standing == nil {
		return false
	}
	d := p.standing(to)
	if d == 0 || d < waited || d >= stuck {
		return false
	}
	if d >= suspicion {
		p.mu.Lock()
		defer p.mu.Unlock()
		in := p.inquire(now, to)
		in.used = now
		if in.state == peerUnheard && !in.open {
			p.put(now, to, in)
		}
	}
	return true
}

// inquire returns what is known of a peer: nothing, if that is too old.
func (p *peers) inquire(now vtime.Time, to peer) *inquiry {
	in := p.of[to]
	switch {
	case in == nil:
		for k, o := range p.of {
			if now.Sub(o.used) > forgotten {
				delete(p.of, k)
			}
		}
		in = &inquiry{}
		if p.of == nil {
			p.of = map[peer]*inquiry{}
		}
		p.of[to] = in
	case in.state == peerStopped:
		if now.Sub(in.used) > forgotten {
			*in = inquiry{}
		}
	case !in.open && now.Sub(in.answered) > holds, in.open && now.Sub(in.asked) > answerBy+holds:
		in.state, in.open = peerUnheard, false
	}
	return in
}

// put asks.
func (p *peers) put(now vtime.Time, to peer, in *inquiry) {
	in.open, in.asked = true, now
	p.ask(to)
}

// tell takes an answer.
func (p *peers) tell(now vtime.Time, to peer, s plight) {
	p.mu.Lock()
	defer p.mu.Unlock()
	in := p.of[to]
	if in == nil {
		return
	}
	if in.state == peerStopped && s == peerRuns {
		in.resumed = now
	}
	in.state, in.open, in.answered = s, false, now
}

// about is a question about a peer, which askedAbout reads.
func about(o op, to peer) *request {
	return &request{op: o, index: uint32(to.Seat), data: to.GID[:]}
}

func askedAbout(rq *request) (to peer, ok bool) {
	if len(rq.data) != len(to.GID) || rq.index > udp.MaxShares {
		return to, false
	}
	return peer{GID: ib.GID(rq.data), Seat: uint8(rq.index)}, true
}

// askDaemon asks for an engine in a program. The answer comes to heard.
func (e *Engine) askDaemon(to peer) {
	_ = e.ctl.send(appendRequest(nil, about(opPeer, to)), nil)
}

// peer serves PEER: how is the program at that place?
func (c *conn) peer(rq *request) error {
	to, ok := askedAbout(rq)
	if c.prog == nil || !ok {
		return c.fail(ib.Errno(unix.EPROTO))
	}
	return c.send(&reply{kind: repHow, token: uint64(to.Seat), bellOffset: uint64(c.d.plight(to)), out: to.GID[:]})
}

// heard takes the answer to PEER, in the program.
func (e *Engine) heard(b []byte) {
	var to peer
	if len(b) < repLen+len(to.GID) {
		return
	}
	to.GID, to.Seat = ib.GID(b[repLen:repLen+len(to.GID)]), uint8(binary.LittleEndian.Uint64(b[8:]))
	e.peers.tell(node.Now(), to, plight(binary.LittleEndian.Uint64(b[16:])))
}

// look asks for the daemon's own devices.
func (d *Daemon) look(to peer) {
	go func() { d.peers.tell(node.Now(), to, d.plight(to)) }()
}

// plight looks how a program is.
func (d *Daemon) plight(to peer) plight {
	p := d.seatedAt(to)
	if p == nil {
		return peerGone
	}
	s := plightOf(p.c.pid)
	p.mu.Lock()
	news := p.stopped != (s == peerStopped)
	p.stopped = s == peerStopped
	p.mu.Unlock()
	if news && s == peerStopped {
		d.log.Info("stopped; its peers wait", "node", p.h.cfg.Name, "pid", p.c.pid, "comm", p.c.comm)
	}
	return s
}

// seatedAt returns the program at a place; nil if there is none.
func (d *Daemon) seatedAt(to peer) *program {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.programs {
		if p.seat.Index == int(to.Seat) && p.h.udp.LocalGID() == to.GID {
			return p
		}
	}
	return nil
}

// plightOf looks how a process is: stopped, if one of its threads is. That one may be the
// thread that drives the device.
func plightOf(pid int) plight {
	dir := processDir(pid)
	s := threadPlight(dir)
	if s == peerStopped || pid <= 0 {
		return s
	}
	tasks, _ := filepath.Glob(dir + "/task/*")
	for _, t := range tasks {
		s = max(s, threadPlight(t))
	}
	if s == peerRuns && frozen(dir, cgroups) {
		return peerStopped
	}
	return s
}

// cgroups is where control groups are mounted.
const cgroups = "/sys/fs/cgroup"

// frozen reports whether the control group of a process is frozen, as that of a container is
// that was paused.
func frozen(dir, mounts string) bool {
	b, err := os.ReadFile(dir + "/cgroup")
	if err != nil {
		return false
	}
	for line := range bytes.Lines(b) { // number:controllers:path
		part := strings.SplitN(strings.TrimSuffix(string(line), "\n"), ":", 3)
		if len(part) < 3 {
			continue
		}
		var files []string
		switch part[1] {
		case "": // version 2, alone or beside version 1
			files = []string{mounts + part[2] + "/cgroup.events", mounts + "/unified" + part[2] + "/cgroup.events"}
		case "freezer":
			files = []string{mounts + "/freezer" + part[2] + "/freezer.state"}
		}
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && (bytes.Contains(b, []byte("frozen 1")) || bytes.HasPrefix(b, []byte("FROZEN"))) {
				return true
			}
		}
	}
	return false
}

func processDir(pid int) string { return "/proc/" + strconv.Itoa(pid) }

// threadPlight looks how a thread, or the first thread of a process, is.
func threadPlight(dir string) plight {
	b, err := os.ReadFile(dir + "/stat")
	i := bytes.LastIndex(b, []byte(") ")) // behind the name, which may contain anything
	if err != nil || i < 0 || i+2 >= len(b) {
		return peerGone
	}
	switch b[i+2] {
	case 'T', 't':
		return peerStopped
	case 'Z', 'X':
		return peerGone
	}
	return peerRuns
}
