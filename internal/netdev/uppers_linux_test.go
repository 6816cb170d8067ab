package netdev

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestUpperDevices has the kernel's rules about what is above a device. eth0 is 2, eth1 is 3.
func TestUpperDevices(t *testing.T) {
	eth0, eth1 := device{index: 2, kind: "device"}, device{index: 3, kind: "device"}
	member := func(d device, master int) device { d.master = master; return d }
	bond := func(active int) device { return device{index: 10, kind: "bond", active: active} }
	vlan := func(index, parent int) device { return device{index: index, kind: "vlan", parent: parent} }
	for _, c := range []struct {
		name       string
		all        []device
		eth0, eth1 string // owner of the default GID, devices whose addresses count
	}{
		{"nothing", []device{eth0, eth1}, "2 []", "3 []"},
		{"a VLAN, and one on it", []device{eth0, eth1, vlan(5, 2), vlan(6, 5)}, "2 [5 6]", "3 []"},
		{"a macvlan", []device{eth0, eth1, {index: 7, kind: "macvlan", parent: 2}}, "2 [7]", "3 []"},
		{"a bridge, and a VLAN on it", []device{member(eth0, 8), eth1, {index: 8, kind: "bridge"}, vlan(9, 8)}, "2 [8 9]", "3 []"},
		{"a veth pair is no pile", []device{{index: 2, kind: "veth", parent: 3}, {index: 3, kind: "veth", parent: 2}}, "2 []", "3 []"},
		{"a bond, one member active", []device{member(eth0, 10), member(eth1, 10), bond(2)}, "10 [10]", "10 []"},
		{"failover", []device{member(eth0, 10), member(eth1, 10), bond(3)}, "10 []", "10 [10]"},
		{"a bond of equals, or without a link", []device{member(eth0, 10), member(eth1, 10), bond(0)}, "10 [10]", "10 [10]"},
		{"a VLAN on a bond goes where the bond goes", []device{member(eth0, 10), member(eth1, 10), bond(2), vlan(11, 10)}, "10 [10 11]", "10 []"},
		{"a VLAN on a member is its own", []device{member(eth0, 10), member(eth1, 10), bond(3), vlan(11, 2)}, "10 [11]", "10 [10]"},
		{"a bridge over a bond asks only for the way", []device{member(eth0, 10), member(eth1, 10), member(bond(2), 8), {index: 8, kind: "bridge"}}, "10 [10 8]", "10 [8]"},
		{"a member that has left", []device{eth0, member(eth1, 10), bond(3)}, "2 []", "10 [10]"},
		{"devices in a ring, which cannot be", []device{{index: 2, kind: "vlan", parent: 3}, {index: 3, kind: "vlan", parent: 2}}, "2 [3]", "3 [2]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for own, want := range map[int]string{2: c.eth0, 3: c.eth1} {
				f := familyOf(own, c.all)
				require.Equal(t, want, fmt.Sprint(f.owner, f.uppers), "of device %d", own)
			}
		})
	}
	own := familyOf(10, []device{member(eth0, 10), member(eth1, 10), bond(2), vlan(11, 10)})
	require.Equal(t, "10 [11]", fmt.Sprint(own.owner, own.uppers), "a port on the bond itself")
}
