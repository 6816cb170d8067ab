package uverbs

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
)

// getContext (GET_CONTEXT) must be the first command; the answer has the descriptor
// of the asynchronous events.
func getContext(k *call) error {
	if k.c.ready {
		return ib.NewVerbError(ib.EINVAL, "get_context", "", "the context exists already")
	}
	r, err := k.c.addAsync("get_context")
	if err != nil {
		return err
	}
	k.c.ready = true
	k.respond(getContextResp{AsyncFD: ^uint32(0), NumCompVectors: uint32(k.c.dev.cfg.compVectors())})
	k.pass(r, 0)
	return nil
}

// Bits of device_cap_flags (enum ib_uverbs_device_cap_flags).
const (
	capBadPKeyCntr  = 1 << 1
	capBadQKeyCntr  = 1 << 2
	capUDAVPort     = 1 << 6
	capShutdownPort = 1 << 8
	capPortActive   = 1 << 10
	capSysImageGUID = 1 << 11
	capRCRNRNAKGen  = 1 << 12
	capSRQResize    = 1 << 13
	capMemWindow    = 1 << 17
	capMemMgtExt    = 1 << 21
	capMWType2B     = 1 << 24
	capFlushGlobal  = 1 << 38 // this and the next are of device_cap_flags_ex
	capAtomicWrite  = 1 << 40
	capsCommon      = capBadPKeyCntr | capBadQKeyCntr | capPortActive | capSysImageGUID | capRCRNRNAKGen | capSRQResize | capMemMgtExt
	capsRXE         = capsCommon | capUDAVPort | capMemWindow | capMWType2B
	capsRVT         = capsCommon | capShutdownPort
	vendorID        = 0xffffff // what rdma_rxe says
	pageSizeCap     = 0xfffff000
	atomicHCA       = 1
	localCAAckDelay = 15
	hwVersion       = 1
	fwVersion       = 1 << 32 // 1.0.0
	fwVersionText   = "1.0.0"
	portCapCM       = 0x10000 // IB_PORT_CM_SUP
	queryPortGRH    = 1       // IB_UVERBS_QPF_GRH_REQUIRED
	linkEthernet    = 2
	physLinkUp      = 5
	physDisabled    = 3
	portActive      = 4
	portDown        = 1
	maxVLNum        = 1
	// On-demand paging: of any memory that the program has or will have (implicit), for
	// every operation that the transport has, received through an SRQ or not.
	odpGeneral = 1 | 2          // IBV_ODP_SUPPORT, _IMPLICIT
	odpUD      = 1 | 2 | 32     // SEND, RECV, SRQ_RECV
	odpUC      = odpUD | 4      // WRITE
	odpRC      = odpUC | 8 | 16 // READ, ATOMIC
)

func (k *call) deviceAttr() queryDeviceResp {
	cfg := k.d.Config()
	l, a := &cfg.Limits, k.c.dev.abi
	r := queryDeviceResp{
		FWVer: fwVersion, MaxMRSize: ^uint64(0), PageSizeCap: pageSizeCap, VendorID: vendorID, HWVer: hwVersion,
		MaxQP: uint32(l.MaxQP), MaxQPWR: uint32(most(a.grantWR, l.MaxQPWR)), DeviceCapFlags: capsRVT,
		MaxSGE: uint32(l.MaxSGE), MaxSGERd: uint32(l.MaxSGE), MaxCQ: uint32(l.MaxCQ), MaxCQE: uint32(most(a.grantCQE, l.MaxCQE)),
		MaxMR: uint32(l.MaxMR), MaxPD: uint32(l.MaxPD), MaxQPRdAtom: uint32(l.MaxQPRdAtom),
		MaxResRdAtom: maxResRdAtom(l), MaxQPInitRdAtom: uint32(l.MaxQPInitRdAtom),
		AtomicCap: atomicHCA, MaxMcastGrp: uint32(l.MaxMcastGroups), MaxMcastQPAttach: uint32(l.MaxMcastQPs),
		MaxTotalMcastQPAttach: uint32(min(l.MaxMcastGroups*l.MaxMcastQPs, 1<<31-1)), MaxAH: uint32(l.MaxAH),
		MaxSRQ: uint32(l.MaxSRQ), MaxSRQWR: uint32(most(a.grantWR, l.MaxSRQWR)), MaxSRQSGE: uint32(l.MaxSGE),
		MaxPKeys: 1, LocalCAAckDelay: localCAAckDelay, PhysPortCnt: 1,
	}
	if a.hasSQ() {
		r.DeviceCapFlags = capsRXE
		r.MaxMW = uint32(l.MaxMR)
	}
	be.PutUint64(r.NodeGUID[:], k.c.dev.cfg.GUID)
	r.SysImageGUID = r.NodeGUID
	return r
}

// queryDeviceCmd (ibv_query_device).
func queryDeviceCmd(k *call) error {
	k.respond(k.deviceAttr())
	return nil
}

// queryDeviceEx (ibv_query_device_ex).
func queryDeviceEx(k *call) error {
	var cmd exQueryDevice
	if err := k.decode(&cmd); err != nil {
		return err
	}
	if cmd.CompMask != 0 || cmd.Reserved != 0 {
		return ib.NewVerbError(ib.EINVAL, "query_device_ex", "", "comp_mask is not 0")
	}
	r := exQueryDeviceResp{Base: k.deviceAttr()}
	r.ResponseLength = k.responseLength(r)
	r.DeviceCapFlagsEx = uint64(r.Base.DeviceCapFlags)
	if k.c.dev.abi.hasSQ() && k.d.Config().Profile.MemoryPlacement {
		r.DeviceCapFlagsEx |= capFlushGlobal | capAtomicWrite
	}
	r.ODPCaps = [3]uint64{odpGeneral, odpUC<<32 | odpRC, odpUD} // general; RC and UC; UD
	k.respond(r)
	return nil
}

// queryPortCmd (ibv_query_port).
func queryPortCmd(k *call) error {
	var cmd queryPort
	if err := k.decode(&cmd); err != nil {
		return err
	}
	if cmd.PortNum != portNum {
		return ib.NewVerbError(ib.EINVAL, "query_port", "", "the device has port 1 only")
	}
	k.respond(k.portAttr())
	return nil
}

func (k *call) portAttr() queryPortResp {
	cfg, rate := k.d.Config(), k.c.dev.cfg.rate()
	r := queryPortResp{
		PortCapFlags: portCapCM, MaxMsgSz: uint32(min(cfg.Limits.MaxMsgBytes, 1<<31)), GIDTblLen: uint32(k.c.dev.cfg.gidTableLen(len(k.d.GIDs()))), PKeyTblLen: 1,
		State: portActive, MaxMTU: uint8(ib.MTU4096), ActiveMTU: uint8(cfg.MTU), MaxVLNum: maxVLNum,
		ActiveWidth: rate.width, ActiveSpeed: rate.speed, PhysState: physLinkUp, LinkLayer: linkEthernet, Flags: queryPortGRH,
	}
	if !k.d.PortUp() {
		r.State, r.PhysState = portDown, physDisabled
		if k.c.dev.cfg.Port == PhysPolling {
			r.PhysState = uint8(PhysPolling)
		}
	}
	return r
}

// maxResRdAtom is how many READs and atomics the device answers for all QPs together.
func maxResRdAtom(l *rvt.Limits) uint32 {
	if l.MaxResRdAtom > 0 {
		return uint32(min(l.MaxResRdAtom, 1<<31-1))
	}
	return uint32(min(int64(l.MaxQPRdAtom)*int64(l.MaxQP), 1<<31-1))
}
