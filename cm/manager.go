package cm

import (
	"container/heap"
	"errors"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
)

// Config describes a manager. Start from DefaultConfig.
type Config struct {
	// Seed varies comm IDs, starting PSNs and the ports given out.
	Seed uint64
	// AgentID is the high half of transaction IDs (Linux: a number of the MAD agent).
	AgentID uint32
	// PacketLifeTime (kernel: CMA_IBOE_PACKET_LIFETIME) is the IB time for which a
	// packet may be under way. QP timeouts and the repetition of REQ follow from it:
	// 16 on Linux 6.12, 18 on 6.1.
	PacketLifeTime uint8
	// ResponseTimeout (kernel: CMA_CM_RESPONSE_TIMEOUT) is the IB time that either side
	// has to answer a message.
	ResponseTimeout uint8
	// MaxCMRetries (kernel: CMA_MAX_CM_RETRIES) is how often a message is repeated.
	MaxCMRetries uint8
	// MRATimeout (kernel: CMA_CM_MRA_SETTING) is the IB time that an MRA asks for.
	MRATimeout uint8
	// MaxBacklog (sysctl net.rdma_ucm.max_backlog) bounds the requests of one listener
	// that nobody has fetched.
	MaxBacklog int
	// PortLow and PortHigh (net.ipv4.ip_local_port_range) bound the ports that are
	// given out for port 0.
	PortLow, PortHigh uint16
	// V6Only (net.ipv6.bindv6only) keeps IPv4 requests away from IPv6 wildcards.
	V6Only bool
	// FlushAccess adds the FLUSH rights to the access flags of QPs, as Linux 6.12 does.
	FlushAccess bool
	// Neighbour tells whether dst can be reached from src, as a look into the tables of
	// routes and of neighbours would: 0 if dst answers; EAGAIN if it has been asked and has
	// not answered yet; another errno, such as ENETUNREACH, if there is no way to it. It
	// must not block. Nil means that everybody answers.
	Neighbour func(src, dst ib.GID) ib.Errno
}

// DefaultConfig returns the values of Linux 6.12.
func DefaultConfig() Config {
	return Config{
		AgentID: 2, PacketLifeTime: 16, ResponseTimeout: 20, MaxCMRetries: 15, MRATimeout: 24,
		MaxBacklog: 1024, PortLow: 32768, PortHigh: 60999,
	}
}

// Validate returns everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	bad := func(s string) { errs = append(errs, errors.New("cm: "+s)) }
	if c.PacketLifeTime > 30 || c.ResponseTimeout > 31 || c.MRATimeout > 31 {
		bad("a time does not fit its 5 bits")
	}
	if c.MaxCMRetries > 15 {
		bad("max CM retries does not fit its 4 bits")
	}
	if c.MaxBacklog < 1 {
		bad("max backlog is less than 1")
	}
	if c.PortLow == 0 || c.PortLow > c.PortHigh {
		bad("the range of ports is empty or has port 0")
	}
	return errors.Join(errs...)
}

// PortConfig describes a port of a device that has a QP1.
type PortConfig struct {
	// Name is the device's name in messages.
	Name string
	// GUID is the node GUID. It must differ from that of every peer.
	GUID uint64
	// Num is the port's number on its device; 0 means 1.
	Num uint8
	// GIDs is the port's GID table; empty entries are zero.
	GIDs []ib.GID
	// MTU is the path MTU to propose.
	MTU ib.MTU
	// AckDelay (local_ca_ack_delay) is the IB time the device takes to acknowledge.
	AckDelay uint8
}

// Port is a port that the manager uses. Its fields change by [Manager.SetPort] only.
type Port struct {
	PortConfig
	removed bool
}

// gidIndex returns where a GID is in the table.
func (p *Port) gidIndex(g ib.GID) (uint8, bool) {
	i := slices.Index(p.GIDs, g)
	return uint8(i), i >= 0 && !g.IsZero()
}

// Packet is a datagram to send from a port's QP1: a UD SEND to QP1 with Q_Key
// ib.QKeyGSI.
type Packet struct {
	Port *Port
	AV   ib.AV
	MAD  MAD
}

// Counters count since the manager was made. The index of the arrays is attribute
// minus AttrREQ.
type Counters struct {
	Sent       [numAttrs]uint64 // cm_tx_msgs, without repetitions
	Retried    [numAttrs]uint64 // cm_tx_retries
	Received   [numAttrs]uint64 // cm_rx_msgs
	Duplicates [numAttrs]uint64 // cm_rx_duplicates
	// Drops, by reason.
	DropLength   uint64 // not 256 bytes, or less than a header
	DropHeader   uint64 // another class, version, method, or an unknown attribute
	DropGID      uint64 // to an address that the port does not have
	DropUnknown  uint64 // about an exchange that does not exist, or not in this state
	DropPath     uint64 // LAP and APR, which RoCE has no use for
	DropBacklog  uint64 // requests that found the backlog full; the peer repeats them
	DropOverflow uint64 // own messages for which the output queue had no room
	DropEvents   uint64 // events that waited for an id that was destroyed
}

// maxOutput bounds the messages that wait for Emit. More are lost and counted; the
// retries of either side repair that.
const maxOutput = 1 << 16

// Manager is the connection manager of one or more ports. It has one owner.
type Manager struct {
	cfg   Config
	rng   *rand.Rand
	ports []*Port
	ctr   Counters

	out    []Packet // out[outHead:] waits for Emit
	outAt  int
	events []Event // events[evAt:] waits for PollEvents
	evAt   int

	timers  timerHeap
	armings uint64

	nextID uint32 // cyclic counter of comm IDs
	idMask uint32 // XORed with it, so that the IDs of two runs differ

	conns      map[CommID]*conn
	remoteIDs  map[remoteID]*conn
	remoteQPNs map[remoteQPN]*conn
	sidrs      map[sidrKey]*conn

	ids   []*ID // all that exist, in no particular but a determined order
	binds map[bindKey][]*ID
	last  map[PortSpace]uint16 // the port given out last
}

// New returns a manager without ports.
func New(cfg Config) (*Manager, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	m := &Manager{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x636d)),
		conns: map[CommID]*conn{}, remoteIDs: map[remoteID]*conn{}, remoteQPNs: map[remoteQPN]*conn{},
		sidrs: map[sidrKey]*conn{}, binds: map[bindKey][]*ID{}, last: map[PortSpace]uint16{},
	}
	m.idMask = m.rng.Uint32()
	return m, nil
}

// AddPort lets the manager use a port. Wildcard listeners listen on it too.
func (m *Manager) AddPort(cfg PortConfig) (*Port, error) {
	if cfg.Num == 0 {
		cfg.Num = 1
	}
	if len(cfg.GIDs) == 0 || len(cfg.GIDs) > 256 || !cfg.MTU.Valid() || cfg.AckDelay > 31 {
		return nil, errors.New("cm: port of " + strconv.Quote(cfg.Name) + ": it has no GID, no valid MTU, or an ACK delay that does not fit 5 bits")
	}
	cfg.GIDs = slices.Clone(cfg.GIDs)
	p := &Port{PortConfig: cfg}
	m.ports = append(m.ports, p)
	return p, nil
}

// SetPort changes a port's GID table and the MTU to propose. Ids that are bound to an
// address which is gone stay what they are, like the connections made from it.
func (m *Manager) SetPort(p *Port, gids []ib.GID, mtu ib.MTU) {
	p.GIDs = slices.Clone(gids)
	for len(p.GIDs) < m.mostGIDs(p) { // what ids name by index must be there
		p.GIDs = append(p.GIDs, ib.GID{})
	}
	p.MTU = mtu
}

// mostGIDs is how long the table must be for the ids that use a port.
func (m *Manager) mostGIDs(p *Port) int {
	n := 1
	for _, id := range m.ids {
		if id.port == p {
			n = max(n, int(id.sgidIndex)+1)
		}
	}
	return n
}

// RemovePort (kernel: cma_remove_one) takes a port away. Ids that use it get
// DEVICE_REMOVAL and are of no use any more but to be destroyed; peers are told, so
// call Emit once more before the port goes. Wildcard listeners stay.
func (m *Manager) RemovePort(now vtime.Time, p *Port) {
	i := slices.Index(m.ports, p)
	if i < 0 {
		return
	}
	m.ports = slices.Delete(m.ports, i, i+1)
	for _, id := range slices.Clone(m.ids) {
		if id.port == p && !id.destroyed {
			id.remove(now)
		}
	}
	p.removed = true
}

// Ports returns the ports in the order in which they were added.
func (m *Manager) Ports() []*Port { return slices.Clone(m.ports) }

// Listeners returns the ids that listen, in no particular order.
func (m *Manager) Listeners() (ids []*ID) {
	for _, id := range m.ids {
		if id.state == IDListen {
			ids = append(ids, id)
		}
	}
	return ids
}

// Counters returns what was counted so far.
func (m *Manager) Counters() Counters { return m.ctr }

// send queues a message.
func (m *Manager) send(p *Port, av ib.AV, mad *MAD) {
	if len(m.out)-m.outAt >= maxOutput {
		m.ctr.DropOverflow++
		return
	}
	m.out = append(m.out, Packet{p, av, *mad})
}

// Emit moves up to len(dst) messages to dst, oldest first, and returns their number.
func (m *Manager) Emit(dst []Packet) int {
	n := copy(dst, m.out[m.outAt:])
	if m.outAt += n; m.outAt == len(m.out) {
		m.out, m.outAt = m.out[:0], 0
	}
	return n
}

// Pending reports whether Emit has anything to return.
func (m *Manager) Pending() bool { return m.outAt < len(m.out) }

// PollEvents moves up to len(dst) events to dst, oldest first, and returns their
// number. Events of ids that were destroyed meanwhile are gone.
func (m *Manager) PollEvents(dst []Event) int {
	n := 0
	for n < len(dst) && m.evAt < len(m.events) {
		e := m.events[m.evAt]
		m.events[m.evAt] = Event{}
		m.evAt++
		if e.ID.destroyed || e.Mcast != nil && e.Mcast.left {
			m.ctr.DropEvents++
			continue
		}
		dst[n] = e
		n++
	}
	if m.evAt == len(m.events) {
		m.events, m.evAt = m.events[:0], 0
	}
	return n
}

func (m *Manager) raise(e Event) { m.events = append(m.events, e) }

// Deadline returns when Expire has something to do; vtime.Never if at no time.
func (m *Manager) Deadline() vtime.Time {
	if len(m.timers) == 0 {
		return vtime.Never
	}
	return m.timers[0].at
}

// Expire runs every timer that is due at now.
func (m *Manager) Expire(now vtime.Time) {
	for len(m.timers) > 0 && m.timers[0].at <= now {
		t := heap.Pop(&m.timers).(*timer)
		if t.conn != nil {
			t.conn.expire(now)
		} else {
			t.id.expire(now)
		}
	}
}

// newCommID (kernel: cm_alloc_id) returns a comm ID that no other exchange has, and its
// number as a little-endian host sees it, which is half of the transaction ID.
func (m *Manager) newCommID() (CommID, uint32) {
	for {
		host := m.nextID ^ m.idMask
		m.nextID++
		id := CommID(bits.ReverseBytes32(host))
		if id != 0 && m.conns[id] == nil {
			return id, host
		}
	}
}

func (m *Manager) newPSN() ib.PSN { return ib.PSN(m.rng.Uint32() & ib.PSNMask) }

// ibTime (kernel: cm_convert_to_ms) turns a 5-bit IB time, 4.096 us times 2^t, into
// what Linux waits for it: whole milliseconds, 2^(t-8), at least one.
func ibTime(t uint8) time.Duration {
	return time.Millisecond << max(int(t&31)-8, 0)
}

// ackTimeout (kernel: cm_ack_timeout) returns the local ACK timeout of a QP: there and
// back, and the peer's delay.
func ackTimeout(ackDelay, packetLifeTime uint8) uint8 {
	t := packetLifeTime + 1
	if t >= ackDelay {
		if ackDelay >= t-1 {
			t++
		}
	} else if t >= ackDelay-1 {
		t = ackDelay + 1
	} else {
		t = ackDelay
	}
	return min(t, 31)
}

// timer is a deadline of a connection or an id.
type timer struct {
	at   vtime.Time
	seq  uint64 // of equal deadlines the one armed first runs first
	pos  int    // in the heap, from 1; 0: not armed
	conn *conn
	id   *ID
}

func (m *Manager) arm(t *timer, at vtime.Time) {
	m.disarm(t)
	m.armings++
	t.at, t.seq = at, m.armings
	heap.Push(&m.timers, t)
}

func (m *Manager) disarm(t *timer) {
	if t.pos > 0 {
		heap.Remove(&m.timers, t.pos-1)
	}
}

type timerHeap []*timer

func (h timerHeap) Len() int { return len(h) }
func (h timerHeap) Less(i, j int) bool {
	if h[i].at != h[j].at {
		return h[i].at < h[j].at
	}
	return h[i].seq < h[j].seq
}
func (h timerHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].pos, h[j].pos = i+1, j+1
}

// Push implements heap.Interface.
func (h *timerHeap) Push(x any) {
	t := x.(*timer)
	*h = append(*h, t)
	t.pos = len(*h)
}

// Pop implements heap.Interface.
func (h *timerHeap) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.pos = 0
	return t
}
