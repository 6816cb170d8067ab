package explain

import (
	"errors"
	"strings"

	"github.com/rvtsim/rvtsim/ib"
)

// call is a refusal by verb and errno.
type call struct {
	verb  string // empty: any
	errno ib.Errno
}

// calls says what usually makes a verb fail with an errno. The reason in the error's own
// text is more precise; this says what to do about it.
var calls = map[call][]string{
	{"post_send", ib.ENOMEM}: {
		"The send queue is full. A slot is free again only when a completion of that work request, or of a later one on the same queue, was polled: an acknowledgement by the peer's program says nothing about it.",
		"Unsignaled work requests need a signaled one behind them, at least once per queue length, or their slots never come back.",
		"Count every kind of work request against max_send_wr: SENDs that carry the program's own acknowledgements too.",
	},
	{"post_send", ib.EINVAL}: {
		"Sends are accepted from RTS on. The reason names a bad attribute of the work request: too many entries, an operation that the transport lacks, inline data that is too long.",
		"In C, bad_wr points at the work request that was refused; those before it are posted.",
	},
	{"wr_complete", ib.ENOSPC}: {
		"One of the batch did not fit: the send queue was full, or a list or inline data was longer than ibv_create_qp_ex gave. Nothing of the batch is posted.",
		"A slot is free again only when a completion of that work request, or of a later one on the same queue, was polled.",
	},
	{"wr_complete", ib.EINVAL}: {
		"One of the batch was wrong, so nothing of it is posted. ibv_wr_* functions report no errors of their own: ibv_wr_complete reports the first.",
		"Only operations named in send_ops_flags of ibv_create_qp_ex may be used, and only between ibv_wr_start and ibv_wr_complete.",
	},
	{"bind_mw", ib.EINVAL}: {
		"ibv_bind_mw is for windows of type 1; those of type 2 are bound by a work request, IBV_WR_BIND_MW. The check is part of the program itself, which calls nobody.",
		"Without a region (bind_info.mr NULL, which unbinds) addr and length must be 0.",
		"IBV_ACCESS_ZERO_BASED is for windows of type 2.",
	},
	{"bind_mw", ib.ENOMEM}: {
		"The send queue is full: a bind takes a slot as any send does. It is free again when a completion of the bind, or of later work on the same queue, was polled.",
	},
	{"bind_mw", ib.EPERM}: {
		"Window and region must be made with the same protection domain. The check is part of the program itself, which calls nobody.",
	},
	{"post_recv", ib.ENOMEM}: {
		"The receive queue is full: max_recv_wr receives are posted and not used.",
	},
	{"post_recv", ib.EINVAL}: {
		"Receives are accepted from INIT on. A queue pair with a shared receive queue takes none of its own: ibv_post_srq_recv.",
	},
	{"modify_qp", ib.EINVAL}: {
		"The way is RESET, INIT, RTR, RTS; each step has attributes that must be in attr_mask, and some that may. Nothing was changed.",
		"On an Ethernet port every address needs ah_attr.is_global = 1, grh.dgid and grh.sgid_index: RoCE has no LIDs.",
		"rd_atomic values must not exceed the device's max_qp_rd_atom and max_qp_init_rd_atom, also if the peer offers more.",
	},
	{"modify_qp", ib.ENODATA}: {
		"sgid_index must name an entry of the port's GID table: ibv_query_gid lists them.",
	},
	{"create_qp", ib.EINVAL}: {
		"The reason names the field. Clear struct ibv_qp_init_attr before filling it: fields that nobody set are read as well.",
		"Capacities must not exceed ibv_query_device's; send_cq and recv_cq must be set.",
	},
	{"create_cq", ib.EINVAL}: {
		"cqe must be between 1 and ibv_query_device's max_cqe. One queue for very many queue pairs may not be possible: use several.",
	},
	{"resize_cq", ib.EINVAL}: {
		"The new size must hold the completions that wait. Poll first.",
	},
	{"reg_mr", ib.EINVAL}: {
		"REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE as well. The length must not be 0.",
	},
	{"reg_mr", ib.EFAULT}: {
		"All of the range must be mapped, and writable unless the flags are 0 or REMOTE_READ: constants and files mapped read-only cannot take LOCAL_WRITE.",
	},
	{"reg_mr", ib.ENOMEM}: {
		"The device's limit of regions is reached: deregister some, or register larger pieces.",
	},
	{"", ib.EBUSY}: {
		"Something still uses the object: the reason names it. Destroy in the reverse order of creation: queue pairs before completion queues and shared receive queues, windows before regions, all before the protection domain.",
	},
	{"", ib.ENOMEM}: {
		"A limit of the device is reached; ibv_query_device tells them.",
	},
	{"", ib.EAGAIN}: {
		"No event waits, and the channel does not block. Arm the queue, poll once more, then wait.",
	},
	{"", ib.ENODEV}: {
		"The device was closed or has failed: see DEVICE_FATAL.",
	},
	{"", ib.EOPNOTSUPP}: {
		"This device does not have that: look at ibv_query_device, or use another queue pair type.",
	},
	{"", ib.EINVAL}: {
		"An argument is wrong, or the object was destroyed before. The reason says which.",
	},
	{"", ib.ENODATA}: {
		"sgid_index must name an entry of the port's GID table: ibv_query_gid lists them.",
	},
	{"", ib.ENXIO}: {
		"The device of the id was removed: DEVICE_REMOVAL. Only rdma_destroy_id works on it.",
	},
	{"", ib.ENETUNREACH}: {
		"The kernel has no route to the address from the node's: ip route get ADDRESS from NODE. A node at a loopback address reaches loopback addresses only.",
	},
	{"", ib.EADDRINUSE}: {
		"Another id of the node has the port, and not both have REUSEADDR: rvtsim ls --json shows the ids.",
	},
	{"", ib.EADDRNOTAVAIL}: {
		"The address is not the node's, or a wildcard and a specific address want the same port. rvtsim ls lists the addresses of nodes.",
	},
	{"", ib.EPERM}:  {"The program may not do that."},
	{"", ib.EACCES}: {"The program may not do that."},
	{"", ib.ENOENT}: {"There is nothing of that name or number."},
	{"", ib.EINTR}:  {"A signal came in between. Try again."},
	{"", ib.EFAULT}: {"An address points outside of the program's memory, or to memory that may not be written."},
	{"", ib.ENOSPC}: {"The buffer that was given for the answer is too small."},
}

// callAdvice finds the most specific entry.
func callAdvice(verb string, errno ib.Errno) []string {
	if a, ok := calls[call{verb, errno}]; ok {
		return a
	}
	return calls[call{"", errno}]
}

// Call explains the error of a refused call. It returns the error's own text if that is
// all that is known.
func Call(err error) string {
	if err == nil {
		return "the call succeeded"
	}
	var v *ib.VerbError
	if !errors.As(err, &v) {
		return err.Error()
	}
	w := &writer{}
	w.line(0, "%s.", err.Error())
	w.list(adviceFor(v))
	return w.String()
}

// refusals are parts of errors' texts that say more than the errno, and what to do then. The
// first that occurs counts.
var refusals = []struct {
	part   string
	advice []string
}{
	{"is_global", []string{"The port is Ethernet: set ah_attr.is_global = 1 and fill grh.dgid, grh.sgid_index and hop_limit. dlid and sl alone are for InfiniBand."}},
	{" misses ", []string{"Add the attributes that it names to attr_mask, and their values to ibv_qp_attr. All that a step requires must be given in that one call."}},
	{" may not set ", []string{"Take the attributes that it names out of attr_mask: they belong to another step or another type of queue pair."}},
	{"cannot go from", []string{"The way is RESET, INIT, RTR, RTS. Every state may go to RESET, and every state but RESET to ERR."}},
	{"is not a state", []string{"States are IBV_QPS_RESET (0), INIT, RTR, RTS, SQD, SQE and IBV_QPS_ERR (6). Clear struct ibv_qp_attr before filling it."}},
	{"cur_qp_state", []string{"Leave IBV_QP_CUR_STATE out, or pass the state that the queue pair is in: ibv_query_qp tells it."}},
	{"port_num", []string{"The device has one port, and ports are counted from 1. port_num is in ibv_qp_attr (for INIT) and again in ah_attr (for RTR)."}},
	{"pkey_index", []string{"Use pkey_index 0: a RoCE port has one partition key."}},
	{"path_mtu", []string{"path_mtu is a code: IBV_MTU_256 is 1, IBV_MTU_512 2, IBV_MTU_1024 3, IBV_MTU_2048 4, IBV_MTU_4096 5. It must not exceed active_mtu of ibv_query_port."}},
	{" does not fit ", []string{"These attributes are codes of a few bits, no times or counts of any size: timeout 14 means 67 ms and 31 is the longest, min_rnr_timer 12 means 0.64 ms; retry_cnt and rnr_retry are 0 to 7."}},
	{"max_rd_atomic of the QP is 0", []string{"Set max_rd_atomic to 1 or more on the way to RTS (IBV_QP_MAX_QP_RD_ATOMIC), and max_dest_rd_atomic at the peer on its way to RTR."}},
	{"max_res_rd_atom", []string{"The limit is the device's, for all queue pairs together. Give each a smaller max_dest_rd_atomic, so that the sum fits, and tell the peer to keep fewer READs under way (max_rd_atomic)."}},
	{"rd_atom", []string{"Use the smaller of the device's own limit and what the peer accepts: max_rd_atomic here against max_dest_rd_atomic there."}},
	{"sends may be posted", []string{"Take the queue pair to RTS first: modify_qp to INIT, RTR and RTS. Receives may be posted from INIT on."}},
	{"receives may be posted", []string{"Take the queue pair to INIT first. It is usual to post receives then, before it goes to RTR."}},
	{"uses an SRQ", []string{"Post to the shared receive queue, with ibv_post_srq_recv."}},
	{" entries, the q", []string{"num_sge must not exceed max_send_sge (for receives max_recv_sge or the shared queue's max_sge) of the create call. Ask for more there, up to ibv_query_device's max_sge."}},
	{" entries, the QP", []string{"num_sge must not exceed max_send_sge of ibv_create_qp. Ask for more there, up to ibv_query_device's max_sge."}},
	{"ZERO_BASED is for", []string{"Leave IBV_ACCESS_ZERO_BASED out of bind_info.mw_access_flags, or use a window of type 2 and IBV_WR_BIND_MW."}},
	{"bytes inline", []string{"IBV_SEND_INLINE carries at most max_inline_data bytes. ibv_create_qp says in cap how much it gave; ask for more there, or send from a registered buffer without the flag."}},
	{"INLINE is for", []string{"Leave IBV_SEND_INLINE out: only what is sent along can be inline, not what a READ or an atomic brings."}},
	{"multiple of 8", []string{"Atomics work on 8 bytes at an address that 8 divides, here and at the peer. Align the variable."}},
	{"entry of 8 bytes", []string{"An atomic needs one entry of 8 bytes (num_sge 1, length 8) for the value that was there before."}},
	{"no address handle", []string{"Every work request of a UD queue pair needs wr.ud.ah from ibv_create_ah, not destroyed yet, besides remote_qpn and remote_qkey."}},
	{"address handle belongs", []string{"Make the address handle with the protection domain of the queue pair."}},
	{"bytes in a datagram", []string{"A datagram must fit into one packet: at most active_mtu of ibv_query_port. Split the message, or use RC."}},
	{" QP has no ", []string{"UD carries SEND only; UC carries SEND and RDMA WRITE; the rest is for RC (qp_type IBV_QPT_RC)."}},
	{"max_msg_sz", []string{"Split the message: max_msg_sz of ibv_query_port is the limit."}},
	{"not a work request", []string{"The entry that the library wrote into the send queue makes no sense: look at opcode, send_flags and num_sge of the work request."}},
	{"comp_vector", []string{"comp_vector must be less than num_comp_vectors of the context. 0 always works."}},
	{"exceeds max_cqe", []string{"cqe must not exceed ibv_query_device's max_cqe. One queue for very many queue pairs may not be possible: use several."}},
	{"srq_limit", []string{"srq_limit must not exceed the size of the queue: it is the number of receives below which SRQ_LIMIT_REACHED comes."}},
	{"receive queue is full", []string{"As many receives are posted and not used as the queue has room for. A place is free again when a message has taken a receive."}},
	{"bound to it", []string{"A window must go before its region: ibv_dealloc_mw, or IBV_WR_LOCAL_INV for one of type 2."}},
	{"attached to the multicast", []string{"Leave each group with ibv_detach_mcast before ibv_destroy_qp."}},
	{"exceeds ", []string{"Ask for no more than the limit, or use several objects. ibv_query_device tells the limits."}},
}

// adviceFor looks at the reason as well, where one errno has many.
func adviceFor(v *ib.VerbError) []string {
	if _, conn := connCalls[strings.TrimPrefix(v.Verb, "rdma_")]; !conn {
		for _, r := range refusals {
			if strings.Contains(v.Reason, r.part) {
				return r.advice
			}
		}
	}
	verb := strings.TrimPrefix(v.Verb, "rdma_")
	if real, ok := connVerbs[verb]; ok {
		verb = real
	}
	if strings.Contains(v.Reason, "bytes of private data") {
		return privateData
	}
	if a, ok := connCalls[verb]; ok && v.Errno != ib.ENETUNREACH && v.Errno != ib.ENXIO {
		return a
	}
	return callAdvice(v.Verb, v.Errno)
}

func (w *writer) list(lines []string) {
	for _, l := range lines {
		w.line(1, "- %s", l)
	}
}
