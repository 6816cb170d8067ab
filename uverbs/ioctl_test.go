//go:build linux

package uverbs

import (
	"bytes"
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/rvt"
)

// ioc is an ioctl in the making, and what came of it. Its bytes lie in the program's
// memory, as those of a real one do.
type ioc struct {
	p     *prog
	hdr   ioctlHdr
	attrs []ioctlAttr
	next  int // offset of free memory for data
	rep   Reply
	left  []byte // the memory from iocOff on, after the call
}

const iocOff = 0x80000 // of the ioctl in prog.buf

func (p *prog) ioc(object, method uint16) *ioc {
	id := uint32(driverRXE)
	if p.h.dev.cfg.ABI == ABIRVT {
		id = driverHFI1
	}
	return &ioc{p: p, hdr: ioctlHdr{ObjectID: object, MethodID: method, DriverID: id}, next: iocOff + 0x2000}
}

func (c *ioc) attr(id uint16, n int, data uint64) *ioc {
	c.attrs = append(c.attrs, ioctlAttr{AttrID: id, Len: uint16(n), Flags: attrMandatory, Data: data})
	return c
}

func (c *ioc) u32(id uint16, v uint32) *ioc {
	b := append(encode(v), 0, 0, 0, 0)
	return c.attr(id, 4, native.Uint64(b))
}

func (c *ioc) u64(id uint16, v uint64) *ioc { return c.attr(id, 8, v) }

func (c *ioc) handle(id uint16, h uint32) *ioc { return c.attr(id, 0, uint64(h)) }

func (c *ioc) place(n int) uint64 {
	at := c.next
	c.next += (n + 15) &^ 7
	return progBase + uint64(at)
}

// in gives data by its address.
func (c *ioc) in(id uint16, v any) *ioc {
	b := encode(v)
	if len(b) <= 8 {
		return c.attr(id, len(b), native.Uint64(append(b, make([]byte, 8)...)))
	}
	at := c.place(len(b))
	copy(c.p.buf[at-progBase:], b)
	return c.attr(id, len(b), at)
}

// room gives room for an answer, filled with 0xee.
func (c *ioc) room(id uint16, n int) *ioc {
	at := c.place(n)
	for i := range n {
		c.p.buf[at-progBase+uint64(i)] = 0xee
	}
	return c.attr(id, n, at)
}

// bytes is the structure as the program hands it over.
func (c *ioc) bytes() []byte {
	c.hdr.NumAttrs = uint16(len(c.attrs))
	c.hdr.Length = uint16(ioctlHdrBytes + len(c.attrs)*ioctlAttrBytes)
	b := encode(c.hdr)
	for _, a := range c.attrs {
		b = append(b, encode(a)...)
	}
	return b
}

// run carries it out and puts the answer where it belongs.
func (c *ioc) run() ib.Errno {
	p := c.p
	b := c.bytes()
	copy(p.buf[iocOff:], b)
	c.rep = p.c.Ioctl(&Caller{Mem: p.mem}, IoctlRequest, progBase+iocOff, b, p.pass)
	for i, f := range c.rep.Files {
		p.files = append(p.files, f.F)
		copy(c.rep.Out[f.Off:], encode(int32(1000+i)))
	}
	if len(c.rep.Out) > 0 {
		_, err := p.mem.WriteV([]mr.Op{{Addr: c.rep.OutAddr, Buf: c.rep.Out}})
		require.NoError(p.t, err)
	}
	for _, w := range c.rep.Writes {
		_, err := p.mem.WriteV([]mr.Op{{Addr: w.Addr, Buf: w.Data}})
		require.NoError(p.t, err)
	}
	c.left = bytes.Clone(p.buf[iocOff:c.next])
	p.h.events()
	return c.rep.Errno
}

func (c *ioc) ok() *ioc {
	c.p.t.Helper()
	require.Zero(c.p.t, c.run(), "object %d method %d", c.hdr.ObjectID, c.hdr.MethodID)
	return c
}

// after returns an attribute as the call left it.
func (c *ioc) after(id uint16) (a ioctlAttr) {
	for i := range c.attrs {
		if c.attrs[i].AttrID == id {
			a.decode(c.left[ioctlHdrBytes+i*ioctlAttrBytes:])
		}
	}
	return a
}

// got returns the answer in an attribute, which must be marked as valid.
func (c *ioc) got(id uint16) []byte {
	c.p.t.Helper()
	a := c.after(id)
	require.Equal(c.p.t, uint16(attrMandatory|attrValidOutput), a.Flags, "attribute %d", id)
	return c.left[a.Data-progBase-iocOff:][:a.Len]
}

func inode(t *testing.T, f *os.File) (ino uint64) {
	raw, err := f.SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		var st syscall.Stat_t
		require.NoError(t, syscall.Fstat(int(fd), &st))
		ino = st.Ino
	}))
	return ino
}

// bare opens a program without a context.
func bare(t *testing.T, h *testHost) *prog {
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
	return p
}

// invoke is a command of the write() interface by ioctl.
func (p *prog) invoke(num uint32, cmd any, out, drv int) *ioc {
	c := p.ioc(objDevice, methodInvokeWrite).u64(attrWriteCmd, uint64(num)).in(attrCoreIn, cmd)
	if out > 0 {
		c.room(attrCoreOut, out)
	}
	if drv > 0 {
		c.room(attrUHWOut, drv)
	}
	return c
}

// TestIoctlLife is a program that never uses write(): how libibverbs begins, every kind
// of object, and how it ends.
func TestIoctlLife(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	h := w.hosts[0]
	p := bare(t, h)
	probe := p.ioc(objDevice, methodInvokeWrite).u64(attrWriteCmd, cmdQueryDevice)
	require.Equal(t, ib.ENOSPC, probe.run(), "the probe of libibverbs")
	require.Equal(t, ib.EINVAL, p.ioc(objDevice, methodQueryPort).u64(attrPortNum, 1).room(attrPortResp, 48).run(), "before GET_CONTEXT")

	c := p.ioc(objDevice, methodGetContext).room(attrNumCompVectors, 4).room(attrCoreSupport, 8).ok()
	require.Equal(t, encode(uint32(1)), c.got(attrNumCompVectors))
	require.Equal(t, encode(uint64(supportOptionalMR)), c.got(attrCoreSupport))
	require.Equal(t, ib.EINVAL, p.ioc(objDevice, methodGetContext).run(), "twice")
	c = p.ioc(objAsyncEvent, methodAsyncAlloc).attr(attrAsyncFD, 0, ^uint64(0)).ok()
	require.Equal(t, uint64(1000), c.after(attrAsyncFD).Data)
	first := c.rep.Files[0].F
	second := p.ioc(objAsyncEvent, methodAsyncAlloc).attr(attrAsyncFD, 0, 0).ok().rep.Files[0].F
	c = p.invoke(cmdCreateCompChannel, respOnly{1}, 4, 0).ok()
	require.Equal(t, encode(int32(1000)), c.got(attrCoreOut))
	channel := c.rep.Files[0].F
	fds := map[int32]*os.File{50: first, 51: second, 52: channel}
	p.pass = func(fd int32) (uint64, bool) {
		f, ok := fds[fd]
		if !ok {
			return 0, false
		}
		return inode(t, f), true
	}

	p.pd = native.Uint32(p.invoke(cmdAllocPD, respOnly{1}, 4, 0).ok().got(attrCoreOut))
	c = p.invoke(cmdRegMR, regMR{1, progBase, 4096, progBase, p.pd, uint32(ib.AccessLocalWrite | ib.AccessRelaxedOrdering)}, 12, 0).ok()
	mrh := native.Uint32(c.got(attrCoreOut))
	q := p.ioc(objMR, methodQueryMR).handle(attrMRHandle, mrh).room(attrMRRespLKey, 4).room(attrMRRespRKey, 4).room(attrMRRespLength, 8).room(attrMRRespIOVA, 8).ok()
	require.Equal(t, c.got(attrCoreOut)[4:8], q.got(attrMRRespLKey))
	require.Equal(t, encode(uint64(4096)), q.got(attrMRRespLength))
	require.Equal(t, encode(uint64(progBase)), q.got(attrMRRespIOVA))

	cq := p.ioc(objCQ, methodCreate).handle(attrCQHandle, 0).u32(attrCQCQE, 5).u64(attrCQUserHandle, 0xabc).u32(attrCQVector, 0).
		handle(attrCQChannel, 52).handle(attrCQEventFD, 51).room(attrCQRespCQE, 4).room(attrUHWOut, 16).ok()
	require.Equal(t, encode(uint32(7)), cq.got(attrCQRespCQE))
	require.NotNil(t, p.rings.areas[native.Uint64(cq.got(attrUHWOut))], "the ring is where the driver's part says")
	cqh := uint32(cq.after(attrCQHandle).Data)
	srq := p.ioc(objSRQ, methodCreate).handle(attrSRQHandle, 0).handle(attrSRQPD, p.pd).u64(attrSRQType, srqtBasic).u64(attrSRQUserHandle, 0xabd).
		u32(attrSRQMaxWR, 3).u32(attrSRQMaxSGE, 2).u32(attrSRQLimit, 0).room(attrSRQRespMaxWR, 4).room(attrSRQRespMaxSGE, 4).room(attrSRQRespNum, 4).room(attrUHWOut, 24).ok()
	require.Equal(t, encode(uint32(3)), srq.got(attrSRQRespMaxWR))
	srqh := uint32(srq.after(attrSRQHandle).Data)
	qp := p.newQPIoctl(cqh, srqh, 51)
	qph := uint32(qp.after(attrQPHandle).Data)
	require.NotZero(t, native.Uint32(qp.got(attrQPRespNum)))
	require.Equal(t, uint32(5), native.Uint32(qp.got(attrQPRespCap)))

	list := p.ioc(objDevice, methodInfoHandles).u64(attrInfoObject, objQP).room(attrInfoTotal, 4).room(attrInfoList, 64).ok()
	require.Equal(t, encode(uint32(1)), list.got(attrInfoTotal))
	require.Equal(t, encode(qph), list.got(attrInfoList)[:4])

	// Events of the port go to every file, those of an object to the one it names.
	h.d.SetPort(false)
	h.events()
	require.Len(t, readEvents(t, first, 16), 1)
	require.Len(t, readEvents(t, second, 16), 1)
	h.d.SetPort(true)
	h.events()
	require.Len(t, readEvents(t, second, 16), 1)
	require.Equal(t, ib.EBUSY, p.ioc(objPD, methodSoleDestroy).handle(attrDestroyHandle, p.pd).run())
	require.Equal(t, ib.EBUSY, p.ioc(objCQ, methodDestroy).handle(attrDestroyHandle, cqh).room(attrDestroyResp, 8).run())
	require.Equal(t, ib.EINVAL, p.ioc(objCQ, methodDestroy).handle(attrDestroyHandle, qph).room(attrDestroyResp, 8).run(), "of another kind")
	for _, d := range []struct {
		object uint16
		handle uint32
		resp   int
	}{{objQP, qph, 4}, {objSRQ, srqh, 4}, {objCQ, cqh, 8}, {objMR, mrh, 0}} {
		c := p.ioc(d.object, methodDestroy).handle(attrDestroyHandle, d.handle)
		if d.resp > 0 {
			c.room(attrDestroyResp, d.resp)
		}
		c.ok()
		require.Equal(t, ib.ENOENT, c.run(), "twice")
		if d.resp > 0 {
			require.Equal(t, make([]byte, d.resp), p.buf[c.attrs[1].Data-progBase:][:d.resp], "no events were read")
		}
	}
	p.ioc(objPD, methodSoleDestroy).handle(attrDestroyHandle, p.pd).ok()
	require.Empty(t, p.c.objects)
	require.Empty(t, p.rings.areas)
}

func (p *prog) newQPIoctl(cq, srq uint32, eventFD uint32) *ioc {
	c := p.ioc(objQP, methodCreate).handle(attrQPHandle, 0).handle(attrQPPD, p.pd).handle(attrQPSendCQ, cq).handle(attrQPRecvCQ, cq).
		u64(attrQPUserHandle, 0xabe).in(attrQPCap, qpCaps{5, 5, 2, 2, 0}).u64(attrQPType, uint64(ib.QPTypeRC)).u32(attrQPFlags, qpfSQSigAll).
		room(attrQPRespCap, 20).room(attrQPRespNum, 4).room(attrUHWOut, 32)
	if srq != 0 {
		c.handle(attrQPSRQ, srq)
	}
	if eventFD != 0 {
		c.handle(attrQPEventFD, eventFD)
	}
	return c.ok()
}

// TestIoctlImport queries a context as a second user of its descriptor does.
func TestIoctlImport(t *testing.T) {
	w := newNet(t, 1, ABIRVT, nil)
	p := bare(t, w.hosts[0])
	require.Equal(t, ib.EINVAL, p.ioc(objDevice, methodQueryContext).run())
	p.ioc(objDevice, methodGetContext).ok()
	c := p.ioc(objDevice, methodQueryContext).room(attrNumCompVectors, 4).ok()
	require.Equal(t, encode(uint32(1)), c.got(attrNumCompVectors))
	// A closed file of events gives way to the next one.
	for range 100 {
		c := p.ioc(objAsyncEvent, methodAsyncAlloc).attr(attrAsyncFD, 0, 0).ok()
		c.rep.Files[0].F.Close()
	}
	require.LessOrEqual(t, len(p.c.asyncFiles()), 2)
}

// TestIoctlQueries reads port and GID table.
func TestIoctlQueries(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p := newProg(t, w.hosts[0])
	port := p.ioc(objDevice, methodQueryPort).u64(attrPortNum, 1).room(attrPortResp, 64).ok().got(attrPortResp)
	require.Equal(t, uint8(portActive), port[26])
	require.Equal(t, make([]byte, 24), port[40:], "what the device does not know is 0")
	require.Equal(t, ib.EINVAL, p.ioc(objDevice, methodQueryPort).u64(attrPortNum, 2).room(attrPortResp, 48).run())

	entry := func(port, index uint64) *ioc {
		return p.ioc(objDevice, methodGIDEntry).u64(attrEntryPort, port).u64(attrEntryIndex, index).u32(attrEntryFlags, 0).room(attrEntryResp, 32)
	}
	got := entry(1, 0).ok().got(attrEntryResp)
	require.Equal(t, w.hosts[0].gid[:], got[:16])
	require.Equal(t, encode([3]uint32{0, 1, gidTypeRoCEv2}), got[16:28])
	require.Equal(t, enodata, entry(1, 1).run())
	require.Equal(t, ib.EINVAL, entry(1, defaultGIDTable).run())
	require.Equal(t, ib.EINVAL, entry(2, 0).run())
	require.Equal(t, ib.EINVAL, entry(1, 1<<32).run())

	table := func(size uint64, room int) *ioc {
		return p.ioc(objDevice, methodGIDTable).u64(attrTableEntrySize, size).room(attrTableEntries, room).room(attrTableNum, 8)
	}
	c := table(40, 400).ok()
	require.Equal(t, encode(uint64(1)), c.got(attrTableNum))
	require.Equal(t, got, c.got(attrTableEntries)[:32])
	require.Equal(t, make([]byte, 8), c.got(attrTableEntries)[32:40], "of a longer entry")
	for _, bad := range [][2]int{{0, 320}, {32, 0}, {32, 33}, {64, 32}} {
		require.Equal(t, ib.EINVAL, table(uint64(bad[0]), bad[1]).run(), "%v", bad)
	}
	c = table(32, 320)
	c.attrs[1].Data = 0x10
	require.Equal(t, ib.EFAULT, c.run())
}

// TestIoctlHostile gives headers and attributes that are wrong in one way each.
func TestIoctlHostile(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p := newProg(t, w.hosts[0])
	good := func() *ioc { return p.ioc(objDevice, methodQueryPort).u64(attrPortNum, 1).room(attrPortResp, 48) }
	good().ok()
	raw := func(change func(b []byte) []byte) ib.Errno {
		return p.c.Ioctl(&Caller{Mem: p.mem}, IoctlRequest, progBase+iocOff, change(good().bytes()), nil).Errno
	}
	put16 := func(off int, v uint16) func([]byte) []byte {
		return func(b []byte) []byte { native.PutUint16(b[off:], v); return b }
	}
	for _, c := range []struct {
		what   string
		want   ib.Errno
		change func([]byte) []byte
	}{
		{"nothing", ib.EINVAL, func([]byte) []byte { return nil }},
		{"half a header", ib.EINVAL, func(b []byte) []byte { return b[:12] }},
		{"cut", ib.EINVAL, func(b []byte) []byte { return b[:len(b)-1] }},
		{"length", ib.EINVAL, put16(0, 24)},
		{"no attributes", ib.EINVAL, func(b []byte) []byte { native.PutUint16(b, 24); return put16(6, 0)(b[:24]) }},
		{"count", ib.EINVAL, put16(6, 65535)},
		{"object", eprotonosupport, put16(2, 999)},
		{"flows", eprotonosupport, put16(2, 9)},
		{"method", eprotonosupport, put16(4, 77)},
		{"reserved1", eprotonosupport, func(b []byte) []byte { b[8] = 1; return b }},
		{"reserved2", eprotonosupport, func(b []byte) []byte { b[20] = 1; return b }},
		{"driver", ib.EINVAL, func(b []byte) []byte { b[16] = 1; return b }},
		{"unknown mandatory attribute", eprotonosupport, put16(24, 55)},
		{"mandatory attribute replaced", ib.EINVAL, func(b []byte) []byte { return put16(28, 0)(put16(24, 55)(b)) }},
		{"twice", ib.EINVAL, put16(24+16, attrPortNum)},
		{"reserved of an attribute", ib.EINVAL, put16(30, 1)},
		{"short number", ib.EINVAL, put16(26, 4)},
		{"little room", ib.EINVAL, put16(24+16+2, 47)},
	} {
		require.Equal(t, c.want, raw(c.change), c.what)
	}
	c := good()
	c.attr(4000, 7, 9).attrs[2].Flags = 0
	c.ok() // an unknown attribute that may be ignored
	for range ioctlMaxBytes / ioctlAttrBytes {
		c.attr(4000, 7, 9)
	}
	require.Equal(t, ib.EINVAL, c.run(), "longer than a page")
	require.Equal(t, enotty, p.c.Ioctl(nil, IoctlRequest+1, 0, good().bytes(), nil).Errno)
	require.Equal(t, ib.EINVAL, p.ioc(objMR, methodQueryMR).attr(attrMRHandle, 0, ^uint64(0)).room(1, 4).room(2, 4).room(3, 8).run(), "a negative handle")
	require.Equal(t, ib.ENOENT, p.ioc(objMR, methodQueryMR).attr(attrMRHandle, 0, 1<<40).room(1, 4).room(2, 4).room(3, 8).run())
	require.Equal(t, ib.EOPNOTSUPP, p.ioc(objMR, methodRegDmabufMR).handle(0, 0).handle(1, p.pd).u64(2, 0).u64(3, 1).u64(4, 0).handle(5, 3).u32(6, 0).room(7, 4).room(8, 4).run())
	far := p.ioc(objDevice, methodInvokeWrite).u64(attrWriteCmd, cmdRegMR).attr(attrCoreIn, 40, 0x10).room(attrCoreOut, 12)
	require.Equal(t, ib.EFAULT, far.run())
	require.Equal(t, ib.EOPNOTSUPP, p.invoke(cmdMask, respOnly{}, 8, 0).run())
	require.Equal(t, ib.EINVAL, p.invoke(0x1000, respOnly{}, 8, 0).run())
	require.Equal(t, ib.ENOSPC, p.invoke(cmdQueryDevice, respOnly{}, 100, 0).run())
	handles := len(p.c.objects)
	ch := p.ioc(objCQ, methodCreate).handle(attrCQHandle, 0).u32(attrCQCQE, 5).u64(attrCQUserHandle, 1).u32(attrCQVector, 0).room(attrCQRespCQE, 4).room(attrUHWOut, 16)
	require.Equal(t, ebadf, ch.handle(attrCQEventFD, 99).run())
	require.Len(t, p.c.objects, handles)
}

// TestIoctlOff answers as a kernel without the interface.
func TestIoctlOff(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	w.hosts[0].dev.cfg.NoIoctl = true
	p := bare(t, w.hosts[0])
	require.Equal(t, enotty, p.ioc(objDevice, methodGetContext).run())
}

// TestDeviceMemory writes from one program into the device memory of another, which
// sees it where the memory is mapped.
func TestDeviceMemory(t *testing.T) {
	w := newNet(t, 2, ABIRXE, nil)
	a, b := newProg(t, w.hosts[0]), newProg(t, w.hosts[1])
	alloc := func(n uint64, align uint32) *ioc {
		return b.ioc(objDM, methodCreate).handle(attrDMHandle, 0).u64(attrDMLength, n).u32(attrDMAlignment, align).room(attrUHWOut, 16)
	}
	require.Equal(t, ib.EINVAL, alloc(0, 0).run())
	require.Equal(t, ib.EINVAL, alloc(maxDMBytes+1, 0).run())
	require.Equal(t, ib.EINVAL, alloc(64, 40).run())
	c := alloc(8192, 3).ok()
	dm, mapped := uint32(c.after(attrDMHandle).Data), b.rings.areas[native.Uint64(c.got(attrUHWOut))]
	reg := func(off, n uint64, acc ib.Access) *ioc {
		return b.ioc(objMR, methodDMMRReg).handle(attrDMMRHandle, 0).u64(attrDMMROffset, off).u64(attrDMMRLength, n).handle(attrDMMRPD, b.pd).
			u32(attrDMMRAccess, uint32(acc)).handle(attrDMMRDM, dm).room(attrDMMRRespLKey, 4).room(attrDMMRRespRKey, 4)
	}
	acc := ib.AccessLocalWrite | ib.AccessRemoteMask | ib.AccessZeroBased
	require.Equal(t, ib.EINVAL, reg(0, 8192, acc&^ib.AccessZeroBased).run())
	require.Equal(t, ib.EINVAL, reg(1, 8192, acc).run())
	require.Equal(t, ib.EINVAL, reg(^uint64(0), 2, acc).run())
	m := reg(4096, 4096, acc).ok()
	rkey := native.Uint32(m.got(attrDMMRRespRKey))

	acq, bcq := a.createCQ(10, -1), b.createCQ(10, -1)
	qa, qb := a.createQP(ib.QPTypeRC, acq, acq, 0), b.createQP(ib.QPTypeRC, bcq, bcq, 0)
	qa.connect(b.h.gid, qb.qpn)
	qb.connect(a.h.gid, qa.qpn)
	copy(a.buf, "through the wire")
	e := qa.wqe(1, ib.WRRDMAWrite, ib.SendSignaled, qa.sge(0, 16))
	native.PutUint64(e[sendAddr:], 8)
	native.PutUint32(e[sendRKey:], rkey)
	require.Zero(t, qa.post())
	w.settle()
	wcs := acq.poll()
	require.Len(t, wcs, 1)
	require.Equal(t, ib.WCSuccess, wcs[0].Status)
	require.True(t, bytes.HasPrefix(mapped[4096+8:], []byte("through the wire")))

	free := func() *ioc { return b.ioc(objDM, methodDestroy).handle(attrDestroyHandle, dm) }
	require.Equal(t, ib.EBUSY, free().run())
	b.ioc(objMR, methodDestroy).handle(attrDestroyHandle, uint32(m.after(attrDMMRHandle).Data)).ok()
	free().ok()
	require.Equal(t, ib.ENOENT, free().run())
	for range maxDMs {
		alloc(1, 0).ok()
	}
	require.Equal(t, ib.ENOMEM, alloc(1, 0).run())
}

// TestAdviseMR checks what ibv_advise_mr may name.
func TestAdviseMR(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p := newProg(t, w.hosts[0])
	ro := regMRResp{}
	p.ok(cmdRegMR, regMR{respAddr, progBase, 4096, progBase, p.pd, 0}, 12, &ro)
	advise := func(advice, flags uint64, sges ...uverbsSGE) ib.Errno {
		return p.ioc(objMR, methodAdviseMR).handle(attrAdvisePD, p.pd).u64(attrAdviseAdvice, advice).u64(attrAdviseFlags, flags).in(attrAdviseSGEs, sges).run()
	}
	mine := uverbsSGE{progBase, 4096, p.mr.LKey}
	require.Zero(t, advise(advicePrefetch, adviseFlush, mine, mine))
	require.Zero(t, advise(adviceWrite, 0, mine))
	require.Zero(t, advise(adviceNoFault, 0, uverbsSGE{progBase, 10, ro.LKey}))
	require.Equal(t, eperm, advise(adviceWrite, 0, uverbsSGE{progBase, 10, ro.LKey}))
	require.Equal(t, ib.ENOENT, advise(advicePrefetch, 0, mine, uverbsSGE{progBase, 10, 0xfff00000}))
	require.Equal(t, ib.EINVAL, advise(advicePrefetch, 0, uverbsSGE{progBase + 4095, 2, ro.LKey}))
	require.Equal(t, ib.EOPNOTSUPP, advise(3, 0, mine))
	require.Equal(t, ib.EINVAL, advise(advicePrefetch, 2, mine))
}

// FuzzIoctl changes bytes of ioctls that are right, in a program that has objects of
// every kind. Nothing may happen but an error, and everything must be freed again.
func FuzzIoctl(f *testing.F) {
	f.Add([]byte{0, 0, 0})
	f.Add([]byte{4, 40, 1, 200, 3, 2, 1, 9, 44, 255, 255, 255})
	for i := range byte(14) {
		f.Add([]byte{i, 24, 1, i, 2, 3, i, 26, 0, 5, 30, 1, i, 200, 255})
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		abi := ABIRXE
		if len(in) > 0 && in[0]&0x80 != 0 {
			abi = ABIRVT
		}
		w := newNet(t, 1, abi, func(c *rvt.Config) { c.Limits.MaxCQE, c.Limits.MaxQPWR, c.Limits.MaxSRQWR = 1024, 1024, 1024 })
		p := newProg(t, w.hosts[0])
		cqh := uint32(p.ioc(objCQ, methodCreate).handle(attrCQHandle, 0).u32(attrCQCQE, 5).u64(attrCQUserHandle, 1).u32(attrCQVector, 0).
			room(attrCQRespCQE, 4).room(attrUHWOut, 16).ok().after(attrCQHandle).Data)
		for range 32 {
			if len(in) < 3 {
				break
			}
			c := p.sample(in[0]&0x7f, cqh)
			n := min(int(in[1]%8), (len(in)-2)/2)
			b := c.bytes()
			for i := range n {
				b[int(in[2+2*i])%len(b)] = in[3+2*i]
			}
			rep := p.c.Ioctl(&Caller{Mem: p.mem}, IoctlRequest, progBase+iocOff, b, p.pass)
			for _, file := range rep.Files {
				require.LessOrEqual(t, file.Off+4, len(rep.Out))
				file.F.Close()
			}
			if rep.Errno != 0 {
				require.Empty(t, rep.Files)
				require.Empty(t, rep.Writes)
			}
			p.h.events()
			in = in[2+2*n:]
		}
		w.settle()
		p.c.Close()
		require.Empty(t, p.c.objects)
		require.Zero(t, len(p.rings.areas))
		require.Zero(t, p.h.d.Keys().Len())
	})
}

// sample is a valid ioctl of each kind.
func (p *prog) sample(kind byte, cq uint32) *ioc {
	switch kind % 14 {
	case 0:
		return p.ioc(objDevice, methodQueryPort).u64(attrPortNum, 1).room(attrPortResp, 48)
	case 1:
		return p.ioc(objDevice, methodInfoHandles).u64(attrInfoObject, objMR).room(attrInfoTotal, 4).room(attrInfoList, 64)
	case 2:
		return p.ioc(objDevice, methodGIDTable).u64(attrTableEntrySize, 32).room(attrTableEntries, 320).room(attrTableNum, 8)
	case 3:
		return p.ioc(objDevice, methodGIDEntry).u64(attrEntryPort, 1).u64(attrEntryIndex, 0).u32(attrEntryFlags, 0).room(attrEntryResp, 32)
	case 4:
		return p.ioc(objCQ, methodCreate).handle(attrCQHandle, 0).u32(attrCQCQE, 5).u64(attrCQUserHandle, 1).u32(attrCQVector, 0).room(attrCQRespCQE, 4).room(attrUHWOut, 16)
	case 5:
		return p.ioc(objQP, methodCreate).handle(attrQPHandle, 0).handle(attrQPPD, p.pd).handle(attrQPSendCQ, cq).handle(attrQPRecvCQ, cq).u64(attrQPUserHandle, 2).
			in(attrQPCap, qpCaps{5, 5, 2, 2, 0}).u64(attrQPType, uint64(ib.QPTypeRC)).u32(attrQPFlags, qpfSQSigAll).room(attrQPRespCap, 20).room(attrQPRespNum, 4).room(attrUHWOut, 32)
	case 6:
		return p.ioc(objSRQ, methodCreate).handle(attrSRQHandle, 0).handle(attrSRQPD, p.pd).u64(attrSRQType, srqtBasic).u64(attrSRQUserHandle, 3).
			u32(attrSRQMaxWR, 3).u32(attrSRQMaxSGE, 2).u32(attrSRQLimit, 0).room(attrSRQRespMaxWR, 4).room(attrSRQRespMaxSGE, 4).room(attrUHWOut, 24)
	case 7:
		return p.ioc(objDM, methodCreate).handle(attrDMHandle, 0).u64(attrDMLength, 100).u32(attrDMAlignment, 0).room(attrUHWOut, 16)
	case 8:
		return p.ioc(objMR, methodDMMRReg).handle(attrDMMRHandle, 0).u64(attrDMMROffset, 0).u64(attrDMMRLength, 50).handle(attrDMMRPD, p.pd).
			u32(attrDMMRAccess, uint32(ib.AccessZeroBased)).handle(attrDMMRDM, p.c.lastHandle).room(attrDMMRRespLKey, 4).room(attrDMMRRespRKey, 4)
	case 9:
		return p.ioc(objMR, methodDestroy).handle(attrDestroyHandle, p.c.lastHandle)
	case 10:
		return p.ioc(objDM, methodDestroy).handle(attrDestroyHandle, p.c.lastHandle)
	case 11:
		return p.ioc(objQP, methodDestroy).handle(attrDestroyHandle, p.c.lastHandle).room(attrDestroyResp, 4)
	case 12:
		return p.ioc(objAsyncEvent, methodAsyncAlloc).attr(attrAsyncFD, 0, 0)
	}
	return p.invoke(cmdRegMR, regMR{1, progBase, 4096, progBase, p.pd, uint32(ib.AccessLocalWrite)}, 12, 0)
}
