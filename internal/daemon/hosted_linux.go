package daemon

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/strict"
	"github.com/rvtsim/rvtsim/uverbs"
	"github.com/rvtsim/rvtsim/vtime"
)

// deviceName is what every node's own device is called in its view.
const deviceName = "rvt0"

// hosted is a node with its device file.
type hosted struct {
	cfg      NodeConfig
	node     *node.Node
	uv       *uverbs.Device
	loop     *loop   // drives the node; nil in a program
	driven   *driven // as its loop sees the node
	bells    *bells  // what hears doorbells in a program, for its children
	heir     *heir
	abi      string
	cm       *cmHost
	desk     *desk
	troubles troubles
	guard    *strict.Guard               // nil unless the node is strict, or is to know call sites
	waits    map[destruction]*time.Timer // destructions that wait for the program; the owner's
	sites    sites
	stop     chan struct{} // ends look
	looking  sync.WaitGroup
	bound    *bound           // what follows the node's network device, nil if it has an address
	impaired *fabric.Impaired // the port, with the faults of the network
	news     news

	viewMu sync.Mutex  // guards what follows: the view is written again when the port changes
	root   string      // the node's view of sysfs and /dev
	tree   uverbs.Tree // as it was written there

	// For programs that host themselves.
	seat     seat      // this device's own place at its address
	udp      *udp.Port // what they share the address of, nil if they cannot
	port     udp.Config
	segments int // of a train, as the port has found out
	seats    seats
	past     NodeReport // what those counted that have ended; guarded by Daemon.mu
	groups   *groups    // that the port receives; set when the node starts
	bell     *node.Bell // of a program that hosts itself, which rings it from C
	lanes    *lanes     // of a program that hosts itself, to other programs; nil: it has none
}

var _ uverbs.Host = (*hosted)(nil)

// newHosted returns a node that is not open. l drives it; nil means that it drives itself
// as its program lets it.
func newHosted(cfg NodeConfig, d *desk, l *loop, n news) *hosted {
	return &hosted{cfg: cfg, desk: d, loop: l, news: n, stop: make(chan struct{})}
}

// news is whom a node tells what becomes of its network device, and asks what became of
// its peers.
type news struct {
	// moved is told when the node's addresses have changed; it gives up when the channel is
	// closed.
	moved func(*hosted, <-chan struct{})
	gone  func(*hosted) // the device is gone, and the node is closed
	peers *peers
}

// host opens the node's port and starts it.
func host(cfg NodeConfig, abi string, d *desk, l *loop, n news) (*hosted, error) {
	if cfg.Netdev != "" {
		return hostBound(cfg, abi, d, l, n)
	}
	pc := udp.DefaultConfig(udp.GIDFromAddr(cfg.Address.Addr()))
	pc.Port, pc.Now = cfg.Address.Port(), node.Now
	port, err := udp.Open(pc)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", cfg.Name, err)
	}
	h := newHosted(cfg, d, l, n)
	h.udp, h.port, h.segments = port, pc, port.Details().GSOSegments
	if err := h.startAt(port, abi); err != nil {
		_ = port.Close()
		return nil, fmt.Errorf("node %s: %w", cfg.Name, err)
	}
	return h, nil
}

// startAt starts the node at the address of its configuration.
func (h *hosted) startAt(port *udp.Port, abi string) error {
	dc := rvt.DefaultConfig(deviceName, port.LocalGID())
	dc.GUID, dc.MTU = guidOf(h.cfg.Address), min(h.cfg.MTU, port.MTU())
	return h.start(port, abi, dc, uverbs.DeviceConfig{NetDev: netDevOf(h.cfg.Address.Addr()), Mbps: uint32(min((h.cfg.Bandwidth+999_999)/1_000_000, 1<<32-1))})
}

// start makes the device and drives it. dc has its address and MTU, uc its network
// device. The port belongs to the node if it succeeds.
func (h *hosted) start(port watched, abi string, dc rvt.Config, uc uverbs.DeviceConfig) error {
	h.abi, h.groups = abi, newGroups(port)
	dc.FirstQPN, dc.LastQPN = h.seat.span()
	dc.StartQPN, dc.Seed = h.seat.Start, uint64(dc.GIDs[0][15])+uint64(h.seat.Index)<<8
	dc.Profile, dc.Limits = h.cfg.Profile, h.cfg.Limits
	dc.Driver = qp.DriverByName(dc.Profile.Name)
	dc.DistinctKeys, dc.Congestion = h.cfg.DistinctKeys, h.cfg.Congestion
	dc.Observer, dc.Judge = watcher{h}, h.news.peers.judge
	if h.wantsSites() {
		h.guard = strict.NewGuard(h.cfg.Strict, h.cfg.Seed, h.misused, &dc)
		h.guard.Channel = func(c *cq.CQ) bool { return h.uv.HasChannel(c) }
		h.guard.Where = func() strict.Site { return strict.Site{h.uv.Site()} }
		dc.Guard = strictWatcher{h.guard, h}
	}
	dev, err := rvt.New(dc)
	if err != nil {
		return err
	}
	of := uverbs.ConfigOf(&dc, 0, abi)
	uc.Name, uc.Index, uc.ABI, uc.GUID, uc.GIDs, uc.NodeDesc = of.Name, of.Index, of.ABI, of.GUID, of.GIDs, "rvtsim "+h.cfg.Name
	uc.AnswerPosts = h.guard != nil // slots may be short, and a doorbell does not say where it was rung
	if err := uc.Validate(); err != nil {
		return err
	}
	h.uv = uverbs.NewDevice(h, uc)
	h.impaired = fabric.NewImpaired(h.inFront(port), nil, node.Now)
	if h.seat.Index > 0 {
		return h.driveItself(dev) // a part of a node in a program: the daemon makes its connections
	}
	if err := h.drive(dev, port); err != nil {
		return err
	}
	if h.guard != nil {
		h.looking.Go(func() { h.look(h.stop) })
	}
	if err := h.startCM(&dc, port); err != nil {
		return errors.Join(err, h.close())
	}
	return nil
}

// drive lets the loop drive the device. port is the node's own; packets go through what
// is in front of it.
func (h *hosted) drive(dev *rvt.Device, port watched) (err error) {
	h.driven = &driven{port: port, due: vtime.Never}
	h.node, err = node.New(dev, h.impaired, node.Config{Manual: true, Events: h.events, Doorbells: h.driven.answer})
	if err != nil {
		return err
	}
	h.driven.node = h.node
	if err = h.loop.drive(h.driven); err != nil {
		_ = h.node.Close()
	}
	return err
}

// driveItself starts the node of a program: the program's own calls drive it, and a
// goroutine when there are none.
func (h *hosted) driveItself(dev *rvt.Device) (err error) {
	nc := node.Config{Events: h.events, Doorbells: h.scan, AckDelay: node.AckDelay, Linger: node.Linger, Pace: node.Pace(), Doze: node.Doze, Bell: h.bell}
	if h.lanes != nil {
		nc.PassedAt = new(vtime.Time)
		h.lanes.port.ReadsAt(nc.PassedAt)
	}
	if h.node, err = node.New(dev, h.impaired, nc); err != nil {
		return err
	}
	if h.bells, err = newBells(h.ring); err != nil {
		_ = h.node.Close()
	}
	return err
}

// hear listens to the doorbell of a context.
func (h *hosted) hear(a *attached) error {
	if h.bells != nil {
		return h.bells.add(a)
	}
	return h.loop.add(h.driven, a)
}

// unhear ends what hear began.
func (h *hosted) unhear(a *attached) {
	if h.bells != nil {
		h.bells.remove(a)
		return
	}
	h.loop.remove(a)
}

// guidOf makes a node GUID that differs between addresses: programs tell devices apart
// by it. The first byte says that it is locally administered.
func guidOf(a netip.AddrPort) uint64 {
	h := fnv.New64a()
	b := a.Addr().As16()
	_, _ = h.Write(binary.BigEndian.AppendUint16(b[:], a.Port()))
	return h.Sum64()&(1<<56-1) | 2<<56
}

// Do implements uverbs.Host. After the node has failed f does not run; connections ask
// for that first.
func (h *hosted) Do(f func(d *rvt.Device, now vtime.Time)) { _ = h.node.Do(f) }

// scan implements node.Config.Doorbells, for doorbells that did not wait.
func (h *hosted) scan(d *rvt.Device) { h.uv.Scan(d) }

// events implements node.Config.Events.
func (h *hosted) events(evs []rvt.Event) {
	for i := range evs {
		h.uv.HandleEvent(&evs[i])
	}
}

// ring serves the doorbells of contexts of a program. The word is cleared before the rings are
// looked at: see the package comment. The owner of the device also owns attached.open,
// so the memory is there.
func (h *hosted) ring(rung []*attached) {
	d, err := h.node.Begin()
	if err != nil {
		return
	}
	for _, a := range rung {
		if a.open {
			a.rings.bell().Store(0)
			a.ctx.Scan(d)
		}
	}
	h.node.End(node.SendNow)
}

// close ends the node for good.
func (h *hosted) close() error {
	h.unbind()
	close(h.stop)
	h.looking.Wait()
	if h.bells != nil {
		h.bells.close()
	}
	err := h.node.Close()
	if h.driven != nil {
		h.loop.forget(h.driven.tag)
	}
	h.seats.close()
	return err
}

// unbind ends what follows the node's network device. It may be called again.
func (h *hosted) unbind() {
	if h.bound != nil {
		h.bound.close()
	}
}

// gids are the addresses that the node has now.
func (h *hosted) gids() (out []ib.GID) {
	h.Do(func(d *rvt.Device, _ vtime.Time) {
		for _, g := range d.GIDs() {
			if !g.IsZero() {
				out = append(out, g)
			}
		}
	})
	return out
}

// has reports whether a GID is one of the node's.
func (h *hosted) has(g ib.GID) (yes bool) {
	h.Do(func(d *rvt.Device, _ vtime.Time) { yes = slices.Contains(d.GIDs(), g) })
	return yes
}

// fatal tells the programs that the device goes away.
func (h *hosted) fatal() {
	h.Do(func(*rvt.Device, vtime.Time) { h.uv.Fatal() })
}
