package spec

// doQuery prints the attributes of a queue pair (ibv_query_qp).
func (in *Interp) doQuery(a *args) error {
	q, err := in.qp(a.word("qp name"))
	if err != nil {
		return err
	}
	if err := a.done(); err != nil {
		return err
	}
	t := q.node.dev.QueryQP(q.qp)
	in.printf("state=%s path_mtu=%s dest_qpn=%s rq_psn=%d sq_psn=%d\n", t.State, t.PathMTU, t.DestQPN, t.RQPSN, t.SQPSN)
	in.printf("timeout=%d retry_cnt=%d rnr_retry=%d min_rnr_timer=%d\n", t.Timeout, t.RetryCnt, t.RNRRetry, t.MinRNRTimer)
	in.printf("max_rd_atomic=%d max_dest_rd_atomic=%d access=%s qkey=0x%x sq_draining=%t\n", t.MaxRdAtomic, t.MaxDestRdAtomic, t.AccessFlags, uint32(t.QKey), t.SQDraining)
	in.printf("max_send_wr=%d max_recv_wr=%d max_send_sge=%d max_recv_sge=%d max_inline_data=%d\n", t.Cap.MaxSendWR, t.Cap.MaxRecvWR, t.Cap.MaxSendSGE, t.Cap.MaxRecvSGE, t.Cap.MaxInlineData)
	return nil
}
