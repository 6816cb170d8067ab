package ucma

import "github.com/rvtsim/rvtsim/ib"

// Flags of JOIN_MCAST (enum rdma_ucm_mc_join_flags).
const (
	joinFullMember = 0
	joinSendOnly   = 1
)

// joinIPMcast (kernel: ucma_join_ip_multicast) joins as a full member.
func joinIPMcast(k *call) error {
	var cmd joinIPCmd
	if err := k.decode(&cmd, 4); err != nil {
		return err
	}
	return k.join(cmd.ID, cmd.Response, cmd.UID, cmd.Addr[:], 0, false)
}

// joinMcast (kernel: ucma_join_multicast).
func joinMcast(k *call) error {
	var cmd joinCmd
	if err := k.decode(&cmd, 4); err != nil {
		return err
	}
	switch {
	case cmd.Flags != joinFullMember && cmd.Flags != joinSendOnly:
		return k.err(ib.EINVAL, "unknown flags")
	case cmd.Size == 0:
		return k.err(ib.EINVAL, "no size")
	}
	return k.join(cmd.ID, cmd.Response, cmd.UID, cmd.Addr[:], int(cmd.Size), cmd.Flags == joinSendOnly)
}

// join (kernel: ucma_process_join).
func (k *call) join(id uint32, response, uid uint64, b []byte, size int, sendOnly bool) error {
	group, err := k.addrFrom(b, size)
	if err != nil {
		return err
	}
	c, err := k.ownWithDevice(id)
	if err != nil {
		return err
	}
	mc := &membership{ctx: c, uid: uid}
	if mc.core, err = c.core.Join(group, sendOnly, mc); err != nil {
		return err
	}
	d := k.ch.dev
	if !sendOnly {
		if err := d.host.JoinGroup(group.IP); err != nil {
			_ = mc.core.Leave() // it has just joined
			return err
		}
	}
	mc.id = d.mcasts.add(mc)
	c.mcasts = append(c.mcasts, mc)
	k.respond(response, encode(&idResp{mc.id}))
	return nil
}

// leaveMcast (kernel: ucma_leave_multicast).
func leaveMcast(k *call) error {
	var cmd idCmd
	if err := k.decode(&cmd, 4); err != nil {
		return err
	}
	mc := k.ch.dev.mcasts.get(cmd.ID)
	switch {
	case mc == nil:
		return k.err(ib.ENOENT, "no such membership")
	case mc.ctx.ch != k.ch:
		return k.err(ib.EINVAL, "the id is another channel's")
	}
	k.respond(cmd.Response, encode(&eventsResp{k.ch.dev.leave(mc)}))
	return nil
}
