// Hello opens two software RDMA adapters in one process, connects a queue pair of each,
// and sends a message from one to the other over RoCE v2.
package main

import (
	"fmt"
	"log"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// endpoint is a device with a queue pair, a completion queue and registered memory.
type endpoint struct {
	cq *verbs.CQ
	mr *verbs.MR
	qp *verbs.QP
}

func open(addr string) endpoint {
	dev := must(verbs.Open(verbs.Config{Address: addr}))
	pd := must(dev.AllocPD())
	cq := must(dev.CreateCQ(16, nil))
	mr := must(pd.RegMR(make([]byte, 4096), ib.AccessLocalWrite))
	qp := must(pd.CreateQP(verbs.QPInitAttr{Type: ib.QPTypeRC, SendCQ: cq, RecvCQ: cq, SQSigAll: true,
		Cap: verbs.QPCap{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}))
	return endpoint{cq, mr, qp}
}

// wait polls until a completion arrives.
func (e endpoint) wait() verbs.WC {
	for wc := make([]verbs.WC, 1); ; {
		if must(e.cq.Poll(wc)) == 1 {
			return wc[0]
		}
	}
}

func main() {
	a, b := open("127.0.0.1"), open("127.0.0.2")
	check(verbs.Connect(a.qp, b.qp))
	check(b.qp.PostRecv(verbs.RecvWR{WRID: 1, SGL: []verbs.SGE{b.mr.SGE(0, 4096)}}))
	n := copy(a.mr.Bytes(), "hello, verbs")
	check(a.qp.PostSend(verbs.SendWR{WRID: 2, Opcode: ib.WRSend, SGL: []verbs.SGE{a.mr.SGE(0, n)}}))
	got := b.wait()
	fmt.Printf("received %q: %v\n", b.mr.Bytes()[:got.ByteLen], got.Status)
	fmt.Printf("sent: %v\n", a.wait().Status)
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
