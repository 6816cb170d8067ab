//go:build linux

package uverbs

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

// TestLengths checks what the kernel checks before it looks inside a command.
func TestLengths(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p := newProg(t, w.hosts[0])
	good := command(cmdAllocPD, respOnly{respAddr}, 4)
	edit := func(f func(b []byte) []byte) ib.Errno { return p.write(f(append([]byte(nil), good...))).Errno }
	require.Equal(t, ib.Errno(0), edit(func(b []byte) []byte { return b }))
	require.Equal(t, ib.EINVAL, edit(func(b []byte) []byte { return nil }))
	require.Equal(t, ib.EINVAL, edit(func(b []byte) []byte { return b[:7] }))
	require.Equal(t, ib.EINVAL, edit(func(b []byte) []byte { return b[:12] }), "in_words is not the length")
	require.Equal(t, ib.ENOSPC, edit(func(b []byte) []byte { b[6] = 0; return b }), "no room for the answer")
	require.Equal(t, ib.EINVAL, edit(func(b []byte) []byte { b[1] = 1; return b }), "unknown bits")
	require.Equal(t, ib.EOPNOTSUPP, edit(func(b []byte) []byte { b[0] = 200; return b }))
	for _, c := range []byte{6, 7, 10, 12, 15, 22, 37, 38, 39, 40} {
		require.Equal(t, ib.EOPNOTSUPP, edit(func(b []byte) []byte { b[0] = c; return b }), "command %d", c)
	}
	require.Equal(t, ib.ENOSPC, p.errno(cmdRegMR, respOnly{respAddr}, 12), "the command is too short")
	// What a provider adds is tolerated.
	require.Zero(t, p.errno(cmdAllocPD, respOnly{respAddr}, 64, make([]byte, 32)...))
	// rdma-core 18 and 19 send a short DESTROY_CQ.
	c := p.createCQ(4, -1)
	rep := p.write(command(cmdDestroyCQ, reqNotifyCQ{}, 8))
	require.Equal(t, ib.ENOENT, rep.Errno)
	p.destroyCQ(c)
	// Extended.
	ex := commandEx(cmdQueryDevice, exQueryDevice{}, 304, 0)
	for i, want := range map[int]ib.Errno{4: ib.EINVAL, 6: ib.ENOSPC, 16: ib.EINVAL, 20: ib.EINVAL} {
		b := append([]byte(nil), ex...)
		b[i]++
		if i == 6 {
			b[i], b[i+1] = 1, 0
		}
		require.Equal(t, want, p.write(b).Errno, "byte %d", i)
	}
	require.Equal(t, ib.EINVAL, p.write(ex[:16]).Errno)
	require.Equal(t, ib.EINVAL, p.errno(cmdGetContext, respOnly{respAddr}, 8), "once only")
	c2, err := p.h.dev.Open(newHeapRings())
	require.NoError(t, err)
	defer c2.Close()
	require.Equal(t, ib.EINVAL, c2.Write(nil, good, nil).Errno, "GET_CONTEXT comes first")
	require.Equal(t, enotty, p.c.Ioctl(nil, IoctlRequest-1, 0, nil, nil).Errno)
}

// TestHandles uses handles of another context, of another kind, and stale ones.
func TestHandles(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p, other := newProg(t, w.hosts[0]), newProg(t, w.hosts[0])
	for range 20 {
		other.handle(cmdAllocPD, respOnly{respAddr}, 4)
	}
	far := other.handle(cmdAllocPD, respOnly{respAddr}, 4)
	require.Equal(t, ib.ENOENT, p.errno(cmdDeallocPD, handleOnly{far}, 0))
	require.Equal(t, ib.EINVAL, p.errno(cmdDeallocPD, handleOnly{p.mr.MRHandle}, 0))
	require.Equal(t, ib.EINVAL, p.errno(cmdRegMR, regMR{respAddr, progBase, 10, progBase, far, 1}, 12))
	require.Equal(t, ib.EBUSY, p.errno(cmdDeallocPD, handleOnly{p.pd}, 0))
	c := p.createCQ(4, -1)
	q := p.createQP(ib.QPTypeRC, c, c, 0)
	require.Equal(t, ib.EBUSY, p.errno(cmdDestroyCQ, destroyObject{respAddr, c.handle, 0}, 8))
	body := func(edit func(*qpBody)) ib.Errno {
		b := qpBody{PDHandle: p.pd, SendCQHandle: c.handle, RecvCQHandle: c.handle, Cap: qpCaps{1, 1, 1, 1, 0}, QPType: 2}
		edit(&b)
		return p.errno(cmdCreateQP, createQP{respAddr, b}, 64)
	}
	require.Zero(t, body(func(b *qpBody) {}))
	areas := len(p.rings.areas)
	for name, want := range map[string]struct {
		errno ib.Errno
		edit  func(*qpBody)
	}{
		"pd":       {ib.EINVAL, func(b *qpBody) { b.PDHandle = q.handle }},
		"cq":       {ib.EINVAL, func(b *qpBody) { b.SendCQHandle = 0 }},
		"srq":      {ib.EINVAL, func(b *qpBody) { b.IsSRQ, b.SRQHandle = 1, c.handle }},
		"smi":      {ib.EINVAL, func(b *qpBody) { b.QPType = 0 }},
		"gsi":      {ib.EINVAL, func(b *qpBody) { b.QPType = 1 }},
		"raw":      {ib.EOPNOTSUPP, func(b *qpBody) { b.QPType = 8 }},
		"xrc":      {ib.EOPNOTSUPP, func(b *qpBody) { b.QPType = 9 }},
		"send_wr":  {ib.EINVAL, func(b *qpBody) { b.Cap.MaxSendWR = 16384 }},
		"negative": {ib.EINVAL, func(b *qpBody) { b.Cap.MaxRecvWR = ^uint32(0) }},
		"sge":      {ib.EINVAL, func(b *qpBody) { b.Cap.MaxRecvSGE = 100 }},
		"inline":   {ib.EINVAL, func(b *qpBody) { b.Cap.MaxInlineData = 4096 }},
	} {
		require.Equal(t, want.errno, body(want.edit), name)
	}
	require.Equal(t, ib.EINVAL, p.errno(cmdCreateQP, createQP{respAddr, qpBody{}}, 32), "no room for the rings' offsets")
	require.Len(t, p.rings.areas, areas, "nothing leaks")
	p.rings.fail = true
	require.Equal(t, ib.ENOMEM, body(func(*qpBody) {}))
	require.Equal(t, ib.ENOMEM, p.errno(cmdCreateCQ, createCQ{Response: respAddr, CQE: 4, CompChannel: -1}, 24))
	require.Equal(t, ib.ENOMEM, p.errno(cmdCreateSRQ, createSRQ{respAddr, 0, p.pd, 4, 1, 0}, 40))
}

// TestRegions checks what reg_mr refuses.
func TestRegions(t *testing.T) {
	w := newNet(t, 1, ABIRXE, nil)
	p := newProg(t, w.hosts[0])
	reg := func(start, length, va uint64, acc ib.Access) ib.Errno {
		return p.errno(cmdRegMR, regMR{respAddr, start, length, va, p.pd, uint32(acc)}, 12)
	}
	require.Zero(t, reg(progBase, 10, progBase, 0))
	require.Zero(t, reg(progBase+10, 10, 4096+10, 0), "any address with the same offset in its page")
	require.Equal(t, ib.EINVAL, reg(progBase, 10, progBase+1, 0))
	require.Equal(t, ib.EINVAL, reg(progBase, 0, progBase, 0))
	require.Equal(t, ib.EINVAL, reg(progBase, ^uint64(0), progBase, 0))
	require.Equal(t, ib.EINVAL, reg(progBase, 10, progBase, ib.AccessRemoteWrite))
	require.Zero(t, reg(0x1000, 10, 0x1000, ib.AccessOnDemand), "what is registered on demand need not be there yet")
	require.Zero(t, reg(0, ^uint64(0), 0, ib.AccessOnDemand|ib.AccessLocalWrite), "implicit: all memory")
	require.Equal(t, ib.EFAULT, reg(0x1000, 10, 0x1000, 0))
	require.Equal(t, ib.EFAULT, reg(progBase, uint64(len(p.buf))+1, progBase, 0))
}

// TestRingCorruption writes nonsense into every ring while it is in use. Nothing may
// happen but errors of the program's own.
func TestRingCorruption(t *testing.T) {
	x := newPair(t, 2, ib.QPTypeRC, nil)
	third := newProg(t, x.w.hosts[0])
	for i := range 64 {
		for _, q := range []queue{x.qa.sq, x.qa.rq, x.ca.q} {
			storeWord(q.b, rxeElemOff, uint32(i)*0x01010101)
			storeWord(q.b, rxeMaskOff, ^uint32(i))
			storeWord(q.b, rxeProdOff, uint32(i)*0x9e3779b9)
			storeWord(q.b, rxeConsOff, uint32(i)*0x85ebca6b)
			for j := rxeHeader; j < len(q.b); j += 7 {
				q.b[j] = byte(i * j)
			}
		}
		x.qa.doorbell()
		x.a.c.Doorbell(x.qa.handle)
		x.a.c.Scan(x.a.h.d)
		x.qb.wqe(1, ib.WRSend, ib.SendSignaled, x.qb.sge(0, 8))
		if i < 8 {
			require.Zero(t, x.qb.post())
		}
		x.w.settle()
	}
	require.Equal(t, ib.Errno(0), third.errno(cmdAllocPD, respOnly{respAddr}, 4))
	x.a.c.Close()
}

func TestSysfs(t *testing.T) {
	c := DeviceConfig{Name: "rvt0", Index: 1, GUID: 0x0200000000000001, GIDs: []ib.GID{ib.GIDFromIPv4(127, 0, 0, 1), {0: 0xfe, 1: 0x80, 15: 1}}}
	tree := SysfsTree(c)
	for path, want := range map[string]string{
		"class/infiniband_verbs/abi_version":              "6\n",
		"class/infiniband_verbs/uverbs1/ibdev":            "rvt0\n",
		"class/infiniband_verbs/uverbs1/dev":              "231:193\n",
		"class/infiniband_verbs/uverbs1/abi_version":      "1\n",
		"class/infiniband/rvt0/node_guid":                 "0200:0000:0000:0001\n",
		"class/infiniband/rvt0/device/modalias":           "rdma_device:Nrxe\n",
		"class/infiniband/rvt0/ports/1/gids/0":            "0000:0000:0000:0000:0000:ffff:7f00:0001\n",
		"class/infiniband/rvt0/ports/1/gids/1":            "fe80:0000:0000:0000:0000:0000:0000:0001\n",
		"class/infiniband/rvt0/ports/1/gid_attrs/types/1": "RoCE v2\n",
		"class/infiniband/rvt0/ports/1/gid_attrs/ndevs/0": "lo\n",
		"class/infiniband/rvt0/ports/1/link_layer":        "Ethernet\n",
	} {
		require.Equal(t, want, tree.Files[path], path)
	}
	for path, target := range tree.Links {
		found := false
		for f := range tree.Files {
			found = found || strings.HasPrefix(f, target+"/")
		}
		require.True(t, found, "%s leads nowhere", path)
	}
	c.ABI = ABIRVT
	tree = SysfsTree(c)
	require.Equal(t, "2\n", tree.Files["class/infiniband_verbs/uverbs1/abi_version"])
	require.Contains(t, tree.Files["class/infiniband/rvt0/device/modalias"], "pci:")
	require.Error(t, (&DeviceConfig{ABI: "x", Index: -1, CompVectors: -1}).Validate())
}
