package daemon

import (
	"sync"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/uverbs"
)

// groupPort is a port that receives multicast. Joining twice is no error.
type groupPort interface {
	JoinGroup(ib.GID) error
	LeaveGroup(ib.GID) error
}

// groups are the multicast groups that a node's port receives: those that programs join by
// librdmacm, and those that their queue pairs are attached to. An adapter in hardware takes
// what a queue pair is attached to, too; only switches that snoop have to be asked.
type groups struct {
	port groupPort // nil if it receives no multicast

	mu    sync.Mutex // guards count: the connection manager has an owner of its own
	count map[ib.GID]int
}

func newGroups(port any) *groups {
	g := &groups{count: map[ib.GID]int{}}
	g.port, _ = port.(groupPort)
	return g
}

// join makes the port receive a group, until as many calls of leave. On an error leave has
// to be called, too.
func (g *groups) join(gid ib.GID) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.count[gid]++
	return g.port.JoinGroup(gid)
}

func (g *groups) leave(gid ib.GID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count[gid]--; g.count[gid] > 0 {
		return
	}
	delete(g.count, gid)
	_ = g.port.LeaveGroup(gid) // fails only when the port has closed
}

var _ uverbs.MulticastHost = (*hosted)(nil)

// Attached implements uverbs.MulticastHost. A group that the port cannot join is one from
// which nothing comes, as on a network that does not forward it.
func (h *hosted) Attached(g ib.GID) {
	if h.groups.port != nil {
		_ = h.groups.join(g)
	}
}

// Detached implements uverbs.MulticastHost.
func (h *hosted) Detached(g ib.GID) {
	if h.groups.port != nil {
		h.groups.leave(g)
	}
}
