package daemon

import (
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/uverbs"
	"github.com/rvtsim/rvtsim/uverbs/ucma"
)

// conn is the connection of one process to one context, or of a command line. Only its
// own goroutine uses it, except where the comments say otherwise.
type conn struct {
	d     *Daemon
	sock  *seqSocket
	pid   int // as the kernel tells; 0 if the process is outside our namespace
	uid   int
	comm  string        // set before ctx
	since time.Time     // fixed
	left  chan struct{} // closed when the connection has ended

	ctx    *attached // guarded by Daemon.mu; set once
	prog   *program  // likewise; a connection has one of the two at most
	mem    *ProcMem
	caller uverbs.Caller
	in     []byte
	out    []byte
}

// serve runs until the program closes the connection, or says something that makes no
// sense.
func (c *conn) serve() {
	defer c.d.wg.Done()
	c.in = make([]byte, maxRequest)
	if err := c.run(); !errors.Is(err, io.EOF) {
		c.d.log.Warn("connection ends", "pid", c.pid, "uid", c.uid, "comm", c.comm, "err", err)
	}
	if c.ctx != nil {
		c.d.log.Info("detach", "node", c.ctx.h.cfg.Name, "pid", c.pid, "comm", c.comm, "after", time.Since(c.since).Round(time.Millisecond))
	}
	if c.prog != nil {
		c.d.log.Info("detach", "node", c.prog.h.cfg.Name, "pid", c.pid, "comm", c.comm, "after", time.Since(c.since).Round(time.Millisecond))
		c.d.unseat(c.prog)
	}
	c.d.unregister(c)
	if c.mem != nil { // after what may still read it: its sends must not fail for that
		c.mem.Close()
	}
	c.sock.close()
	close(c.left)
}

// run answers requests until receiving or understanding one fails; the error is never
// nil.
func (c *conn) run() error {
	for {
		n, files, err := c.sock.recv(c.in)
		if err != nil {
			return err
		}
		rq, err := parseRequest(c.in[:n])
		if err != nil {
			closeAll(files)
			_ = c.fail(ib.Errno(unix.EPROTO))
			return err
		}
		switch rq.op {
		case opOpen, opAttach:
			err = c.attach(&rq, files)
		case opWrite, opIoctl, opRefused:
			closeAll(files)
			err = c.command(&rq)
		case opHost:
			closeAll(files)
			err = c.hostProgram(&rq)
		case opReport:
			err = c.reported(files)
		case opInbox:
			err = c.offered(files)
		case opReach:
			closeAll(files)
			err = c.reach(&rq)
		case opObeyed:
			closeAll(files)
			err = c.obeyed(&rq)
		case opPeer:
			closeAll(files)
			err = c.peer(&rq)
		case opList:
			closeAll(files)
			err = c.list()
		case opFault:
			closeAll(files)
			err = c.fault(&rq)
		case opStop:
			closeAll(files)
			err = c.stop()
		default:
			closeAll(files)
			err = c.fail(ib.Errno(unix.EPROTO))
		}
		if err != nil {
			return err
		}
	}
}

func (c *conn) send(r *reply, files ...int) error {
	b, err := appendReply(c.out[:0], r)
	if err != nil {
		return errors.Join(err, c.fail(ib.Errno(unix.EMSGSIZE)))
	}
	c.out = b
	return c.sock.send(b, files)
}

// fail answers with an error.
func (c *conn) fail(e ib.Errno) error { return c.send(&reply{errno: e}) }

// attach serves OPEN and ATTACH, the first message of a program. The descriptor that
// comes along is the program's memory.
func (c *conn) attach(rq *request, files []int) error {
	memFD := -1
	for i, fd := range files {
		if i == 0 && c.mem == nil {
			memFD = fd
		} else {
			_ = unix.Close(fd)
		}
	}
	if c.mem != nil || len(rq.data) > 0 {
		return c.fail(ib.Errno(unix.EPROTO))
	}
	c.mem = c.memoryOf(rq, memFD)
	c.caller.Mem = c.mem
	c.comm = commOf(c.pid)
	if !c.d.cfg.allows(c.uid, os.Getuid()) {
		_ = c.fail(ib.Errno(unix.EACCES))
		return refused(c.uid)
	}
	if !c.mem.Usable() {
		_ = c.fail(ib.Errno(unix.EPERM))
		return errors.New("its memory is out of reach: it is not dumpable, or the system does not allow it")
	}
	if rq.op == opAttach {
		a := c.d.join(c, rq.token)
		if a == nil {
			return c.fail(ib.Errno(unix.ENODEV))
		}
		c.logAttach("attach to shared context")
		return c.send(&reply{token: a.token})
	}
	h := c.d.find(rq.node)
	if h == nil || rq.kind != devUverbs && rq.kind != devCM || rq.kind == devCM && h.cm == nil || rq.index != 0 || h.node.Err() != nil {
		return c.fail(ib.Errno(unix.ENODEV))
	}
	if err := c.d.openContext(c, h, rq.kind); err != nil {
		_ = c.fail(errnoOf(err))
		return err
	}
	if int(rq.why) < len(whyDaemon) && rq.why > 0 {
		c.d.log.Info("the daemon serves the program", "node", h.cfg.Name, "pid", c.pid, "comm", c.comm, "because", whyDaemon[rq.why])
	}
	c.logAttach("attach")
	rep := reply{token: c.ctx.token}
	if c.ctx.h.wantsSites() && rq.kind == devUverbs && rq.arg == 0 {
		rep.queryFD = wantSites
	}
	if rq.kind == devCM { // a program may have thousands of them
		c.in = make([]byte, reqLen+ucma.MaxCommand)
	}
	defer c.ctx.passed()
	return c.send(&rep, c.ctx.files(rq.arg != 0)...)
}

// memoryOf returns the memory that a connection is about. A launcher speaks for another
// process, whose number it gives: then only the descriptor, which nobody can make who has
// no right to, says whose memory it is, and the number is for reports.
func (c *conn) memoryOf(rq *request, memFD int) *ProcMem {
	if rq.arg == 0 {
		return NewProcMem(c.pid, memFD)
	}
	var st unix.Stat_t
	if pid := int(int32(rq.arg)); unix.Stat("/proc/"+strconv.Itoa(pid), &st) == nil && int(st.Uid) == c.uid {
		c.pid = pid
	}
	return NewProcMem(0, memFD)
}

func (c *conn) logAttach(what string) {
	c.d.log.Info(what, "node", c.ctx.h.cfg.Name, "pid", c.pid, "uid", c.uid, "comm", c.comm)
}

// commOf is the name of a process.
func commOf(pid int) string {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil {
		return "?"
	}
	return strings.TrimSuffix(string(b), "\n")
}

// command serves WRITE and IOCTL.
func (c *conn) command(rq *request) error {
	if c.ctx == nil {
		return c.fail(ib.Errno(unix.EPROTO))
	}
	if c.ctx.h.node.Err() != nil {
		return c.fail(ib.Errno(unix.EIO))
	}
	c.caller.Site = c.ctx.h.sites.number(rq.splitSite())
	p := passed{known: map[int32]uint64{}}
	for {
		rep := c.carryOut(rq, p.inode)
		if rep.Errno == 0 || !p.asked {
			return c.answer(&rep)
		}
		// The command names a descriptor that only the program can look up. It was
		// refused for that, with nothing done. Ask, and do it again: waiting for the
		// program in the middle of a command would hold up the device.
		data := append([]byte(nil), rq.data...)
		if err := c.queryFD(&p); err != nil {
			return err
		}
		rq.data = data
	}
}

func (c *conn) carryOut(rq *request, p uverbs.Passed) uverbs.Reply {
	switch f := c.ctx.cm; {
	case f != nil && rq.op == opWrite:
		return f.ch.Write(&c.caller, rq.data, p)
	case f != nil:
		return uverbs.Reply{Errno: ib.Errno(unix.ENOTTY)}
	case rq.op == opRefused:
		return c.ctx.ctx.RefusedByLibrary(&c.caller, rq.data)
	}
	if rq.op == opIoctl {
		return c.ctx.ctx.Ioctl(&c.caller, uverbs.IoctlRequest, rq.arg, rq.data, p)
	}
	return c.ctx.ctx.Write(&c.caller, rq.data, p)
}

// maxQueries bounds how often a program is asked during one command.
const maxQueries = 8

// passed is what is known of descriptors that a command names.
type passed struct {
	known map[int32]uint64 // inode; 0 if it is not open
	asked bool
	want  int32
}

// inode implements uverbs.Passed.
func (p *passed) inode(fd int32) (uint64, bool) {
	ino, ok := p.known[fd]
	if !ok && len(p.known) < maxQueries {
		p.asked, p.want = true, fd
	}
	return ino, ino != 0
}

// queryFD asks the program what the descriptor that p wants refers to.
func (c *conn) queryFD(p *passed) error {
	if err := c.send(&reply{kind: repQueryFD, queryFD: uint32(p.want)}); err != nil {
		return err
	}
	n, files, err := c.sock.recv(c.in)
	if err != nil {
		return err
	}
	closeAll(files)
	rq, err := parseRequest(c.in[:n])
	if err != nil {
		return err
	}
	if rq.op != opFDInfo {
		return errors.New("daemon: " + rq.op.String() + " where FDINFO was expected")
	}
	p.known[p.want], p.asked = rq.arg, false
	return nil
}

// answer sends the outcome of a command.
func (c *conn) answer(rep *uverbs.Reply) error {
	r := reply{errno: rep.Errno, outAddr: rep.OutAddr, out: rep.Out}
	files := make([]int, len(rep.Files))
	for i, f := range rep.Files {
		files[i] = int(f.F.Fd())
		r.offsets = append(r.offsets, f.Off)
	}
	for _, w := range rep.Writes {
		r.writes = append(r.writes, memWrite{w.Addr, w.Data})
	}
	err := c.send(&r, files...)
	for _, f := range rep.Files {
		f.F.Close()
	}
	return err
}
