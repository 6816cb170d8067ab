// Command statuses provokes work completion statuses and asynchronous events, one at a
// time, with two software RDMA adapters that talk RoCE v2 over UDP on this machine.
//
//	go run ./examples/statuses                       # list them
//	go run ./examples/statuses RNR_RETRY_EXC_ERR     # provoke one
//	go run ./examples/statuses -explain RNR_RETRY_EXC_ERR
//	go run ./examples/statuses all
//
// Each is a function in a file of its own: rnr_retry_exc_err.go.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"github.com/rvtsim/rvtsim/examples/statuses/internal/two"
)

// example provokes one status or event.
type example struct {
	name string
	what string
	run  func()
}

var examples = []example{
	{"SUCCESS", "a SEND meets a receive", success},
	{"LOC_LEN_ERR", "the message is longer than the receive", locLenErr},
	{"LOC_QP_OP_ERR", "the queue pair cannot carry out what was posted", locQPOpErr},
	{"LOC_PROT_ERR", "a local key is wrong", locProtErr},
	{"WR_FLUSH_ERR", "work was posted when the queue pair went to ERR", wrFlushErr},
	{"MW_BIND_ERR", "a memory window is bound to a region that does not allow it", mwBindErr},
	{"BAD_RESP_ERR", "the peer answers a READ with the result of an atomic", badRespErr},
	{"LOC_ACCESS_ERR", "memory vanishes under a WRITE with immediate data", locAccessErr},
	{"REM_INV_REQ_ERR", "the peer's queue pair does not allow the operation", remInvReqErr},
	{"REM_ACCESS_ERR", "the remote key is wrong", remAccessErr},
	{"REM_OP_ERR", "the peer posted a receive that it cannot use", remOpErr},
	{"RETRY_EXC_ERR", "the peer is gone", retryExcErr},
	{"RNR_RETRY_EXC_ERR", "the peer has no receive posted", rnrRetryExcErr},
	{"REM_ABORT_ERR", "a message that took a receive of a shared queue loses a packet", remAbortErr},
	{"FATAL_ERR", "the peer answers a SEND with data, in profile rxe", fatalErr},
	{"CQ_ERR", "more completions than the completion queue holds", cqErr},
	{"QP_REQ_ERR", "the peer asks for something that the queue pair refuses", qpReqErr},
	{"QP_ACCESS_ERR", "the peer uses a wrong remote key", qpAccessErr},
	{"COMM_EST", "a message arrives before the queue pair is in RTS", commEst},
	{"SQ_DRAINED", "the send queue runs empty in SQD", sqDrained},
	{"DEVICE_FATAL", "the port breaks", deviceFatal},
	{"PORT_ERR", "the port goes down, and PORT_ACTIVE: up again", portErr},
	{"GID_CHANGE", "the port gets another address and loses it", gidChange},
	{"SRQ_LIMIT_REACHED", "a shared receive queue runs low", srqLimitReached},
	{"QP_LAST_WQE_REACHED", "a queue pair with a shared receive queue fails", lastWQEReached},
}

func main() {
	flag.BoolVar(&two.Explain, "explain", false, "explain failed completions")
	flag.StringVar(&two.Addresses[0], "a", two.Addresses[0], "address of device A")
	flag.StringVar(&two.Addresses[1], "b", two.Addresses[1], "address of device B, of the same port")
	flag.Parse()
	defer func() {
		if err := recover(); err != nil {
			fmt.Fprintln(os.Stderr, "statuses:", err)
			os.Exit(1)
		}
	}()
	if flag.NArg() == 0 {
		for _, e := range examples {
			fmt.Printf("%-20s %s\n", e.name, e.what)
		}
		return
	}
	for _, name := range flag.Args() {
		if !run(name) {
			fmt.Fprintf(os.Stderr, "statuses: no example %q; without arguments they are listed\n", name)
			os.Exit(2)
		}
	}
}

// run provokes what name says, or everything.
func run(name string) (found bool) {
	for _, e := range examples {
		if name == "all" {
			two.Say("\n%s: %s", e.name, e.what)
		}
		if name == "all" || strings.EqualFold(name, e.name) {
			found = true
			e.run()
			two.CloseAll()
		}
	}
	return found
}
