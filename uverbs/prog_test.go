//go:build linux

package uverbs

import (
	"encoding/binary"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// heapRings is RingMemory on the heap.
type heapRings struct {
	next  uint64
	areas map[uint64][]byte
	fail  bool
	// What PostGate was told.
	postable, busy map[uint32]bool
}

var _ PostGate = (*heapRings)(nil)

func newHeapRings() *heapRings {
	return &heapRings{next: pageBytes, areas: map[uint64][]byte{}, postable: map[uint32]bool{}, busy: map[uint32]bool{}}
}

func (h *heapRings) SetPostable(handle uint32, ok bool) { h.postable[handle] = ok }
func (h *heapRings) SetBusy(handle uint32, busy bool)   { h.busy[handle] = busy }

func (h *heapRings) Alloc(size int) (uint64, []byte, error) {
	if h.fail || size > 256<<20 {
		return 0, nil, ib.ENOMEM
	}
	words := make([]uint64, size/8)
	b := unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size)
	off := h.next
	h.next += uint64(size)
	h.areas[off] = b
	return off, b, nil
}

func (h *heapRings) Free(offset uint64) { delete(h.areas, offset) }

// net is some devices on a wire that loses nothing and takes no time.
type net struct {
	t     testing.TB
	now   vtime.Time
	hosts []*testHost
	// lost is set to drop everything.
	lost bool
}

type testHost struct {
	net  *net
	d    *rvt.Device
	dev  *Device
	gid  ib.GID
	out  rvt.Outbox
	evs  [64]rvt.Event
	last int // packets of the last round
}

func (h *testHost) Do(f func(*rvt.Device, vtime.Time)) { f(h.d, h.net.now) }

func newNet(t testing.TB, n int, abi string, edit func(*rvt.Config)) *net {
	w := &net{t: t}
	for i := range n {
		h := &testHost{net: w, gid: ib.GIDFromIPv4(10, 0, 0, byte(i+1))}
		cfg := rvt.DefaultConfig("rvt0", h.gid)
		cfg.GUID = 0x0200000000000001 + uint64(i)
		if edit != nil {
			edit(&cfg)
		}
		var err error
		h.d, err = rvt.New(cfg)
		require.NoError(t, err)
		dc := ConfigOf(&cfg, 0, abi)
		require.NoError(t, dc.Validate())
		h.dev = NewDevice(h, dc)
		w.hosts = append(w.hosts, h)
	}
	return w
}

// events delivers what waits.
func (h *testHost) events() {
	h.d.Commit(h.net.now)
	for h.d.HasEvents() {
		for i := range h.d.PollEvents(h.evs[:]) {
			h.dev.HandleEvent(&h.evs[i])
		}
	}
}

// round sends what one host has to send and reports whether there was anything.
func (w *net) round(h *testHost) bool {
	h.out.Reset()
	h.d.Emit(w.now, &h.out, 16)
	var b mr.Batch
	bufs := make([][]byte, len(h.out.Packets))
	for i := range h.out.Packets {
		bufs[i] = make([]byte, h.out.Packets[i].Len)
		h.out.Gather(&b, i, bufs[i])
	}
	for _, f := range b.Read() {
		h.d.GatherFault(&h.out, &f)
	}
	h.events()
	for i := range h.out.Packets {
		p := &h.out.Packets[i]
		p.Pkt.Payload = bufs[i]
		if w.lost || p.Withheld {
			continue
		}
		for _, peer := range w.hosts {
			if peer.gid == p.Path.Dst || p.Path.Dst.IsMulticast() {
				peer.d.Receive(w.now, &p.Path, &p.Pkt)
				peer.events()
			}
		}
	}
	h.last = len(h.out.Packets)
	return h.last > 0 || h.d.Pending()
}

// settle lets the devices talk until all are quiet. No time passes.
func (w *net) settle() {
	for range 10000 {
		busy := false
		for _, h := range w.hosts {
			busy = w.round(h) || busy
		}
		if !busy {
			return
		}
	}
	w.t.Fatal("the devices do not come to rest")
}

// advance lets time pass until the last timer has run.
func (w *net) advance() {
	for range 1000 {
		at := vtime.Never
		for _, h := range w.hosts {
			at = vtime.Min(at, h.d.Deadline())
		}
		if at == vtime.Never {
			return
		}
		w.now = max(w.now, at)
		for _, h := range w.hosts {
			h.d.Expire(w.now)
			h.events()
		}
		w.settle()
	}
}

// prog is a program that uses a context as librxe does.
type prog struct {
	t     testing.TB
	h     *testHost
	c     *Context
	rings *heapRings
	buf   []byte
	mem   *mr.Slice
	pass  Passed
	files []*os.File
	async *os.File
	pd    uint32
	mr    regMRResp
}

const (
	progBase = 0x7f0000000000
	respAddr = 0x1234560
)

func newProg(t testing.TB, h *testHost) *prog {
	p := &prog{t: t, h: h, rings: newHeapRings(), buf: make([]byte, 1<<20)}
	p.mem = mr.NewSlice(progBase, p.buf)
	var err error
	p.c, err = h.dev.Open(p.rings)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.c.Close()
		for _, f := range p.files {
			f.Close()
		}
	})
	var r getContextResp
	p.async = p.ok(cmdGetContext, respOnly{respAddr}, 8, &r)[0].F
	p.pd = p.handle(cmdAllocPD, respOnly{respAddr}, 4)
	p.ok(cmdRegMR, regMR{respAddr, progBase, uint64(len(p.buf)), progBase, p.pd, uint32(ib.AccessLocalWrite | ib.AccessRemoteMask | ib.AccessMWBind)}, 12, &p.mr)
	return p
}

// command builds the bytes of a legacy command with out bytes for the answer.
func command(num uint32, cmd any, out int, extra ...byte) []byte {
	body := append(encode(cmd), extra...)
	b := native.AppendUint32(nil, num)
	b = native.AppendUint16(b, uint16((len(body)+cmdHdrBytes)/4))
	b = native.AppendUint16(b, uint16(out/4))
	return append(b, body...)
}

// commandEx builds an extended command.
func commandEx(num uint32, cmd any, out, drvOut int) []byte {
	body := encode(cmd)
	b := native.AppendUint32(nil, num|cmdExtended)
	b = native.AppendUint16(b, uint16(len(body)/8))
	b = native.AppendUint16(b, uint16(out/8))
	b = native.AppendUint64(b, respAddr)
	b = native.AppendUint16(b, 0)
	b = native.AppendUint16(b, uint16(drvOut/8))
	b = native.AppendUint32(b, 0)
	return append(b, body...)
}

func (p *prog) write(b []byte) Reply {
	rep := p.c.Write(&Caller{Mem: p.mem}, b, p.pass)
	for _, f := range rep.Files {
		p.files = append(p.files, f.F)
	}
	p.h.events()
	return rep
}

// ok runs a command that must succeed, and decodes the answer.
func (p *prog) ok(num uint32, cmd any, out int, resp any, extra ...byte) []File {
	p.t.Helper()
	rep := p.write(command(num, cmd, out, extra...))
	require.Equal(p.t, ib.Errno(0), rep.Errno, "command %d", num)
	if out > 0 {
		require.Equal(p.t, uint64(respAddr), rep.OutAddr)
		require.LessOrEqual(p.t, len(rep.Out), out)
		_, err := binary.Decode(rep.Out, native, resp)
		require.NoError(p.t, err)
	}
	return rep.Files
}

func (p *prog) handle(num uint32, cmd any, out int) uint32 {
	p.t.Helper()
	var r handleOnly
	p.ok(num, cmd, out, &r)
	return r.Handle
}

func (p *prog) errno(num uint32, cmd any, out int, extra ...byte) ib.Errno {
	return p.write(command(num, cmd, out, extra...)).Errno
}

// queue is the program's view of a rxe_queue_buf.
type queue struct{ b []byte }

func (q queue) mask() uint32         { return native.Uint32(q.b[rxeMaskOff:]) }
func (q queue) elem(i uint32) []byte { return q.b[rxeHeader+i<<native.Uint32(q.b[rxeElemOff:]):] }
func (q queue) prod() uint32         { return loadWord(q.b, rxeProdOff) }
func (q queue) cons() uint32         { return loadWord(q.b, rxeConsOff) }
func (q queue) full() bool           { return (q.prod()+1)&q.mask() == q.cons() }

func (q queue) advance() { storeWord(q.b, rxeProdOff, (q.prod()+1)&q.mask()) }

type mminfo struct {
	Offset uint64
	Size   uint32
	Pad    uint32
}

func (p *prog) mmap(m mminfo) queue {
	b := p.rings.areas[m.Offset]
	require.Len(p.t, b, int(m.Size))
	return queue{b}
}

type progCQ struct {
	handle, cqe uint32
	user        uint64
	q           queue
}

var userHandles uint64 = 0xabc000

func (p *prog) createCQ(cqe uint32, channel int32) *progCQ {
	p.t.Helper()
	var r struct {
		Base createCQResp
		MI   mminfo
	}
	userHandles += 8
	c := &progCQ{user: userHandles}
	p.ok(cmdCreateCQ, createCQ{Response: respAddr, UserHandle: c.user, CQE: cqe, CompChannel: channel}, 24, &r)
	c.handle, c.cqe, c.q = r.Base.CQHandle, r.Base.CQE, p.mmap(r.MI)
	return c
}

// poll is ibv_poll_cq.
func (c *progCQ) poll() []cq.WC {
	var all []cq.WC
	for c.q.prod() != c.q.cons() {
		var w cq.WC
		getWC(c.q.elem(c.q.cons()), &w)
		all = append(all, w)
		storeWord(c.q.b, rxeConsOff, (c.q.cons()+1)&c.q.mask())
	}
	return all
}

type progQP struct {
	p           *prog
	handle, qpn uint32
	user        uint64
	typ         ib.QPType
	cap         qpCaps
	rq, sq      queue
}

func (p *prog) createQP(typ ib.QPType, scq, rcq *progCQ, srq uint32) *progQP {
	p.t.Helper()
	userHandles += 8
	b := qpBody{UserHandle: userHandles, PDHandle: p.pd, SendCQHandle: scq.handle, RecvCQHandle: rcq.handle,
		Cap: qpCaps{15, 15, 4, 4, 64}, QPType: uint8(typ)}
	if srq != 0 {
		b.IsSRQ, b.SRQHandle = 1, srq
	}
	var r struct {
		Base   createQPResp
		RQ, SQ mminfo
	}
	p.ok(cmdCreateQP, createQP{respAddr, b}, 64, &r)
	q := &progQP{p: p, handle: r.Base.QPHandle, qpn: r.Base.QPN, user: b.UserHandle, typ: typ, cap: r.Base.Cap, sq: p.mmap(r.SQ)}
	if srq == 0 {
		q.rq = p.mmap(r.RQ)
	}
	return q
}

const (
	maskRTRRC = ib.AttrState | ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN | ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
	maskRTSRC = ib.AttrState | ib.AttrSQPSN | ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrMaxQPRdAtomic
)

func (q *progQP) modify(m modifyQP, mask ib.AttrMask) ib.Errno {
	m.QPHandle, m.AttrMask = q.handle, uint32(mask)
	return q.p.errno(cmdModifyQP, m, 0)
}

// connect takes the QP to RTS.
func (q *progQP) connect(gid ib.GID, dest uint32) {
	t := q.p.t
	t.Helper()
	m := modifyQP{QPState: uint8(ib.StateInit), PortNum: 1, QPAccessFlags: uint32(ib.AccessRemoteMask), QKey: 0x11111111}
	last := ib.AttrAccessFlags
	if q.typ == ib.QPTypeUD {
		last = ib.AttrQKey
	}
	require.Zero(t, q.modify(m, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|last))
	m.QPState, m.PathMTU, m.DestQPNum, m.RQPSN, m.MaxDestRdAtomic, m.MinRNRTimer = uint8(ib.StateRTR), uint8(ib.MTU1024), dest, 7, 4, 12
	m.Dest = qpDest{DGID: gid, IsGlobal: 1, PortNum: 1, HopLimit: 1}
	rtr, rts := maskRTRRC, maskRTSRC
	if q.typ == ib.QPTypeUD {
		rtr, rts = ib.AttrState, ib.AttrState|ib.AttrSQPSN
	}
	require.Zero(t, q.modify(m, rtr))
	m.QPState, m.SQPSN, m.Timeout, m.RetryCnt, m.RNRRetry, m.MaxRdAtomic = uint8(ib.StateRTS), 7, 14, 7, 7, 4
	require.Zero(t, q.modify(m, rts))
}

func (q *progQP) sge(off, n int) mr.SGE {
	return mr.SGE{Addr: progBase + uint64(off), Length: uint32(n), LKey: ib.LKey(q.p.mr.LKey)}
}

func putRecv(q queue, id uint64, sges ...mr.SGE) {
	b := q.elem(q.prod())
	native.PutUint64(b, id)
	native.PutUint32(b[rxeRecvNum:], uint32(len(sges)))
	for i, s := range sges {
		putSGE(b[rxeRecvSGE+i*sgeBytes:], s)
	}
	q.advance()
}

// recv is ibv_post_recv.
func (q *progQP) recv(id uint64, sges ...mr.SGE) { putRecv(q.rq, id, sges...) }

// wqe starts the entry of a send; the caller fills it and calls db.
func (q *progQP) wqe(id uint64, op ib.WROpcode, flags ib.SendFlags, sges ...mr.SGE) []byte {
	b := q.sq.elem(q.sq.prod())
	clear(b[:rxeSendData])
	native.PutUint64(b[sendWRID:], id)
	native.PutUint32(b[sendOpcode:], uint32(op))
	native.PutUint32(b[sendFlags:], uint32(flags))
	n := uint32(0)
	for i, s := range sges {
		putSGE(b[rxeSendData+i*sgeBytes:], s)
		n += s.Length
	}
	native.PutUint32(b[rxeSendNum:], uint32(len(sges)))
	native.PutUint32(b[rxeSendLen:], n)
	return b
}

func (q *progQP) doorbell() ib.Errno {
	return q.p.errno(cmdPostSend, postWR{Response: respAddr, Handle: q.handle, WQESize: 128}, 4)
}

// post publishes the entry and rings.
func (q *progQP) post() ib.Errno {
	q.sq.advance()
	return q.doorbell()
}

// readEvents reads what waits in a pipe, without blocking.
func readEvents(t testing.TB, f *os.File, size int) [][]byte {
	raw, err := f.SyscallConn()
	require.NoError(t, err)
	var all [][]byte
	require.NoError(t, raw.Control(func(fd uintptr) {
		require.NoError(t, syscall.SetNonblock(int(fd), true))
		for {
			b := make([]byte, size)
			n, err := syscall.Read(int(fd), b)
			if err != nil || n == 0 {
				return
			}
			require.Equal(t, size, n)
			all = append(all, b)
		}
	}))
	return all
}

// channel makes a completion channel whose descriptor in the program is 77.
func (p *prog) channel() *os.File {
	var r handleOnly
	f := p.ok(cmdCreateCompChannel, respOnly{respAddr}, 4, &r)[0].F
	p.pass = func(fd int32) (uint64, bool) {
		if fd != 77 {
			return 0, false
		}
		var ino uint64
		raw, err := f.SyscallConn()
		require.NoError(p.t, err)
		require.NoError(p.t, raw.Control(func(fd uintptr) {
			var st syscall.Stat_t
			require.NoError(p.t, syscall.Fstat(int(fd), &st))
			ino = st.Ino
		}))
		return ino, true
	}
	return f
}
