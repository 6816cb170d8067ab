//go:build linux

package verbs

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The bare loop is what a message costs without any protocol: a gather, a CRC and a send
// of a whole train; a receive, a CRC and a scatter. It loses nothing, numbers nothing and
// checks no right, and it acknowledges every other train, so that it cannot overrun its
// receiver. The system calls are those that the port makes.
const (
	barePort     = testPort + 1
	barePayload  = 4096
	bareHeader   = 12
	bareSegment  = bareHeader + barePayload + 4
	bareSegments = 15 // in a train
	bareTrain    = bareSegments * bareSegment
	bareWindow   = 8 // trains under way
	bareAckEvery = 2
	bareSmall    = bareHeader + 64 + 4 // a message of 64 bytes
)

// bareSocket is a UDP socket that talks to one peer, without being connected.
type bareSocket struct {
	fd      int
	to      unix.RawSockaddrInet4
	hdr     unix.Msghdr
	iov     unix.Iovec
	control [24]byte // UDP_SEGMENT
	buf     []byte
}

func openBare(local, peer netip.Addr) (*bareSocket, error) {
	s := &bareSocket{buf: make([]byte, 1<<16)}
	var err error
	if s.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0); err != nil {
		return nil, err
	}
	_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20)
	_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 4<<20)
	err = errors.Join(
		unix.SetsockoptInt(s.fd, unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_DO),
		unix.SetsockoptInt(s.fd, unix.SOL_UDP, unix.UDP_GRO, 1),
		unix.Bind(s.fd, &unix.SockaddrInet4{Port: barePort, Addr: local.As4()}))
	s.to = unix.RawSockaddrInet4{Family: unix.AF_INET, Addr: peer.As4()}
	binary.BigEndian.PutUint16((*[2]byte)(unsafe.Pointer(&s.to.Port))[:], barePort)
	c := (*unix.Cmsghdr)(unsafe.Pointer(&s.control[0]))
	c.Level, c.Type = unix.SOL_UDP, unix.UDP_SEGMENT
	c.SetLen(unix.CmsgLen(2))
	binary.NativeEndian.PutUint16(s.control[unix.CmsgLen(0):], bareSegment)
	s.hdr = unix.Msghdr{Name: (*byte)(unsafe.Pointer(&s.to)), Namelen: unix.SizeofSockaddrInet4, Iov: &s.iov}
	s.hdr.SetIovlen(1)
	return s, err
}

func (s *bareSocket) close() { _ = unix.Close(s.fd) }

// send sends b, as a train if it is one.
func (s *bareSocket) send(b []byte) error {
	s.iov.Base = &b[0]
	s.iov.SetLen(len(b))
	s.hdr.Control = nil
	s.hdr.SetControllen(0)
	if len(b) == bareTrain {
		s.hdr.Control = &s.control[0]
		s.hdr.SetControllen(unix.CmsgSpace(2))
	}
	_, _, e := unix.RawSyscall(unix.SYS_SENDMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.hdr)), 0)
	if e != 0 {
		return e
	}
	return nil
}

// recv returns what has come, nil if nothing has.
func (s *bareSocket) recv() []byte {
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&s.buf[0])), uintptr(len(s.buf)), unix.MSG_DONTWAIT, 0, 0)
	if e != 0 {
		return nil
	}
	return s.buf[:n]
}

// bareSeal writes a header, the payload and a CRC.
func bareSeal(to, payload []byte, number uint64) {
	binary.LittleEndian.PutUint64(to, number)
	n := bareHeader + copy(to[bareHeader:], payload)
	binary.LittleEndian.PutUint32(to[n:], crc32.ChecksumIEEE(to[:n]))
}

var errBare = errors.New("a packet of the bare loop is damaged")

func bareOpen(to, b []byte) error {
	n := len(b) - 4
	if n < bareHeader || binary.LittleEndian.Uint32(b[n:]) != crc32.ChecksumIEEE(b[:n]) {
		return errBare
	}
	copy(to, b[bareHeader:n])
	return nil
}

// bareChunk is how many trains are a lap of the stream.
const bareChunk = 16

// bareStream sends chunks of trains and returns when the last is acknowledged.
func (s *bareSocket) bareStream(chunks int, from []byte, l *laps) error {
	arena := make([]byte, bareTrain)
	trains := chunks * bareChunk
	for sent, acked := 0, 0; acked < trains; {
		for s.recv() != nil {
			if acked += bareAckEvery; acked%bareChunk == 0 {
				l.lap()
			}
		}
		if sent == trains || sent-acked >= bareWindow {
			continue
		}
		for i := range bareSegments {
			off := (sent*bareSegments + i) * barePayload % len(from)
			bareSeal(arena[i*bareSegment:][:bareSegment], from[off:off+barePayload], uint64(sent))
		}
		if err := s.send(arena); err != nil {
			return err
		}
		sent++
	}
	return nil
}

// bareSink receives trains and acknowledges them until stop says so.
func (s *bareSocket) bareSink(to []byte, stop func() bool) error {
	ack := make([]byte, 16)
	packets := 0
	for looks := 0; ; looks++ {
		b := s.recv()
		if b == nil {
			if looks%64 == 0 && stop() {
				return nil
			}
			continue
		}
		for len(b) > 0 {
			n := min(len(b), bareSegment)
			if err := bareOpen(to[packets*barePayload%len(to):], b[:n]); err != nil {
				return err
			}
			b = b[n:]
			if packets++; packets%(bareAckEvery*bareSegments) == 0 {
				if err := s.send(ack); err != nil {
					return err
				}
			}
		}
	}
}

// barePingPong sends messages and waits for an answer to each.
func (s *bareSocket) barePingPong(turns int, mem []byte, l *laps) error {
	out := make([]byte, bareSmall)
	for i := range turns {
		if i%lapTurns == 0 {
			l.lap()
		}
		bareSeal(out, mem[:64], uint64(i))
		if err := s.send(out); err != nil {
			return err
		}
		b := s.recv()
		for b == nil {
			b = s.recv()
		}
		if err := bareOpen(mem, b); err != nil {
			return err
		}
	}
	return nil
}

// bareEcho answers messages until stop says so.
func (s *bareSocket) bareEcho(mem []byte, stop func() bool) error {
	out := make([]byte, bareSmall)
	for looks := 0; ; looks++ {
		b := s.recv()
		if b == nil {
			if looks%64 == 0 && stop() {
				return nil
			}
			continue
		}
		if err := bareOpen(mem, b); err != nil {
			return err
		}
		bareSeal(out, mem[:64], 0)
		if err := s.send(out); err != nil {
			return err
		}
	}
}
