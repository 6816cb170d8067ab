package daemon

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/uverbs"
)

// A node's connection manager joins the groups that programs ask librdmacm for, with the
// daemon's port. The port of a part of the node in a program receives multicast by itself,
// for as long as a queue pair there is attached to the group.

// groups are the groups that the port of a part of a node in a program has joined.
type groups struct {
	port  groupPort      // nil in a daemon
	count map[ib.GID]int // queue pairs that are attached; the owner of the device has it
}

var _ uverbs.MulticastHost = (*hosted)(nil)

// Attached implements uverbs.MulticastHost. A group that the port cannot join is one from
// which nothing comes, as on a network that does not forward it.
func (h *hosted) Attached(g ib.GID) {
	if h.groups.port == nil {
		return
	}
	if h.groups.count[g]++; h.groups.count[g] == 1 {
		_ = h.groups.port.JoinGroup(g)
	}
}

// Detached implements uverbs.MulticastHost.
func (h *hosted) Detached(g ib.GID) {
	if h.groups.port == nil {
		return
	}
	if h.groups.count[g]--; h.groups.count[g] > 0 {
		return
	}
	delete(h.groups.count, g)
	_ = h.groups.port.LeaveGroup(g) // fails only when the port has closed
}
