package mem

import (
	"fmt"
	"slices"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// NodeIndex numbers the nodes of a network from 0 in the order of Attach.
type NodeIndex int32

// NoNode is no node's index.
const NoNode NodeIndex = -1

// Counters counts the packets of one node, or of all. A packet to a multicast group
// counts once for each member, or once if there is none. Packets are conserved: over
// all nodes, Sent + Duplicated = Delivered + sum of Dropped + InFlight.
type Counters struct {
	Sent           uint64
	SentBytes      uint64 // BTH to ICRC
	Delivered      uint64 // handed out by Pop to this node
	DeliveredBytes uint64
	Duplicated     uint64 // extra copies of packets this node sent
	Corrupted      uint64 // packets this node sent that were damaged on the way
	// Dropped counts at the sender, by reason.
	Dropped [fabric.NumLossReasons]uint64
}

// DroppedTotal is the sum of Dropped.
func (c Counters) DroppedTotal() (n uint64) {
	for _, d := range c.Dropped {
		n += d
	}
	return n
}

// Network is a virtual-time network. It is not safe for concurrent use.
type Network struct {
	cfg   Config
	nodes []node
	spots []spot // of the nodes
	addr  map[ib.GID]NodeIndex
	// links are those set apart by SetLink, in that order; linkAt finds them.
	links  []*egress
	linkAt map[pair]int
	groups map[ib.GID][]NodeIndex // members in rising order
	cut    map[pair]struct{}      // partitions; looked up only
	cuts   []cut                  // those of whole ranges
	// faulty are directions whose impairment differs from their egress's; looked up only.
	faulty map[pair]*fabric.Impairment

	switches []fabricSwitch
	routed   bool // the switches' tables are up to date

	sched   schedule
	seq     uint64
	slab    slab
	capture fabric.Datagram // scratch for the sink
	transit transit         // of the Send under way; here it need not be cleared for each
	stray   node            // counts what was sent from nodes that do not exist
	addrGen uint32          // rises with every change of addr
	arrived vtime.Time      // see Arrived
	port    *LinkConfig     // of the switch's port that was plugged last
}

// spot is where a node is plugged in. All spots lie together, so that a switch that has
// packets for many nodes finds them in the cache.
type spot struct {
	in    *egress // the switch's port to it; nil without
	sw    SwitchIndex
	place int32
}

type node struct {
	out egress // for all links not set apart
	// lastDst is where the last packet went, and lastTo whose address that is.
	lastDst ib.GID
	lastTo  NodeIndex
	lastGen uint32 // Network.addrGen at that time; 0: nothing is known
	count   Counters
}

type pair struct{ from, to NodeIndex }

// Purposes of seeds derived from Config.Seed. They are part of what a seed means.
const (
	seedNode uint64 = iota + 1
	seedLink
	seedPort
	seedTrunk
	seedPair
)

// New returns an empty network. It panics if cfg is not valid: a caller that got it
// from a user calls Validate first.
func New(cfg Config) *Network {
	if err := cfg.Validate(); err != nil {
		panic(err) //arch:panic the caller skipped Validate, and the signature has no error
	}
	if cfg.MaxInFlight == 0 {
		cfg.MaxInFlight = DefaultMaxInFlight
	}
	return &Network{
		cfg:     cfg,
		addr:    make(map[ib.GID]NodeIndex),
		linkAt:  make(map[pair]int),
		groups:  make(map[ib.GID][]NodeIndex),
		cut:     make(map[pair]struct{}),
		faulty:  make(map[pair]*fabric.Impairment),
		addrGen: 1,
	}
}

// Attach adds a node with the address gid. If a node has that address already, it
// returns that node. A GID that cannot be an address gives NoNode.
func (n *Network) Attach(gid ib.GID) NodeIndex {
	if gid.IsZero() || gid.IsMulticast() {
		return NoNode
	}
	if i, ok := n.addr[gid]; ok {
		return i
	}
	i := NodeIndex(len(n.nodes))
	seed := fabric.Mix(fabric.Mix(n.cfg.Seed, seedNode), uint64(i))
	n.nodes = append(n.nodes, node{out: newEgress(&n.cfg.Default, seed)})
	n.spots = append(n.spots, spot{sw: NoSwitch, place: n.sched.addPlace()})
	n.addr[gid] = i
	n.addrGen++
	return i
}

// AddAddress gives an attached node one more address.
func (n *Network) AddAddress(i NodeIndex, gid ib.GID) error {
	if err := n.check(i); err != nil {
		return err
	}
	if gid.IsZero() || gid.IsMulticast() {
		return fmt.Errorf("mem: %v cannot be a node's address", gid)
	}
	if j, ok := n.addr[gid]; ok && j != i {
		return fmt.Errorf("mem: address %v belongs to node %d", gid, j)
	}
	n.addr[gid] = i
	n.addrGen++
	return nil
}

// RemoveAddress takes an address away. Packets in flight to it still arrive.
func (n *Network) RemoveAddress(gid ib.GID) {
	delete(n.addr, gid)
	n.addrGen++
}

// NodeOf returns the node with that address, or NoNode.
func (n *Network) NodeOf(gid ib.GID) NodeIndex {
	if i, ok := n.addr[gid]; ok {
		return i
	}
	return NoNode
}

// Nodes returns how many nodes are attached.
func (n *Network) Nodes() int { return len(n.nodes) }

// JoinMulticast makes a node a member of a group. Joining twice is no error and does
// not count twice.
func (n *Network) JoinMulticast(gid ib.GID, i NodeIndex) error {
	if err := n.check(i); err != nil {
		return err
	}
	if !gid.IsMulticast() {
		return fmt.Errorf("mem: %v is no multicast address", gid)
	}
	members := n.groups[gid]
	if at, found := slices.BinarySearch(members, i); !found {
		n.groups[gid] = slices.Insert(members, at, i)
	}
	return nil
}

// LeaveMulticast ends a membership, if there is one.
func (n *Network) LeaveMulticast(gid ib.GID, i NodeIndex) {
	members := n.groups[gid]
	at, found := slices.BinarySearch(members, i)
	if !found {
		return
	}
	if members = slices.Delete(members, at, at+1); len(members) == 0 {
		delete(n.groups, gid)
		return
	}
	n.groups[gid] = members
}

// SetLink sets the link from a to b apart, that direction only, or changes it. It has
// an egress of its own from then on. Packets in flight are not affected.
func (n *Network) SetLink(a, b NodeIndex, cfg LinkConfig) error {
	if err := n.checkPair(a, b); err != nil {
		return err
	}
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("link %d to %d: %w", a, b, err)
	}
	if i, ok := n.linkAt[pair{a, b}]; ok {
		n.links[i].configure(&cfg)
		return nil
	}
	seed := fabric.Mix(fabric.Mix(n.cfg.Seed, seedLink), uint64(uint32(a))<<32|uint64(uint32(b)))
	e := newEgress(&cfg, seed)
	n.linkAt[pair{a, b}] = len(n.links)
	n.links = append(n.links, &e)
	return nil
}

// SetDefault changes the default link of all nodes, from the next packet on. Rules
// and partitions that were added to default links through Faults are lost.
func (n *Network) SetDefault(cfg LinkConfig) error {
	if err := cfg.Validate(); err != nil {
		return fmt.Errorf("default link: %w", err)
	}
	n.cfg.Default = cfg
	for i := range n.nodes {
		n.nodes[i].out.configure(&n.cfg.Default)
	}
	return nil
}

// Faults returns the impairment of the link from a to b, to add rules to. If the link
// was not set apart, it is that of all of a's other links as well. It is nil if there
// is no such node. SetLink, SetDefault and Heal replace it.
func (n *Network) Faults(a, b NodeIndex) *fabric.Impairment {
	if n.checkPair(a, b) != nil {
		return nil
	}
	return n.egress(a, b).faults()
}

// SetSink replaces Config.Sink.
func (n *Network) SetSink(s fabric.Sink) { n.cfg.Sink = s }

// Counters returns a node's counters; zero for a node that does not exist.
func (n *Network) Counters(i NodeIndex) Counters {
	if n.check(i) != nil {
		return Counters{}
	}
	return n.nodes[i].count
}

// Totals returns the sums over all nodes.
func (n *Network) Totals() Counters {
	t := n.stray.count
	for i := range n.nodes {
		c := &n.nodes[i].count
		t.Sent += c.Sent
		t.SentBytes += c.SentBytes
		t.Duplicated += c.Duplicated
		t.Corrupted += c.Corrupted
		t.Delivered += c.Delivered
		t.DeliveredBytes += c.DeliveredBytes
		for r, d := range c.Dropped {
			t.Dropped[r] += d
		}
	}
	return t
}

// InFlight returns how many packets have been sent and not yet popped or lost.
func (n *Network) InFlight() int { return n.sched.count }

func (n *Network) check(i NodeIndex) error {
	if i < 0 || int(i) >= len(n.nodes) {
		return fmt.Errorf("mem: there is no node %d", i)
	}
	return nil
}

func (n *Network) checkPair(a, b NodeIndex) error {
	if err := n.check(a); err != nil {
		return err
	}
	return n.check(b)
}

func (n *Network) egress(a, b NodeIndex) *egress {
	if len(n.links) > 0 {
		if i, ok := n.linkAt[pair{a, b}]; ok {
			return n.links[i]
		}
	}
	return &n.nodes[a].out
}

// transit is one call of Send under way.
type transit struct {
	now     vtime.Time
	from    NodeIndex
	path    *wire.Path
	p       *wire.Packet
	payload []byte
	bytes   int // BTH to ICRC
	// constant says that the payload never changes: frames refer to it.
	constant bool

	// A multicast packet leaves the node's common egress once, however many members
	// are behind it.
	serialised, fits bool
	out              vtime.Time
	marked           wire.Path // path, as the egress left it
}

// Send sends a packet with that payload from a node to the node or the group that has
// the address path.Dst; p.Payload is ignored and p.Pad must fit the payload's length.
// Everything is copied. A sender that is a member of the group gets a copy too, as
// with loopback on a real port. What cannot be sent is counted, never reported; what
// comes from no node shows in Totals only, as LossUnreachable.
func (n *Network) Send(now vtime.Time, from NodeIndex, path *wire.Path, p *wire.Packet, payload []byte) {
	n.begin(now, from, path, p, payload).constant = false
	n.send(&n.transit)
}

// SendConstant is like Send, but the payload is not copied: the caller never changes it.
func (n *Network) SendConstant(now vtime.Time, from NodeIndex, path *wire.Path, p *wire.Packet, payload []byte) {
	n.begin(now, from, path, p, payload).constant = true
	n.send(&n.transit)
}

// begin sets all of the network's transit but constant and what depart sets.
func (n *Network) begin(now vtime.Time, from NodeIndex, path *wire.Path, p *wire.Packet, payload []byte) *transit {
	t := &n.transit
	t.now, t.from, t.path, t.p, t.payload = now, from, path, p, payload
	t.bytes, t.serialised = encodedBytes(p, payload), false
	return t
}

func (n *Network) send(t *transit) {
	from, path, p, payload := t.from, t.path, t.p, t.payload
	if from < 0 || int(from) >= len(n.nodes) {
		n.refuse(&n.stray, t, fabric.LossUnreachable)
		return
	}
	src := &n.nodes[from]
	switch {
	case check(p, payload) != wire.DropNone:
		n.refuse(src, t, fabric.LossMalformed)
		return
	case len(payload) > ib.MTU4096.Bytes():
		n.refuse(src, t, fabric.LossMTU)
		return
	}
	if n.cfg.Sink != nil {
		n.show(t)
	}
	if path.Dst.IsMulticast() {
		members := n.groups[path.Dst]
		if len(members) == 0 {
			n.refuse(src, t, fabric.LossUnreachable)
		}
		for _, to := range members {
			n.forward(t, to)
		}
		return
	}
	if src.lastGen != n.addrGen || src.lastDst != path.Dst {
		to, ok := n.addr[path.Dst]
		if !ok {
			n.refuse(src, t, fabric.LossUnreachable)
			return
		}
		src.lastDst, src.lastTo, src.lastGen = path.Dst, to, n.addrGen
	}
	n.forward(t, src.lastTo)
}

func (n *Network) refuse(src *node, t *transit, r fabric.LossReason) {
	src.count.Sent++
	src.count.SentBytes += uint64(t.bytes)
	src.count.Dropped[r]++
}

// forward takes the packet along the link to one receiver.
func (n *Network) forward(t *transit, to NodeIndex) {
	src := &n.nodes[t.from]
	e := n.egress(t.from, to)
	if e.cfg.MTU != 0 && len(t.payload) > e.cfg.MTU.Bytes() {
		n.refuse(src, t, fabric.LossMTU)
		return
	}
	out, fits := n.depart(t, e, e == &src.out)
	if !fits {
		n.refuse(src, t, fabric.LossQueue)
		return
	}
	at := e.arrive(out)
	if e.policy == nil && len(n.faulty) == 0 && len(n.cut)+len(n.cuts) == 0 {
		src.count.Sent++
		src.count.SentBytes += uint64(t.bytes)
		n.enqueue(t, e, to, at, fabric.CorruptNone)
		return
	}
	v := n.policy(e, t.from, to).Fate(t.now, t.path, fabric.InfoOf(t.p, t.bytes))
	if n.isCut(t.from, to) {
		v = fabric.Verdict{Drop: true, Reason: fabric.LossPartition}
	}
	if v.Drop {
		n.refuse(src, t, v.Reason)
		return
	}
	src.count.Sent++
	src.count.SentBytes += uint64(t.bytes)
	src.count.Duplicated += uint64(v.Copies - 1)
	if v.Corrupt != fabric.CorruptNone {
		src.count.Corrupted++
	}
	for c := range v.Copies {
		n.enqueue(t, e, to, at.Add(v.Delay[c]), v.Corrupt)
		v.Corrupt = fabric.CorruptNone
	}
}

// depart serialises the packet at an egress, at the node's common one only once per
// Send.
func (n *Network) depart(t *transit, e *egress, common bool) (out vtime.Time, fits bool) {
	if common && t.serialised {
		return t.out, t.fits
	}
	t.marked = *t.path
	out, fits = e.serialise(t.now, t.bytes+wire.FrameOverheadBytes(t.path.IsIPv4()), &t.marked)
	if common {
		t.serialised, t.out, t.fits = true, out, fits
	}
	return out, fits
}

// enqueue copies the packet into a frame that arrives at the instant at: at the first
// switch if there is one between the two nodes.
func (n *Network) enqueue(t *transit, e *egress, to NodeIndex, at vtime.Time, damage fabric.CorruptKind) {
	src := &n.nodes[t.from]
	if n.sched.count >= n.cfg.MaxInFlight {
		src.count.Dropped[fabric.LossQueue]++
		return
	}
	room := len(t.payload)
	switch {
	case n.cfg.Encode:
		room = t.bytes
	case t.constant && damage != fabric.CorruptPayload:
		room = 0
	}
	f := n.slab.get(room)
	f.To, f.From, f.Path, f.Bytes = to, t.from, t.marked, int32(t.bytes)
	if !n.cfg.Encode && room < len(t.payload) {
		f.refer(t.p, t.payload, damage)
	} else if !n.cfg.Encode {
		f.load(t.p, t.payload, damage)
	} else if f.loadEncoded(t.p, t.payload, damage) != wire.DropNone {
		// check and wire.Decode disagree. A test guards against it; a packet lost
		// and counted is the least harm if it happens all the same.
		n.slab.put(f)
		src.count.Dropped[fabric.LossMalformed]++
		return
	}
	f.state = frameInFlight
	place := n.spots[to].place
	f.sw = NoSwitch
	if sw := n.spots[t.from].sw; sw != NoSwitch && n.spots[to].sw != NoSwitch && e == &src.out {
		n.route()
		f.sw, place = sw, e.place
	}
	n.sched.push(place, event{at: at, seq: n.seq, slot: f.slot})
	n.seq++
}

// show encodes the packet for the sink.
func (n *Network) show(t *transit) {
	d := &n.capture
	d.Path, d.At = *t.path, t.now
	d.Buf = appendEncoded(d.Buf[:0], t.path, t.p, t.payload, false)
	n.cfg.Sink.Capture(t.now, d)
}

// NextAt is when something happens next: a packet arrives at a node or at a switch;
// vtime.Never when none is in flight.
func (n *Network) NextAt() vtime.Time {
	if h := n.sched.first(); h != nil {
		return h.at
	}
	return vtime.Never
}

// Pop returns the next packet that has arrived by now: the earliest, and of packets
// that arrive at the same instant the one that was sent first. The frame is the
// caller's until Release.
func (n *Network) Pop(now vtime.Time) (*Frame, bool) {
	place, ok := n.ready(now, n.seq)
	if !ok {
		return nil, false
	}
	f := n.take(place)
	n.sched.settle(place)
	return f, true
}

// Arrived is when the packet arrived that Pop returned last.
func (n *Network) Arrived() vtime.Time { return n.arrived }

// Mark returns a bound for Burst: packets that are sent from now on lie behind it.
func (n *Network) Mark() uint64 { return n.seq }

// Burst appends to dst the packets that have arrived by now at one node, the one whose
// first packet Pop would return, as far as they were sent before mark. It appends
// nothing if there are none.
func (n *Network) Burst(now vtime.Time, mark uint64, dst []*Frame) []*Frame {
	place, ok := n.ready(now, mark)
	if !ok {
		return dst
	}
	for {
		dst = append(dst, n.take(place))
		if e := n.sched.places[place].front(); e == nil || e.at > now || e.seq >= mark {
			n.sched.settle(place)
			if n.cfg.Ahead != nil {
				n.ahead()
			}
			return dst
		}
	}
}

// ready moves packets through switches until the next one to arrive by now is at its
// destination, and returns that place.
func (n *Network) ready(now vtime.Time, mark uint64) (place int32, ok bool) {
	for {
		h := n.sched.first()
		if h == nil || h.at > now || h.seq >= mark {
			return 0, false
		}
		f := n.slab.at(h.slot)
		if f.sw == NoSwitch {
			return h.place, true
		}
		at, place := h.at, h.place
		n.sched.pop(place)
		n.sched.settle(place)
		if n.cfg.Ahead != nil {
			n.ahead()
		}
		n.hop(f, at)
	}
}

// ahead shows Config.Ahead the packet behind the first one, which is among the heap's next.
// The first one was shown when it was second, in most cases.
func (n *Network) ahead() {
	h := n.sched.heads
	if len(h) <= arity {
		return
	}
	second := &h[1]
	for i := 2; i <= arity; i++ {
		if h[i].before(second) {
			second = &h[i]
		}
	}
	n.cfg.Ahead(n.slab.at(second.slot))
}

// take pops the first packet of a place where nodes get theirs.
func (n *Network) take(place int32) *Frame {
	e := n.sched.pop(place)
	f := n.slab.at(e.slot)
	n.arrived = e.at
	f.state = framePopped
	dst := &n.nodes[f.To].count
	dst.Delivered++
	dst.DeliveredBytes += uint64(f.Bytes)
	return f
}

// Release gives a popped frame back; its contents are void from then on. Releasing a
// frame that is not popped does nothing, except that it fails an invariant.
func (n *Network) Release(f *Frame) {
	if f.state != framePopped {
		invariants.Check(false, "a frame is released once, after it was popped")
		return
	}
	invariants.Mangle(f.buf)
	n.slab.put(f)
}
