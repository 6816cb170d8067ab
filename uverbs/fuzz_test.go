//go:build linux

package uverbs

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
)

// fuzzer turns fuzz input into what a program does: commands that are valid or nearly
// so, work in the rings, and damage to them.
type fuzzer struct {
	in  []byte
	x   *pair
	w   *net
	p   *prog
	rvt *prog // the same, but of the other personality
	// objs are the handles that were given out, by kind; junk those that were not.
	objs map[kind][]uint32
}

// kind is a kind of object.
type kind byte

const (
	kPD kind = iota
	kMR
	kMW
	kAH
	kCQ
	kSRQ
	kQP
)

var junk = []uint32{0, 1, 1 << 30, ^uint32(0)}

// made maps a command to the kind of object that it makes.
var made = map[uint32]kind{cmdAllocPD: kPD, cmdRegMR: kMR, cmdAllocMW: kMW, cmdCreateAH: kAH, cmdCreateCQ: kCQ, cmdCreateSRQ: kSRQ, cmdCreateQP: kQP}

func (f *fuzzer) byte() byte {
	if len(f.in) == 0 {
		return 0
	}
	b := f.in[0]
	f.in = f.in[1:]
	return b
}

func (f *fuzzer) u32() uint32 {
	switch b := f.byte(); b % 4 {
	case 0:
		return uint32(b >> 2)
	case 1:
		return uint32(f.byte())<<8 | uint32(f.byte())
	case 2:
		return ^uint32(0) - uint32(b>>2)
	}
	return uint32(f.byte())<<24 | uint32(f.byte())<<16 | uint32(f.byte())<<8 | uint32(f.byte())
}

// obj picks a handle, mostly of a kind.
func (f *fuzzer) obj(k kind) uint32 {
	b := f.byte()
	if b&15 == 15 {
		k = kind(b >> 4 % 7)
	}
	if l := f.objs[k]; len(l) > 0 {
		return l[int(b)%len(l)]
	}
	return junk[b%4]
}

func (f *fuzzer) addr() uint64 { return progBase + uint64(f.u32())%uint64(len(f.p.buf)) }

// command makes one command, with random but plausible fields.
func (f *fuzzer) command() []byte {
	qpb := func() qpBody {
		return qpBody{uint64(f.u32()), f.obj(kPD), f.obj(kCQ), f.obj(kCQ), f.obj(kSRQ), qpCaps{uint32(f.byte()), uint32(f.byte()), uint32(f.byte() % 40), uint32(f.byte() % 40), uint32(f.byte())}, f.byte() & 1, 2 + f.byte()%4, f.byte() & 1, 0}
	}
	switch f.byte() % 30 {
	case 0:
		return command(cmdAllocPD, respOnly{respAddr}, 4)
	case 1:
		return command(cmdRegMR, regMR{respAddr, progBase, uint64(f.byte()) << 4, progBase, f.obj(kPD), uint32(f.byte()) & 0x1f}, 12)
	case 2:
		return command(cmdReregMR, reregMR{respAddr, f.obj(kMR), uint32(f.byte() % 9), progBase, uint64(f.byte()), progBase, f.obj(kPD), uint32(f.byte()) & 0x1f}, 8)
	case 3:
		return command(cmdAllocMW, allocMW{Response: respAddr, PDHandle: f.obj(kPD), MWType: f.byte() % 4}, 8)
	case 4:
		return command(cmdCreateCQ, createCQ{Response: respAddr, UserHandle: uint64(f.byte()), CQE: uint32(f.byte()), CompChannel: []int32{-1, 77, 78}[f.byte()%3]}, 24)
	case 5:
		return command(cmdResizeCQ, resizeCQ{respAddr, f.obj(kCQ), uint32(f.byte())}, 24)
	case 6:
		return command(cmdReqNotifyCQ, reqNotifyCQ{f.obj(kCQ), uint32(f.byte() & 1)}, 0)
	case 7:
		return command(cmdPollCQ, pollCQ{respAddr, f.obj(kCQ), f.u32()}, 8+48*int(f.byte()))
	case 8, 9:
		return command(cmdCreateQP, createQP{respAddr, qpb()}, 64)
	case 10, 11, 12:
		m := modifyQP{QPHandle: f.obj(kQP), AttrMask: f.u32(), QPState: f.byte() % 8, PathMTU: f.byte() % 7, DestQPNum: uint32(f.x.qb.qpn), PortNum: 1, MinRNRTimer: f.byte() % 33, Timeout: f.byte() % 33, RetryCnt: f.byte() % 9}
		m.Dest = qpDest{DGID: f.x.b.h.gid, IsGlobal: 1, PortNum: 1}
		if f.byte()&3 != 0 {
			m.AttrMask = uint32([]ib.AttrMask{ib.AttrState, ib.AttrState | ib.AttrPKeyIndex | ib.AttrPort | ib.AttrAccessFlags, maskRTRRC, maskRTSRC}[f.byte()%4])
		}
		return command(cmdModifyQP, m, 0)
	case 13:
		return command(cmdQueryQP, queryQP{respAddr, f.obj(kQP), f.u32()}, 128)
	case 14:
		i := f.byte() % 3
		return command([]uint32{cmdDestroyQP, cmdDestroyCQ, cmdDestroySRQ}[i], destroyObject{respAddr, f.obj([]kind{kQP, kCQ, kSRQ}[i]), 0}, 8)
	case 15:
		i := f.byte() % 4
		return command([]uint32{cmdDeallocPD, cmdDeregMR, cmdDeallocMW, cmdDestroyAH}[i], handleOnly{f.obj([]kind{kPD, kMR, kMW, kAH}[i])}, 0)
	case 16:
		return command(cmdCreateAH, createAH{Response: respAddr, PDHandle: f.obj(kPD), Attr: ahAttr{GRH: globalRoute{DGID: f.x.b.h.gid, SGIDIndex: f.byte() % 2}, IsGlobal: 1, PortNum: 1}}, 12)
	case 17:
		return command(cmdCreateSRQ, createSRQ{respAddr, 7, f.obj(kPD), uint32(f.byte()), uint32(f.byte() % 40), 0}, 40)
	case 18:
		return command(cmdModifySRQ, modifySRQ{f.obj(kSRQ), uint32(f.byte() % 8), uint32(f.byte()), uint32(f.byte())}, 0, make([]byte, 8)...)
	case 19:
		return command([]uint32{cmdAttachMcast, cmdDetachMcast}[f.byte()%2], mcastCmd{GID: ib.GIDFromIPv4(239, 0, 0, 1), QPHandle: f.obj(kQP)}, 0)
	case 20:
		return command([]uint32{cmdPostRecv, cmdPostSRQRecv}[f.byte()%2], postWR{respAddr, f.obj(kQP - kind(f.byte()%2)), uint32(f.byte() % 4), uint32(f.byte() % 4), 16}, 4, make([]byte, int(f.byte()))...)
	case 21, 22:
		return command(cmdPostSend, postWR{respAddr, f.obj(kQP), uint32(f.byte() % 4), uint32(f.byte() % 4), sendWRBytes}, 4, f.take(int(f.byte()))...)
	case 23:
		return commandEx(cmdCreateQP, exCreateQP{Body: qpb(), CompMask: uint32(f.byte() % 3)}, 40, 32)
	case 24:
		return commandEx(cmdCreateCQ, exCreateCQ{CQE: uint32(f.byte()), CompChannel: int32(f.byte()) - 100, Flags: uint32(f.byte() % 2)}, 16, 16)
	case 25:
		return commandEx(cmdModifyQP, exModifyQP{Base: modifyQP{QPHandle: f.obj(kQP), AttrMask: 1, QPState: f.byte() % 8}}, 8, 0)
	case 26:
		return command(cmdQuerySRQ, destroyObject{respAddr, f.obj(kSRQ), 0}, 16)
	case 27:
		return commandEx(cmdQueryDevice, exQueryDevice{}, 8*int(f.byte()), 0)
	case 28:
		return command(cmdQueryPort, queryPort{Response: respAddr, PortNum: f.byte() % 3}, 40)
	}
	return command(uint32(f.byte()), respOnly{respAddr}, int(f.byte())*4, f.take(int(f.byte()))...)
}

func (f *fuzzer) take(n int) []byte {
	n = min(n, len(f.in)) &^ 3
	b := f.in[:n]
	f.in = f.in[n:]
	return b
}

// step does one thing.
func (f *fuzzer) step() {
	switch f.byte() % 8 {
	case 0, 1, 2, 3:
		b := f.command()
		for range f.byte() % 3 { // damage it
			if i := int(f.byte()); i < len(b) && f.byte()&1 == 0 {
				b[i] = f.byte()
			}
		}
		num := uint32(b[0])
		p := f.p
		if b[len(b)-1]&7 == 7 {
			p = f.rvt
		}
		rep := p.write(b)
		if k, ok := made[num]; ok && rep.Errno == 0 {
			f.objs[k] = append(f.objs[k], native.Uint32(rep.Out))
		}
	case 4:
		q := f.x.qa
		f.entry(q.sq, rxeSendData)
		q.doorbell()
	case 5:
		f.entry(f.x.qa.rq, rxeRecvSGE)
		f.p.c.Scan(f.p.h.d)
	case 6:
		f.damage()
	case 7:
		f.w.settle()
		if f.byte()&7 == 0 && f.w.now < vtime.Time(1<<40) {
			f.w.advance()
		}
	}
}

// entry fills the next entry of a ring with plausible words and publishes it.
func (f *fuzzer) entry(q queue, data int) {
	mask := uint32(15)
	i := q.prod() & mask
	elem := 9
	if data == rxeRecvSGE {
		elem = 7
	}
	b := q.b[rxeHeader+int(i)<<elem:][:1<<elem]
	for n := f.byte() % 8; n > 0; n-- {
		native.PutUint32(b[int(f.byte())%(len(b)-4)&^3:], f.u32())
	}
	if data == rxeSendData {
		native.PutUint32(b[sendOpcode:], uint32(f.byte()%18))
		native.PutUint32(b[rxeSendNum:], uint32(f.byte()%6))
		native.PutUint32(b[sendRKey:], f.x.b.mr.RKey)
		native.PutUint64(b[sendAddr:], f.addr())
	} else {
		native.PutUint32(b[rxeRecvNum:], uint32(f.byte()%6))
	}
	putSGE(b[data:], f.x.qa.sge(int(f.byte()), int(f.byte())))
	storeWord(q.b, rxeProdOff, (i+1)&mask)
}

// damage writes a random word into a random ring.
func (f *fuzzer) damage() {
	var last []byte
	n := int(f.byte())
	p := f.p
	if n&7 == 7 {
		p = f.rvt
	}
	for off := uint64(pageBytes); off < p.rings.next; off += pageBytes {
		if b := p.rings.areas[off]; b != nil {
			if last = b; n == 0 {
				break
			}
			n--
		}
	}
	if last == nil {
		return
	}
	off := int(f.u32()) % (len(last) / 4) * 4
	if f.byte()&1 == 0 {
		off = []int{rxeElemOff, rxeMaskOff, SQPostableOffset, rxeProdOff, rxeConsOff}[f.byte()%5]
	}
	storeWord(last, off, f.u32())
}

// FuzzWrite lets a program do anything, beside one that behaves. Nothing may panic,
// and the other must not notice.
func FuzzWrite(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x00\x00\x08\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x04\x01\x02\x03\x05\x01\x06\x02\x07"))
	for seed := range byte(40) {
		b := make([]byte, 600)
		v := uint32(seed)*2654435761 + 1
		for i := range b {
			v = v*1664525 + 1013904223
			b[i] = byte(v >> 24)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) > 4096 {
			return
		}
		x := newPair(t, 2, ib.QPTypeRC, nil)
		good := newProg(t, x.w.hosts[0])
		gc := good.createCQ(16, -1)
		gq := good.createQP(ib.QPTypeRC, gc, gc, 0)
		gq.connect(good.h.gid, gq.qpn)
		h := *x.w.hosts[0]
		h.dev = NewDevice(x.w.hosts[0], DeviceConfig{Name: "rvt1", ABI: ABIRVT})
		fz := &fuzzer{in: in, x: x, w: x.w, p: x.a, rvt: newProg(t, &h), objs: map[kind][]uint32{
			kPD: {x.a.pd}, kCQ: {x.ca.handle}, kQP: {x.qa.handle}, kMR: {x.a.mr.MRHandle}}}
		x.a.channel()
		for len(fz.in) > 0 {
			fz.step()
		}
		x.w.settle()
		for i := range 3 {
			copy(good.buf[64:], []byte{byte(i), 2, 3})
			gq.recv(1, gq.sge(0, 3))
			gq.wqe(2, ib.WRSend, ib.SendSignaled, gq.sge(64, 3))
			require.Zero(t, gq.post())
			x.w.settle()
			wcs := gc.poll()
			require.Len(t, wcs, 2)
			for _, wc := range wcs {
				require.Equal(t, ib.WCSuccess, wc.Status)
			}
			require.Equal(t, []byte{byte(i), 2, 3}, good.buf[:3])
		}
		x.a.c.Close()
		x.b.c.Close()
		good.c.Close()
		fz.rvt.c.Close()
		require.Empty(t, x.a.rings.areas)
		for _, h := range x.w.hosts {
			require.Empty(t, h.d.QPs())
			require.Zero(t, h.d.Keys().Len())
		}
	})
}
