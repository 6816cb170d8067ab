package verbs_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/verbs"
)

// The examples run over a network in memory, so that they need no addresses. A program
// opens its device with Config{Address: "192.0.2.1"} instead.
func openTwo() (a, b *verbs.Device) {
	sw := node.NewSwitch(nil)
	open := func(last byte) *verbs.Device {
		port := must(sw.Port(ib.GIDFromIPv4(192, 0, 2, last), ib.MTU4096))
		return must(verbs.Open(verbs.Config{Port: port}))
	}
	return open(1), open(2)
}

// endpoint is what nearly every program has of a device.
type endpoint struct {
	dev *verbs.Device
	pd  *verbs.PD
	ch  *verbs.CompChannel
	cq  *verbs.CQ
	mr  *verbs.MR
	qp  *verbs.QP
}

func newEndpoint(dev *verbs.Device, typ ib.QPType, srq func(*verbs.PD) *verbs.SRQ) *endpoint {
	e := &endpoint{dev: dev, pd: must(dev.AllocPD()), ch: must(dev.CreateCompChannel())}
	e.cq = must(dev.CreateCQ(64, e.ch))
	e.mr = must(e.pd.RegMR(make([]byte, 4096), ib.AccessLocalWrite|ib.AccessRemoteMask|ib.AccessMWBind))
	a := verbs.QPInitAttr{Type: typ, SendCQ: e.cq, RecvCQ: e.cq, SQSigAll: true,
		Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}}
	if srq != nil {
		a.SRQ = srq(e.pd)
	}
	e.qp = must(e.pd.CreateQP(a))
	return e
}

// connected returns two endpoints whose QPs are connected.
func connected(typ ib.QPType) (a, b *endpoint) {
	da, db := openTwo()
	a, b = newEndpoint(da, typ, nil), newEndpoint(db, typ, nil)
	check(verbs.Connect(a.qp, b.qp))
	return a, b
}

// wait polls until a completion comes.
func (e *endpoint) wait() verbs.WC {
	for wc := make([]verbs.WC, 1); ; {
		if must(e.cq.Poll(wc)) == 1 {
			return wc[0]
		}
	}
}

func closeAll(es ...*endpoint) {
	for _, e := range es {
		check(e.dev.Shutdown())
	}
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleDevice() {
	dev, peer := openTwo()
	port := must(dev.QueryPort(1))
	fmt.Println(must(dev.QueryGID(1, 0)), port.State, port.ActiveMTU)
	pd := must(dev.AllocPD())
	err := dev.Close()
	fmt.Println(err, errors.Is(err, ib.EBUSY))
	check(pd.Dealloc())
	check(dev.Close())
	check(peer.Close())
	// Output:
	// ::ffff:192.0.2.1 ACTIVE 4096
	// close_device: rvt0: still open: 1 protection domains, 0 completion queues, 0 channels (EBUSY) true
}

func ExamplePD_RegMR() {
	a, b := connected(ib.QPTypeRC)
	copy(a.mr.Bytes(), "written by the peer")
	// The peer must learn address and key; a real program sends them.
	addr, key := b.mr.Addr(100), b.mr.RKey()
	check(a.qp.PostSend(verbs.SendWR{Opcode: ib.WRRDMAWrite, SGL: []verbs.SGE{a.mr.SGE(0, 19)}, RemoteAddr: addr, RKey: key}))
	fmt.Println(a.wait().Status)
	fmt.Printf("%s\n", b.mr.Bytes()[100:119])
	closeAll(a, b)
	// Output:
	// SUCCESS
	// written by the peer
}

func ExampleQP_PostSend() {
	a, b := connected(ib.QPTypeRC)
	for i := range uint64(3) {
		check(b.qp.PostRecv(verbs.RecvWR{WRID: i, SGL: []verbs.SGE{b.mr.SGE(int(i)*64, 64)}}))
	}
	check(a.qp.PostSend(
		verbs.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: []byte("inline")},
		verbs.SendWR{Opcode: ib.WRSendWithImm, SGL: []verbs.SGE{a.mr.SGE(0, 10), a.mr.SGE(20, 2)}, Imm: 7},
	))
	for range 2 {
		wc := b.wait()
		fmt.Println(wc.WRID, wc.Opcode, wc.ByteLen, wc.Flags, wc.Imm)
	}
	// The list stops at the first bad request: here, too many gather entries.
	err := a.qp.PostSend(verbs.SendWR{Opcode: ib.WRSend}, verbs.SendWR{Opcode: ib.WRSend, SGL: make([]verbs.SGE, 3)})
	var bad *verbs.BadWR
	fmt.Println(errors.As(err, &bad) && bad.Index == 1, errors.Is(err, ib.EINVAL))
	closeAll(a, b)
	// Output:
	// 0 RECV 6 0 0
	// 1 RECV 12 WITH_IMM 7
	// true true
}

func ExampleCQ_Poll() {
	a, b := connected(ib.QPTypeRC)
	check(a.qp.PostSend(verbs.SendWR{WRID: 1, Opcode: ib.WRRDMARead, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(0), RKey: b.mr.RKey()}))
	check(a.qp.PostSend(verbs.SendWR{WRID: 2, Opcode: ib.WRRDMARead, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(4090), RKey: b.mr.RKey()}))
	for wc, n := make([]verbs.WC, 4), 0; n < 2; {
		k, err := a.cq.Poll(wc) // also drives the device
		check(err)
		for _, c := range wc[:k] {
			fmt.Println(c.WRID, c.Status, "-", c.VendorErr)
		}
		n += k
	}
	closeAll(a, b)
	// Output:
	// 1 SUCCESS - nothing to add
	// 2 REM_ACCESS_ERR - the peer answered NAK remote access error
}

func ExampleCompChannel_Get() {
	a, b := connected(ib.QPTypeRC)
	check(b.qp.PostRecv(verbs.RecvWR{WRID: 5, SGL: []verbs.SGE{b.mr.SGE(0, 64)}}))
	check(b.cq.ReqNotify(false)) // arm, then poll, then wait
	if must(b.cq.Poll(make([]verbs.WC, 1))) != 0 {
		log.Fatal("a completion before anything was sent")
	}
	check(a.qp.PostSend(verbs.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: []byte("wake up")}))
	cq := must(b.ch.Get(context.Background()))
	check(cq.AckEvents(1))
	fmt.Println(cq == b.cq, b.wait().WRID)
	closeAll(a, b)
	// Output: true 5
}

func ExampleSRQ() {
	da, db := openTwo()
	var srq *verbs.SRQ
	a := newEndpoint(da, ib.QPTypeRC, nil)
	b := newEndpoint(db, ib.QPTypeRC, func(pd *verbs.PD) *verbs.SRQ {
		srq = must(pd.CreateSRQ(verbs.SRQAttr{MaxWR: 16, MaxSGE: 1}))
		return srq
	})
	check(verbs.Connect(a.qp, b.qp))
	check(srq.PostRecv(verbs.RecvWR{WRID: 1, SGL: []verbs.SGE{b.mr.SGE(0, 64)}}, verbs.RecvWR{WRID: 2, SGL: []verbs.SGE{b.mr.SGE(64, 64)}}))
	check(srq.Modify(verbs.SRQAttr{Limit: 2}, verbs.SRQLimit))
	check(a.qp.PostSend(verbs.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: []byte("x")}))
	fmt.Println("received into", b.wait().WRID)
	for {
		event := must(db.AsyncEvent(context.Background()))
		event.Ack()
		if event.SRQ == srq {
			fmt.Println(event.Type)
			break
		}
	}
	closeAll(a, b)
	// Output:
	// received into 1
	// SRQ_LIMIT_REACHED
}

func ExampleAH() {
	a, b := connected(ib.QPTypeUD) // both in RTS; datagrams have no connection
	check(b.qp.PostRecv(verbs.RecvWR{SGL: []verbs.SGE{b.mr.SGE(0, 1024)}}))
	ah := must(a.pd.CreateAH(verbs.AV{DGID: b.dev.GID(), IsGlobal: true, PortNum: 1}))
	check(a.qp.PostSend(verbs.SendWR{Opcode: ib.WRSend, Flags: ib.SendInline, Inline: []byte("datagram"),
		AH: ah, RemoteQPN: b.qp.QPN(), RemoteQKey: verbs.DefaultConnParams(b.dev.GID(), 0).QKey}))
	check(ah.Destroy()) // the post has copied it
	wc := b.wait()
	// The first 40 bytes are for the network header.
	fmt.Printf("%s, %v, from the right QP: %v\n", b.mr.Bytes()[ib.GRHBytes:wc.ByteLen], wc.Flags, wc.SrcQP == a.qp.QPN())
	closeAll(a, b)
	// Output: datagram, GRH, from the right QP: true
}

func ExampleMW() {
	a, b := connected(ib.QPTypeRC)
	copy(b.mr.Bytes(), "0123456789")
	mw := must(b.pd.AllocMW(ib.MWType1))
	check(b.qp.BindMW(1, 0, verbs.BindInfo{MW: mw, MR: b.mr, Addr: b.mr.Addr(2), Length: 4, Access: ib.AccessRemoteRead}))
	fmt.Println(b.wait().Opcode)
	check(a.qp.PostSend(verbs.SendWR{Opcode: ib.WRRDMARead, SGL: []verbs.SGE{a.mr.SGE(0, 4)}, RemoteAddr: b.mr.Addr(2), RKey: mw.RKey()}))
	fmt.Println(a.wait().Status, string(a.mr.Bytes()[:4]))
	closeAll(a, b)
	// Output:
	// BIND_MW
	// SUCCESS 2345
}

func ExampleQP_Modify() {
	a, b := connected(ib.QPTypeRC)
	err := a.qp.Modify(&verbs.QPAttr{State: ib.StateInit}, ib.AttrState)
	fmt.Println(errors.Is(err, ib.EINVAL))
	check(a.qp.Modify(&verbs.QPAttr{State: ib.StateErr}, ib.AttrState))
	fmt.Println(must(a.qp.Query()).State)
	check(a.qp.PostRecv(verbs.RecvWR{WRID: 9}))
	fmt.Println(a.wait().Status)
	closeAll(a, b)
	// Output:
	// true
	// ERR
	// WR_FLUSH_ERR
}
