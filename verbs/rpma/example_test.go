package rpma_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/verbs/rpma"
)

// The examples run over a network in memory. A program opens its device with
// Config{Address: "192.0.2.1"} instead, and the two sides are two programs.
func openTwo() (client, server *rpma.Peer) {
	sw := node.NewSwitch(nil)
	open := func(last byte) *rpma.Peer {
		port := must(sw.Port(ib.GIDFromIPv4(192, 0, 2, last), ib.MTU1024))
		return must(rpma.NewPeer(must(verbs.Open(verbs.Config{Port: port}))))
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

// event checks what happens next to a connection.
func event(ctx context.Context, c *rpma.Conn, want rpma.ConnEvent) {
	if e := must(c.NextEvent(ctx)); e != want {
		log.Fatalf("connection is %v, want %v", e, want)
	}
}

// next waits for a completion of a queue.
func next(ctx context.Context, q *rpma.CQ) rpma.WC {
	for {
		wc, err := q.GetOneWC()
		if errors.Is(err, rpma.ErrNoCompletion) {
			check(q.Wait(ctx))
			continue
		}
		check(err)
		return wc
	}
}

// serve offers a text to be read: its descriptor goes to whoever connects, as private
// data.
func serve(ctx context.Context, ep *rpma.Endpoint, mr *rpma.MRLocal) {
	req := must(ep.NextConnReq(ctx, nil))
	conn := must(req.Connect(ctx, mr.Descriptor()))
	event(ctx, conn, rpma.ConnEstablished)
	event(ctx, conn, rpma.ConnClosed)
	check(conn.Disconnect(ctx))
	check(conn.Delete(ctx))
	check(ep.Shutdown(ctx))
}

// The program that librpma(7) describes: read the other side's memory.
func ExampleConn_Read() {
	ctx := context.Background()
	client, server := openTwo()
	ep := must(rpma.Listen(ctx, server, "192.0.2.2", "7204"))
	text := must(server.RegMR([]byte("to be read"), rpma.UsageReadSrc))
	done := make(chan struct{})
	go func() { serve(ctx, ep, text); close(done) }()

	dst := must(client.RegMR(make([]byte, 64), rpma.UsageReadDst))
	req := must(rpma.NewConnReq(ctx, client, "192.0.2.2", "7204", nil))
	conn := must(req.Connect(ctx, nil))
	event(ctx, conn, rpma.ConnEstablished)
	src := must(rpma.RemoteFromDescriptor(conn.PrivateData()))
	check(conn.Read(dst, 0, src, 0, int(src.Size()), rpma.FlagCompletionAlways, 1))
	wc := next(ctx, conn.CQ())
	fmt.Printf("%d %v %v: %s\n", wc.WRID, wc.Opcode, wc.Status, dst.Bytes()[:src.Size()])
	check(conn.Disconnect(ctx))
	event(ctx, conn, rpma.ConnClosed)
	check(conn.Delete(ctx))
	<-done
	// Output:
	// 1 RDMA_READ SUCCESS: to be read
}

// The program of rpma_cq_get_wc: several completions at once, and the errors.
func ExampleCQ_GetWC() {
	ctx := context.Background()
	client, server := openTwo()
	ep := must(rpma.Listen(ctx, server, "192.0.2.2", "7204"))
	board := must(server.RegMR(make([]byte, 64), rpma.UsageWriteDst|rpma.UsageFlushVisibility))
	done := make(chan struct{})
	go func() { serve(ctx, ep, board); close(done) }()

	src := must(client.RegMR([]byte("to be written"), rpma.UsageWriteSrc))
	conn := must(must(rpma.NewConnReq(ctx, client, "192.0.2.2", "7204", nil)).Connect(ctx, nil))
	event(ctx, conn, rpma.ConnEstablished)
	cq := conn.CQ()
	wc := make([]rpma.WC, 4)
	_, err := cq.GetWC(wc)
	fmt.Println(err)
	_, err = cq.GetWC(nil)
	fmt.Println(errors.Is(err, rpma.ErrInval))

	dst := must(rpma.RemoteFromDescriptor(conn.PrivateData()))
	check(conn.Write(dst, 0, src, 0, 13, rpma.FlagCompletionOnError, 1))
	check(conn.Flush(dst, 0, 13, rpma.FlushVisibility, rpma.FlagCompletionAlways, 2))
	check(cq.Wait(ctx))
	for n := must(cq.GetWC(wc)); n > 0; n, err = cq.GetWC(wc) {
		for _, c := range wc[:n] {
			fmt.Println("completed:", c.WRID, c.Status)
		}
	}
	// Beyond the region of 64 bytes: the call succeeds, the completion tells.
	check(conn.Write(dst, 60, src, 0, 13, rpma.FlagCompletionOnError, 3))
	c := next(ctx, cq)
	fmt.Println("completed:", c.WRID, c.Status)
	check(conn.Disconnect(ctx))
	event(ctx, conn, rpma.ConnClosed)
	check(conn.Delete(ctx))
	<-done
	// Output:
	// rpma_cq_get_wc: no completion (RPMA_E_NO_COMPLETION)
	// true
	// completed: 2 SUCCESS
	// completed: 3 REM_ACCESS_ERR
}

// The program of rpma_conn_get_rcq: receives have a queue of their own.
func ExampleConn_RCQ() {
	ctx := context.Background()
	client, server := openTwo()
	ep := must(rpma.Listen(ctx, server, "192.0.2.2", "7204"))
	done := make(chan struct{})
	go func() {
		defer close(done)
		cfg := rpma.NewConnCfg()
		cfg.RCQSize = 8
		req := must(ep.NextConnReq(ctx, cfg))
		buf := must(server.RegMR(make([]byte, 32), rpma.UsageRecv))
		check(req.Recv(buf, 0, 32, 5)) // there before the first message
		conn := must(req.Connect(ctx, nil))
		event(ctx, conn, rpma.ConnEstablished)
		wc := next(ctx, conn.RCQ())
		fmt.Printf("%d %v: %s\n", wc.WRID, wc.Opcode, buf.Bytes()[:wc.ByteLen])
		_, err := conn.CQ().GetOneWC()
		fmt.Println("main queue:", errors.Is(err, rpma.ErrNoCompletion))
		event(ctx, conn, rpma.ConnClosed)
		check(conn.Disconnect(ctx))
		check(conn.Delete(ctx))
	}()
	conn := must(must(rpma.NewConnReq(ctx, client, "192.0.2.2", "7204", nil)).Connect(ctx, nil))
	event(ctx, conn, rpma.ConnEstablished)
	msg := must(client.RegMR([]byte("a message"), rpma.UsageSend))
	check(conn.Send(msg, 0, 9, rpma.FlagCompletionAlways, 1))
	next(ctx, conn.CQ())
	check(conn.Disconnect(ctx))
	event(ctx, conn, rpma.ConnClosed)
	check(conn.Delete(ctx))
	<-done
	// Output:
	// 5 RECV: a message
	// main queue: true
}
