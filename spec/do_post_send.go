package spec

import (
	"fmt"

	"github.com/rvtsim/rvtsim/swqe"
)

// doPostSend is one call of post_send with the work requests of the directive line or
// of the lines below it. Nothing is sent before the next emit, deliver, advance or run.
func (in *Interp) doPostSend(a *args, input string) error {
	q, err := in.qp(a.word("qp name"))
	if err != nil {
		return err
	}
	wrs, err := in.sendWRs(q, a, input)
	if err != nil {
		return err
	}
	n, err := q.node.dev.PostSend(q.qp, wrs)
	in.posted(n, err, func(i int) string { return wrName(&wrs[i]) }, len(wrs))
	return nil
}

func wrName(wr *swqe.SendWR) string { return fmt.Sprintf("wr_id=%d", wr.WRID) }

// posted prints the outcome of a post: how many went in, and which one is bad_wr.
func (in *Interp) posted(n int, err error, name func(i int) string, total int) {
	switch {
	case err == nil:
		in.printf("ok\n")
	case n < total:
		in.printf("posted %d, bad_wr is %s\nerror: %s\n", n, name(n), err.Error())
	default:
		in.result(err)
	}
}
