package uverbs

import (
	"errors"
	"fmt"
	stdnet "net"
	"strconv"
	"sync"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
)

// Host runs the device. It is implemented by whoever drives the [rvt.Device].
type Host interface {
	// Do calls f as the owner of the device, at the host's time now, and returns when
	// f has returned. The host sends what the device has to send, commits, and hands
	// the device's events to HandleEvent afterwards; it need not wait for that. f never
	// calls Do. If the device is gone for good, f is not called: the program gets ENODEV.
	Do(f func(d *rvt.Device, now vtime.Time))
}

// Connector is a Host that wants to know what queue pairs are connected to, before they
// send. The owner calls Connecting.
type Connector interface {
	Connecting(dst ib.GID, qpn ib.QPN)
}

// MulticastHost is a Host that wants to know which groups queue pairs are attached to. The
// owner calls Attached and Detached, once for each queue pair and group.
type MulticastHost interface {
	Attached(gid ib.GID)
	Detached(gid ib.GID)
}

// RefusalHost is a Host that wants to know which calls were refused, and why. The owner
// calls Refused; err says more than the errno that the program gets.
type RefusalHost interface {
	Refused(c *Context, err error)
}

// UnackedHost is a Host that wants to know of objects whose destruction waits for
// acknowledgements of events, and when that wait is over. The owner calls both, the second
// for other objects too.
type UnackedHost interface {
	Unacked(c *Context, verb string, handle uint32, object fmt.Stringer, events int)
	Acknowledged(c *Context, handle uint32)
}

// RingMemory is where the rings of one context live: memory that the program can map
// at the offsets that Alloc returns (in a daemon a sealed memfd). It is used by the
// device's owner only.
type RingMemory interface {
	// Alloc returns size bytes (a multiple of 4096), zeroed and aligned to 8 bytes, and
	// where the program finds them. They stay valid until Free.
	Alloc(size int) (offset uint64, b []byte, err error)
	// Free takes the memory back. The program may still have it mapped.
	Free(offset uint64)
}

// ABI names of DeviceConfig.
const (
	ABIRXE = "rxe"
	ABIRVT = "rvt"
)

// DeviceConfig describes the device file and its sysfs tree.
type DeviceConfig struct {
	Name  string   // of the RDMA device: "rvt0"
	Index int      // N of uverbsN
	ABI   string   // ABIRXE (default) or ABIRVT
	GUID  uint64   // node GUID; must be unique among the devices that a program sees
	GIDs  []ib.GID // a zero GID is an empty entry of the table
	// NetDev is the network device that sysfs names for the GIDs; "lo" if empty.
	NetDev string
	// GIDNetDevs are the network devices of GIDs, where these are not all of NetDev.
	GIDNetDevs []NetDev
	// Port is the state of the port that sysfs shows; the zero value is an active one.
	Port PhysState
	// Mbps is the speed of the link, which active_width and active_speed are made of; 0 is
	// [DefaultMbps].
	Mbps uint32
	// CompVectors (num_comp_vectors) is how many completion vectors to announce; 0 is 1.
	CompVectors int
	// GIDTableLen (gid_tbl_len) is how many entries the GID table has, empty ones
	// included; 0 is 16. It is never less than there are GIDs.
	GIDTableLen int
	// NodeDesc is free text for sysfs.
	NodeDesc string
	// NoIoctl answers ENOTTY to RDMA_VERBS_IOCTL, like kernels before 4.20: programs
	// use write() for everything.
	NoIoctl bool
	// AnswerPosts makes every post a call that is answered, so that it can be refused for
	// reasons which the program's side does not know: strict mode.
	AnswerPosts bool
}

// NetDev is a network device by its name and index.
type NetDev struct {
	Name    string
	Ifindex uint32
}

// PhysState is phys_state of struct ibv_port_attr. A port that is not LinkUp is down.
type PhysState uint8

// Physical states of a port.
const (
	PhysPolling  PhysState = 2
	PhysDisabled PhysState = 3
	PhysLinkUp   PhysState = 5
)

// text is what sysfs shows as state and phys_state.
func (s PhysState) text() (state, phys string) {
	switch s {
	case PhysPolling:
		return "1: DOWN", "2: Polling"
	case PhysDisabled:
		return "1: DOWN", "3: Disabled"
	}
	return "4: ACTIVE", "5: LinkUp"
}

// ConfigOf returns the description of a device with the name, GUID and GIDs of c.
func ConfigOf(c *rvt.Config, index int, abi string) DeviceConfig {
	return DeviceConfig{Name: c.Name, Index: index, ABI: abi, GUID: c.GUID, GIDs: append([]ib.GID(nil), c.GIDs...)}
}

// Validate returns everything that is wrong with the configuration.
func (c *DeviceConfig) Validate() error {
	var errs []error
	bad := func(s string) { errs = append(errs, errors.New("uverbs: device "+strconv.Quote(c.Name)+": "+s)) }
	if c.Name == "" {
		bad("it has no name")
	}
	switch c.ABI {
	case "", ABIRXE, ABIRVT:
	default:
		bad("its ABI is " + strconv.Quote(c.ABI) + ", want " + ABIRXE + " or " + ABIRVT)
	}
	if c.Index < 0 || c.Index > 31 {
		bad("its index is not in 0..31")
	}
	if c.CompVectors < 0 || c.CompVectors > 1024 {
		bad("it has " + strconv.Itoa(c.CompVectors) + " completion vectors")
	}
	return errors.Join(errs...)
}

func (c *DeviceConfig) compVectors() int { return max(c.CompVectors, 1) }

func (c *DeviceConfig) gidTableLen(gids int) int {
	if c.GIDTableLen <= 0 {
		return max(defaultGIDTable, gids)
	}
	return max(c.GIDTableLen, gids)
}

const defaultGIDTable = 16

// netDevOf is the name of the network device of an entry of the GID table.
func (c *DeviceConfig) netDevOf(i int) string {
	if i < len(c.GIDNetDevs) {
		return c.GIDNetDevs[i].Name
	}
	return c.netDev()
}

func (c *DeviceConfig) netDev() string {
	if c.NetDev == "" {
		return "lo"
	}
	return c.NetDev
}

// Device is the device file of one [rvt.Device].
type Device struct {
	host Host
	cfg  DeviceConfig
	abi  abi

	ifindex uint32 // of NetDev; 0 if there is none

	mu       sync.Mutex // guards contexts: events reach it as the owner, Open does not
	contexts map[*Context]struct{}

	calling *Context // whose command is being carried out; the owner's
	site    uintptr  // where it was made
}

// NewDevice returns the device file of the device that host owns. cfg must be valid.
func NewDevice(host Host, cfg DeviceConfig) *Device {
	d := &Device{host: host, cfg: cfg, abi: rxeABI{}, contexts: map[*Context]struct{}{}}
	if cfg.ABI == ABIRVT {
		d.abi = rvtABI{}
	}
	if nic, err := stdnet.InterfaceByName(cfg.netDev()); err == nil {
		d.ifindex = uint32(nic.Index)
	}
	return d
}

// Config returns the device's description. Do not modify it. After SetPort it belongs to
// the owner of the rvt.Device.
func (d *Device) Config() *DeviceConfig { return &d.cfg }

// SetPort changes what programs see of the port: the GID table with the network device of
// each entry, and the physical state. Call it as the owner, together with the changes of
// the rvt.Device.
func (d *Device) SetPort(gids []ib.GID, devs []NetDev, s PhysState) {
	d.cfg.GIDs, d.cfg.GIDNetDevs, d.cfg.Port = gids, devs, s
}

// SetSpeed changes the speed of the link, in Mb/s. The owner of the device calls it.
func (d *Device) SetSpeed(mbps uint32) { d.cfg.Mbps = mbps }

// ifindexOf is the network device of an entry of the GID table.
func (d *Device) ifindexOf(i int) uint32 {
	if i < len(d.cfg.GIDNetDevs) {
		return d.cfg.GIDNetDevs[i].Ifindex
	}
	return d.ifindex
}

// Open returns a context, the counterpart of one open() of the device file, whose
// rings live in mem. Processes that inherit the descriptor share it.
func (d *Device) Open(mem RingMemory) (*Context, error) {
	if mem == nil {
		return nil, errors.New("uverbs: a context needs ring memory")
	}
	c := &Context{dev: d, mem: mem, objects: map[uint32]any{}, channels: map[uint64]*channel{}, windows: map[uint32]*mwObj{}}
	d.mu.Lock()
	d.contexts[c] = struct{}{}
	d.mu.Unlock()
	return c, nil
}

// ContextOf returns the context that made an object, a *qp.QP, *cq.CQ or *swqe.SRQ. For
// anything else it is the context whose command is being carried out; nil if there is
// none. Call it as the owner.
func (d *Device) ContextOf(subject any) *Context {
	var made any
	switch s := subject.(type) {
	case *qp.QP:
		made = s.Context
	case *cq.CQ:
		made = s.Context
	case *swqe.SRQ:
		made = s.Context
	}
	switch o := made.(type) {
	case *qpObj:
		return o.ctx
	case *cqObj:
		return o.ctx
	case *srqObj:
		return o.ctx
	}
	return d.calling
}

// Site is what the host said of where the program made the call that is being carried out
// (Caller.Site); 0 outside of calls. The owner of the device calls it.
func (d *Device) Site() uintptr { return d.site }

// HasChannel reports whether a completion queue that was made here has a channel.
func (d *Device) HasChannel(c *cq.CQ) bool {
	o, ok := c.Context.(*cqObj)
	return ok && o.ch != nil
}

// HandleEvent delivers an event of the rvt.Device to the program that it concerns, or
// to all of them if it concerns the port. It reports false if the object was not made
// here. It must be called as the owner and never blocks.
func (d *Device) HandleEvent(ev *rvt.Event) bool {
	switch {
	case ev.Comp:
		o, ok := contextOf(ev.CQ).(*cqObj)
		if ok {
			o.notify()
		}
		return ok
	case ev.CQ != nil:
		o, ok := contextOf(ev.CQ).(*cqObj)
		if ok {
			o.events.send(o.userHandle, ev.Type)
		}
		return ok
	case ev.QP != nil:
		o, ok := qpContext(ev.QP).(*qpObj)
		if ok {
			o.events.send(o.userHandle, ev.Type)
		}
		return ok
	case ev.SRQ != nil:
		o, ok := srqContext(ev.SRQ).(*srqObj)
		if ok {
			o.events.send(o.userHandle, ev.Type)
		}
		return ok
	}
	d.broadcast(portNum, ev.Type)
	return true
}

func contextOf(c *cq.CQ) any     { return c.Context }
func qpContext(q *qp.QP) any     { return q.Context }
func srqContext(s *swqe.SRQ) any { return s.Context }

// Scan takes the sends that wait in the rings of any context and returns how many it
// posted; see [Context.Scan].
func (d *Device) Scan(dev *rvt.Device) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for c := range d.contexts {
		n += c.Scan(dev)
	}
	return n
}

// Fatal tells every program that the device is gone (IBV_EVENT_DEVICE_FATAL).
func (d *Device) Fatal() { d.broadcast(0, ib.EventDeviceFatal) }

func (d *Device) broadcast(element uint64, t ib.EventType) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.contexts {
		c.broadcast(element, t)
	}
}

// portNum is the only port.
const portNum = 1
