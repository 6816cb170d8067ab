package daemon

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/gidtable"
	"github.com/rvtsim/rvtsim/internal/netdev"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/uverbs"
	"github.com/rvtsim/rvtsim/vtime"
)

// bound is a node on a network device, and the goroutine that follows the device. The
// goroutine has a thread of its own, in the device's network namespace; it alone uses
// what is below, from the time that the node is open.
type bound struct {
	h     *hosted
	log   *slog.Logger
	quit  chan struct{}
	once  sync.Once
	done  chan struct{}
	again <-chan time.Time // when to try once more to open sockets

	w     *netdev.Watcher
	port  *udp.Multi
	table *gidtable.Table
	link  gidtable.Link
	state gidtable.PortState
	mtu   ib.MTU
	names map[int]string
	said  string // the last complaint in the log
}

// hostBound opens a node on the network device that cfg names.
func hostBound(cfg NodeConfig, abi string, d *desk, l *loop, n news) (*hosted, error) {
	h := newHosted(cfg, d, l, n)
	b := &bound{h: h, log: d.log, quit: make(chan struct{}), done: make(chan struct{}), table: gidtable.New(gidtable.Size)}
	opened := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread may be in another namespace
		defer close(b.done)
		err := b.open(abi)
		opened <- err
		if err == nil {
			b.follow()
			b.w.Close()
		}
	}()
	if err := <-opened; err != nil {
		return nil, fmt.Errorf("node %s: %w", cfg.Name, err)
	}
	h.bound = b
	return h, nil
}

// enterNetns moves the calling thread into a network namespace.
func enterNetns(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return os.NewSyscallError("setns", unix.Setns(int(f.Fd()), unix.CLONE_NEWNET))
}

// inside runs f where a socket that it opens is in the device's network namespace.
func (b *bound) inside(f func() error) error {
	if b.h.cfg.Netns == "" {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock: the thread ends in the other namespace
		err := enterNetns(b.h.cfg.Netns)
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// open makes the node as the device is now.
func (b *bound) open(abi string) (err error) {
	if b.h.cfg.Netns != "" {
		if err := enterNetns(b.h.cfg.Netns); err != nil {
			return err
		}
	}
	if b.w, err = netdev.Open(b.h.cfg.Netdev); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			b.w.Close()
		}
	}()
	s, err := b.w.State()
	if err != nil {
		return err
	}
	pc := udp.DefaultConfig(s.Default.MAC.DefaultGID())
	pc.Port, pc.Now = b.h.cfg.Address.Port(), node.Now
	if b.port, err = udp.OpenMulti(pc, b.inside); err != nil {
		return err
	}
	b.table.Update(s.Default.Index, s.Default.MAC, s.Addrs, func(int) bool { return false })
	b.link, b.names, b.state = s.Link, s.Names, gidtable.NewPort(s.Link)
	dc := rvt.DefaultConfig(deviceName, gidsOf(b.table)...)
	dc.GUID = s.MAC.GUID()
	uc := uverbs.DeviceConfig{GIDTableLen: gidtable.Size, NetDev: s.Name, Mbps: mbpsOf(s)}
	if err = b.h.start(b.port, abi, dc, uc); err != nil {
		_ = b.port.Close()
		return err
	}
	b.apply(s)
	return nil
}

// follow brings the node in line with the device until the node is closed.
func (b *bound) follow() {
	for {
		select {
		case <-b.quit:
			return
		case <-b.w.Changed():
		case <-b.again:
		}
		switch s, err := b.w.State(); {
		case errors.Is(err, netdev.ErrGone):
			b.gone()
			return
		case err != nil:
			b.complain(err.Error())
			b.again = time.After(time.Second)
		default:
			b.apply(s)
			b.h.news.moved(b.h, b.quit)
		}
	}
}

// close ends the goroutine. The node itself stays. Closing twice is no error.
func (b *bound) close() {
	b.once.Do(func() { close(b.quit) })
	<-b.done
}

// apply makes the node what the device is.
func (b *bound) apply(s netdev.State) {
	addrs := b.addresses(s)
	next, err := b.port.Open(addrs, s.MTU)
	b.retry(err, s)
	b.names = s.Names
	states := b.states(s)
	mtu := min(ib.MTUForNetdev(s.MTU), b.h.cfg.MTU)
	var lost int
	b.h.Do(func(d *rvt.Device, _ vtime.Time) {
		var events int
		events, lost = b.table.Update(s.Default.Index, s.Default.MAC, s.Addrs, d.GIDInUse)
		b.port.Use(next, s.MTU)
		d.SetGIDs(gidsOf(b.table), events)
		d.SetMTU(mtu)
		for _, st := range states {
			d.SetPort(st == gidtable.LinkUp)
		}
		b.h.uv.SetPort(gidsOf(b.table), b.netDevs(), uverbs.PhysState(b.state))
		b.h.uv.SetSpeed(mbpsOf(s))
	})
	if lost > 0 {
		b.complain(fmt.Sprintf("%d addresses have no room in the GID table of %d", lost, gidtable.Size))
	}
	if len(states) > 0 || mtu != b.mtu {
		b.log.Info("port", "node", b.h.cfg.Name, "netdev", s.Name, "up", b.state == gidtable.LinkUp, "mtu", mtu)
	}
	b.mtu = mtu
	b.h.cm.agent.SetPort(gidsOf(b.table), mtu)
	if err := b.h.updateView(); err != nil {
		b.complain(err.Error())
	}
}

// mbpsOf is the speed of a device's link. One that does not know its own counts as the
// slowest, as in the kernel (ib_get_eth_speed).
func mbpsOf(s netdev.State) uint32 { return max(s.Mbps, 1) }

// states are the states that the port went through since the last look.
func (b *bound) states(s netdev.State) []gidtable.PortState {
	first := b.mtu == 0
	var out []gidtable.PortState
	for _, l := range append(s.Links, s.Link) {
		if next := b.state.Next(b.link, l); next != b.state {
			b.state = next
			out = append(out, next)
		}
		b.link = l
	}
	if first && len(out) == 0 {
		out = append(out, b.state)
	}
	return out
}

// addresses are those that have a socket: of the machine itself, and the default GID if
// the device has that address.
func (b *bound) addresses(s netdev.State) []udp.Address {
	var out []udp.Address
	for _, e := range s.Addrs {
		if s.Local[e] {
			out = append(out, udp.Address{GID: e.GID, Ifindex: e.Ifindex})
		}
	}
	return out
}

// retry looks at the addresses that could not be bound. One that the kernel does not give
// out yet is announced again when it does; one whose socket is just being closed is not.
func (b *bound) retry(err error, s netdev.State) {
	b.again = nil
	if err == nil {
		b.said = ""
		return
	}
	if errors.Is(err, unix.EADDRINUSE) {
		b.again = time.After(100 * time.Millisecond)
	}
	if s.Link.Up && !errors.Is(err, unix.EADDRNOTAVAIL) {
		b.complain(err.Error())
	}
}

// complain writes to the log, once for the same thing in a row.
func (b *bound) complain(what string) {
	if what != b.said {
		b.log.Warn("network device", "node", b.h.cfg.Name, "netdev", b.h.cfg.Netdev, "err", what)
	}
	b.said = what
}

// gone is what becomes of the node when its device is removed. Programs are told as by a
// driver that can take a device away under them; rxe would wait for them to end.
func (b *bound) gone() {
	b.log.Warn("network device is gone", "node", b.h.cfg.Name, "netdev", b.h.cfg.Netdev)
	b.h.Do(func(d *rvt.Device, _ vtime.Time) {
		d.SetPort(false)
		d.SetGIDs(make([]ib.GID, len(d.GIDs())), b.table.Clear(d.GIDInUse))
		b.port.Use(nil, 0)
		b.h.uv.SetPort(d.GIDs(), nil, uverbs.PhysDisabled)
		b.h.uv.Fatal()
	})
	_ = b.h.updateView()
	_ = b.h.node.Close()
	b.h.news.gone(b.h)
}

// gidsOf are the GIDs of a table.
func gidsOf(t *gidtable.Table) []ib.GID {
	var out []ib.GID
	for _, e := range t.Entries() {
		out = append(out, e.GID)
	}
	return out
}

// netDevs are the devices of the table's entries.
func (b *bound) netDevs() []uverbs.NetDev {
	var out []uverbs.NetDev
	for _, e := range b.table.Entries() {
		out = append(out, uverbs.NetDev{Name: b.names[e.Ifindex], Ifindex: uint32(e.Ifindex)})
	}
	return out
}

// addressOf is the address to show of a node with these GIDs: the first that is more than
// a link-local one.
func addressOf(gids []ib.GID, port uint16) netip.AddrPort {
	i := slices.IndexFunc(gids, func(g ib.GID) bool {
		return !g.IsZero() && !udp.AddrFromGID(g).IsLinkLocalUnicast()
	})
	if i < 0 {
		i = 0
	}
	return netip.AddrPortFrom(udp.AddrFromGID(gids[i]), port)
}
