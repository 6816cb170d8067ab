package ucma

import (
	"time"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
)

// createID (kernel: ucma_create_id). The port space decides about the type of QP, except
// for RDMA_PS_IB.
func createID(k *call) error {
	var cmd createIDCmd
	if err := k.decode(&cmd, 4); err != nil {
		return err
	}
	typ := ib.QPType(cmd.QPType)
	switch space := cm.PortSpace(cmd.PS); space {
	case cm.PSTCP:
		typ = ib.QPTypeRC
	case cm.PSUDP, cm.PSIPoIB:
		typ = ib.QPTypeUD
	case cm.PSIB:
	default:
		return k.err(ib.EINVAL, "unknown port space")
	}
	core, err := k.m.CreateID(cm.PortSpace(cmd.PS), typ)
	if err != nil {
		return err
	}
	c := k.ch.newContext(core, cmd.UID)
	k.respond(cmd.Response, encode(&idResp{c.id}))
	return nil
}

// addrFrom reads an address that has to have a known family and the size of it; size 0
// means that none was told.
func (k *call) addrFrom(b []byte, size int) (cm.Addr, error) {
	if n := addrSize(b); n == 0 || size != 0 && size != n {
		return cm.Addr{}, k.err(ib.EINVAL, "address family and size do not go together")
	}
	return parseAddr(k.verb, b)
}

// bindIP (kernel: ucma_bind_ip).
func bindIP(k *call) error {
	var cmd bindIPCmd
	if err := k.decode(&cmd, 0); err != nil {
		return err
	}
	return k.bind(cmd.ID, cmd.Addr[:], 0)
}

// bind (kernel: ucma_bind).
func bind(k *call) error {
	var cmd bindCmd
	if err := k.decode(&cmd, 0); err != nil {
		return err
	}
	if cmd.Reserved != 0 || cmd.Size == 0 {
		return k.err(ib.EINVAL, "no size, or a reserved field is not 0")
	}
	return k.bind(cmd.ID, cmd.Addr[:], int(cmd.Size))
}

func (k *call) bind(id uint32, b []byte, size int) error {
	a, err := k.addrFrom(b, size)
	if err != nil {
		return err
	}
	c, err := k.own(id)
	if err != nil {
		return err
	}
	if isScopeless(b) {
		return k.err(ib.EINVAL, "a link-local address needs an interface")
	}
	return c.core.Bind(a)
}

// resolveIP (kernel: ucma_resolve_ip).
func resolveIP(k *call) error {
	var cmd resolveIPCmd
	if err := k.decode(&cmd, 0); err != nil {
		return err
	}
	return k.resolve(cmd.ID, cmd.Src[:], 0, native.Uint16(cmd.Src[:]) != 0, cmd.Dst[:], 0, cmd.Timeout)
}

// resolveAddr (kernel: ucma_resolve_addr).
func resolveAddr(k *call) error {
	var cmd resolveAddrCmd
	if err := k.decode(&cmd, 0); err != nil {
		return err
	}
	if cmd.Reserved != 0 || cmd.DstSize == 0 {
		return k.err(ib.EINVAL, "no size, or a reserved field is not 0")
	}
	return k.resolve(cmd.ID, cmd.Src[:], int(cmd.SrcSize), cmd.SrcSize != 0, cmd.Dst[:], int(cmd.DstSize), cmd.Timeout)
}

func (k *call) resolve(id uint32, srcB []byte, srcSize int, hasSrc bool, dstB []byte, dstSize int, ms int32) error {
	var src cm.Addr
	var err error
	if hasSrc {
		if src, err = k.addrFrom(srcB, srcSize); err != nil {
			return err
		}
	}
	dst, err := k.addrFrom(dstB, dstSize)
	if err != nil {
		return err
	}
	c, err := k.own(id)
	if err != nil {
		return err
	}
	return c.core.ResolveAddr(k.now, src, dst, time.Duration(ms)*time.Millisecond)
}

// resolveRoute (kernel: ucma_resolve_route).
func resolveRoute(k *call) error {
	var cmd idValueCmd
	if err := k.decode(&cmd, 0); err != nil {
		return err
	}
	c, err := k.ownWithDevice(cmd.ID)
	if err != nil {
		return err
	}
	return c.core.ResolveRoute(k.now, time.Duration(cmd.Value)*time.Millisecond)
}

// listen (kernel: ucma_listen).
func listen(k *call) error {
	var cmd idValueCmd
	if err := k.decode(&cmd, 0); err != nil {
		return err
	}
	c, err := k.own(cmd.ID)
	if err != nil {
		return err
	}
	return c.core.Listen(int(cmd.Value))
}

// Levels and options of SET_OPTION.
const (
	levelID = 0 // RDMA_OPTION_ID
	levelIB = 1 // RDMA_OPTION_IB

	optTOS        = 0
	optReuseAddr  = 1
	optAFOnly     = 2
	optAckTimeout = 3
	optIBPath     = 1 // of levelIB

	// maxOption bounds what is read for an option. The longest is a handful of paths.
	maxOption = 64 << 10
)

// setOption (kernel: ucma_set_option).
func setOption(k *call) error {
	var cmd setOptionCmd
	if err := k.decode(&cmd, 0); err != nil {
		return err
	}
	if cmd.OptLen > maxOption {
		return k.err(ib.EINVAL, "the value is too long")
	}
	c, err := k.own(cmd.ID)
	if err != nil {
		return err
	}
	val := make([]byte, cmd.OptLen)
	if len(val) > 0 {
		if k.caller == nil || k.caller.Mem == nil {
			return k.err(ib.EFAULT, "the value is out of reach")
		}
		if _, err := k.caller.Mem.ReadV([]mr.Op{{Addr: cmd.OptVal, Buf: val}}); err != nil {
			return k.err(ib.EFAULT, "the value is out of reach")
		}
	}
	switch {
	case cmd.Level == levelID:
		return k.setIDOption(c, cmd.OptName, val)
	case cmd.Level == levelIB && cmd.OptName == optIBPath:
		return k.setPath(c, val)
	}
	return k.err(ib.ENOSYS, "no such option")
}

// setIDOption (kernel: ucma_set_option_id).
func (k *call) setIDOption(c *context, name uint32, val []byte) error {
	size := 1
	switch name {
	case optReuseAddr, optAFOnly:
		size = 4
	case optTOS, optAckTimeout:
	default:
		return k.err(ib.ENOSYS, "no such option")
	}
	if len(val) != size {
		return k.err(ib.EINVAL, "the value has another size")
	}
	switch name {
	case optReuseAddr:
		return c.core.SetReuseAddr(native.Uint32(val) != 0)
	case optAFOnly:
		return c.core.SetAFOnly(native.Uint32(val) != 0)
	case optTOS:
		return c.core.SetTOS(val[0])
	}
	return c.core.SetAckTimeout(val[0])
}

// setPath (kernel: ucma_set_ib_path) gives an id the path that a service beside the
// kernel found, ibacm for one. On RoCE only what describes the way counts: addresses and
// LIDs follow from the address that was resolved.
func (k *call) setPath(c *context, val []byte) error {
	if len(val) == 0 || len(val)%pathDataBytes != 0 {
		return k.err(ib.EINVAL, "the value is not a number of paths")
	}
	for ; len(val) > 0; val = val[pathDataBytes:] {
		if native.Uint32(val) == pathFlags {
			return c.core.SetRoute(k.now, routeOf(val[8:]))
		}
	}
	return k.err(ib.EINVAL, "no path is the primary one of both directions")
}
