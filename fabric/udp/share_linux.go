package udp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
)

// Several devices may share one address and UDP port, each with a socket of its own. The
// kernel hands a packet to the socket whose number is the high byte of the destination
// QPN: the port itself is number 0 and takes QPNs 0 to 0xffff, QP1 among them.
const (
	// ShareQPNs is how many QPNs each socket takes.
	ShareQPNs = 1 << 16
	// MaxShares is the most sockets beside the port itself. The last range belongs to
	// the multicast QPN.
	MaxShares = 254
)

// ErrShares reports that as many sockets share the address as can be told apart.
var ErrShares = errors.New("udp: as many devices share this address as can be told apart")

// Share opens one more socket at the port's address and returns its number, 1 at first,
// and its descriptor, which belongs to the caller. It must stay open as long as the port:
// if one closes, the kernel renumbers the others. cfg says how large its buffers are. Any
// goroutine may call it, one at a time.
//
// The first call makes the address one that other programs of the same user can open
// too, if they ask for it in the same way.
func (p *Port) Share(cfg Config) (index, fd int, err error) {
	if !p.life.enter() {
		return 0, -1, fabric.ErrClosed
	}
	defer p.life.leave()
	if p.shares == MaxShares {
		return 0, -1, ErrShares
	}
	reuse := sockopt{name: "SO_REUSEPORT", level: unix.SOL_SOCKET, opt: unix.SO_REUSEPORT, value: 1}
	if err := unix.SetsockoptInt(p.sock.fd, reuse.level, reuse.opt, reuse.value); err != nil {
		return 0, -1, &OpenError{Local: p.local, Op: reuse.name, Err: err}
	}
	if fd, err = openSocket(p.local, p.dev, reuse); err != nil {
		return 0, -1, err
	}
	if p.shares == 0 {
		err = steer(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, -1, &OpenError{Local: p.local, Op: "SO_ATTACH_REUSEPORT_CBPF", Err: err}
	}
	setBuffers(fd, cfg.RecvBufferBytes, cfg.SendBufferBytes)
	if p.details.GRO {
		_ = setGRO(fd)
	}
	p.shares++
	return p.shares, fd, nil
}

// steer gives the sockets of an address the program that chooses among them. It sees the
// UDP payload; byte 5 is the first of the destination QPN.
func steer(fd int) error {
	prog := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 5},
		{Code: unix.BPF_RET | unix.BPF_A},
	}
	return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_REUSEPORT_CBPF, &unix.SockFprog{Len: uint16(len(prog)), Filter: &prog[0]})
}

// Drain throws away what waits in a shared socket, which the caller has for himself.
func Drain(fd int) {
	var b [1]byte
	for {
		_, _, err := unix.Recvfrom(fd, b[:], unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		if err != nil && err != unix.EINTR && err != unix.ECONNREFUSED {
			return
		}
	}
}

// OpenShared makes a port of a socket that [Port.Share] has opened, in this process or in
// another one, and takes the descriptor over. cfg must be that of the port; its
// GSOSegments are taken as they are, for the other port has tried.
func OpenShared(cfg Config, fd int) (*Port, error) {
	p := newPort(&cfg, netdevOf(cfg.local().Addr()))
	p.sock.fd = fd
	err := cfg.Validate()
	if err == nil {
		p.waiter.quiet = cfg.QuietNaps
		err = p.waiter.init()
	}
	if err != nil {
		p.releaseSockets()
		return nil, fmt.Errorf("udp: shared socket: %w", err)
	}
	d := &p.details
	d.NetdevMTU, d.GSOSegments = p.dev.mtu, cfg.GSOSegments
	if cfg.DisableGSO {
		d.GSOSegments = 1
	}
	gro, err := unix.GetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO)
	d.GRO = err == nil && gro != 0
	d.RecvBufferBytes, d.SendBufferBytes = setBuffers(fd, 0, 0)
	p.start(&cfg)
	return p, nil
}
