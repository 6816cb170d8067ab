package cm

import (
	"slices"

	"github.com/rvtsim/rvtsim/ib"
)

// Mcast is an id's membership in a multicast group.
type Mcast struct {
	// Context is the host's.
	Context any
	// Addr is the group's address, GID its MGID.
	Addr Addr
	GID  ib.GID
	// SendOnly members do not receive: the host joins the group on its network for the
	// others only.
	SendOnly bool

	id   *ID
	left bool
}

// Join (kernel: rdma_join_multicast) joins a group. There is no subnet manager on RoCE
// to ask, so MULTICAST_JOIN follows at once, with the address vector of the group.
// Joining twice makes two memberships. The id is UD and bound to a device.
func (id *ID) Join(group Addr, sendOnly bool, context any) (*Mcast, error) {
	const verb = "join_multicast"
	if err := id.usable(verb); err != nil {
		return nil, err
	}
	switch {
	case id.qpType != ib.QPTypeUD:
		return nil, id.err(ib.EINVAL, verb, "only datagrams have groups")
	case id.state != IDAddrBound && id.state != IDAddrResolved || id.port == nil:
		return nil, id.err(ib.EINVAL, verb, "want an id that is bound to a device")
	case !group.valid() || group.IsAny():
		return nil, id.err(ib.EINVAL, verb, "no group address")
	case group.Family == FamilyIPv6:
		return nil, id.err(ib.ENOTSUPP, verb, "RoCE v2 has no IPv6 groups on Linux")
	}
	id.setQKey(0)
	mc := &Mcast{Context: context, Addr: group, GID: group.IP, SendOnly: sendOnly, id: id}
	id.mcasts = append(id.mcasts, mc)
	id.m.raise(Event{Type: EventMulticastJoin, ID: id, Mcast: mc,
		AV:   ib.AV{DGID: mc.GID, IsGlobal: true, SGIDIndex: id.sgidIndex, HopLimit: 64, PortNum: id.port.Num},
		Conn: ConnParam{QPN: ib.QPNMulticast, QKey: id.qkey}})
	return mc, nil
}

// ID returns the id that is the member.
func (mc *Mcast) ID() *ID { return mc.id }

// Leave (kernel: rdma_leave_multicast) ends a membership: EADDRNOTAVAIL if it has ended.
func (mc *Mcast) Leave() error {
	if mc.left {
		return mc.id.err(ib.EADDRNOTAVAIL, "leave_multicast", "not a member of "+mc.Addr.String())
	}
	mc.leave()
	return nil
}

func (mc *Mcast) leave() {
	mc.left = true
	i := slices.Index(mc.id.mcasts, mc)
	mc.id.mcasts = slices.Delete(mc.id.mcasts, i, i+1)
}
