package verbs

import (
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// DeviceAttr (struct ibv_device_attr) is what a device can do.
type DeviceAttr struct {
	Name, Profile string
	NodeGUID      uint64
	PhysPortCount int // phys_port_cnt
	Limits        rvt.Limits
}

// QueryDevice (ibv_query_device) returns the device's capabilities.
func (d *Device) QueryDevice() (DeviceAttr, error) {
	var a DeviceAttr
	err := d.do("query_device", func(dev *rvt.Device, _ vtime.Time) error {
		c := dev.Config()
		a = DeviceAttr{Name: c.Name, Profile: c.Profile.Name, NodeGUID: c.GUID, PhysPortCount: 1, Limits: c.Limits}
		return nil
	})
	return a, err
}

// PortState (enum ibv_port_state) is the logical state of a port.
type PortState uint8

const (
	PortDown   PortState = 1
	PortActive PortState = 4
)

func (s PortState) String() string {
	switch s {
	case PortDown:
		return "DOWN"
	case PortActive:
		return "ACTIVE"
	}
	return "PortState(" + strconv.Itoa(int(s)) + ")"
}

// PortAttr (struct ibv_port_attr) is what a port is like. The link layer is Ethernet,
// so there is no LID, and every address vector must be global.
type PortAttr struct {
	State             PortState
	MaxMTU, ActiveMTU ib.MTU
	GIDTableLen       int // gid_tbl_len
	PKeyTableLen      int // pkey_tbl_len
	MaxMsgBytes       uint64
}

// checkPort refuses port numbers other than 1.
func checkPort(verb string, port int) error {
	if port != 1 {
		return ib.NewVerbError(ib.EINVAL, verb, "", "port "+strconv.Itoa(port)+": the device has port 1 only")
	}
	return nil
}

// QueryPort (ibv_query_port) returns the attributes of port 1.
func (d *Device) QueryPort(port int) (PortAttr, error) {
	var a PortAttr
	if err := checkPort("query_port", port); err != nil {
		return a, err
	}
	err := d.do("query_port", func(dev *rvt.Device, _ vtime.Time) error {
		c := dev.Config()
		a = PortAttr{State: PortDown, MaxMTU: d.node.Port().MTU(), ActiveMTU: c.MTU, GIDTableLen: len(dev.GIDs()), PKeyTableLen: 1, MaxMsgBytes: c.Limits.MaxMsgBytes}
		if dev.PortUp() {
			a.State = PortActive
		}
		return nil
	})
	return a, err
}

// QueryGID (ibv_query_gid) returns an entry of the port's GID table as it is now; GID_CHANGE
// tells that it changed.
func (d *Device) QueryGID(port, index int) (GID, error) {
	if err := checkPort("query_gid", port); err != nil {
		return GID{}, err
	}
	var gid GID
	err := d.do("query_gid", func(dev *rvt.Device, _ vtime.Time) error {
		gids := dev.GIDs()
		if index < 0 || index >= len(gids) {
			return ib.NewVerbError(ib.EINVAL, "query_gid", "", "index "+strconv.Itoa(index)+": the table has "+strconv.Itoa(len(gids))+" entries")
		}
		gid = gids[index]
		return nil
	})
	return gid, err
}

// QueryPKey (ibv_query_pkey) returns an entry of the port's P_Key table, which has one.
func (d *Device) QueryPKey(port, index int) (uint16, error) {
	if err := checkPort("query_pkey", port); err != nil {
		return 0, err
	}
	if index != 0 {
		return 0, ib.NewVerbError(ib.EINVAL, "query_pkey", "", "index "+strconv.Itoa(index)+": the table has one entry")
	}
	return ib.PKeyDefault, nil
}
