package udp

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/wire"
)

// sender is the sending half of a port: the layout of one batch and the kernel's view
// of it. The arrays are allocated once.
type sender struct {
	limits  trainLimits
	known   wire.ICRCPrefixes
	trains  []train
	hdrs    []unix.Mmsghdr // one per train
	names   []sockaddr     // one per train
	control []byte         // txControlBytes per train
	iovs    []unix.Iovec   // at most one per datagram

	// sendmmsg is a field so that tests can make the kernel refuse.
	sendmmsg func(fd int, hdrs []unix.Mmsghdr) (int, syscall.Errno)
}

func (s *sender) init(lim trainLimits) {
	s.limits = lim
	s.trains = make([]train, 0, batchSize)
	s.hdrs = make([]unix.Mmsghdr, batchSize)
	s.names = make([]sockaddr, batchSize)
	s.control = make([]byte, batchSize*txControlBytes)
	s.iovs = make([]unix.Iovec, batchSize)
	s.sendmmsg = sendmmsg
}

// WriteBatch sends src in order: it computes every ICRC into the datagram's last four
// bytes, completes its Path, and packs runs of equal destination and size into
// segmentation-offload trains.
//
// A full socket ends the batch early, without an error. A datagram that the system
// refuses (no route, too long for the path, filtered) is counted and dropped, with
// the train it is part of, as a network would drop it; so WriteBatch fails only on a
// closed port.
func (p *Port) WriteBatch(src []fabric.Datagram) (int, error) {
	if !p.life.enter() {
		return 0, fabric.ErrClosed
	}
	defer p.life.leave()
	n := 0
	for n < len(src) {
		if why := examine(&src[n], p.v4); why != sendable {
			p.refuse(why)
			n++
			continue
		}
		p.tx.trains = coalesce(p.tx.trains[:0], src[n:], p.v4, p.tx.limits)
		taken, outcome := p.sendTrains(src[n:])
		n += taken
		switch outcome {
		case sendBlocked:
			p.counters.TxBackpressure++
			p.setBlocked(true)
			return n, nil
		case sendClosed:
			return n, fabric.ErrClosed
		}
	}
	p.setBlocked(false)
	return n, nil
}

// refuse counts a datagram that cannot be sent at all.
func (p *Port) refuse(why refusal) {
	p.counters.TxErrors++
	if why == tooLong {
		p.details.TxTooLong++
	} else {
		p.details.TxMalformed++
	}
}

// sendOutcome is how sendTrains ended.
type sendOutcome uint8

const (
	sendDone    sendOutcome = iota
	sendRelayed             // the limits changed: lay the rest out again
	sendBlocked             // the socket is full
	sendClosed              // the socket is gone
)

// sendTrains sends the trains laid out for src and returns how many datagrams were
// taken, that is sent or dropped.
func (p *Port) sendTrains(src []fabric.Datagram) (int, sendOutcome) {
	tx := &p.tx
	p.prepare(src)
	defer runtime.KeepAlive(src) // the iovecs may reach into the next buffer
	taken := 0
	for at := 0; at < len(tx.trains); {
		sent, errno := tx.sendmmsg(p.sock.fd, tx.hdrs[at:len(tx.trains)])
		p.counters.TxSyscalls++
		for _, t := range tx.trains[at : at+sent] {
			p.countSent(t)
			taken += t.count
		}
		at += sent
		if errno == 0 {
			continue
		}
		t := tx.trains[at]
		switch fate := fateOf(errno, t.count); fate {
		case fateRetry:
		case fateBlocked:
			return taken, sendBlocked
		case fateClosed:
			return taken, sendClosed
		case fateNoGSO:
			p.disableGSO(errno)
			return taken, sendRelayed
		default:
			p.countDropped(t, fate, errno)
			taken += t.count
			at++
		}
	}
	return taken, sendDone
}

// prepare seals the datagrams of all trains and describes the trains to the kernel.
func (p *Port) prepare(src []fabric.Datagram) {
	tx := &p.tx
	iov := 0
	for i, t := range tx.trains {
		seal(src, t, p.gid, p.local.Port(), &tx.known)
		first := iov
		for j := range src[t.first : t.first+t.count] {
			iov = appendIovec(tx.iovs, first, iov, src[t.first+j].Buf)
		}
		path := &src[t.first].Path
		segBytes := 0
		if t.count > 1 {
			segBytes = t.segBytes
		}
		control := tx.control[i*txControlBytes : (i+1)*txControlBytes]
		h := &tx.hdrs[i].Hdr
		h.Name = (*byte)(unsafe.Pointer(&tx.names[i]))
		h.Namelen = tx.names[i].set(path.Dst, p.local.Port(), uint32(p.dev.index))
		h.Iov = &tx.iovs[first]
		h.SetIovlen(iov - first)
		h.Control = &control[0]
		n := appendControl(control, p.v4, segBytes, path.TClass, path.HopLimit)
		h.SetControllen(n)
		if n == 0 {
			h.Control = nil
		}
	}
}

// appendIovec adds buf to iovs[first:n] and returns the new n. A buffer that begins
// where the one before it ends lengthens that entry.
func appendIovec(iovs []unix.Iovec, first, n int, buf []byte) int {
	if n > first {
		last := &iovs[n-1]
		if uintptr(unsafe.Pointer(last.Base))+uintptr(last.Len) == uintptr(unsafe.Pointer(&buf[0])) {
			last.SetLen(int(last.Len) + len(buf))
			return n
		}
	}
	iovs[n].Base = &buf[0]
	iovs[n].SetLen(len(buf))
	return n + 1
}

// longSend is the number of messages from which a send is long enough (some 20 us) to
// be worth telling Go's scheduler.
const longSend = 8

// sendmmsg sends hdrs and returns how many went out. errno is that of the first that
// did not; the kernel keeps it back if it sent anything before.
func sendmmsg(fd int, hdrs []unix.Mmsghdr) (int, syscall.Errno) {
	const flags = unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL
	var n uintptr
	var e syscall.Errno
	if len(hdrs) < longSend {
		n, _, e = unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&hdrs[0])), uintptr(len(hdrs)), flags, 0, 0)
	} else {
		n, _, e = unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&hdrs[0])), uintptr(len(hdrs)), flags, 0, 0)
	}
	if e != 0 {
		return 0, e
	}
	if n == 0 { // not known to happen; without this the caller would spin
		return 0, unix.EAGAIN
	}
	return int(n), 0
}

// sendFate is what becomes of a train that the kernel did not take.
type sendFate uint8

const (
	fateRetry sendFate = iota
	fateBlocked
	fateClosed
	fateNoGSO       // send its datagrams one by one
	fateUnreachable // drop
	fateTooLong     // drop
	fateOther       // drop
)

// fateOf decides by the error number. Errors that concern one destination must not
// stop a port that talks to many.
func fateOf(errno syscall.Errno, segments int) sendFate {
	switch errno {
	case unix.EINTR:
		return fateRetry
	case unix.EAGAIN, unix.ENOBUFS, unix.ENOMEM:
		return fateBlocked
	case unix.EBADF, unix.ENOTSOCK:
		return fateClosed
	case unix.EMSGSIZE:
		return fateTooLong
	case unix.EIO, unix.EINVAL, unix.EOPNOTSUPP:
		if segments > 1 {
			return fateNoGSO
		}
		return fateOther
	case unix.ECONNREFUSED, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EPERM, unix.EACCES,
		unix.ENETDOWN, unix.EADDRNOTAVAIL, unix.ENONET, unix.EHOSTDOWN:
		return fateUnreachable
	}
	return fateOther
}

func (p *Port) countSent(t train) {
	p.counters.TxPackets += uint64(t.count)
	p.counters.TxBytes += uint64(t.bytes)
	if t.count > 1 {
		p.details.TxTrains++
	}
}

func (p *Port) countDropped(t train, fate sendFate, errno syscall.Errno) {
	n := uint64(t.count)
	p.counters.TxErrors += n
	switch fate {
	case fateTooLong:
		p.details.TxTooLong += n
		return
	case fateUnreachable:
		p.details.TxUnreachable += n
	default:
		p.details.TxOther += n
	}
	p.details.LastTxErr = errno
}

// disableGSO turns to single sends for good.
func (p *Port) disableGSO(errno syscall.Errno) {
	p.counters.GSOFallbacks++
	p.tx.limits.segments = 1
	p.details.GSOSegments = 1
	p.degraded.Store(&GSODisabledError{Local: p.local, Err: fmt.Errorf("sendmmsg: %w", errno)})
}
