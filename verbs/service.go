package verbs

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt/node"
)

// Exempt lets Close pass over this many protection domains, completion queues and
// channels. It is for packages that put a service on the device, such as a connection
// manager: what they create is the device's, like the kernel's own objects on a real
// one, and programs need not know of it. The objects work on until the device is closed;
// their owner learns of that from ENODEV.
func (d *Device) Exempt(pds, cqs, channels int) error {
	if _, err := d.node.Begin(); err != nil {
		return d.gone("exempt")
	}
	d.pds, d.cqs, d.channels = d.pds-pds, d.cqs-cqs, d.channels-channels
	d.node.End(node.SendLater)
	return nil
}

// Neighbour tells a connection manager whether dst can be reached from src, as
// [fabric.Neighbours] has it. A port that does not know says that everybody can.
func (d *Device) Neighbour(src, dst ib.GID) ib.Errno {
	if d.neighbours == nil {
		return 0
	}
	return d.neighbours.Neighbour(src, dst)
}
