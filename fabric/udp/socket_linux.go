package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ipv6FlowInfo is IPV6_FLOWINFO (linux/in6.h), which x/sys/unix lacks.
const ipv6FlowInfo = 11

// sockopt is one integer socket option.
type sockopt struct {
	name              string
	level, opt, value int
	optional          bool // the port works without; older kernels lack it
}

// The options of every socket of a port. DO is essential, see the package comment.
var (
	options4 = []sockopt{
		{name: "IP_MTU_DISCOVER", level: unix.IPPROTO_IP, opt: unix.IP_MTU_DISCOVER, value: unix.IP_PMTUDISC_DO},
		{name: "IP_TTL", level: unix.IPPROTO_IP, opt: unix.IP_TTL, value: defaultHopLimit},
		{name: "IP_MULTICAST_TTL", level: unix.IPPROTO_IP, opt: unix.IP_MULTICAST_TTL, value: defaultHopLimit},
		{name: "IP_RECVTOS", level: unix.IPPROTO_IP, opt: unix.IP_RECVTOS, value: 1},
		{name: "IP_RECVTTL", level: unix.IPPROTO_IP, opt: unix.IP_RECVTTL, value: 1},
		{name: "IP_MULTICAST_ALL", level: unix.IPPROTO_IP, opt: unix.IP_MULTICAST_ALL, value: 0, optional: true},
		{name: "SO_RXQ_OVFL", level: unix.SOL_SOCKET, opt: unix.SO_RXQ_OVFL, value: 1, optional: true},
	}
	options6 = []sockopt{
		{name: "IPV6_V6ONLY", level: unix.IPPROTO_IPV6, opt: unix.IPV6_V6ONLY, value: 1},
		{name: "IPV6_MTU_DISCOVER", level: unix.IPPROTO_IPV6, opt: unix.IPV6_MTU_DISCOVER, value: unix.IPV6_PMTUDISC_DO},
		{name: "IPV6_UNICAST_HOPS", level: unix.IPPROTO_IPV6, opt: unix.IPV6_UNICAST_HOPS, value: defaultHopLimit},
		{name: "IPV6_MULTICAST_HOPS", level: unix.IPPROTO_IPV6, opt: unix.IPV6_MULTICAST_HOPS, value: defaultHopLimit},
		{name: "IPV6_RECVTCLASS", level: unix.IPPROTO_IPV6, opt: unix.IPV6_RECVTCLASS, value: 1},
		{name: "IPV6_RECVHOPLIMIT", level: unix.IPPROTO_IPV6, opt: unix.IPV6_RECVHOPLIMIT, value: 1},
		{name: "IPV6_FLOWINFO", level: unix.IPPROTO_IPV6, opt: ipv6FlowInfo, value: 1, optional: true},
		{name: "IPV6_MULTICAST_ALL", level: unix.IPPROTO_IPV6, opt: unix.IPV6_MULTICAST_ALL, value: 0, optional: true},
		// soft-RoCE and many adapters send UDP checksum 0 over IPv6 too, which a
		// socket otherwise drops.
		{name: "UDP_NO_CHECK6_RX", level: unix.SOL_UDP, opt: unix.UDP_NO_CHECK6_RX, value: 1},
		{name: "SO_RXQ_OVFL", level: unix.SOL_SOCKET, opt: unix.SO_RXQ_OVFL, value: 1, optional: true},
	}
)

// openSocket opens, configures and binds a datagram socket. extra options come before
// the bind. A failure is an *OpenError.
func openSocket(local netip.AddrPort, dev netdev, extra ...sockopt) (int, error) {
	family, opts := unix.AF_INET6, options6
	if local.Addr().Is4() {
		family, opts = unix.AF_INET, options4
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, &OpenError{Local: local, Op: "socket", Err: err}
	}
	for _, list := range [][]sockopt{opts, extra} {
		for _, o := range list {
			if err := unix.SetsockoptInt(fd, o.level, o.opt, o.value); err != nil && !o.optional {
				closeFD(fd)
				return -1, &OpenError{Local: local, Op: o.name, Err: err}
			}
		}
	}
	if err := setMulticastInterface(fd, local.Addr(), dev); err != nil {
		closeFD(fd)
		return -1, &OpenError{Local: local, Op: "multicast interface", Err: err}
	}
	if err := bindSocket(fd, local, dev); err != nil {
		closeFD(fd)
		return -1, &OpenError{Local: local, Op: "bind", Err: err}
	}
	return fd, nil
}

func bindSocket(fd int, local netip.AddrPort, dev netdev) error {
	if local.Addr().Is4() {
		return unix.Bind(fd, &unix.SockaddrInet4{Port: int(local.Port()), Addr: local.Addr().As4()})
	}
	sa := &unix.SockaddrInet6{Port: int(local.Port()), Addr: local.Addr().As16()}
	if isLinkLocal(sa.Addr) {
		sa.ZoneId = uint32(dev.index)
	}
	return unix.Bind(fd, sa)
}

// setMulticastInterface sends multicast where the port's address lives, rather than
// where the routing table says.
func setMulticastInterface(fd int, local netip.Addr, dev netdev) error {
	if dev.index == 0 {
		return nil
	}
	if local.Is4() {
		return unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_MULTICAST_IF, &unix.IPMreqn{Ifindex: int32(dev.index)})
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_IF, dev.index)
}

// setBuffers asks for buffer sizes, past the system's limits if privileged, and
// returns what the kernel granted. A refusal is no error: the port works, and drops
// are counted.
func setBuffers(fd, recv, send int) (gotRecv, gotSend int) {
	ask := func(bytes, force, plain int) int {
		if bytes > 0 && unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, bytes) != nil {
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, plain, bytes)
		}
		got, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, plain)
		if err != nil {
			return 0
		}
		return got
	}
	return ask(recv, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF), ask(send, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF)
}

func setGRO(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_UDP, unix.UDP_GRO, 1) }

func closeFD(fd int) {
	if fd >= 0 {
		_ = unix.Close(fd)
	}
}

// probe figures: small segments, so that only their number can be the obstacle.
const (
	probeSegBytes   = 16
	probeOldKernels = 64 // UDP_MAX_SEGMENTS before Linux 6.9
	probeTimeoutMS  = 250
)

var errProbe = errors.New("the probe train did not come back as it was sent")

// probeGSO sends a train from addr to addr and reports how many segments a train may
// have, 1 with an error if the kernel or the device cannot do it at all. It uses
// sockets of its own, so that no traffic of the port mixes in.
func probeGSO(addr netip.Addr, dev netdev, segments int) (int, error) {
	rx, err := openSocket(netip.AddrPortFrom(addr, 0), dev)
	if err != nil {
		return 1, err
	}
	defer closeFD(rx)
	tx, err := openSocket(netip.AddrPortFrom(addr, 0), dev)
	if err != nil {
		return 1, err
	}
	defer closeFD(tx)
	to, err := unix.Getsockname(rx)
	if err != nil {
		return 1, os.NewSyscallError("getsockname", err)
	}
	setBuffers(rx, 1<<20, 0)
	err = probeTrain(tx, rx, to, segments)
	if errors.Is(err, unix.EINVAL) && segments > probeOldKernels {
		segments = probeOldKernels
		err = probeTrain(tx, rx, to, segments)
	}
	if err != nil {
		return 1, err
	}
	return segments, nil
}

// probeTrain sends one train of n segments, the last one shorter, and expects n
// datagrams, since the receiving socket takes no trains.
func probeTrain(tx, rx int, to unix.Sockaddr, n int) error {
	msg := make([]byte, n*probeSegBytes-1)
	for i := range msg {
		msg[i] = byte(i / probeSegBytes)
	}
	oob := make([]byte, unix.CmsgSpace(2))
	putControl(oob, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
	*(*uint16)(unsafe.Pointer(&oob[unix.CmsgLen(0)])) = probeSegBytes
	if err := unix.Sendmsg(tx, msg, oob, to, unix.MSG_DONTWAIT); err != nil {
		return os.NewSyscallError("sendmsg", err)
	}
	buf := make([]byte, len(msg))
	for i := range n {
		size, err := recvBefore(rx, buf)
		if err != nil {
			return fmt.Errorf("%w: segment %d of %d: %w", errProbe, i, n, err)
		}
		want := msg[i*probeSegBytes : min((i+1)*probeSegBytes, len(msg))]
		if string(buf[:size]) != string(want) {
			return fmt.Errorf("%w: segment %d of %d differs", errProbe, i, n)
		}
	}
	return nil
}

// recvBefore receives one datagram within the probe's timeout.
func recvBefore(fd int, buf []byte) (int, error) {
	for {
		n, _, err := unix.Recvfrom(fd, buf, unix.MSG_DONTWAIT)
		switch {
		case err == unix.EINTR:
			continue
		case err != unix.EAGAIN:
			return n, err
		}
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, probeTimeoutMS)
		if err != nil && err != unix.EINTR {
			return 0, err
		}
		if ready == 0 && err == nil {
			return 0, unix.ETIMEDOUT
		}
	}
}
