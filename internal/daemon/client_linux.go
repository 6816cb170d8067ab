package daemon

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Client is one connection to a context, held by somebody who speaks for another
// process: the launcher of package notify. The preload library does the same in C, for
// the process that it is part of. A Client is not safe for concurrent use.
//
// Its errors are errno values (unix.Errno), for the system call of the program.
type Client struct {
	sock  *seqSocket
	token uint64
	in    []byte
	out   []byte
}

// Opened is what comes with a new context. The descriptors belong to the caller.
type Opened struct {
	Token  uint64 // for Attach
	Memory int    // memfd: the program's command descriptor, and what it maps
	Bell   *Bell
}

// MemWrite is bytes to store in the program's memory.
type MemWrite struct {
	Addr uint64
	Data []byte
}

// Answer is the outcome of a command. It is valid until the next one. What it says to
// store is to be stored whether Errno is 0 or not.
type Answer struct {
	Errno   unix.Errno
	Out     []byte // for OutAddr, after the descriptors' numbers were put into it
	OutAddr uint64
	Files   []int // belong to the caller
	Offsets []int // of the Files' numbers in Out, as 32-bit integers; within Out
	Writes  []MemWrite
}

// OpenDevice opens device file index of a node for process pid, whose memory mem is: a
// descriptor of its /proc/PID/mem, which stays the caller's.
func OpenDevice(socket, node string, index uint32, pid, mem int) (*Client, *Opened, error) {
	c := &Client{}
	rq := request{op: opOpen, kind: devUverbs, node: node, index: index, arg: uint64(pid)}
	a, h, err := c.introduce(socket, &rq, mem)
	if err != nil {
		return nil, nil, err
	}
	if len(a.Files) != 2 {
		closeAll(a.Files)
		c.Close()
		return nil, nil, unix.EIO
	}
	bell, err := newBell(a.Files[0], a.Files[1], h.bellOffset)
	if err != nil {
		closeAll(a.Files)
		c.Close()
		return nil, nil, err
	}
	return c, &Opened{Token: h.token, Memory: a.Files[0], Bell: bell}, nil
}

// OpenCM opens the connection manager's device file of a node, like OpenDevice. r is the
// program's descriptor, a pipe that is readable while events wait; w is its other end,
// which reports an error when nobody has r any more. Both belong to the caller.
func OpenCM(socket, node string, pid, mem int) (c *Client, token uint64, r, w int, err error) {
	c = &Client{}
	a, h, err := c.introduce(socket, &request{op: opOpen, kind: devCM, node: node, arg: uint64(pid)}, mem)
	if err != nil {
		return nil, 0, -1, -1, err
	}
	if len(a.Files) != 2 {
		closeAll(a.Files)
		c.Close()
		return nil, 0, -1, -1, unix.EIO
	}
	return c, h.token, a.Files[0], a.Files[1], nil
}

// Attach makes a connection to an open context for another process that shares it.
func Attach(socket string, token uint64, pid, mem int) (*Client, error) {
	c := &Client{}
	a, _, err := c.introduce(socket, &request{op: opAttach, token: token, arg: uint64(pid)}, mem)
	if err != nil {
		return nil, err
	}
	closeAll(a.Files)
	return c, nil
}

func (c *Client) introduce(socket string, rq *request, mem int) (Answer, *reply, error) {
	s, err := dial(socket)
	if err != nil {
		return Answer{}, nil, unix.ENODEV
	}
	c.sock, c.in = s, make([]byte, maxReply)
	rq.pid = uint32(os.Getpid())
	a, h, err := c.call(rq, mem, nil)
	if err == nil && a.Errno != 0 {
		closeAll(a.Files)
		err = a.Errno
	}
	if err != nil {
		c.Close()
		return Answer{}, nil, err
	}
	c.token = h.token
	return a, h, nil
}

// Write carries out a write() of the program to the device file. inode looks up what a
// descriptor of the program refers to; 0 if it is not open.
func (c *Client) Write(data []byte, inode func(fd int32) uint64) (Answer, error) {
	a, _, err := c.call(&request{op: opWrite, token: c.token, data: data}, -1, inode)
	return a, err
}

// Ioctl carries out an RDMA_VERBS_IOCTL, whose argument is at addr and reads data.
func (c *Client) Ioctl(addr uint64, data []byte, inode func(fd int32) uint64) (Answer, error) {
	a, _, err := c.call(&request{op: opIoctl, token: c.token, arg: addr, data: data}, -1, inode)
	return a, err
}

// Close ends the connection. The context ends with its last one.
func (c *Client) Close() { c.sock.close() }

// Hangup returns a descriptor to poll for POLLHUP, which says that the daemon has gone. It
// stays the client's.
func (c *Client) Hangup() int { return c.sock.fd }

// call sends a request and waits for its answer. The daemon may ask for descriptors in
// between.
func (c *Client) call(rq *request, file int, inode func(fd int32) uint64) (Answer, *reply, error) {
	var files []int
	if file >= 0 {
		files = []int{file}
	}
	for {
		c.out = appendRequest(c.out[:0], rq)
		if err := c.sock.send(c.out, files); err != nil {
			if errors.Is(err, unix.EMSGSIZE) {
				return Answer{}, nil, unix.EINVAL
			}
			return Answer{}, nil, unix.EIO
		}
		n, got, err := c.sock.recv(c.in)
		if err != nil {
			return Answer{}, nil, unix.EIO
		}
		r, a, err := parseReply(c.in[:n], got)
		if err != nil {
			closeAll(got)
			return Answer{}, nil, unix.EIO
		}
		if r.kind != repQueryFD {
			return a, r, nil
		}
		closeAll(got)
		files = nil
		rq = &request{op: opFDInfo, token: c.token, pid: rq.pid}
		if inode != nil {
			rq.arg = inode(int32(r.queryFD))
		}
	}
}

// parseReply reads an answer, which came with files. The result refers to b.
func parseReply(b []byte, files []int) (*reply, Answer, error) {
	le := binary.LittleEndian
	if len(b) < repLen {
		return nil, Answer{}, io.ErrUnexpectedEOF
	}
	r := &reply{kind: le.Uint32(b), token: le.Uint64(b[8:]), bellOffset: le.Uint64(b[16:]), queryFD: le.Uint32(b[44:])}
	a := Answer{Errno: unix.Errno(le.Uint32(b[4:])), OutAddr: le.Uint64(b[24:]), Files: files}
	outLen, nfiles, nwrites := le.Uint32(b[32:]), le.Uint32(b[36:]), le.Uint32(b[40:])
	if nfiles > maxFiles {
		return nil, a, errTooLong
	}
	rest := b[repLen:]
	take := func(n int) (p []byte, ok bool) {
		full := (n + 7) &^ 7
		if n < 0 || full > len(rest) {
			return nil, false
		}
		p, rest = rest[:n], rest[full:]
		return p, true
	}
	offsets, ok := take(int(nfiles) * 4)
	if ok {
		a.Out, ok = take(int(outLen))
	}
	for i := uint32(0); ok && i < nfiles; i++ {
		off := int(le.Uint32(offsets[4*i:]))
		ok = off >= 0 && off+4 <= len(a.Out)
		a.Offsets = append(a.Offsets, off)
	}
	for i := uint32(0); ok && i < nwrites; i++ {
		var h, data []byte
		if h, ok = take(writeLen); ok {
			if data, ok = take(int(le.Uint32(h[8:]))); ok {
				a.Writes = append(a.Writes, MemWrite{le.Uint64(h), data})
			}
		}
	}
	if !ok || len(a.Offsets) > 0 && len(a.Offsets) != len(files) {
		return nil, a, io.ErrUnexpectedEOF
	}
	return r, a, nil
}

// Bell is the program's side of a context's doorbell. Its methods may be called from
// any goroutine until Close.
type Bell struct {
	page    []byte
	event   int
	unheard atomic.Uint32
}

// unheardCheck is how many rings go without an answer before the caller is to look
// whether the daemon lives.
const unheardCheck = 256

func newBell(memory, event int, offset uint64) (*Bell, error) {
	page, err := unix.Mmap(memory, int64(offset), 4*(gateFirst+gateWords), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, unix.ENOMEM
	}
	return &Bell{page: page, event: event}, nil
}

func (b *Bell) word(i uint32) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(&b.page[4*i])) }

// Ring tells the daemon that there is something in the send ring of a QP. It reports
// false if that needs a command with an answer instead: the QP may have to refuse it, or
// the daemon has not listened for long.
func (b *Bell) Ring(qp uint32) bool {
	if qp == 0 || b.word(gateFirst+qp%gateWords).Load() != qp {
		return false
	}
	if b.word(0).Swap(1) != 0 {
		return b.unheard.Add(1)%unheardCheck != 0
	}
	b.unheard.Store(0)
	one := [8]byte{1}
	_, err := unix.Write(b.event, one[:])
	return err == nil || err == unix.EAGAIN
}

// Close gives the memory back.
func (b *Bell) Close() {
	_ = unix.Munmap(b.page)
	_ = unix.Close(b.event)
}

// DoorbellOf returns the QP of a write() that only says that there is something in a
// ring: a post_send without work requests, whose answer nobody looks at.
func DoorbellOf(data []byte) (qp uint32, ok bool) {
	const cmdPostSend = 28 // IB_USER_VERBS_CMD_POST_SEND
	ne := binary.NativeEndian
	if len(data) != 32 || ne.Uint32(data) != cmdPostSend || ne.Uint32(data[20:]) != 0 || ne.Uint32(data[24:]) != 0 {
		return 0, false
	}
	return ne.Uint32(data[16:]), true
}
