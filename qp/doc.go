// Package qp is the protocol engine: one queue pair of type RC, UC, UD or GSI.
//
// rdmavt leaves the wire protocol to its driver; this package plays both parts. It is
// split by direction, as the kernel's drivers are:
//
//	post.go      work requests in (rvt_post_one_wr)
//	req.go       request packets out (hfi1_make_rc_req)
//	comp.go      responses in (rc_rcv_resp, do_rc_ack)
//	readresp.go  READ responses in
//	restart.go   going back to an earlier PSN (hfi1_restart_rc), timers
//	resp.go      requests in (hfi1_rc_rcv; steps named after rxe_resp)
//	respdup.go   requests that come twice, or too early
//	ack.go       responses out (hfi1_make_rc_ack)
//	complete.go  completions, flush, the way to ERR (rvt_qp_complete_swqe, rvt_error_qp)
//	uc.go ud.go  the unreliable transports
//	modify.go    modify_qp: tables in state.go, checks, effects
//	profile.go   every point where implementations differ
//
// A QP is a run-to-completion state machine with one owner: inputs never emit, and
// [QP.Emit] never accepts. Time is an argument. Payload leaves as segments of
// registered memory and arrives as copies to be done, so the owner executes memory
// effects for a burst of packets at once.
package qp
