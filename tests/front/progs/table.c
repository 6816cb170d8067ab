/* Tries each row of the table of verbs in docs/unmodified-programs.md and prints which work:
 * the beginning of the row, a tab, yes or no. Every row is used, not only created, except for
 * those that no provider offers. */
#include "common.h"
#include <arpa/inet.h>
#include <fcntl.h>

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static char *buf;
static struct ibv_mr *mr;
static union ibv_gid gid;

static void row(const char *name, int works)
{
	printf("%s\t%s\n", name, works ? "yes" : "no");
	fflush(stdout);
}

static int completes(struct ibv_cq *cq, int n)
{
	struct ibv_wc wc;
	for (; n > 0; n--) {
		while (!ibv_poll_cq(cq, 1, &wc))
			sched_yield();
		if (wc.status != IBV_WC_SUCCESS)
			return 0;
	}
	return 1;
}

static struct ibv_qp *qp_of(enum ibv_qp_type type, struct ibv_cq *cq, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = type, .sq_sig_all = 1,
					 .cap = { 16, 16, 1, 1, 32 } };
	return ibv_create_qp(pd, &init);
}

/* connect makes a queue pair talk to itself. */
static int connect_self(struct ibv_qp *qp)
{
	int ud = qp->qp_type == IBV_QPT_UD, rc = qp->qp_type == IBV_QPT_RC;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1234,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC };
	if (ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)))
		return 0;
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = qp->qp_num,
				  .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
				  .ah_attr = { .is_global = 1, .grh = { .dgid = gid, .hop_limit = 64 }, .port_num = 1 } };
	if (ibv_modify_qp(qp, &a, ud ? IBV_QP_STATE : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			  (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)))
		return 0;
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	return !ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN | (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			      IBV_QP_MAX_QP_RD_ATOMIC : 0));
}

static int take(struct ibv_qp *qp, struct ibv_srq *srq)
{
	struct ibv_sge sge = { (uintptr_t)buf + 4096, 1024, mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;
	return srq ? !ibv_post_srq_recv(srq, &wr, &bad) : !ibv_post_recv(qp, &wr, &bad);
}

static int give(struct ibv_qp *qp, enum ibv_wr_opcode op, unsigned flags, struct ibv_ah *ah)
{
	struct ibv_sge sge = { (uintptr_t)buf, op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP ? 8 : 16, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = flags }, *bad;
	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = qp->qp_num;
		wr.wr.ud.remote_qkey = 0x1234;
	} else if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = (uintptr_t)buf + 8192;
		wr.wr.atomic.rkey = mr->rkey;
	} else {
		wr.wr.rdma.remote_addr = (uintptr_t)buf + 8192;
		wr.wr.rdma.rkey = mr->rkey;
	}
	return !ibv_post_send(qp, &wr, &bad);
}

static int transports(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 64, NULL, NULL, 0);
	struct ibv_qp *rc = qp_of(IBV_QPT_RC, cq, NULL), *uc = qp_of(IBV_QPT_UC, cq, NULL), *ud = qp_of(IBV_QPT_UD, cq, NULL);
	struct ibv_ah_attr to = { .is_global = 1, .grh = { .dgid = gid, .hop_limit = 64 }, .port_num = 1 };
	struct ibv_ah *ah = ibv_create_ah(pd, &to);
	if (!rc || !uc || !ud || !ah || !connect_self(rc) || !connect_self(uc) || !connect_self(ud))
		return 0;
	int ok = take(rc, NULL) && give(rc, IBV_WR_SEND, IBV_SEND_INLINE, NULL) && completes(cq, 2) &&
		 take(rc, NULL) && give(rc, IBV_WR_SEND_WITH_IMM, 0, NULL) && completes(cq, 2) &&
		 take(rc, NULL) && give(rc, IBV_WR_RDMA_WRITE_WITH_IMM, 0, NULL) && completes(cq, 2) &&
		 give(rc, IBV_WR_RDMA_WRITE, 0, NULL) && completes(cq, 1) && give(rc, IBV_WR_RDMA_READ, 0, NULL) && completes(cq, 1) &&
		 give(rc, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, NULL) && completes(cq, 1) &&
		 give(rc, IBV_WR_ATOMIC_CMP_AND_SWP, 0, NULL) && completes(cq, 1) &&
		 take(uc, NULL) && give(uc, IBV_WR_SEND, 0, NULL) && completes(cq, 2) && give(uc, IBV_WR_RDMA_WRITE, 0, NULL) && completes(cq, 1) &&
		 take(ud, NULL) && give(ud, IBV_WR_SEND, 0, ah) && completes(cq, 2);
	return ok && !ibv_destroy_ah(ah) && !ibv_destroy_qp(rc) && !ibv_destroy_qp(uc) && !ibv_destroy_qp(ud) && !ibv_destroy_cq(cq);
}

static int shared_receives(void)
{
	struct ibv_srq_init_attr init = { .attr = { .max_wr = 4, .max_sge = 1 } };
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_srq *srq = ibv_create_srq(pd, &init);
	struct ibv_qp *qp = srq ? qp_of(IBV_QPT_RC, cq, srq) : NULL;
	if (!qp || !connect_self(qp))
		return 0;
	struct ibv_srq_attr more = { .max_wr = 64 }, limit = { .srq_limit = 1 };
	struct ibv_async_event ev;
	if (ibv_modify_srq(srq, &more, IBV_SRQ_MAX_WR) || !take(NULL, srq) || ibv_modify_srq(srq, &limit, IBV_SRQ_LIMIT) ||
	    !give(qp, IBV_WR_SEND, 0, NULL) || !completes(cq, 2) || ibv_get_async_event(ctx, &ev))
		return 0;
	int ok = ev.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && ev.element.srq == srq;
	ibv_ack_async_event(&ev);
	return ok && !ibv_destroy_qp(qp) && !ibv_destroy_srq(srq) && !ibv_destroy_cq(cq);
}

static int events(void)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, ch, 0), *got;
	struct ibv_qp *qp = qp_of(IBV_QPT_RC, cq, NULL);
	void *arg;
	if (!ch || !cq || !qp || !connect_self(qp) || ibv_req_notify_cq(cq, 1) || !take(qp, NULL) ||
	    !give(qp, IBV_WR_SEND, IBV_SEND_SOLICITED, NULL) || ibv_get_cq_event(ch, &got, &arg) || got != cq)
		return 0;
	ibv_ack_cq_events(cq, 1);
	return completes(cq, 2) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq) && !ibv_destroy_comp_channel(ch);
}

static int cq_resize(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 4, NULL, NULL, 0);
	return !ibv_resize_cq(cq, 100) && cq->cqe >= 100 && !ibv_destroy_cq(cq);
}

static int multicast(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp *qp = qp_of(IBV_QPT_UD, cq, NULL);
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 1, 2, 3 } };
	return qp && connect_self(qp) && !ibv_attach_mcast(qp, &group, 0) && !ibv_detach_mcast(qp, &group, 0) &&
	       !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq);
}

static int windows(void)
{
	struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp *qp = mw ? qp_of(IBV_QPT_RC, cq, NULL) : NULL;
	struct ibv_mr *bindable = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	if (!qp || !bindable || !connect_self(qp))
		return 0;
	uint32_t key = ibv_inc_rkey(mw->rkey);
	struct ibv_send_wr *bad, bind = { .opcode = IBV_WR_BIND_MW, .bind_mw = { .mw = mw, .rkey = key,
		.bind_info = { .mr = bindable, .addr = (uintptr_t)buf, .length = 4096, .mw_access_flags = IBV_ACCESS_REMOTE_READ } } };
	struct ibv_send_wr inv = { .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key };
	struct ibv_send_wr local = { .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = ibv_inc_rkey(key) };
	int ok = !ibv_post_send(qp, &bind, &bad) && completes(cq, 1) && take(qp, NULL) && !ibv_post_send(qp, &inv, &bad) && completes(cq, 2);
	bind.bind_mw.rkey = ibv_inc_rkey(key);
	return ok && !ibv_post_send(qp, &bind, &bad) && completes(cq, 1) && !ibv_post_send(qp, &local, &bad) && completes(cq, 1) &&
	       !ibv_destroy_qp(qp) && !ibv_dealloc_mw(mw) && !ibv_dereg_mr(bindable) && !ibv_destroy_cq(cq);
}

static int extended_qp(void)
{
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_qp_init_attr_ex init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .pd = pd, .cap = { 16, 16, 1, 1, 0 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_RDMA_WRITE };
	struct ibv_qp *qp = ibv_create_qp_ex(ctx, &init);
	if (!qp || !connect_self(qp))
		return 0;
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(qp);
	ibv_wr_start(x);
	x->wr_flags = IBV_SEND_SIGNALED;
	ibv_wr_rdma_write(x, mr->rkey, (uintptr_t)buf + 8192);
	ibv_wr_set_sge(x, mr->lkey, (uintptr_t)buf, 16);
	return !ibv_wr_complete(x) && completes(cq, 1) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq);
}

static int extended_cq(void)
{
	struct ibv_cq_init_attr_ex init = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN | IBV_WC_EX_WITH_QP_NUM };
	struct ibv_cq_ex *x = ibv_create_cq_ex(ctx, &init);
	struct ibv_poll_cq_attr poll = { 0 };
	if (!x)
		return 0;
	struct ibv_cq *cq = ibv_cq_ex_to_cq(x);
	struct ibv_qp *qp = qp_of(IBV_QPT_RC, cq, NULL);
	if (!qp || !connect_self(qp) || !give(qp, IBV_WR_RDMA_WRITE, 0, NULL))
		return 0;
	while (ibv_start_poll(x, &poll) == ENOENT)
		sched_yield();
	int ok = x->status == IBV_WC_SUCCESS && ibv_wc_read_qp_num(x) == qp->qp_num;
	ibv_end_poll(x);
	init.wc_flags = IBV_WC_EX_WITH_COMPLETION_TIMESTAMP;
	return ok && !ibv_create_cq_ex(ctx, &init) && !ibv_destroy_qp(qp) && !ibv_destroy_cq(cq);
}

static int on_demand(void)
{
	struct ibv_device_attr_ex attr;
	struct ibv_mr *a = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	struct ibv_mr *all = ibv_reg_mr(pd, NULL, SIZE_MAX, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_ON_DEMAND);
	return a && all && !ibv_query_device_ex(ctx, NULL, &attr) && attr.odp_caps.general_caps & IBV_ODP_SUPPORT && !ibv_dereg_mr(a) &&
	       !ibv_dereg_mr(all);
}

static int by_ioctl(void)
{
	struct ibv_gid_entry e;
	return !ibv_query_gid_ex(ctx, 1, 0, &e, 0) && e.gid_type == IBV_GID_TYPE_ROCE_V2;
}

/* Any of what the table says is not there. */
static int absent(void)
{
	struct ibv_xrcd_init_attr xrcd = { .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = -1, .oflags = O_CREAT };
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_alloc_dm_attr dm = { .length = 64 };
	struct ibv_mr *m = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	struct ibv_sge sge = { (uintptr_t)buf, 64, m->lkey };
	return ibv_open_xrcd(ctx, &xrcd) || qp_of(IBV_QPT_RAW_PACKET, cq, NULL) || ibv_alloc_dm(ctx, &dm) ||
	       !ibv_rereg_mr(m, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ) ||
	       !ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, &sge, 1) || ibv_import_device(dup(ctx->cmd_fd));
}

static int steering(void)
{
	struct ibv_counters_init_attr none = { 0 };
	struct ibv_cq *cq = ibv_create_cq(ctx, 16, NULL, NULL, 0);
	struct ibv_flow_attr flow = { .type = IBV_FLOW_ATTR_NORMAL, .size = sizeof flow, .port = 1 };
	struct ibv_srq_init_attr_ex tm = { .attr = { .max_wr = 4, .max_sge = 1 }, .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD |
		IBV_SRQ_INIT_ATTR_CQ | IBV_SRQ_INIT_ATTR_TM, .srq_type = IBV_SRQT_TM, .pd = pd, .cq = cq, .tm_cap = { .max_num_tags = 4, .max_ops = 4 } };
	return ibv_create_counters(ctx, &none) || ibv_create_flow(qp_of(IBV_QPT_UD, cq, NULL), &flow) || ibv_create_srq_ex(ctx, &tm);
}

int main(void)
{
	ctx = open_rvt0();
	CHECK(!ibv_query_gid(ctx, 1, 0, &gid));
	CHECK((pd = ibv_alloc_pd(ctx)));
	CHECK(!posix_memalign((void **)&buf, 4096, 16384));
	memset(buf, 0, 16384);
	CHECK((mr = ibv_reg_mr(pd, buf, 16384, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)));
	row("RC, UC, UD", transports());
	row("SRQ", shared_receives());
	row("completion channels", events());
	row("CQ resize", cq_resize());
	row("multicast", multicast());
	row("memory windows", windows());
	row("`ibv_create_qp_ex`", extended_qp());
	row("`ibv_create_cq_ex`", extended_cq());
	row("on-demand paging", on_demand());
	row("the ioctl interface", by_ioctl());
	row("XRC", absent());
	row("flow steering", steering());
	return 0;
}
