package udp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// Portable is a RoCE v2 port on net.UDPConn, for systems without the calls that
// [Port] is made of. It sends and receives datagrams one by one and allocates a
// little. Traffic class and hop limit are neither sent nor known, and there is no
// multicast. It writes ICRCs for an IPv4 header with don't-fragment set and
// identification 0, which ports of this package accept whatever the system really
// sends; an adapter that checks the ICRC may not.
//
// The rules for concurrent use are those of Port.
type Portable struct {
	life     life
	conn     *net.UDPConn
	local    netip.AddrPort
	gid      ib.GID
	v4       bool
	zone     string
	dev      netdev
	mode     VerifyMode
	clock    func() vtime.Time
	counters fabric.PortCounters
	details  Details
	rxKnown  wire.ICRCPrefixes
	txKnown  wire.ICRCPrefixes

	// Buffers go around: the reading goroutine takes one from free, queues it with
	// its datagram, ReadBatch lends it out as held and gives it back next time.
	free, queue chan portableDatagram
	held        []portableDatagram
	sockErrors  atomic.Uint64

	ready, wake chan struct{} // one token each
	done        chan struct{}
}

// portableDatagram is a buffer, and what was received into it.
type portableDatagram struct {
	buf  []byte // full size
	n    int
	from netip.AddrPort
	at   vtime.Time
}

const (
	// portableQueue is how many datagrams are read ahead. When that many wait, the
	// rest stay in the socket, which drops what it has no room for.
	portableQueue = 256
	// portableSendTimeout is how long a full socket may hold up a datagram before
	// WriteBatch calls it back-pressure.
	portableSendTimeout = 10 * time.Millisecond
	// portableErrorPause follows a failed read, so that a broken socket does not
	// keep a processor busy.
	portableErrorPause = time.Millisecond
)

var (
	_ fabric.Port   = (*Portable)(nil)
	_ fabric.Waiter = (*Portable)(nil)
)

// OpenPortable binds a portable port to cfg.Local. DisableGSO and GSOSegments have no
// effect.
func OpenPortable(cfg Config) (*Portable, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	p := &Portable{
		local: cfg.local(), gid: cfg.Local, v4: cfg.Local.IsIPv4(),
		mode: cfg.Verify, clock: cfg.clock(),
		free:  make(chan portableDatagram, portableQueue),
		queue: make(chan portableDatagram, portableQueue),
		ready: make(chan struct{}, 1), wake: make(chan struct{}, 1), done: make(chan struct{}),
	}
	p.dev = netdevOf(p.local.Addr())
	network := "udp6"
	if p.v4 {
		network = "udp4"
	}
	if p.dev.index != 0 {
		p.zone = strconv.Itoa(p.dev.index)
	}
	conn, err := net.ListenUDP(network, net.UDPAddrFromAddrPort(p.scoped(p.local)))
	if err != nil {
		return nil, &OpenError{Local: p.local, Op: "bind", Err: err}
	}
	p.conn = conn
	p.life.release = func() { _ = conn.Close() }
	if cfg.RecvBufferBytes > 0 && conn.SetReadBuffer(cfg.RecvBufferBytes) == nil {
		p.details.RecvBufferBytes = cfg.RecvBufferBytes
	}
	if cfg.SendBufferBytes > 0 && conn.SetWriteBuffer(cfg.SendBufferBytes) == nil {
		p.details.SendBufferBytes = cfg.SendBufferBytes
	}
	p.details.GSOSegments, p.details.NetdevMTU = 1, p.dev.mtu
	for range portableQueue {
		p.free <- portableDatagram{buf: make([]byte, portableBuffer)}
	}
	go p.read()
	return p, nil
}

// portableBuffer holds the largest valid packet; longer datagrams are refused.
const portableBuffer = 8 << 10

// scoped adds the interface to link-local addresses.
func (p *Portable) scoped(a netip.AddrPort) netip.AddrPort {
	if ip := a.Addr(); ip.IsLinkLocalUnicast() && ip.Is6() && p.zone != "" {
		return netip.AddrPortFrom(ip.WithZone(p.zone), a.Port())
	}
	return a
}

// read runs until the port closes and queues what arrives.
func (p *Portable) read() {
	for {
		var d portableDatagram
		select {
		case d = <-p.free:
		case <-p.done:
			return
		}
		for {
			var err error
			d.n, d.from, err = p.conn.ReadFromUDPAddrPort(d.buf)
			if err == nil {
				break
			}
			if errors.Is(err, net.ErrClosed) {
				return
			}
			p.sockErrors.Add(1)
			select {
			case <-time.After(portableErrorPause):
			case <-p.done:
				return
			}
		}
		d.at = p.clock()
		p.queue <- d // has room for every buffer there is
		token(p.ready)
	}
}

// token puts a token into c unless it holds one.
func token(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ReadBatch delivers datagrams that have arrived; see [fabric.Port].
func (p *Portable) ReadBatch(dst []fabric.Datagram) (int, error) {
	if !p.life.enter() {
		return 0, fabric.ErrClosed
	}
	defer p.life.leave()
	for _, d := range p.held {
		p.free <- d
	}
	p.held = p.held[:0]
	p.details.RxSockErrors = p.sockErrors.Load()
	n := 0
	for range portableQueue {
		if n == len(dst) {
			break
		}
		select {
		case d := <-p.queue:
			p.counters.RxSyscalls++
			p.held = append(p.held, d)
			if p.accept(&dst[n], &d) {
				n++
			}
		default:
			return n, nil
		}
	}
	return n, nil
}

// accept checks a datagram and fills out if it is to be delivered.
func (p *Portable) accept(out *fabric.Datagram, d *portableDatagram) bool {
	if d.n < MinDatagramBytes || d.n == len(d.buf) {
		p.counters.RxTooShort++
		if d.n == len(d.buf) { // most likely cut off
			p.details.RxTruncated++
		}
		return false
	}
	buf := d.buf[:d.n:d.n]
	path := wire.Path{Src: GIDFromAddr(d.from.Addr()), Dst: p.gid, HopLimit: defaultHopLimit, SPort: d.from.Port()}
	if p.mode != VerifyOff {
		id, v := verify(p.mode, &path, &p.rxKnown, buf, 0)
		switch v {
		case icrcBad:
			p.counters.RxBadICRC++
			return false
		case icrcSolved:
			p.details.RxSolvedID++
		case icrcFits:
		}
		path.IPID = id
	}
	*out = fabric.Datagram{Path: path, Buf: buf, At: d.at}
	p.counters.RxPackets++
	p.counters.RxBytes += uint64(d.n)
	return true
}

// WriteBatch sends src in order; see [fabric.Port] and [Port.WriteBatch].
func (p *Portable) WriteBatch(src []fabric.Datagram) (int, error) {
	if !p.life.enter() {
		return 0, fabric.ErrClosed
	}
	defer p.life.leave()
	for i := range src {
		d := &src[i]
		switch examine(d, p.v4) {
		case malformed:
			p.counters.TxErrors++
			p.details.TxMalformed++
			continue
		case tooLong:
			p.counters.TxErrors++
			p.details.TxTooLong++
			continue
		case sendable:
		}
		seal(src, train{first: i, count: 1}, p.gid, p.local.Port(), &p.txKnown)
		to := p.scoped(netip.AddrPortFrom(AddrFromGID(d.Path.Dst), p.local.Port()))
		p.counters.TxSyscalls++
		_ = p.conn.SetWriteDeadline(time.Now().Add(portableSendTimeout))
		_, err := p.conn.WriteToUDPAddrPort(d.Buf, to)
		switch {
		case err == nil:
			p.counters.TxPackets++
			p.counters.TxBytes += uint64(len(d.Buf))
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, syscall.ENOBUFS):
			p.counters.TxBackpressure++
			return i, nil
		case errors.Is(err, net.ErrClosed):
			return i, fabric.ErrClosed
		default:
			p.countDropped(err)
		}
	}
	return len(src), nil
}

func (p *Portable) countDropped(err error) {
	p.counters.TxErrors++
	if errors.Is(err, syscall.EMSGSIZE) {
		p.details.TxTooLong++
		return
	}
	p.details.LastTxErr = err
	for _, e := range []error{syscall.ECONNREFUSED, syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.EPERM, syscall.EACCES, syscall.ENETDOWN} {
		if errors.Is(err, e) {
			p.details.TxUnreachable++
			return
		}
	}
	p.details.TxOther++
}

// Wait blocks until a datagram is there, Wake or Close is called, or d has passed;
// d <= 0 only looks.
func (p *Portable) Wait(d time.Duration) error {
	if !p.life.enter() {
		return fabric.ErrClosed
	}
	defer p.life.leave()
	if len(p.queue) > 0 {
		return nil
	}
	timer := time.NewTimer(max(d, 0))
	defer timer.Stop()
	select {
	case <-p.ready:
	case <-p.wake:
	case <-timer.C:
	case <-p.done:
		return fabric.ErrClosed
	}
	return nil
}

// Wake ends the Wait under way, or else the next one. Any goroutine may call it.
func (p *Portable) Wake() { token(p.wake) }

// JoinGroup is not possible on this kind of port: the error matches
// [errors.ErrUnsupported].
func (p *Portable) JoinGroup(g ib.GID) error {
	return fmt.Errorf("udp: join %v on %v: multicast needs Linux: %w", AddrFromGID(g), p.local, errors.ErrUnsupported)
}

// LeaveGroup has nothing to leave.
func (p *Portable) LeaveGroup(ib.GID) error { return nil }

// BatchSize is 1: larger batches gain nothing, though they are taken.
func (p *Portable) BatchSize() int { return 1 }

// MTU is the IB MTU that fits the interface, as it was at Open.
func (p *Portable) MTU() ib.MTU { return ib.MTUForNetdev(p.dev.mtu) }

// LocalGID is the address that the port is bound to.
func (p *Portable) LocalGID() ib.GID { return p.gid }

// LocalAddr is the address and UDP port that the port is bound to.
func (p *Portable) LocalAddr() netip.AddrPort { return p.local }

// Counters returns the live counters.
func (p *Portable) Counters() *fabric.PortCounters { return &p.counters }

// Details returns the live figures beyond the counters.
func (p *Portable) Details() *Details { return &p.details }

// Degraded is nil: this port never had segmentation offload to lose.
func (p *Portable) Degraded() error { return nil }

// Close ends the port: see [Port.Close].
func (p *Portable) Close() error {
	if p.life.close() {
		close(p.done)
		p.life.leave()
	}
	return nil
}
