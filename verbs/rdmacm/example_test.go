package rdmacm_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/netip"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/verbs/rdmacm"
)

// The examples run over a network in memory, so that they need no addresses of the
// machine. A program opens its device with Config{Address: "192.0.2.1"} instead, and the
// two sides are two programs.
func openTwo() (client, server *verbs.Device) {
	sw := node.NewSwitch(nil)
	open := func(last byte) *verbs.Device {
		port := must(sw.Port(ib.GIDFromIPv4(192, 0, 2, last), ib.MTU1024))
		return must(verbs.Open(verbs.Config{Port: port}))
	}
	return open(1), open(2)
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

// attr is the QP that both sides of the examples have.
var attr = verbs.QPInitAttr{Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 32}}

// The server takes one connection and answers one message.
func serve(ctx context.Context, dev *verbs.Device, listening chan<- struct{}) {
	listener := must(rdmacm.CreateEP(ctx, dev, rdmacm.AddrInfo{Passive: true, Src: netip.MustParseAddrPort("192.0.2.2:7471")}, nil, &attr))
	check(listener.Listen(0))
	close(listening)
	id := must(listener.GetRequest(ctx))
	mr := must(id.RegMsgs(make([]byte, 16)))
	check(id.PostRecv(1, mr, 0, 16)) // before Accept: the client may send at once
	check(id.Accept(ctx, nil))
	wc, _, err := id.GetRecvComp(ctx)
	check(err)
	fmt.Printf("server: %v %q\n", wc.Status, mr.Bytes()[:wc.ByteLen])
	check(id.PostSendInline(2, []byte("pong"), ib.SendSignaled))
	_, _, err = id.GetSendComp(ctx)
	check(err)
	check(id.Disconnect(ctx))
	check(id.DestroyEP(ctx))
	check(listener.DestroyEP(ctx))
}

// The programs of rdma_create_ep, rdma_get_recv_comp and rdma_get_send_comp: synchronous
// endpoints, one message each way.
func ExampleID_GetRecvComp() {
	ctx := context.Background()
	client, server := openTwo()
	listening, done := make(chan struct{}), make(chan struct{})
	go func() { serve(ctx, server, listening); close(done) }()
	<-listening

	id := must(rdmacm.CreateEP(ctx, client, rdmacm.AddrInfo{Dst: netip.MustParseAddrPort("192.0.2.2:7471")}, nil, &attr))
	mr := must(id.RegMsgs(make([]byte, 16)))
	check(id.PostRecv(7, mr, 0, 16))
	check(id.Connect(ctx, nil))
	check(id.PostSendInline(8, []byte("ping"), ib.SendSignaled))
	wc, n, err := id.GetSendComp(ctx)
	check(err)
	fmt.Println("client: sends completed:", n, wc.Status)
	wc, n, err = id.GetRecvComp(ctx)
	check(err)
	fmt.Printf("client: receives completed: %d, context %d: %q\n", n, wc.WRID, mr.Bytes()[:wc.ByteLen])
	check(id.Disconnect(ctx))
	check(id.DestroyEP(ctx))
	<-done
	check(client.Close())
	check(server.Close())
	// Unordered output:
	// server: SUCCESS "ping"
	// client: sends completed: 1 SUCCESS
	// client: receives completed: 1, context 7: "pong"
}

// The program of rdma_get_cm_event: every step is an event.
func ExampleEventChannel_Get() {
	ctx := context.Background()
	client, server := openTwo()
	check(rdmacm.Start(server)) // without it nobody would answer, not even "no"
	ch := rdmacm.CreateEventChannel()
	id := must(rdmacm.CreateID(ch, client, rdmacm.TCP))
	check(id.ResolveAddr(ctx, netip.AddrPort{}, netip.MustParseAddrPort("192.0.2.2:7471"), 2*time.Second))
	for {
		e := must(ch.Get(ctx))
		fmt.Println(e)
		err := e.Err()
		switch e.Type {
		case rdmacm.AddrResolved:
			err = id.ResolveRoute(ctx, 2*time.Second)
		case rdmacm.RouteResolved:
			err = errors.Join(id.CreateQP(nil, attr), id.Connect(ctx, nil))
		}
		e.Ack()
		if err != nil {
			fmt.Println(err)
			break
		}
	}
	check(id.DestroyEP(ctx))
	check(ch.Destroy())
	check(client.Close())
	check(server.Close())
	// Output:
	// ADDR_RESOLVED
	// ROUTE_RESOLVED
	// REJECTED (INVALID_SERVICE_ID)
	// rdma_cm: the peer refused: INVALID_SERVICE_ID (ECONNREFUSED)
}
