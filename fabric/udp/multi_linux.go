package udp

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
)

// Multi is one RoCE v2 port with several addresses that come and go: those of a network
// device. Each address has a socket of its own; a datagram goes out of the socket of its
// source address ([wire.Path].Src), and is refused if there is none.
//
// ReadBatch, WriteBatch, Counters and Use belong to the port's owner. Wait may run beside
// them in one other goroutine; Wake and Close may be called from anywhere.
type Multi struct {
	cfg   Config // of each socket, but for the address
	gid   ib.GID
	life  life
	wake  waiter
	watch *watch // nil unless the host waits for many ports; fixed by Watch

	ports    atomic.Pointer[[]*Port] // replaced as a whole by the owner
	turn     int                     // the socket that is read first next time
	retired  fabric.PortCounters     // of sockets that are closed
	counters fabric.PortCounters
	refused  uint64 // datagrams from an address without a socket

	fds []unix.PollFd // of the one Wait

	neighbours neighbours

	inside  func(func() error) error
	groupMu sync.Mutex
	groups  map[ib.GID]*Port // which of the ports receives it, nil if none can now
}

var (
	_ fabric.Port   = (*Multi)(nil)
	_ fabric.Napper = (*Multi)(nil)
)

// Address is one address of a [Multi].
type Address struct {
	GID     ib.GID
	Ifindex int // the device that has it; the scope of a link-local address
}

// OpenMulti makes a port without addresses. cfg is that of every socket; its Local is
// what LocalGID returns. inside runs a function on a thread in the network namespace of
// the port's addresses.
func OpenMulti(cfg Config, inside func(func() error) error) (*Multi, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.Now = cfg.clock()
	m := &Multi{cfg: cfg, gid: cfg.Local, inside: inside, groups: map[ib.GID]*Port{}}
	m.neighbours.inside = inside
	m.ports.Store(new([]*Port))
	m.life.release = func() {
		for _, p := range *m.ports.Load() {
			_ = p.Close()
		}
		m.wake.release()
		m.neighbours.release()
	}
	if err := m.wake.init(); err != nil {
		return nil, os.NewSyscallError("eventfd", err)
	}
	return m, nil
}

// Open opens sockets for those addresses that have none and returns them with those that
// go on, for Use. The error joins what went wrong with single addresses, each an
// [*OpenError]; the others work. An address may have to wait: an IPv6 address is in its
// device's list before the kernel lets anybody bind to it. The sockets are in the network
// namespace of the calling thread. Open may run beside everything but itself and Use.
func (m *Multi) Open(addrs []Address, mtu int) (next []*Port, err error) {
	if !m.life.enter() {
		return nil, fabric.ErrClosed
	}
	defer m.life.leave()
	var errs []error
	old := *m.ports.Load()
	for _, a := range addrs {
		if portOf(next, a.GID) != nil {
			continue // two devices have it; the first one answers
		}
		p := portOf(old, a.GID)
		if p == nil || p.dev.index != a.Ifindex {
			cfg := m.cfg
			cfg.Local = a.GID
			if p, err = openOn(cfg, netdev{index: a.Ifindex, mtu: mtu}); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		next = append(next, p)
	}
	return next, errors.Join(errs...)
}

// Use makes the sockets that Open returned the port's, closes those of addresses that are
// gone, and follows a change of the device's MTU. It belongs to the port's owner.
func (m *Multi) Use(next []*Port, mtu int) {
	if !m.life.enter() {
		for _, p := range next {
			_ = p.Close()
		}
		return
	}
	defer m.life.leave()
	for _, p := range *m.ports.Load() {
		if portOf(next, p.gid) != p {
			m.retired.Add(&p.counters)
			_ = p.Close()
		}
	}
	for _, p := range next {
		if p.dev.mtu != mtu {
			p.setMTU(mtu)
		}
	}
	m.watchNew(*m.ports.Load(), next)
	m.ports.Store(&next)
	m.moveGroups(next)
	m.Wake()
}

// JoinGroup makes the port receive what is sent to a multicast group, on the device of
// the first address of its family. Joining twice is no error. Any goroutine may call it.
func (m *Multi) JoinGroup(g ib.GID) error {
	if !m.life.enter() {
		return fabric.ErrClosed
	}
	defer m.life.leave()
	return m.inside(func() error {
		m.groupMu.Lock()
		defer m.groupMu.Unlock()
		p := ofFamily(*m.ports.Load(), g.IsIPv4())
		if p == nil {
			return fmt.Errorf("udp: join %v: the device has no address of its family", AddrFromGID(g))
		}
		if err := p.JoinGroup(g); err != nil {
			return err
		}
		m.groups[g] = p
		m.Wake()
		return nil
	})
}

// LeaveGroup ends what JoinGroup began.
func (m *Multi) LeaveGroup(g ib.GID) error {
	if !m.life.enter() {
		return fabric.ErrClosed
	}
	defer m.life.leave()
	m.groupMu.Lock()
	defer m.groupMu.Unlock()
	p := m.groups[g]
	delete(m.groups, g)
	if p == nil {
		return nil
	}
	return p.LeaveGroup(g)
}

// moveGroups gives groups whose address is gone to another one.
func (m *Multi) moveGroups(ports []*Port) {
	m.groupMu.Lock()
	defer m.groupMu.Unlock()
	for g, p := range m.groups {
		if p != nil && portOf(ports, p.gid) == p {
			continue
		}
		m.groups[g] = nil
		if p := ofFamily(ports, g.IsIPv4()); p != nil && p.JoinGroup(g) == nil {
			m.groups[g] = p
		}
	}
}

func ofFamily(ports []*Port, v4 bool) *Port {
	for _, p := range ports {
		if p.v4 == v4 {
			return p
		}
	}
	return nil
}

func portOf(ports []*Port, g ib.GID) *Port {
	for _, p := range ports {
		if p.gid == g {
			return p
		}
	}
	return nil
}

// setMTU follows a change of the device's MTU: segments of trains must fit it.
func (p *Port) setMTU(mtu int) {
	p.dev.mtu = mtu
	p.details.NetdevMTU = mtu
	p.tx.limits.segBytes = p.trainLimits(p.tx.limits.segments).segBytes
}

// Bound returns the addresses that have a socket.
func (m *Multi) Bound() []ib.GID {
	var out []ib.GID
	for _, p := range *m.ports.Load() {
		out = append(out, p.gid)
	}
	return out
}

// ReadBatch implements fabric.Port: it reads from each socket once, another one first
// each time.
func (m *Multi) ReadBatch(dst []fabric.Datagram) (int, error) {
	if !m.life.enter() {
		return 0, fabric.ErrClosed
	}
	defer m.life.leave()
	ports := *m.ports.Load()
	n := 0
	for i := range ports {
		p := ports[(m.turn+i)%len(ports)]
		k, err := p.ReadBatch(dst[n:])
		if err != nil {
			return n, err
		}
		if n += k; n == len(dst) {
			break
		}
	}
	m.turn++
	return n, nil
}

// WriteBatch implements fabric.Port.
func (m *Multi) WriteBatch(src []fabric.Datagram) (int, error) {
	if !m.life.enter() {
		return 0, fabric.ErrClosed
	}
	defer m.life.leave()
	ports := *m.ports.Load()
	for n := 0; n < len(src); {
		from := src[n].Path.Src
		end := n + 1
		for end < len(src) && src[end].Path.Src == from {
			end++
		}
		p := portOf(ports, from)
		if p == nil {
			m.refused += uint64(end - n)
			n = end
			continue
		}
		k, err := p.WriteBatch(src[n:end])
		n += k
		if err != nil || n < end {
			return n, err
		}
	}
	return len(src), nil
}

// Wait implements fabric.Waiter.
func (m *Multi) Wait(d time.Duration) error {
	if !m.life.enter() {
		return fabric.ErrClosed
	}
	defer m.life.leave()
	m.fds = append(m.fds[:0], unix.PollFd{Fd: int32(m.wake.eventFD), Events: unix.POLLIN})
	ports := *m.ports.Load()
	for _, p := range ports {
		if !p.life.enter() {
			continue // gone meanwhile; whoever closed it has woken us
		}
		defer p.life.leave()
		m.fds = append(m.fds, p.pollSet()[1:]...)
		if p.waiter.pending.Load() {
			d = 0
		}
	}
	if err := ppoll(m.fds, d, false); err != nil {
		return os.NewSyscallError("udp: ppoll", err)
	}
	if m.life.closed() {
		return fabric.ErrClosed
	}
	if m.fds[0].Revents != 0 {
		m.wake.rearm()
	}
	return nil
}

// Nap implements fabric.Napper.
func (m *Multi) Nap(d time.Duration) error { return m.wake.nap(&m.life, d) }

// Wake implements fabric.Waiter.
func (m *Multi) Wake() {
	if !m.life.enter() {
		return
	}
	defer m.life.leave()
	if !m.wake.woken.Swap(true) {
		m.wake.signal()
	}
}

// BatchSize implements fabric.Port.
func (m *Multi) BatchSize() int { return batchSize }

// MTU implements fabric.Port. It is the largest there is: what the device carries now is
// known to whoever follows it.
func (m *Multi) MTU() ib.MTU { return ib.MTU4096 }

// LocalGID implements fabric.Port: the address that the configuration named.
func (m *Multi) LocalGID() ib.GID { return m.gid }

// Counters implements fabric.Port: the sum over all sockets there were.
func (m *Multi) Counters() *fabric.PortCounters {
	m.counters = m.retired
	m.counters.TxErrors += m.refused
	for _, p := range *m.ports.Load() {
		m.counters.Add(&p.counters)
	}
	return &m.counters
}

// Close implements fabric.Port.
func (m *Multi) Close() error {
	if m.life.close() {
		m.wake.signal()
		m.life.leave()
	}
	return nil
}
