package udp

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/fdspace"
)

// JoinGroup makes the port receive what is sent to a multicast group, on the
// interface that owns the port's address. Joining twice is no error.
//
// A socket bound to a unicast address gets no multicast, and a wildcard socket would
// fight other nodes for the port. So each group has a socket of its own, bound to the
// group's address; SO_REUSEADDR lets several nodes of one machine do the same, and
// the kernel copies each datagram to all of them, the sender included if it joined.
func (p *Port) JoinGroup(g ib.GID) error {
	if !p.life.enter() {
		return fabric.ErrClosed
	}
	defer p.life.leave()
	if !g.IsMulticast() || g.IsIPv4() != p.v4 {
		return fmt.Errorf("udp: join %v on %v: not a multicast group of its address family", AddrFromGID(g), p.local)
	}
	p.groupMu.Lock()
	defer p.groupMu.Unlock()
	groups := *p.groups.Load()
	if slices.ContainsFunc(groups, func(s *rxSock) bool { return s.gid == g }) {
		return nil
	}
	if len(groups) == MaxGroups {
		return fmt.Errorf("udp: join %v on %v: %d groups are joined already", AddrFromGID(g), p.local, MaxGroups)
	}
	fd, err := p.openGroup(g)
	if err != nil {
		return fmt.Errorf("udp: join %v on %v: %w", AddrFromGID(g), p.local, err)
	}
	if p.watch != nil {
		if err := p.watch.add(fd, unix.EPOLLIN); err != nil {
			fdspace.Close(fd)
			return fmt.Errorf("udp: join %v on %v: %w", AddrFromGID(g), p.local, err)
		}
	}
	more := append(slices.Clone(groups), &rxSock{fd: fd, gid: g})
	p.groups.Store(&more)
	p.wakeForGroups()
	return nil
}

func (p *Port) openGroup(g ib.GID) (int, error) {
	local := netip.AddrPortFrom(AddrFromGID(g), p.local.Port())
	fd, err := openSocket(local, p.dev, sockopt{name: "SO_REUSEADDR", level: unix.SOL_SOCKET, opt: unix.SO_REUSEADDR, value: 1})
	if err != nil {
		return -1, err
	}
	if p.v4 {
		// The interface index wins; the address decides where none is known.
		m := &unix.IPMreqn{Multiaddr: g.IPv4(), Address: p.gid.IPv4(), Ifindex: int32(p.dev.index)}
		err = unix.SetsockoptIPMreqn(fd, unix.IPPROTO_IP, unix.IP_ADD_MEMBERSHIP, m)
	} else {
		m := &unix.IPv6Mreq{Multiaddr: g, Interface: uint32(p.dev.index)}
		err = unix.SetsockoptIPv6Mreq(fd, unix.IPPROTO_IPV6, unix.IPV6_JOIN_GROUP, m)
	}
	if err != nil {
		closeFD(fd)
		return -1, err
	}
	// Every group has a buffer of its own, so a fraction of the port's is enough.
	setBuffers(fd, 1<<20, 0)
	if p.details.GRO {
		_ = setGRO(fd) // without it the datagrams come one by one
	}
	return fdspace.Keep(fd), nil
}

// LeaveGroup ends what JoinGroup began. Leaving a group that was not joined is no
// error. Datagrams that ReadBatch has taken already may still be delivered.
func (p *Port) LeaveGroup(g ib.GID) error {
	if !p.life.enter() {
		return fabric.ErrClosed
	}
	defer p.life.leave()
	p.groupMu.Lock()
	defer p.groupMu.Unlock()
	groups := *p.groups.Load()
	i := slices.IndexFunc(groups, func(s *rxSock) bool { return s.gid == g })
	if i < 0 {
		return nil
	}
	gone := groups[i]
	fewer := slices.Delete(slices.Clone(groups), i, i+1)
	p.groups.Store(&fewer)
	p.readMu.Lock() // a reader may still be in the old list
	fdspace.Close(gone.fd)
	p.readMu.Unlock()
	p.wakeForGroups()
	return nil
}

// wakeForGroups makes a Wait under way look at the new list of sockets.
func (p *Port) wakeForGroups() {
	if !p.waiter.woken.Swap(true) {
		p.waiter.signal()
	}
}
