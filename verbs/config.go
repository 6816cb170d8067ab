package verbs

import (
	"errors"
	"fmt"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/strict"
)

// Config describes a device to open. Only Address is needed, or Port.
type Config struct {
	// Name is the device's name in messages; empty means "rvt0".
	Name string
	// Address is the node's own address on this machine, with or without a UDP port:
	// "127.0.0.1", "10.0.0.1:4791", "fd00::1". All nodes of a network use the same
	// UDP port, 4791 if none is given.
	Address string
	// Port is used instead of a UDP socket: a port of a [node.Switch], or any other
	// with decorators around it. The device closes it. Address must be empty.
	Port fabric.Port
	// Memory lets packets go through memory in place of UDP, in both directions, between
	// this device and others with Memory that the same user's programs, this one included,
	// have opened on this machine: the same packets, without system calls. tcpdump does
	// not see them; Capture does. It is for connected queue pairs; what is sent to anybody
	// else goes by UDP. Whoever has a lane of memory to a device can read what others send
	// to it. It needs Address, and does nothing where the system is not Linux.
	Memory bool
	// Profile is how the device behaves where implementations differ. The zero value
	// means qp.ProfileIBTA.
	Profile qp.Profile
	// Limits is what the device has of everything. The zero value means
	// rvt.DefaultLimits().
	Limits rvt.Limits
	// MTU is the active MTU; 0 means the largest that the port carries.
	MTU ib.MTU
	// Seed varies where QPNs and keys start.
	Seed uint64
	// DistinctKeys makes rkeys differ from lkeys, to find programs that mix them up.
	DistinctKeys bool
	// Capture is shown every packet on its way out of and into the port.
	Capture fabric.Sink
	// Strict looks for misuse of the API and makes legal freedom visible, with every
	// check of package strict; see docs/strict.md. It is for tests: it costs time, and
	// rkeys differ from lkeys.
	Strict bool
	// StrictChecks chooses the checks one by one; Strict turns on all of them.
	StrictChecks strict.Checks
	// StrictReport takes what the checks find, besides [Device.Reports]. It is called
	// with the device locked: it must not call the device. nil means slog.Warn.
	StrictReport func(StrictReport)
}

// open returns the configured port.
func (c *Config) open() (fabric.Port, error) {
	switch {
	case c.Port != nil && c.Address != "":
		return nil, ib.NewVerbError(ib.EINVAL, "open_device", c.Name, "both Address and Port are set")
	case c.Port != nil:
		return c.Port, nil
	case c.Address == "":
		return nil, ib.NewVerbError(ib.EINVAL, "open_device", c.Name, "Address is empty: it must be an address of this machine")
	}
	gid, udpPort, err := udp.ParseAddr(c.Address)
	if err != nil {
		return nil, err
	}
	u := udp.DefaultConfig(gid)
	u.Port, u.Now = udpPort, node.Now
	return udp.Open(u)
}

// device returns the configuration of the core's device.
func (c *Config) device(port fabric.Port) (rvt.Config, error) {
	d := rvt.DefaultConfig(c.Name, port.LocalGID())
	d.MTU, d.Seed, d.DistinctKeys = port.MTU(), c.Seed, c.DistinctKeys
	if c.Profile.Name != "" {
		d.Profile = c.Profile
		d.Driver = qp.DriverByName(c.Profile.Name)
	}
	if c.Limits != (rvt.Limits{}) {
		d.Limits = c.Limits
	}
	if c.MTU != 0 {
		d.MTU = c.MTU
	}
	gid := port.LocalGID()
	for _, b := range gid[12:] {
		d.GUID = d.GUID<<8 | uint64(b)
	}
	d.GUID |= 0x0200 << 48
	return d, d.Validate()
}

// Open opens a device at an address of this machine. An address that another process
// uses gives an error that matches syscall.EADDRINUSE.
func Open(cfg Config) (*Device, error) {
	if cfg.Name == "" {
		cfg.Name = "rvt0"
	}
	port, err := cfg.open()
	if err != nil {
		return nil, fmt.Errorf("verbs: open %s: %w", cfg.Name, err)
	}
	d, err := newDevice(&cfg, port)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("verbs: open %s: %w", cfg.Name, err), port.Close())
	}
	return d, nil
}
