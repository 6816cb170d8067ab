package udp

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Receive buffers. With GRO any message may be a train of up to 64 KiB. Without it
// the largest valid packet has 4096 bytes of payload and some 100 of headers; longer
// datagrams are cut off by the kernel, and dropped. The strides are no powers of two,
// so that the first bytes of all buffers do not share cache sets.
const (
	groMessages, groBuffer, groStride       = 32, 1 << 16, 1<<16 + 192
	plainMessages, plainBuffer, plainStride = batchSize, 8 << 10, 8<<10 + 192

	// maxFills bounds the system calls of one ReadBatch when nothing but refused
	// datagrams arrives.
	maxFills = 8
)

// receiver is the receiving half of a port: the messages of one recvmmsg and how far
// they have been delivered. The arrays are allocated once. The buffers are ordinary
// Go memory without pointers, so that they stay valid for whoever still reads them
// after Close.
type receiver struct {
	mode  VerifyMode
	clock func() vtime.Time
	known wire.ICRCPrefixes

	hdrs    []unix.Mmsghdr
	iovs    []unix.Iovec
	names   []sockaddr
	control []byte // rxControlBytes per message
	bufs    []byte // stride per message
	size    int    // usable bytes of each buffer
	stride  int

	msgs  []rxMessage // what the latest recvmmsg brought
	next  int         // first message not fully delivered
	at    vtime.Time  // their arrival
	turn  int         // the socket that is asked first next time
	yield int         // datagrams per message, as seen lately, at least 1
	ask   int         // most messages to ask for: more than come cost a look in vain each time
	full  bool        // the last call brought as many as were asked for
}

// rxMessage is one received message, and what is left of it to deliver.
type rxMessage struct {
	path     wire.Path
	rest     []byte
	segBytes int
	first    bool // no segment was taken off yet
	guess    idGuess
}

func (r *receiver) init(gro bool, mode VerifyMode, clock func() vtime.Time) {
	n := plainMessages
	r.size, r.stride = plainBuffer, plainStride
	if gro {
		n = groMessages
		r.size, r.stride = groBuffer, groStride
	}
	r.mode, r.clock, r.yield, r.ask = mode, clock, 1, 1
	r.hdrs = make([]unix.Mmsghdr, n)
	r.iovs = make([]unix.Iovec, n)
	r.names = make([]sockaddr, n)
	r.control = make([]byte, n*rxControlBytes)
	r.bufs = make([]byte, n*r.stride)
	r.msgs = make([]rxMessage, 0, n)
	for i := range r.hdrs {
		r.iovs[i].Base = &r.bufs[i*r.stride]
		r.iovs[i].SetLen(r.size)
		h := &r.hdrs[i].Hdr
		h.Name = (*byte)(unsafe.Pointer(&r.names[i]))
		h.Iov = &r.iovs[i]
		h.SetIovlen(1)
		h.Control = &r.control[i*rxControlBytes]
	}
}

// ReadBatch delivers datagrams that have arrived, those of the groups included, and
// 0 if there are none. Refused ones (too short, wrong ICRC) are counted and skipped.
// Their buffers are the port's and valid until the next ReadBatch.
//
// If nothing but refused datagrams arrives, ReadBatch returns 0 after some system
// calls although the socket may hold more; Wait then returns at once.
func (p *Port) ReadBatch(dst []fabric.Datagram) (int, error) {
	if !p.life.enter() {
		return 0, fabric.ErrClosed
	}
	defer p.life.leave()
	if len(dst) == 0 {
		return 0, nil
	}
	p.readMu.Lock()
	defer p.readMu.Unlock()
	n := p.deliver(dst)
	for fills := 0; n == 0 && fills < maxFills; fills++ {
		got, err := p.fill(len(dst))
		if err != nil {
			return 0, err
		}
		if !got {
			break
		}
		n = p.deliver(dst)
	}
	p.waiter.pending.Store(p.rx.next < len(p.rx.msgs))
	return n, nil
}

// fill asks the sockets in turn for messages until one has some. want is the number
// of datagrams that there is room for.
func (p *Port) fill(want int) (bool, error) {
	r := &p.rx
	r.msgs, r.next = r.msgs[:0], 0
	// One train may fill dst: more messages than that would only cool the cache.
	count := min(max(want/r.yield, 1), len(r.hdrs), r.ask)
	groups := *p.groups.Load()
	for range 1 + len(groups) {
		s := &p.sock
		if r.turn %= 1 + len(groups); r.turn > 0 {
			s = groups[r.turn-1]
		}
		r.turn++
		n, err := p.recvFrom(s, count)
		if err != nil {
			return false, err
		}
		if n > 0 {
			r.learn(n, count)
			r.at = r.clock()
			p.take(s, n)
			return true, nil
		}
	}
	r.full = false
	return false, nil
}

// learn takes note that a call brought n messages of count that it asked for. Two full ones
// in a row, with no look in vain between them, show that messages come faster than they are
// asked for.
func (r *receiver) learn(n, count int) {
	switch {
	case n < count:
		r.ask, r.full = n, false
	case r.full:
		r.ask = min(max(2*count, r.ask), len(r.hdrs))
	default:
		r.full = true
	}
}

// maxSockErrors bounds how many queued errors one call clears off a socket.
const maxSockErrors = 16

// recvFrom receives up to count messages from s; 0 if there are none.
func (p *Port) recvFrom(s *rxSock, count int) (int, error) {
	r := &p.rx
	for i := range r.hdrs[:count] {
		h := &r.hdrs[i].Hdr
		h.Namelen = uint32(unsafe.Sizeof(r.names[i].raw))
		h.SetControllen(rxControlBytes)
	}
	for tries := 0; tries < maxSockErrors; tries++ {
		n, errno := recvmmsg(s.fd, r.hdrs[:count])
		p.counters.RxSyscalls++
		switch errno {
		case 0:
			return n, nil
		case unix.EINTR:
		case unix.EAGAIN, unix.ENOMEM, unix.ENOBUFS:
			return 0, nil
		case unix.EBADF, unix.ENOTSOCK, unix.EFAULT, unix.EINVAL:
			return 0, os.NewSyscallError("udp: recvmmsg", errno)
		default: // an error that a peer or router caused; reading it cleared it
			p.details.RxSockErrors++
		}
	}
	return 0, nil
}

// recvmmsg never blocks and is short, so Go's scheduler need not know.
func recvmmsg(fd int, hdrs []unix.Mmsghdr) (int, syscall.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&hdrs[0])), uintptr(len(hdrs)), unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// take reads the headers of n received messages from s into r.msgs.
func (p *Port) take(s *rxSock, n int) {
	r := &p.rx
	segments := 0
	for i := range n {
		h := &r.hdrs[i]
		size := min(int(h.Len), r.size)
		c := parseControl(r.control[i*rxControlBytes:][:min(int(h.Hdr.Controllen), rxControlBytes)])
		if c.hasDrops {
			// The kernel counts in 32 bits, modulo; messages may be older than s.drops.
			if more := c.drops - s.drops; int32(more) > 0 {
				p.counters.RxOverflow += uint64(more)
				s.drops = c.drops
			}
		}
		src, port, ok := r.names[i].get(h.Hdr.Namelen)
		if h.Hdr.Flags&unix.MSG_TRUNC != 0 || !ok {
			p.counters.RxTooShort++
			p.details.RxTruncated++
			continue
		}
		k := segmentCount(size, c.segBytes)
		segments += k
		if k > 1 {
			p.details.RxTrains++
		}
		r.msgs = append(r.msgs, rxMessage{
			path:     wire.Path{Src: src, Dst: s.gid, TClass: c.tclass, HopLimit: c.hopLimit, SPort: port, FlowLabel: c.flowLabel},
			rest:     r.bufs[i*r.stride:][:size],
			segBytes: c.segBytes,
			first:    true,
			guess:    newIDGuess(),
		})
	}
	r.yield = max((segments+r.yield*n)/(2*n), 1)
}

// deliver moves datagrams from r.msgs to dst and returns how many.
func (p *Port) deliver(dst []fabric.Datagram) int {
	r := &p.rx
	n := 0
	for ; r.next < len(r.msgs); r.next++ {
		m := &r.msgs[r.next]
		for m.first || len(m.rest) > 0 {
			if n == len(dst) {
				return n
			}
			var seg []byte
			seg, m.rest = nextSegment(m.rest, m.segBytes)
			if p.accept(m, seg) {
				dst[n] = fabric.Datagram{Path: m.path, Buf: seg, At: r.at}
				n++
				p.counters.RxPackets++
				p.counters.RxBytes += uint64(len(seg))
			}
			m.first = false
		}
	}
	return n
}

// accept checks one segment of m, counts it if it is refused, and leaves its
// identification in m.path.
func (p *Port) accept(m *rxMessage, seg []byte) bool {
	m.path.IPID = 0
	if len(seg) < MinDatagramBytes {
		p.counters.RxTooShort++
		return false
	}
	if p.rx.mode == VerifyOff {
		return true
	}
	id, v := verify(p.rx.mode, &m.path, &p.rx.known, seg, m.guess.next)
	if v == icrcBad {
		p.counters.RxBadICRC++
		m.guess.next += m.guess.step
		return false
	}
	if v == icrcSolved {
		p.details.RxSolvedID++
	}
	m.guess.learn(id, m.first)
	m.path.IPID = id
	return true
}
