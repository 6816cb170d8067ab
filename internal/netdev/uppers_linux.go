package netdev

import "github.com/vishvananda/netlink"

// device is what the rules about upper devices need to know of a device.
type device struct {
	index  int
	kind   string // "vlan", "bond", "bridge", and so on
	parent int    // the device that it is made on, 0 if there is none here
	master int    // the bond, bridge or the like that it belongs to
	active int    // of a bond: the member that carries its traffic, 0 if it is not a single one
}

// deviceOf picks it out of what the kernel lists.
func deviceOf(l netlink.Link) device {
	at := l.Attrs()
	d := device{index: at.Index, kind: l.Type(), master: at.MasterIndex}
	if at.NetNsID < 0 { // else the number means a device of another namespace
		d.parent = at.ParentIndex
	}
	if b, ok := l.(*netlink.Bond); ok {
		d.active = max(b.ActiveSlave, 0)
	}
	return d
}

// stacked are the kinds of devices that are upper devices of their parent. That of a veth is
// its other end.
var stacked = map[string]bool{"vlan": true, "macvlan": true, "macvtap": true, "ipvlan": true, "macsec": true}

// family is what the GID table of a port on one device is made of (ib_core:
// roce_gid_mgmt.c).
type family struct {
	// owner is the device of the default GID: the bond if there is one, whether its traffic
	// goes here or not (is_ndev_for_default_gid_filter).
	owner int
	// uppers are the devices above whose addresses count, in the order of the list: VLANs and
	// the like, bridges, and bonds whose traffic goes here (is_eth_port_of_netdev_filter).
	uppers []int
}

// familyOf applies the rules to the devices of a namespace.
func familyOf(own int, all []device) family {
	at := make(map[int]device, len(all))
	for _, d := range all {
		at[d.index] = d
	}
	f := family{owner: own}
	if m := at[at[own].master]; m.kind == "bond" {
		f.owner = m.index
	}
	above := uppersOf(own, all, at)
	for _, d := range all {
		if above[d.index] && carries(own, realOf(d, at)) {
			f.uppers = append(f.uppers, d.index)
		}
	}
	return f
}

// uppersOf is the set of devices above one, by whatever number of levels.
func uppersOf(low int, all []device, at map[int]device) map[int]bool {
	on := map[int][]int{} // by device: what is made on it
	for _, d := range all {
		if stacked[d.kind] && d.parent != 0 {
			on[d.parent] = append(on[d.parent], d.index)
		}
	}
	set := map[int]bool{}
	for next := []int{low}; len(next) > 0; {
		i := next[0]
		next = next[1:]
		up := on[i]
		if m := at[i].master; m != 0 {
			up = append(up[:len(up):len(up)], m)
		}
		for _, u := range up {
			if !set[u] && u != low {
				set[u] = true
				next = append(next, u)
			}
		}
	}
	return set
}

// mostLevels bounds a walk from device to device: they do not pile up higher than that
// (MAX_NEST_DEV).
const mostLevels = 8

// realOf is the device that VLANs are on (vlan_dev_real_dev).
func realOf(d device, at map[int]device) device {
	for range mostLevels {
		p, there := at[d.parent]
		if d.kind != "vlan" || !there {
			break
		}
		d = p
	}
	return d
}

// carries reports whether what an upper device sends may leave by a device below it: a bond
// in which one member is active uses no other (is_eth_active_slave_of_bonding_rcu).
func carries(low int, upper device) bool {
	return upper.kind != "bond" || upper.index == low || upper.active == 0 || upper.active == low
}
