package spec

import "fmt"

// doPostSRQRecv is one call of post_srq_recv.
func (in *Interp) doPostSRQRecv(a *args, input string) error {
	s, err := in.srq(a.word("srq name"))
	if err != nil {
		return err
	}
	wrs, err := in.recvWRs(a, input)
	if err != nil {
		return err
	}
	n, err := s.node.dev.PostSRQRecv(s.srq, wrs)
	in.posted(n, err, func(i int) string { return fmt.Sprintf("wr_id=%d", wrs[i].WRID) }, len(wrs))
	return nil
}
