package rvt

import (
	"bytes"
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// feed turns the bytes of a fuzz input into decisions. An exhausted feed gives 0.
type feed struct{ b []byte }

func (f *feed) u8() byte {
	if len(f.b) == 0 {
		return 0
	}
	v := f.b[0]
	f.b = f.b[1:]
	return v
}

func (f *feed) pick(n int) int   { return int(f.u8()) % n }
func (f *feed) bit(n uint8) bool { return f.u8()&(1<<n-1) == 0 }
func (f *feed) u32() uint32 {
	return uint32(f.u8())<<24 | uint32(f.u8())<<16 | uint32(f.u8())<<8 | uint32(f.u8())
}
func (f *feed) done() bool { return len(f.b) == 0 }

var fuzzProfiles = []qp.Profile{qp.ProfileIBTA, qp.ProfileRDMAVT, qp.ProfileRXE}

// Layout of a fuzz host's memory. Only the two regions may ever change.
const (
	fuzzBytes  = 1 << 15
	remoteOff  = 1 << 12 // region open to the peer
	localOff   = 5 << 12 // region of receives and READ results
	regionSize = 1 << 12
	canary     = 0x5a
)

// fuzzHost is a small device with one QP under attack.
type fuzzHost struct {
	*host
	q      *qp.QP
	srq    *swqe.SRQ
	local  *MR
	window *mr.Window
	posted int               // receives
	recvs  map[uint64]uint64 // bytes of each receive that is posted
	now    vtime.Time
	sends  sendLog
}

func newFuzzHost(t testing.TB, n byte, prof qp.Profile, typ ib.QPType, withSRQ, sigAll bool) *fuzzHost {
	cfg := DefaultConfig("rvt0", ib.GIDFromIPv4(10, 0, 0, n))
	cfg.Profile = prof
	cfg.Limits.WindowPackets = 24
	d, err := New(cfg)
	require.NoError(t, err)
	h := &fuzzHost{host: &host{t: t, d: d, gid: cfg.GIDs[0], buf: bytes.Repeat([]byte{canary}, fuzzBytes)}, recvs: map[uint64]uint64{}}
	h.pd, err = d.AllocPD()
	require.NoError(t, err)
	h.cq, err = d.CreateCQ(256, nil)
	require.NoError(t, err)
	mem := mr.NewSlice(bufBase, h.buf)
	h.mr, err = d.RegMR(h.pd, mem, bufBase+remoteOff, regionSize, bufBase+remoteOff, ib.AccessLocalWrite|ib.AccessRemoteMask|ib.AccessMWBind)
	require.NoError(t, err)
	h.local, err = d.RegMR(h.pd, mem, bufBase+localOff, regionSize, bufBase+localOff, ib.AccessLocalWrite)
	require.NoError(t, err)
	h.window, err = d.AllocMW(h.pd, ib.MWType2)
	require.NoError(t, err)
	init := qp.InitAttr{SendCQ: h.cq, RecvCQ: h.cq, Type: typ, SQSigAll: sigAll,
		Cap: qp.Cap{MaxSendWR: 12, MaxRecvWR: 8, MaxSendSGE: 3, MaxRecvSGE: 3, MaxInlineData: 64}}
	if withSRQ && typ != ib.QPTypeUC {
		h.srq, err = d.CreateSRQ(h.pd, SRQAttr{MaxWR: 8, MaxSGE: 3}, nil)
		require.NoError(t, err)
		init.SRQ = h.srq
	}
	h.q, err = d.CreateQP(h.pd, &init)
	require.NoError(t, err)
	return h
}

// up connects the QP at MTU 256, so that small messages have many packets.
func (h *fuzzHost) up(peer *host, dest ib.QPN) {
	h.connect(h.q, peer, dest)
	h.q.Attr.PathMTU = ib.MTU256
}

// drain emits, commits and polls, and checks each completion.
func (h *fuzzHost) drain() []frame {
	fs := clone(h.emit(h.now))
	h.checkCompletions()
	return fs
}

func (h *fuzzHost) checkCompletions() {
	for _, wc := range h.poll() {
		require.Equal(h.t, h.q.QPN, wc.QPN)
		if wc.WRID >= recvIDs {
			room, ok := h.recvs[wc.WRID]
			require.True(h.t, ok, "completion of receive %d, which is not posted", wc.WRID)
			if wc.Status == ib.WCSuccess && wc.Opcode == ib.WCRecv {
				require.LessOrEqual(h.t, uint64(wc.ByteLen), room, "more than the receive has room for")
			}
			delete(h.recvs, wc.WRID)
		} else {
			h.sends.completed(h.t, wc)
			if wc.Status == ib.WCSuccess && wc.Opcode == ib.WCRDMARead {
				h.arrived(wc.WRID, wc.ByteLen)
			}
		}
	}
	ev := make([]Event, 64)
	for h.d.PollEvents(ev) > 0 {
		continue
	}
}

// recvIDs separates the WRIDs of receives from those of sends.
const recvIDs = 1 << 32

func (h *fuzzHost) postRecv(f *feed) {
	h.posted++
	id := recvIDs + uint64(h.posted)
	wr := swqe.RecvWR{WRID: id, SGL: h.sgl(f, h.local)}
	h.recvs[id] = swqe.Sum(wr.SGL)
	var err error
	if h.srq != nil {
		_, err = h.d.PostSRQRecv(h.srq, []swqe.RecvWR{wr})
	} else {
		_, err = h.d.PostRecv(h.q, []swqe.RecvWR{wr})
	}
	if err != nil {
		delete(h.recvs, id)
	}
}

// sgl makes a scatter/gather list that usually lies in m, and sometimes does not.
func (h *fuzzHost) sgl(f *feed, m *MR) []mr.SGE {
	var s []mr.SGE
	for range f.pick(4) {
		e := mr.SGE{Addr: m.IOVA + uint64(f.u8())*8, Length: uint32(f.u8()) * 5, LKey: m.LKey}
		switch f.u8() {
		case 1:
			e.Addr = bufBase + uint64(f.u8())<<7
		case 2:
			e.LKey ^= 1 << (f.u8() & 31)
		case 3:
			e.Length = f.u32()
		case 4:
			e.Addr = -uint64(f.u8())
		}
		s = append(s, e)
	}
	return s
}

// remote makes an address and key that usually name the open region.
func (h *fuzzHost) remote(f *feed, victim *fuzzHost) (uint64, ib.RKey, uint32) {
	va, key, n := bufBase+remoteOff+uint64(f.u8())*8, victim.mr.RKey, uint32(f.u8())*7
	switch f.pick(40) {
	case 1:
		va = bufBase + uint64(f.u8())<<7
	case 2:
		key ^= 1 << (f.u8() & 31)
	case 3:
		n = f.u32()
	case 4:
		key = ib.RKey(victim.local.LKey)
	case 5:
		va = -uint64(f.u8())
	case 6:
		key = victim.window.RKey
	case 7:
		va++
	}
	return va, key, n
}

// intact tests that nothing was written outside the two regions.
func (h *fuzzHost) intact() {
	for i, b := range h.buf {
		in := i >= remoteOff && i < remoteOff+regionSize || i >= localOff && i < localOff+regionSize
		if !in && b != canary {
			h.t.Fatalf("byte %#x, outside every region, was written", i)
		}
	}
}

var fuzzOps = []ib.Opcode{
	ib.OpSendFirst, ib.OpSendMiddle, ib.OpSendLast, ib.OpSendLastImm, ib.OpSendOnly, ib.OpSendOnlyImm, ib.OpWriteFirst, ib.OpWriteMiddle,
	ib.OpWriteLast, ib.OpWriteLastImm, ib.OpWriteOnly, ib.OpWriteOnlyImm, ib.OpReadRequest, ib.OpReadRequest, ib.OpCmpSwap, ib.OpFetchAdd,
	ib.OpSendLastInv, ib.OpSendOnlyInv, ib.OpFlush, ib.OpAtomicWrite, ib.OpAcknowledge, ib.OpAtomicAck, ib.OpReadRespFirst,
	ib.OpReadRespMiddle, ib.OpReadRespLast, ib.OpReadRespOnly,
}

// request makes a packet for h from its peer, mostly of the QP's own transport.
func (h *fuzzHost) request(f *feed, src ib.GID) frame {
	transport := map[ib.QPType]ib.Opcode{ib.QPTypeRC: ib.TransportRC, ib.QPTypeUC: ib.TransportUC, ib.QPTypeUD: ib.TransportUD}[h.q.Type]
	p := wire.Packet{Opcode: transport | fuzzOps[f.pick(len(fuzzOps))], PKey: ib.PKeyDefault, DestQP: h.q.QPN, AckReq: !f.bit(2), SE: f.bit(1)}
	if h.q.Type == ib.QPTypeUD {
		p.Opcode = ib.UDSendOnly + ib.Opcode(f.pick(2))
	}
	p.PSN = h.q.RPSN
	switch f.pick(8) {
	case 0:
		p.PSN = p.PSN.Add(int(int8(f.u8())))
	case 1:
		p.PSN = ib.PSN(f.u32() & ib.PSNMask)
	}
	n := [...]int{256, 256, 0, 1, 255, 257, 8, int(f.u8())}[f.pick(8)]
	p.Payload = bytes.Repeat([]byte{f.u8()}, n)
	p.RETH.VA, p.RETH.RKey, p.RETH.DMALen = h.remote(f, h)
	if f.bit(1) {
		p.RETH.DMALen = uint32(n)
	}
	p.AtomicETH = wire.AtomicETH{VA: p.RETH.VA, RKey: p.RETH.RKey, SwapAdd: uint64(f.u8()), Compare: uint64(f.u8())}
	p.InvRKey = h.window.RKey + ib.RKey(f.pick(2))
	p.AETH = wire.AETH{Syndrome: ib.Syndrome(f.u8()), MSN: ib.MSN(f.u8())}
	p.DETH = wire.DETH{QKey: 0x1111, SrcQP: 7}
	switch f.u8() {
	case 1:
		p.Opcode = ib.Opcode(f.u8())
	case 2:
		p.PKey = 0x7fff
	case 3:
		p.DETH.QKey++
	case 4:
		src[15]++
	}
	return frame{wire.Path{Src: src, Dst: h.gid, HopLimit: 64}, p}
}

func FuzzResponder(f *testing.F) {
	for i := range byte(18) {
		seed := []byte{i}
		for j := range 400 {
			seed = append(seed, byte(j*j*31+j*int(i)*7+11))
		}
		f.Add(seed)
	}
	f.Add([]byte{0})
	f.Fuzz(responderRun)
}

// responderRun sends a QP whatever the input says.
func responderRun(t *testing.T, data []byte) {
	in := &feed{data}
	kind := in.pick(18)
	typ := []ib.QPType{ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD}[kind/3%3]
	h := newFuzzHost(t, 1, fuzzProfiles[kind%3], typ, kind >= 9, true)
	peer := &host{gid: ib.GIDFromIPv4(10, 0, 0, 2)}
	h.up(peer, 0x33)
	for step := 0; step < 300 && !in.done(); step++ {
		if h.q.State == ib.StateErr && !in.bit(3) {
			h.drain()
			h.reconnect(peer)
		}
		switch in.pick(16) {
		case 0, 1:
			h.postRecv(in)
		case 2:
			h.drain()
		case 3:
			h.d.Commit(h.now)
		case 4:
			h.d.Keys().Bind(h.pd.ID, h.q.QPN, h.window, h.window.RKey^ib.RKey(in.pick(4)), h.mr.Region, bufBase+remoteOff+64, uint64(in.u8())*16, ib.AccessRemoteMask)
		case 5:
			if in.bit(4) {
				h.restart(peer, in)
			}
		case 6:
			require.NotEqual(t, ib.StateInit, h.q.State)
			h.now = h.now.Add(1e6)
			h.d.Expire(h.now)
		default:
			fr := h.request(in, peer.gid)
			h.receive(h.now, []frame{fr})
		}
		require.LessOrEqual(t, len(h.recvs), h.posted)
	}
	h.drain()
	h.intact()
	require.NoError(t, h.d.DestroyQP(h.now, h.q))
	require.Equal(t, vtime.Never, h.d.Deadline())
}

// reconnect takes the QP through RESET and starts a new log of its sends.
func (h *fuzzHost) reconnect(peer *host) {
	require.NoError(h.t, h.d.ModifyQP(h.now, h.q, &qp.Attr{State: ib.StateReset}, ib.AttrState))
	h.checkCompletions()
	h.up(peer, 0x33)
	h.sends = sendLog{base: firstPSN, next: 1, sigAll: h.sends.sigAll}
}

// restart takes the QP through ERR or RESET, or replaces the region under it.
func (h *fuzzHost) restart(peer *host, in *feed) {
	t := h.t
	switch in.pick(4) {
	case 0:
		require.NoError(t, h.d.ModifyQP(h.now, h.q, &qp.Attr{State: ib.StateErr}, ib.AttrState))
	case 1, 2:
		h.reconnect(peer)
	case 3:
		if h.mr.Windows() > 0 {
			return
		}
		require.NoError(t, h.d.DeregMR(h.now, h.mr))
		m, err := h.d.RegMR(h.pd, mr.NewSlice(bufBase, h.buf), bufBase+remoteOff, regionSize, bufBase+remoteOff, ib.AccessLocalWrite|ib.AccessRemoteMask|ib.AccessMWBind)
		require.NoError(t, err)
		h.mr = m
	}
}

// sendLog checks the completions of one QP's sends against what was posted and sent.
type sendLog struct {
	base    ib.PSN // of the first WR
	next    uint64 // WRID of the next post
	lpsn    []ib.PSN
	local   []bool // sends no packet
	last    uint64 // newest completion
	failed  bool
	high    int // PSNs handed to the wire, counted from base
	sigAll  bool
	count   int
	atomics uint64            // FETCH_ADDs posted
	reads   [readSlots]uint64 // READ that fills the slot
}

func (s *sendLog) completed(t testing.TB, wc cq.WC) {
	require.Greater(t, wc.WRID, s.last, "completions in order, each once")
	require.Less(t, wc.WRID, s.next, "the WR was posted")
	if s.sigAll {
		require.Equal(t, s.last+1, wc.WRID, "every WR completes")
	}
	s.last = wc.WRID
	s.count++
	if wc.Status != ib.WCSuccess {
		if s.failed {
			require.Equal(t, ib.WCWRFlushErr, wc.Status)
		}
		s.failed = true
		return
	}
	require.False(t, s.failed, "SUCCESS after a failure")
	if !s.local[wc.WRID] {
		require.GreaterOrEqual(t, s.high, s.lpsn[wc.WRID].Sub(s.base)+1, "SUCCESS before the last packet was sent")
	}
}

// sent notes the packets that left.
func (s *sendLog) sent(fs []frame, mtu int) {
	for i := range fs {
		p := &fs[i].pkt
		if wire.Info(p.Opcode).Mask&wire.Response != 0 {
			continue
		}
		n := 1
		if p.Opcode == ib.OpReadRequest && p.RETH.DMALen > 0 {
			n = int(p.RETH.DMALen-1)/mtu + 1
		}
		s.high = max(s.high, p.PSN.Sub(s.base)+n)
	}
}

// postSend posts a random WR and notes it if it is accepted.
func (h *fuzzHost) postSend(f *feed, victim *fuzzHost) {
	ops := []ib.WROpcode{ib.WRSend, ib.WRSendWithImm, ib.WRSendWithInv, ib.WRRDMAWrite, ib.WRRDMAWriteWithImm, ib.WRRDMARead, ib.WRRDMARead,
		ib.WRAtomicCmpAndSwp, ib.WRAtomicFetchAndAdd, ib.WRLocalInv, ib.WRBindMW, ib.WRFlush, 77, ib.WRAtomicWrite}
	wr := swqe.SendWR{WRID: h.sends.next, Opcode: ops[f.pick(len(ops))], Flags: ib.SendFlags(f.u8()) & (ib.SendFence | ib.SendSignaled | ib.SendSolicited)}
	wr.SGL = h.sgl(f, h.local)
	wr.RemoteAddr, wr.RKey, _ = h.remote(f, victim)
	wr.CompareAdd, wr.Swap, wr.Imm = uint64(f.u8()), uint64(f.u8()), f.u32()
	wr.InvRKey = victim.window.RKey
	wr.Bind = swqe.BindInfo{MW: h.window, RKey: h.window.RKey ^ 1, MR: h.mr.Region, Addr: h.mr.IOVA, Length: 64, Access: ib.AccessRemoteMask}
	if f.bit(3) {
		wr.Flags |= ib.SendInline
		wr.Inline = make([]byte, f.pick(70))
	}
	before := h.q.SHead
	n, err := h.d.PostSend(h.q, []swqe.SendWR{wr})
	if err != nil {
		require.Zero(h.t, n)
		require.Equal(h.t, before, h.q.SHead)
		return
	}
	w := h.q.SWQE(before)
	for uint64(len(h.sends.lpsn)) <= h.sends.next {
		h.sends.lpsn, h.sends.local = append(h.sends.lpsn, 0), append(h.sends.local, false)
	}
	h.sends.lpsn[h.sends.next], h.sends.local[h.sends.next] = w.LPSN, w.Packets == 0
	h.sends.next++
}

// answer makes a response near what the requester waits for.
func (h *fuzzHost) answer(f *feed, src ib.GID) frame {
	p := wire.Packet{PKey: ib.PKeyDefault, DestQP: h.q.QPN}
	p.Opcode = []ib.Opcode{ib.OpAcknowledge, ib.OpAcknowledge, ib.OpAcknowledge, ib.OpReadRespFirst, ib.OpReadRespMiddle, ib.OpReadRespLast, ib.OpReadRespOnly, ib.OpAtomicAck}[f.pick(8)]
	out := h.q.SSendingHPSN.Sub(h.q.SLastPSN)
	p.PSN = h.q.SLastPSN.Add(1)
	switch f.pick(4) {
	case 0:
		p.PSN = h.q.SLastPSN.Add(1 + f.pick(max(out, 1)))
	case 1:
		p.PSN = p.PSN.Add(int(int8(f.u8())))
	case 2:
		p.PSN = h.q.SWQE(h.q.SAcked).LPSN
	}
	p.AETH = wire.AETH{Syndrome: ackNone, MSN: ib.MSN(f.u8())}
	if f.bit(2) {
		p.AETH.Syndrome = []ib.Syndrome{ib.NAKPSNSequence, ib.SyndromeRNR | 1, ib.SyndromeRNR | ib.Syndrome(f.u8()&31), ib.NAKPSNSequence, ib.SyndromeACK | ib.Syndrome(f.u8()&31), ib.Syndrome(f.u8())}[f.pick(6)]
	}
	n := [...]int{256, 256, 256, 0, 8, int(f.u8())}[f.pick(6)]
	if w := h.q.SWQE(h.q.SAcked); p.PSN == w.LPSN && w.Length > 0 && !f.bit(3) {
		n = int((w.Length-1)%256) + 1
	}
	p.Payload = make([]byte, n)
	return frame{wire.Path{Src: src, Dst: h.gid, HopLimit: 64}, p}
}

func FuzzRequester(f *testing.F) {
	for i := range byte(12) {
		seed := []byte{i}
		for j := range 500 {
			seed = append(seed, byte(j*j*17+j*int(i)*13+5))
		}
		f.Add(seed)
	}
	f.Fuzz(requesterRun)
}

// requesterRun posts work and answers it as the input says, then falls silent.
func requesterRun(t *testing.T, data []byte) {
	in := &feed{data}
	kind := in.pick(12)
	h := newFuzzHost(t, 1, fuzzProfiles[kind%3], ib.QPTypeRC, kind&4 != 0, kind < 6)
	peer := &host{gid: ib.GIDFromIPv4(10, 0, 0, 2)}
	h.up(peer, 0x33)
	h.sends = sendLog{base: firstPSN, next: 1, sigAll: kind < 6}
	for step := 0; step < 300 && !in.done(); step++ {
		if h.q.State == ib.StateErr {
			h.silence()
			h.reconnect(peer)
		}
		switch in.pick(8) {
		case 0, 1:
			h.postSend(in, h)
		case 2, 3:
			h.sends.sent(h.drain(), 256)
		case 4:
			if at := h.d.Deadline(); at != vtime.Never && in.bit(1) {
				h.now = max(h.now, at)
				h.d.Expire(h.now)
			}
		case 5:
			h.toggle(in)
		default:
			h.receive(h.now, []frame{h.answer(in, peer.gid)})
		}
		h.checkCompletions()
	}
	h.silence()
	h.intact()
}

// TestRandomInputs runs the fuzz targets on seeded random bytes: longer inputs than a
// fuzzer grows in a few seconds.
func TestRandomInputs(t *testing.T) {
	runs := uint64(150)
	if invariants.Race {
		runs = 30 // ten times slower
	}
	const bytes = 3000
	for _, target := range []struct {
		name string
		run  func(*testing.T, []byte)
	}{{"responder", responderRun}, {"requester", requesterRun}, {"pair", pairRun}} {
		t.Run(target.name, func(t *testing.T) {
			for seed := range runs {
				rng := rand.New(rand.NewPCG(seed+*randomSeed, 7))
				data := make([]byte, bytes)
				for i := range data {
					data[i] = byte(rng.Uint32())
				}
				data[0] = byte(seed)
				if !t.Run(strconv.FormatUint(seed+*randomSeed, 10), func(t *testing.T) { target.run(t, data) }) {
					return
				}
			}
		})
	}
}

// randomSeed lets a longer search start elsewhere: go test -run RandomInputs -seed N.
var randomSeed = flag.Uint64("seed", 0, "first seed of TestRandomInputs")

// toggle moves between RTS and SQD.
func (h *fuzzHost) toggle(in *feed) {
	switch {
	case h.q.State == ib.StateRTS && in.bit(2):
		require.NoError(h.t, h.d.ModifyQP(h.now, h.q, &qp.Attr{State: ib.StateSQD, EnSQDAsyncNotify: true}, ib.AttrState|ib.AttrEnSQDAsyncNotify))
	case h.q.State == ib.StateSQD:
		require.NoError(h.t, h.d.ModifyQP(h.now, h.q, &qp.Attr{State: ib.StateRTS}, ib.AttrState))
	}
}

// silence lets all timers run out with no answer from the peer. Everything posted must
// complete, one way or the other.
func (h *fuzzHost) silence() {
	if h.q.State == ib.StateSQD {
		require.NoError(h.t, h.d.ModifyQP(h.now, h.q, &qp.Attr{State: ib.StateRTS}, ib.AttrState))
	}
	for i := 0; ; i++ {
		require.Less(h.t, i, 1000, "the QP is busy for ever")
		h.sends.sent(h.drain(), 256)
		at := h.d.Deadline()
		if at == vtime.Never {
			break
		}
		h.now = max(h.now, at)
		h.d.Expire(h.now)
		h.d.Commit(h.now)
	}
	require.Equal(h.t, h.q.SHead, h.q.SLast, "WRs never completed: flags %#x", h.q.SFlags)
	if h.sends.sigAll {
		require.EqualValues(h.t, h.sends.next-1, h.sends.count)
	}
}

// FuzzPair runs real traffic between two devices over a network that drops, repeats
// and delays as the input says. Then the network heals, and everything completes.
func FuzzPair(f *testing.F) {
	for i := range byte(12) {
		seed := []byte{i}
		for j := range 600 {
			seed = append(seed, byte(j*j*23+j*int(i)*5+3))
		}
		f.Add(seed)
	}
	f.Fuzz(pairRun)
}

// pairRun is the body of FuzzPair.
func pairRun(t *testing.T, data []byte) {
	in := &feed{data}
	kind := in.pick(12)
	a := newFuzzHost(t, 1, fuzzProfiles[kind%3], ib.QPTypeRC, kind&4 != 0, kind < 6)
	b := newFuzzHost(t, 2, fuzzProfiles[kind%3], ib.QPTypeRC, kind&2 != 0, true)
	for _, h := range []*fuzzHost{a, b} {
		peer := map[*fuzzHost]*fuzzHost{a: b, b: a}[h]
		h.up(peer.host, peer.q.QPN)
		h.q.Attr.RNRRetry, h.q.SRNRRetry = 7, 7
		h.q.Attr.RetryCnt, h.q.SRetry = 7, 7
		h.sends = sendLog{base: firstPSN, next: 1, sigAll: h == b || kind < 6}
		clear(h.buf[localOff : localOff+regionSize])
		for i := constOff; i < counterOff; i++ {
			h.buf[remoteOff+i] = constByte(i - constOff)
		}
	}
	var ab, ba []frame
	for step := 0; step < 400 && !in.done(); step++ {
		switch in.pick(8) {
		case 0:
			a.postGood(in, b)
		case 1:
			b.postGood(in, a)
		case 2:
			b.postRecv(&feed{[]byte{1, 0, 50, 0}})
			a.postRecv(&feed{[]byte{1, 0, 50, 0}})
		case 3:
			a.timers(in)
			b.now = a.now
			b.d.Expire(b.now)
			b.d.Commit(b.now)
		case 4, 5:
			fs := a.drain()
			a.sends.sent(fs, 256)
			ab = append(ab, fs...)
			ab = b.mangled(in, ab)
		default:
			fs := b.drain()
			b.sends.sent(fs, 256)
			ba = append(ba, fs...)
			ba = a.mangled(in, ba)
		}
	}
	heal(a, b)
	a.counted(b)
	b.counted(a)
	a.intact()
	b.intact()
}

func (h *fuzzHost) timers(in *feed) {
	if at := h.d.Deadline(); at != vtime.Never && in.bit(1) {
		h.now = max(h.now, at)
	}
	h.d.Expire(h.now)
	h.d.Commit(h.now)
}

// mangled delivers some of the frames on their way to h and returns those that stay.
func (h *fuzzHost) mangled(in *feed, fs []frame) (left []frame) {
	for len(fs) > 0 {
		i := 0
		if in.bit(3) {
			i = in.pick(len(fs)) // overtakes
		}
		fr := fs[i]
		switch in.pick(16) {
		case 0:
		case 1:
			h.d.Receive(h.now, &fr.path, &fr.pkt)
			continue // and stays to come again
		case 2:
			h.d.Commit(h.now)
			return fs
		default:
			h.d.Receive(h.now, &fr.path, &fr.pkt)
		}
		fs = append(fs[:i:i], fs[i+1:]...)
	}
	h.d.Commit(h.now)
	return nil
}

// postGood posts a WR that must succeed if its peer has receives.
func (h *fuzzHost) postGood(f *feed, peer *fuzzHost) {
	ops := []ib.WROpcode{ib.WRSend, ib.WRSendWithImm, ib.WRRDMAWrite, ib.WRRDMAWriteWithImm, ib.WRRDMARead, ib.WRRDMARead, ib.WRAtomicFetchAndAdd}
	op := ops[f.pick(len(ops))]
	n := 1 + f.pick(250)
	if op == ib.WRRDMARead || op == ib.WRRDMAWrite {
		n = int(f.u8()) * 3
	}
	wr := swqe.SendWR{WRID: h.sends.next, Opcode: op, Flags: ib.SendFlags(f.u8()) & (ib.SendFence | ib.SendSignaled | ib.SendSolicited),
		SGL: []mr.SGE{{Addr: h.local.IOVA + readOff + readSlots*readBytes, Length: uint32(n), LKey: h.local.LKey}}, RemoteAddr: peer.mr.IOVA + uint64(f.u8())*8, RKey: peer.mr.RKey, CompareAdd: 1}
	if op == ib.WRAtomicFetchAndAdd {
		wr.SGL[0].Length = 8
		wr.RemoteAddr = peer.mr.IOVA + counterOff
	}
	slot := int(h.sends.next) % readSlots
	if op == ib.WRRDMARead {
		if h.sends.reads[slot] != 0 {
			return // the result of the one before would hide what is missing
		}
		wr.SGL[0] = mr.SGE{Addr: h.local.IOVA + uint64(readOff+slot*readBytes), Length: uint32(n), LKey: h.local.LKey}
		wr.RemoteAddr = peer.mr.IOVA + constOff
	}
	at := h.q.SHead
	if _, err := h.d.PostSend(h.q, []swqe.SendWR{wr}); err != nil {
		return
	}
	if op == ib.WRRDMARead {
		h.sends.reads[slot] = h.sends.next
	}
	for uint64(len(h.sends.lpsn)) <= h.sends.next {
		h.sends.lpsn, h.sends.local = append(h.sends.lpsn, 0), append(h.sends.local, false)
	}
	if op == ib.WRAtomicFetchAndAdd {
		h.sends.atomics++
	}
	h.sends.lpsn[h.sends.next] = h.q.SWQE(at).LPSN
	h.sends.next++
}

// Layout of the regions in pairs. WRITEs end below constOff, READs start there.
const (
	constOff  = 11 << 8
	readOff   = 1 << 9
	readSlots = 3
	readBytes = 3 << 8
)

// constByte is byte i of what READs read: no two packets are alike, none is zero.
func constByte(i int) byte { return byte(i%251+i/251*3) | 1 }

// arrived tests the result of the READ id and clears it. peer's bytes from constOff on
// never change.
func (h *fuzzHost) arrived(id uint64, n uint32) {
	slot := int(id) % readSlots
	if h.sends.reads[slot] != id {
		return
	}
	h.sends.reads[slot] = 0
	got := h.buf[localOff+readOff+slot*readBytes:][:n]
	for i, b := range got {
		require.Equal(h.t, constByte(i), b, "byte %d of %d of the READ did not arrive", i, n)
	}
	clear(got)
}

// counterOff is where in the open region the counter is that atomics add to. WRITEs
// stay below it.
const counterOff = regionSize - 8

// counted tests that each atomic was executed once.
func (h *fuzzHost) counted(peer *fuzzHost) {
	got := binary.LittleEndian.Uint64(h.buf[remoteOff+counterOff:]) - canary*0x0101010101010101
	if peer.sends.failed {
		require.LessOrEqual(h.t, got, peer.sends.atomics)
		return
	}
	require.Equal(h.t, peer.sends.atomics, got)
}

// heal exchanges packets without loss until both sides are idle.
func heal(a, b *fuzzHost) {
	now := max(a.now, b.now)
	for i := 0; a.q.SLast != a.q.SHead || b.q.SLast != b.q.SHead; i++ {
		require.Less(a.t, i, 3000, "no end: a %#x b %#x", a.q.SFlags, b.q.SFlags)
		a.now, b.now = now, now
		for range 4 {
			a.postRecv(&feed{[]byte{1, 0, 50, 0}})
			b.postRecv(&feed{[]byte{1, 0, 50, 0}})
		}
		fa, fb := a.drain(), b.drain()
		a.sends.sent(fa, 256)
		b.sends.sent(fb, 256)
		if len(fa)+len(fb) == 0 {
			if at := min(a.d.Deadline(), b.d.Deadline()); at != vtime.Never {
				now = max(now, at)
				a.d.Expire(now)
				b.d.Expire(now)
			} else if a.q.SLast != a.q.SHead || b.q.SLast != b.q.SHead {
				a.t.Fatalf("stuck: a %v flags %#x, b %v flags %#x", a.q.State, a.q.SFlags, b.q.State, b.q.SFlags)
			}
		}
		b.receive(now, fa)
		a.receive(now, fb)
	}
	a.drain()
	b.drain()
}
