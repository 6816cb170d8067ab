package node

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Switch is a network in memory and in real time, for several nodes of one process
// that need no sockets: tests, examples, benchmarks. It is quick, keeps order, and
// loses packets only if a receiver does not read. It works inside a synctest bubble.
// For delay, loss and replay use package fabric/mem and virtual time, or wrap a port
// in fabric.Impaired.
type Switch struct {
	mu     sync.RWMutex
	ports  map[ib.GID]*SwitchPort
	groups map[ib.GID][]*SwitchPort
	now    func() vtime.Time
}

// NewSwitch returns an empty network. now stamps arrivals; nil means [Now].
func NewSwitch(now func() vtime.Time) *Switch {
	if now == nil {
		now = Now
	}
	return &Switch{ports: map[ib.GID]*SwitchPort{}, groups: map[ib.GID][]*SwitchPort{}, now: now}
}

// switchQueue is how many packets wait for a port's reader; more are lost and counted
// as RxOverflow, as by a socket.
const switchQueue = 2048

// SwitchPort is a port of a [Switch].
type SwitchPort struct {
	sw       *Switch
	gid      ib.GID
	mtu      ib.MTU
	counters fabric.PortCounters
	ready    chan struct{} // one token: something arrived, or Wake
	done     chan struct{}
	timer    *time.Timer

	mu       sync.Mutex
	queue    []fabric.Datagram // a ring, allocated on first use; buffers are reused
	head     int               // oldest packet lent out or waiting
	lent     int               // of those, delivered by the last ReadBatch
	held     int               // of those, all
	overflow uint64            // not yet in counters
	badICRC  uint64
	closed   bool
}

var (
	_ fabric.Port   = (*SwitchPort)(nil)
	_ fabric.Waiter = (*SwitchPort)(nil)
)

// Port connects a port with an address. The address must be free.
func (s *Switch) Port(gid ib.GID, mtu ib.MTU) (*SwitchPort, error) {
	if gid.IsZero() || gid.IsMulticast() || !mtu.Valid() {
		return nil, fmt.Errorf("node: switch port: address %v or MTU %d is not valid", gid, mtu)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ports[gid] != nil {
		return nil, fmt.Errorf("node: switch port: address %v is in use", gid)
	}
	p := &SwitchPort{sw: s, gid: gid, mtu: mtu, ready: make(chan struct{}, 1), done: make(chan struct{})}
	s.ports[gid] = p
	return p, nil
}

// ReadBatch implements fabric.Port.
func (p *SwitchPort) ReadBatch(dst []fabric.Datagram) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return 0, fabric.ErrClosed
	}
	p.counters.RxOverflow += p.overflow
	p.counters.RxBadICRC += p.badICRC
	p.overflow, p.badICRC = 0, 0
	if p.lent > 0 {
		p.head, p.held, p.lent = (p.head+p.lent)%switchQueue, p.held-p.lent, 0
	}
	for p.lent < min(len(dst), p.held) {
		d := &p.queue[(p.head+p.lent)%switchQueue]
		dst[p.lent] = *d
		p.lent++
		p.counters.RxPackets++
		p.counters.RxBytes += uint64(len(d.Buf))
	}
	return p.lent, nil
}

// WriteBatch implements fabric.Port. Packets to an address that nobody has are lost and
// counted as TxErrors.
func (p *SwitchPort) WriteBatch(src []fabric.Datagram) (int, error) {
	select {
	case <-p.done:
		return 0, fabric.ErrClosed
	default:
	}
	p.sw.mu.RLock()
	defer p.sw.mu.RUnlock()
	at := p.sw.now()
	for i := range src {
		d := &src[i]
		end := len(d.Buf) - wire.ICRCBytes
		d.Path.IPID = 0
		crc := wire.ICRC(&d.Path, d.Buf[:end])
		if d.BadICRC {
			crc = ^crc
		}
		wire.PutICRC(d.Buf[end:], crc)
		p.counters.TxPackets++
		p.counters.TxBytes += uint64(len(d.Buf))
		if to := p.sw.ports[d.Path.Dst]; to != nil {
			to.put(at, d)
		} else if members := p.sw.groups[d.Path.Dst]; len(members) > 0 {
			for _, to := range members {
				to.put(at, d)
			}
		} else {
			p.counters.TxPackets--
			p.counters.TxBytes -= uint64(len(d.Buf))
			p.counters.TxErrors++
		}
	}
	return len(src), nil
}

// put copies a packet into the queue.
func (p *SwitchPort) put(at vtime.Time, d *fabric.Datagram) {
	p.mu.Lock()
	switch {
	case p.closed:
	case d.BadICRC:
		p.badICRC++
	case p.held == switchQueue:
		p.overflow++
	default:
		if p.queue == nil {
			p.queue = make([]fabric.Datagram, switchQueue)
		}
		q := &p.queue[(p.head+p.held)%switchQueue]
		if cap(q.Buf) < len(d.Buf) {
			q.Buf = make([]byte, 0, max(len(d.Buf), frameBytes(p.mtu)))
		}
		q.Path, q.At, q.Buf = d.Path, at, append(q.Buf[:0], d.Buf...)
		p.held++
	}
	p.mu.Unlock()
	p.Wake()
}

// Wait implements fabric.Waiter.
func (p *SwitchPort) Wait(d time.Duration) error {
	p.mu.Lock()
	closed, waiting := p.closed, p.held > p.lent
	p.mu.Unlock()
	if closed {
		return fabric.ErrClosed
	}
	if waiting || d <= 0 {
		return nil
	}
	var expired <-chan time.Time
	if d < forever/2 {
		if p.timer == nil {
			p.timer = time.NewTimer(d)
		} else {
			p.timer.Reset(d)
		}
		expired = p.timer.C
	}
	select {
	case <-p.ready:
	case <-expired:
	case <-p.done:
		return fabric.ErrClosed
	}
	return nil
}

// Wake implements fabric.Waiter.
func (p *SwitchPort) Wake() {
	select {
	case p.ready <- struct{}{}:
	default:
	}
}

// JoinGroup makes the port receive what is sent to a multicast group, its own packets
// included. Joining twice is no error.
func (p *SwitchPort) JoinGroup(g ib.GID) error {
	if !g.IsMulticast() {
		return fmt.Errorf("node: switch port: %v is not a multicast group", g)
	}
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	if m := p.sw.groups[g]; !slices.Contains(m, p) {
		p.sw.groups[g] = append(m, p)
	}
	return nil
}

// LeaveGroup ends what JoinGroup began.
func (p *SwitchPort) LeaveGroup(g ib.GID) error {
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	p.sw.leave(g, p)
	return nil
}

func (s *Switch) leave(g ib.GID, p *SwitchPort) {
	m := slices.DeleteFunc(s.groups[g], func(q *SwitchPort) bool { return q == p })
	if s.groups[g] = m; len(m) == 0 {
		delete(s.groups, g)
	}
}

// BatchSize implements fabric.Port.
func (p *SwitchPort) BatchSize() int { return 64 }

// MTU implements fabric.Port.
func (p *SwitchPort) MTU() ib.MTU { return p.mtu }

// LocalGID implements fabric.Port.
func (p *SwitchPort) LocalGID() ib.GID { return p.gid }

// Counters implements fabric.Port.
func (p *SwitchPort) Counters() *fabric.PortCounters { return &p.counters }

// Close implements fabric.Port. The address is free again.
func (p *SwitchPort) Close() error {
	p.mu.Lock()
	closed := p.closed
	p.closed = true
	p.mu.Unlock()
	if closed {
		return nil
	}
	close(p.done)
	p.sw.mu.Lock()
	defer p.sw.mu.Unlock()
	delete(p.sw.ports, p.gid)
	for g := range p.sw.groups {
		p.sw.leave(g, p)
	}
	return nil
}
