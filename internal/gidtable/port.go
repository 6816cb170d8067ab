package gidtable

// Link is the state of a network device.
type Link struct {
	Up      bool // IFF_UP: not shut down
	Carrier bool // IFF_LOWER_UP
}

// PortState is what a port attribute query says. Its values are those of phys_state of
// struct ibv_port_attr; only LinkUp is the state ACTIVE, the others are DOWN.
type PortState uint8

// The states of a port.
const (
	Polling  PortState = 2 // no carrier
	Disabled PortState = 3 // shut down
	LinkUp   PortState = 5
)

// NewPort is the state of a port whose device has just been found (rxe_set_port_state).
func NewPort(l Link) PortState {
	switch {
	case !l.Up:
		return Disabled
	case !l.Carrier:
		return Polling
	}
	return LinkUp
}

// Next is the state after a change of the device from one state to another. A device that
// is started counts as active before anybody has seen a carrier (rxe_notify: NETDEV_UP).
func (s PortState) Next(from, to Link) PortState {
	if !from.Up && to.Up {
		return LinkUp
	}
	if from == to {
		return s
	}
	return NewPort(to)
}
