package udp

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/fdspace"
)

// Port is a RoCE v2 port on a Linux UDP socket.
//
// One goroutine may be in ReadBatch, one in WriteBatch and one in Wait at the same
// time. Wake, Close, Degraded, JoinGroup and LeaveGroup may be called from anywhere.
// The counters belong to the reader (Rx) and the writer (Tx).
type Port struct {
	life     life
	local    netip.AddrPort
	gid      ib.GID
	v4       bool
	dev      netdev
	counters fabric.PortCounters
	details  Details

	sock rxSock // the unicast socket, also the one that sends
	tx   sender
	rx   receiver

	// groups is replaced as a whole by JoinGroup and LeaveGroup under groupMu. A
	// group's socket is closed only under readMu, hence never under a reader.
	groupMu sync.Mutex
	readMu  sync.Mutex
	groups  atomic.Pointer[[]*rxSock]

	neighbours neighbours

	shares   int // sockets that Share has opened
	waiter   waiter
	watch    *watch // nil unless the host waits for many ports; fixed by Watch
	degraded atomic.Pointer[GSODisabledError]
}

var (
	_ fabric.Port   = (*Port)(nil)
	_ fabric.Napper = (*Port)(nil)
)

// rxSock is a socket that datagrams arrive on.
type rxSock struct {
	fd    int
	gid   ib.GID // the address it is bound to: what datagrams on it were sent to
	drops uint32 // SO_RXQ_OVFL as last seen
}

// Open binds a port to cfg.Local. An error about the configuration joins everything
// wrong with it; one from the system is an [*OpenError].
func Open(cfg Config) (*Port, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	return openOn(cfg, netdevOf(cfg.local().Addr()))
}

// openOn opens a port whose address belongs to dev. cfg is valid.
func openOn(cfg Config, dev netdev) (*Port, error) {
	p := newPort(&cfg, dev)
	if err := p.open(&cfg); err != nil {
		p.releaseSockets()
		return nil, err
	}
	return p, nil
}

// newPort returns a port without sockets.
func newPort(cfg *Config, dev netdev) *Port {
	p := &Port{local: cfg.local(), gid: cfg.Local, v4: cfg.Local.IsIPv4(), dev: dev}
	p.life.release = p.releaseSockets
	p.sock = rxSock{fd: -1, gid: p.gid}
	p.waiter.eventFD = -1
	p.groups.Store(new([]*rxSock))
	return p
}

func (p *Port) open(cfg *Config) error {
	p.waiter.quiet = cfg.QuietNaps
	if err := p.waiter.init(); err != nil {
		return &OpenError{Local: p.local, Op: "eventfd", Err: err}
	}
	fd, err := openSocket(p.local, p.dev)
	if err != nil {
		return err
	}
	p.sock.fd = fd
	d := &p.details
	d.NetdevMTU = p.dev.mtu
	d.RecvBufferBytes, d.SendBufferBytes = setBuffers(fd, cfg.RecvBufferBytes, cfg.SendBufferBytes)
	d.GSOSegments = 1
	if !cfg.DisableGSO {
		n, err := probeGSO(p.local.Addr(), p.dev, cfg.GSOSegments)
		if err != nil {
			p.degraded.Store(&GSODisabledError{Local: p.local, Err: err})
		}
		d.GSOSegments = n
		d.GRO = setGRO(fd) == nil
	}
	p.start(cfg)
	return nil
}

// start makes the port ready when its sockets are.
func (p *Port) start(cfg *Config) {
	p.tx.init(p.trainLimits(p.details.GSOSegments))
	p.rx.init(p.details.GRO, cfg.Verify, cfg.clock())
}

// trainLimits returns the limits for trains of at most segments datagrams.
func (p *Port) trainLimits(segments int) trainLimits {
	headers := 40 + 8
	if p.v4 {
		headers = 20 + 8
	}
	return trainLimits{segments: segments, segBytes: p.dev.mtu - headers, bytes: maxTrainBytes}
}

// BatchSize is the number of datagrams that one ReadBatch or WriteBatch moves best.
func (p *Port) BatchSize() int { return batchSize }

// MTU is the IB MTU that fits the interface, as it was at Open.
func (p *Port) MTU() ib.MTU { return ib.MTUForNetdev(p.dev.mtu) }

// LocalGID is the address that the port is bound to.
func (p *Port) LocalGID() ib.GID { return p.gid }

// LocalAddr is the address and UDP port that the port is bound to.
func (p *Port) LocalAddr() netip.AddrPort { return p.local }

// Counters returns the live counters.
func (p *Port) Counters() *fabric.PortCounters { return &p.counters }

// Details returns the live figures that only this kind of port has.
func (p *Port) Details() *Details { return &p.details }

// Degraded is nil while the port works as configured, else an error that matches
// [ErrGSODisabled] and says why datagrams go out one by one. A port opened with
// DisableGSO is not degraded.
func (p *Port) Degraded() error {
	if e := p.degraded.Load(); e != nil {
		return e
	}
	return nil
}

// Close ends the port: every method that returns an error then returns
// [fabric.ErrClosed], a Wait under way included. The sockets close when the last call
// inside has left. Buffers from ReadBatch stay readable.
func (p *Port) Close() error {
	if p.life.close() {
		p.waiter.signal()
		p.life.leave()
	}
	return nil
}

// releaseSockets closes everything; nobody is inside and nobody can enter.
func (p *Port) releaseSockets() {
	fdspace.Close(p.sock.fd)
	p.groupMu.Lock()
	defer p.groupMu.Unlock()
	for _, g := range *p.groups.Load() {
		fdspace.Close(g.fd)
	}
	p.groups.Store(new([]*rxSock))
	p.waiter.release()
	p.neighbours.release()
}
