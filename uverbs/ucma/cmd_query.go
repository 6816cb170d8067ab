package ucma

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
)

var be = binary.BigEndian

// Options of QUERY.
const (
	queryAddr = 0 // RDMA_USER_CM_QUERY_ADDR
	queryPath = 1 // RDMA_USER_CM_QUERY_PATH
	queryGID  = 2 // RDMA_USER_CM_QUERY_GID
)

// selectExactly is the selector in front of a value of a path: exactly this
// (IB_SA_EQ).
const selectExactly = 2

// guid is the node GUID of the id's device in network order, 0 without one.
func (c *context) guid() (b [8]byte) {
	if p := c.core.Port(); p != nil {
		be.PutUint64(b[:], p.GUID)
	}
	return b
}

func (c *context) portNum() uint8 {
	if p := c.core.Port(); p != nil {
		return p.Num
	}
	return 0
}

// queryRoute (kernel: ucma_query_route) tells the addresses, the device and the path in
// the form of the first days.
func queryRoute(k *call) error {
	var cmd idCmd
	if err := k.decode(&cmd, queryRouteMinBytes); err != nil {
		return err
	}
	c, err := k.own(cmd.ID)
	if err != nil {
		return err
	}
	r := queryRouteResp{NodeGUIDBE: c.guid(), PortNum: c.portNum(), IBDevIndex: noIndex}
	putAddr(r.Src[:], c.core.Local())
	putAddr(r.Dst[:], c.core.Remote())
	if c.core.Port() != nil {
		r.NumPaths, r.Route[0] = c.userPath()
	}
	k.respond(cmd.Response, encode(&r))
	return nil
}

// userPath (kernel: ucma_copy_iboe_route) is the path, or without one the two ends of it.
func (c *context) userPath() (n uint32, u userPath) {
	r := c.core.Route()
	if r == nil {
		u.SGID, u.DGID = c.core.Local().IP, c.core.Remote().IP
		be.PutUint16(u.PKeyBE[:], ib.PKeyDefault)
		return 0, u
	}
	u = userPath{DGID: r.RemoteGID, SGID: r.LocalGID, Reversible: 1, MTU: uint32(r.MTU), HopLimit: r.HopLimit, TrafficClass: r.TrafficClass,
		SL: r.SL, MTUSelector: selectExactly, RateSelector: selectExactly, Rate: r.PacketRate,
		PacketLifeTimeSelector: selectExactly, PacketLifeTime: r.PacketLifeTime}
	be.PutUint32(u.FlowLabelBE[:], r.FlowLabel)
	be.PutUint16(u.PKeyBE[:], r.PKey)
	return 1, u
}

// query (kernel: ucma_query).
func query(k *call) error {
	var cmd idCmd
	if err := k.decode(&cmd, 8); err != nil {
		return err
	}
	c, err := k.own(cmd.ID)
	if err != nil {
		return err
	}
	switch cmd.Arg {
	case queryAddr, queryGID:
		if k.out < queryAddrMinBytes {
			return k.err(ib.ENOSPC, "no room for the answer")
		}
		k.respond(cmd.Response, c.addresses(cmd.Arg == queryGID))
		return nil
	case queryPath:
		k.respond(cmd.Response, c.paths(k.out))
		return nil
	}
	return k.err(ib.ENOSYS, "no such query")
}

// addresses (kernel: ucma_query_addr, ucma_query_gid). P_Keys are not a matter of
// Ethernet: the field is 0.
func (c *context) addresses(asGIDs bool) []byte {
	r := queryAddrResp{NodeGUIDBE: c.guid(), PortNum: c.portNum(), IBDevIndex: noIndex}
	src, dst := c.core.Local(), c.core.Remote()
	if !asGIDs {
		r.SrcSize, r.DstSize = uint16(putAddr(r.Src[:], src)), uint16(putAddr(r.Dst[:], dst))
		return encode(&r)
	}
	r.SrcSize, r.DstSize = sockaddrIB, sockaddrIB
	var sgid, dgid ib.GID
	if c.core.Port() != nil {
		sgid, dgid = src.IP, dst.IP
	}
	putGIDAddr(r.Src[:], sgid, cm.NewServiceID(c.core.Space(), src.Port))
	putGIDAddr(r.Dst[:], dgid, cm.NewServiceID(c.core.Space(), dst.Port))
	return encode(&r)
}

// paths (kernel: ucma_query_path) is the number of paths and as many as there is room
// for.
func (c *context) paths(room int) []byte {
	b := make([]byte, 8)
	r := c.core.Route()
	if r == nil {
		return b
	}
	native.PutUint32(b, 1)
	if room-len(b) < pathDataBytes {
		return b
	}
	p := pathData{Flags: pathFlags}
	rec := p.Record[:]
	copy(rec[8:], r.RemoteGID[:])
	copy(rec[24:], r.LocalGID[:])
	be.PutUint32(rec[44:], r.FlowLabel<<8|uint32(r.HopLimit))
	rec[48] = r.TrafficClass
	rec[49] = 0x80 // reversible
	be.PutUint16(rec[50:], r.PKey)
	be.PutUint16(rec[52:], uint16(r.SL))
	rec[54] = selectExactly<<6 | uint8(r.MTU)
	rec[55] = selectExactly<<6 | r.PacketRate
	rec[56] = selectExactly<<6 | r.PacketLifeTime
	return append(b, encode(&p)...)
}

// routeOf reads a record of the form that paths writes.
func routeOf(rec []byte) cm.Route {
	way := be.Uint32(rec[44:])
	r := cm.Route{MTU: ib.MTU(rec[54] & 0x3f), PKey: be.Uint16(rec[50:]), PacketLifeTime: rec[56] & 0x1f}
	r.FlowLabel, r.HopLimit, r.TrafficClass = way>>8&0xfffff, uint8(way), rec[48]
	r.SL, r.PacketRate = rec[53]&0xf, rec[55]&0x3f
	return r
}

// initQPAttr (kernel: ucma_init_qp_attr) tells what to give the QP.
func initQPAttr(k *call) error {
	var cmd idCmd
	if err := k.decode(&cmd, binary.Size(qpAttrResp{})); err != nil {
		return err
	}
	if cmd.Arg > uint32(ib.StateErr) {
		return k.err(ib.EINVAL, "no such state")
	}
	c, err := k.ownWithDevice(cmd.ID)
	if err != nil {
		return err
	}
	a, mask, err := c.core.InitQPAttr(ib.QPState(cmd.Arg))
	if err != nil {
		return err
	}
	r := qpAttrResp{
		Mask: uint32(mask), State: uint32(a.State), PathMTU: uint32(a.PathMTU), QKey: uint32(a.QKey), RQPSN: uint32(a.RQPSN), SQPSN: uint32(a.SQPSN),
		DestQPN: uint32(a.DestQPN), Access: uint32(a.AccessFlags), PKeyIndex: a.PKeyIndex, MaxRdAtomic: a.MaxRdAtomic,
		MaxDestRdAtomic: a.MaxDestRdAtomic, MinRNRTimer: a.MinRNRTimer, PortNum: a.PortNum, Timeout: a.Timeout,
		RetryCnt: a.RetryCnt, RNRRetry: a.RNRRetry,
	}
	if mask&ib.AttrAV != 0 {
		r.AH = ahOf(&a.AV)
	}
	k.respond(cmd.Response, encode(&r))
	return nil
}
