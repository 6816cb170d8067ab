package daemon

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/cm/gsi"
	"github.com/rvtsim/rvtsim/explain"
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/uverbs/ucma"
	"github.com/rvtsim/rvtsim/vtime"
)

// cmHost is the connection manager of a node, with the rdma_cm device in front of it.
type cmHost struct {
	h     *hosted
	agent *gsi.Agent
	dev   *ucma.Device
}

var _ ucma.Host = (*cmHost)(nil)

// startCM starts the connection manager of a node that runs. port is the node's own,
// without what may have been put in front of it.
func (h *hosted) startCM(dc *rvt.Config, port fabric.Port) error {
	c := &cmHost{h: h}
	c.dev = ucma.NewDevice(c)
	cfg := cm.DefaultConfig()
	cfg.Seed = rand.Uint64() // a node that starts again must not look like its former self
	if n, ok := port.(fabric.Neighbours); ok {
		cfg.Neighbour = n.Neighbour
	}
	var err error
	c.agent, err = gsi.New(h.node, gsi.Config{CM: cfg, Events: c.dev.HandleEvents,
		Port: cm.PortConfig{Name: dc.Name, GUID: dc.GUID, Num: 1, GIDs: dc.GIDs, MTU: dc.MTU, AckDelay: gsi.DefaultAckDelay}})
	if err != nil {
		return fmt.Errorf("connection manager: %w", err)
	}
	h.cm = c
	return nil
}

// Do implements ucma.Host.
func (c *cmHost) Do(f func(m *cm.Manager, now vtime.Time) error) error { return c.agent.DoAlways(f) }

// JoinGroup implements ucma.Host. An address that is no group's is no error: the kernel
// does not look.
func (c *cmHost) JoinGroup(g ib.GID) error {
	if !g.IsMulticast() {
		return nil
	}
	if c.h.groups.port == nil {
		return ib.NewVerbError(ib.EOPNOTSUPP, "join_multicast", "", "the node's port receives no multicast")
	}
	if err := c.h.groups.join(g); err != nil {
		c.h.groups.leave(g)
		return ib.NewVerbError(ib.ENODEV, "join_multicast", "", err.Error())
	}
	return nil
}

// LeaveGroup implements ucma.Host.
func (c *cmHost) LeaveGroup(g ib.GID) {
	if g.IsMulticast() {
		c.h.groups.leave(g)
	}
}

var _ ucma.TroubleHost = (*cmHost)(nil)

// Refused implements ucma.TroubleHost. AF_IB is what librdmacm tries first and does without,
// and a descriptor that MIGRATE_ID names is asked for when the command has failed for want of
// it.
func (c *cmHost) Refused(ch *ucma.Channel, err error) {
	var v *ib.VerbError
	if !errors.As(err, &v) || strings.Contains(v.Reason, "AF_IB") || v.Verb == "migrate_id" && v.Errno == ib.ENOENT {
		return
	}
	c.note(ch, note{err: err})
}

// Failed implements ucma.TroubleHost.
func (c *cmHost) Failed(ch *ucma.Channel, e *cm.Event) {
	a := explain.AttemptOf(e)
	c.note(ch, note{try: &a})
}

func (c *cmHost) note(ch *ucma.Channel, n note) {
	n.h = c.h
	n.a, _ = ch.Owner.(*attached)
	c.h.desk.put(n)
}

// stationOf finds the node that an attempt was made to among the daemon's, and who listens
// there; nil if it is not there.
func stationOf(a *explain.Attempt, all []*hosted) *explain.Station {
	for _, h := range all {
		if h.cm == nil || a.Remote.Family == cm.FamilyNone || !h.has(a.Remote.IP) {
			continue
		}
		s := &explain.Station{Name: "node " + h.cfg.Name}
		_ = h.cm.Do(func(m *cm.Manager, _ vtime.Time) error {
			for _, l := range m.Listeners() {
				s.Listeners = append(s.Listeners, fmt.Sprintf("%v, port space %v", l.Local(), l.Space()))
			}
			return nil
		})
		return s
	}
	return nil
}

// cmFile is an open rdma_cm device file: a channel, and the pipe whose read end is the
// program's descriptor. The pipe holds one byte while events wait. To take an event the
// program reads the byte, which blocks, fails or is interrupted as its descriptor and
// its signals will have it, and then asks for the event.
type cmFile struct {
	ch   *ucma.Channel
	r, w int // r is -1 once the program has it
}

var _ ucma.Signal = (*cmFile)(nil)

func newCMFile(h *cmHost) (*cmFile, error) {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		return nil, os.NewSyscallError("pipe", err)
	}
	f := &cmFile{r: p[0], w: p[1]}
	var st unix.Stat_t
	err := unix.Fstat(f.r, &st)
	if err == nil {
		err = unix.SetNonblock(f.w, true)
	}
	if err != nil {
		f.closeRead()
		_ = unix.Close(f.w)
		return nil, os.NewSyscallError("fstat", err)
	}
	f.ch = h.dev.Open(st.Ino, f)
	return f, nil
}

// Set implements ucma.Signal.
func (f *cmFile) Set(readable bool) {
	n, err := unix.IoctlGetInt(f.w, unix.TIOCINQ)
	switch {
	case err != nil || readable == (n > 0):
	case readable:
		_, _ = unix.Write(f.w, []byte{1}) // EPIPE: nobody has the other end any more
	default:
		f.drain()
	}
}

// drain takes the byte back. The read end is the program's; a pipe can be opened anew.
func (f *cmFile) drain() {
	r, err := unix.Open("/proc/self/fd/"+strconv.Itoa(f.w), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return // the program will look for an event in vain, and wait again
	}
	var b [16]byte
	_, _ = unix.Read(r, b[:])
	_ = unix.Close(r)
}

func (f *cmFile) closeRead() {
	if f.r >= 0 {
		_ = unix.Close(f.r)
		f.r = -1
	}
}

// close ends the channel.
func (f *cmFile) close() {
	f.ch.Close()
	f.closeRead()
	_ = unix.Close(f.w)
}

// report describes the channel.
func (f *cmFile) report(h *cmHost) ContextReport {
	h.agent.Lock()
	defer h.agent.Unlock()
	ids := f.ch.IDs()
	return ContextReport{Objects: len(ids), IDs: ids, QPs: []QPReport{}}
}
