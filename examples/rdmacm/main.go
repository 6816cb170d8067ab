// Rdmacm is rdma_server and rdma_client, the programs of librdmacm's manual, in Go: one
// message of 16 bytes each way, over a connection that both sides make by IP addresses. It
// talks to itself and to the programs in C.
//
//	go run ./examples/rdmacm -a 127.0.0.3                 # the server, at its own adapter
//	go run ./examples/rdmacm -a 127.0.0.4 -s 127.0.0.3    # the client
//	rvtsim exec --node n1 -- rdma_client -s 127.0.0.3     # or one of librdmacm
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
	"github.com/rvtsim/rvtsim/verbs/rdmacm"
)

// messageBytes is the length of the messages.
const messageBytes = 16

var attr = verbs.QPInitAttr{SQSigAll: true, Cap: verbs.QPCap{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: messageBytes}}

func main() {
	own := flag.String("a", "127.0.0.3", "address of the adapter that this program opens")
	server := flag.String("s", "", "address of the server; without it this is the server")
	port := flag.Uint("p", 7471, "port of librdmacm")
	flag.Parse()
	dev, err := verbs.Open(verbs.Config{Address: *own})
	if err == nil {
		ctx := context.Background()
		if *server == "" {
			err = serve(ctx, dev, fmt.Sprintf("%s:%d", *own, *port))
		} else {
			err = call(ctx, dev, fmt.Sprintf("%s:%d", *server, *port))
		}
		err = errors.Join(err, dev.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "rdmacm:", err)
		os.Exit(1)
	}
}

// serve takes one connection, one message, and answers it.
func serve(ctx context.Context, dev *verbs.Device, at string) (err error) {
	src, err := netip.ParseAddrPort(at)
	if err != nil {
		return err
	}
	listener, err := rdmacm.CreateEP(ctx, dev, rdmacm.AddrInfo{Passive: true, Src: src}, nil, &attr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, listener.DestroyEP(ctx)) }()
	if err := listener.Listen(0); err != nil {
		return err
	}
	fmt.Println("listening at", listener.LocalAddr())
	id, err := listener.GetRequest(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, id.DestroyEP(ctx)) }()
	receive, err := postRecv(id) // before Accept: the client may send at once
	if err != nil {
		return err
	}
	if err := id.Accept(ctx, nil); err != nil {
		return err
	}
	fmt.Println("connected with", id.RemoteAddr())
	if err := errors.Join(receive(ctx), send(ctx, id)); err != nil {
		return err
	}
	return id.Disconnect(ctx)
}

// call makes a connection, sends a message, and waits for the answer.
func call(ctx context.Context, dev *verbs.Device, to string) (err error) {
	dst, err := netip.ParseAddrPort(to)
	if err != nil {
		return err
	}
	id, err := rdmacm.CreateEP(ctx, dev, rdmacm.AddrInfo{Dst: dst}, nil, &attr)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, id.DestroyEP(ctx)) }()
	receive, err := postRecv(id)
	if err != nil {
		return err
	}
	if err := id.Connect(ctx, nil); err != nil {
		return err
	}
	fmt.Println("connected with", id.RemoteAddr())
	if err := errors.Join(send(ctx, id), receive(ctx)); err != nil {
		return err
	}
	return id.Disconnect(ctx)
}

// postRecv posts a receive, and returns what waits for its completion.
func postRecv(id *rdmacm.ID) (receive func(context.Context) error, err error) {
	mr, err := id.RegMsgs(make([]byte, messageBytes))
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		wc, _, err := id.GetRecvComp(ctx)
		if err == nil && wc.Status != ib.WCSuccess {
			err = fmt.Errorf("receive: %v", wc.Status)
		}
		if err == nil {
			fmt.Printf("received %d bytes\n", wc.ByteLen)
		}
		return err
	}, id.PostRecv(1, mr, 0, messageBytes)
}

// send sends a message and waits until the other side has it.
func send(ctx context.Context, id *rdmacm.ID) error {
	if err := id.PostSendInline(2, make([]byte, messageBytes), ib.SendSignaled); err != nil {
		return err
	}
	wc, _, err := id.GetSendComp(ctx)
	if err == nil && wc.Status != ib.WCSuccess {
		err = fmt.Errorf("send: %v", wc.Status)
	}
	return err
}
