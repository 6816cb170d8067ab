// Package cm is the connection manager: it sets up and takes down connections of queue
// pairs by messages between the QP1 of two ports, as Linux does it on RoCE. It owns the
// messages, the states of a connection, the ports and addresses that programs bind, and
// the listeners.
//
// It is a state machine like the protocol core. It has no goroutine, lock, clock or
// socket; time is an argument of what it is told, and all randomness comes from a seed.
// A [Manager] has one owner and is not safe for concurrent use.
//
// # Layers
//
//   - mad.go, message.go, addr.go: the messages, byte by byte.
//   - conn.go, handle.go, sidr.go: one exchange with a peer (kernel: ib_cm, cm.c). The
//     names of the states are the kernel's.
//   - id.go, bind.go, listen.go, connect.go, event.go: what programs see (kernel:
//     rdma_cm, cma.c): identifiers, addresses, port spaces, events.
//   - qpattr.go: which attributes the program has to give its QP. The manager touches
//     no QP itself.
//
// # Host
//
// A host gives the manager the ports it has with [Manager.AddPort], every datagram that
// arrives at a QP1 with [Manager.Receive], and time with [Manager.Expire] when
// [Manager.Deadline] has come. After each input it sends what [Manager.Emit] returns
// and hands on what [Manager.PollEvents] returns. Nothing leaves the manager otherwise.
//
// Two hosts are meant: package verbs/rdmacm for Go programs, and the rdma_cm device for
// foreign ones.
//
// # Differences from Linux
//
// States, numbers of retries, timeouts, errnos and the content of messages are those of
// Linux. Where Linux hangs or mixes up peers, this package does not:
//
//   - An accept that comes before the peer's REP ends the attempt and its retries.
//     Linux goes on sending the REQ, and destroying the id waits for the last.
//   - A REP that names a QP which another live connection has ends the attempt with
//     REJECTED (STALE_CONN). Linux keeps on sending REQs until they time out.
//   - A repeated DREQ is answered after TIMEWAIT too, while the id exists. Linux ignores
//     it then, so that a lost DREP costs the peer all its retries.
//   - Open SIDR requests are told apart by their sender as well, not by the request ID
//     alone.
//   - A REQ cannot make the manager repeat its REP faster than every 10 ms.
//
// Sources: IBTA volume 1 chapter 12 as far as kernel sources quote it; Linux
// drivers/infiniband/core (cm.c, cma.c, ucma.c); captures of two Linux hosts in
// tests/golden; behaviour observed on Linux 6.1 and 6.12.
package cm
