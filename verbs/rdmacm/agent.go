package rdmacm

import (
	"math/rand/v2"
	"sync"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/cm/gsi"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// agents are the connection managers of the devices of this process.
var agents = struct {
	sync.Mutex
	of map[*verbs.Device]*agent
}{of: map[*verbs.Device]*agent{}}

// agent is the connection manager of one device. Its owner's lock is taken before those
// of the device and of event channels.
type agent struct {
	dev *verbs.Device
	pd  *verbs.PD // the default for programs
	gsi *gsi.Agent
}

// Configure sets how the connection manager of a device behaves, before it is used for
// the first time: EBUSY later. Without it a device has cm.DefaultConfig and a random
// seed. Without cfg.Neighbour the device's port says who can be reached, if it knows.
func Configure(dev *verbs.Device, cfg cm.Config) error {
	agents.Lock()
	defer agents.Unlock()
	if agents.of[dev] != nil {
		return ib.NewVerbError(ib.EBUSY, "configure", dev.Name(), "its connection manager runs already")
	}
	_, err := newAgent(dev, cfg)
	return err
}

// Start starts the connection manager of a device that has no ids yet, so that peers who
// call in vain are refused at once. A node without one looks like a node that is down.
func Start(dev *verbs.Device) error {
	_, err := agentOf(dev)
	return err
}

// agentOf returns the connection manager of a device, and starts it if need be.
func agentOf(dev *verbs.Device) (*agent, error) {
	if dev == nil {
		return nil, ib.NewVerbError(ib.EINVAL, "create_id", "", "there is no device")
	}
	agents.Lock()
	defer agents.Unlock()
	if a := agents.of[dev]; a != nil {
		return a, nil
	}
	cfg := cm.DefaultConfig()
	cfg.Seed = rand.Uint64() // a node that starts again must not look like its former self
	return newAgent(dev, cfg)
}

// newAgent starts a connection manager. The caller has the lock of agents.
func newAgent(dev *verbs.Device, cfg cm.Config) (*agent, error) {
	port, err := portOf(dev)
	if err != nil {
		return nil, err
	}
	if cfg.Neighbour == nil {
		cfg.Neighbour = dev.Neighbour
	}
	a := &agent{dev: dev}
	if a.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	a.gsi, err = gsi.New(dev.Node(), gsi.Config{CM: cfg, Port: port, Events: a.dispatch, Gone: a.forget})
	if err == nil {
		err = dev.Exempt(1, 0, 0)
	}
	if err != nil {
		_ = a.pd.Dealloc() // an error could only say that the device is gone
		return nil, err
	}
	agents.of[dev] = a
	return a, nil
}

// portOf describes a device's port for its connection manager.
func portOf(dev *verbs.Device) (cm.PortConfig, error) {
	attr, err := dev.QueryDevice()
	if err != nil {
		return cm.PortConfig{}, err
	}
	port, err := dev.QueryPort(1)
	if err != nil {
		return cm.PortConfig{}, err
	}
	cfg := cm.PortConfig{Name: attr.Name, GUID: attr.NodeGUID, Num: 1, MTU: port.ActiveMTU, AckDelay: gsi.DefaultAckDelay}
	for i := range port.GIDTableLen {
		g, err := dev.QueryGID(1, i)
		if err != nil {
			return cfg, err
		}
		cfg.GIDs = append(cfg.GIDs, g)
	}
	return cfg, nil
}

// forget is called when the device is gone.
func (a *agent) forget() {
	agents.Lock()
	defer agents.Unlock()
	if agents.of[a.dev] == a {
		delete(agents.of, a.dev)
	}
}

// do runs f as the owner of the manager. It works on ids whose device is gone too.
func (a *agent) do(f func(m *cm.Manager, now nowTime) error) error { return a.gsi.DoAlways(f) }
