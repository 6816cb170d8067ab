package spec

import "fmt"

// doPostRecv is one call of post_recv.
func (in *Interp) doPostRecv(a *args, input string) error {
	q, err := in.qp(a.word("qp name"))
	if err != nil {
		return err
	}
	wrs, err := in.recvWRs(a, input)
	if err != nil {
		return err
	}
	n, err := q.node.dev.PostRecv(q.qp, wrs)
	in.posted(n, err, func(i int) string { return fmt.Sprintf("wr_id=%d", wrs[i].WRID) }, len(wrs))
	in.collect(q.node)
	return nil
}
