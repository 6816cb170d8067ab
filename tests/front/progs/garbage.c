/* Structures whose unused fields hold garbage, as those of a program that declares them
 * without an initialiser: what neither type, mask, flag nor opcode names must not matter. A
 * field that is named and wrong must. Argument: how many times, each with other garbage. */
#include "common.h"

static struct pair p;
static uint64_t state = 88172645463325252u;

static uint8_t noise(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state >> 24;
}

static void *fill(void *at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)at)[i] = noise();
	return at;
}
#define FILL(x) fill(&(x), sizeof(x))

static struct ibv_qp *queue_pair(enum ibv_qp_type type, struct ibv_srq *srq)
{
	struct ibv_qp_init_attr init;
	FILL(init);
	init.send_cq = init.recv_cq = p.a.cq;
	init.srq = srq;
	init.qp_type = type;
	init.sq_sig_all = 1;
	init.cap.max_send_wr = init.cap.max_send_sge = 1;
	init.cap.max_inline_data = 0;
	if (!srq) /* else max_recv_wr and max_recv_sge are ignored */
		init.cap.max_recv_wr = init.cap.max_recv_sge = 1;
	void *context = init.qp_context;
	struct ibv_qp *qp = ibv_create_qp(p.pd, &init);
	CHECK(qp && qp->qp_context == context);

	struct ibv_qp_init_attr_ex more;
	FILL(more);
	more.comp_mask = IBV_QP_INIT_ATTR_PD;
	more.pd = p.pd;
	more.send_cq = more.recv_cq = p.a.cq;
	more.srq = srq;
	more.qp_type = type;
	more.sq_sig_all = 1;
	more.cap = (struct ibv_qp_cap){ .max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 };
	struct ibv_qp *other = ibv_create_qp_ex(p.ctx, &more);
	CHECK(other && !ibv_destroy_qp(other));
	return qp;
}

static void connect_to(struct ibv_qp *qp, uint32_t peer)
{
	int rc = qp->qp_type == IBV_QPT_RC, ud = qp->qp_type == IBV_QPT_UD;
	union ibv_gid gid;
	CHECK(!ibv_query_gid(p.ctx, 1, 0, &gid));
	struct ibv_qp_attr a;
	FILL(a);
	a.qp_state = IBV_QPS_INIT;
	a.pkey_index = 0;
	a.port_num = 1;
	a.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
	a.qkey = 0x11;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (ud ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	FILL(a);
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_1024;
	a.dest_qp_num = peer;
	a.rq_psn = 7;
	a.max_dest_rd_atomic = 1;
	a.min_rnr_timer = 12;
	a.ah_attr.is_global = 1;
	a.ah_attr.port_num = 1;
	a.ah_attr.grh.dgid = gid;
	a.ah_attr.grh.sgid_index = 0;
	a.ah_attr.grh.hop_limit = 64; /* dlid, sl, static_rate, src_path_bits: nothing on Ethernet */
	CHECK(!ibv_modify_qp(qp, &a, ud ? IBV_QP_STATE : IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     (rc ? IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER : 0)));
	FILL(a);
	a.qp_state = IBV_QPS_RTS;
	a.sq_psn = 7;
	a.timeout = 14;
	a.retry_cnt = a.rnr_retry = 7;
	a.max_rd_atomic = 1;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN |
				     (rc ? IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC : 0)));
}

static void complete(uint64_t id)
{
	struct ibv_wc wc;
	while (!ibv_poll_cq(p.a.cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == id);
}

/* request is a send of which only what every operation needs is no garbage: the immediate
 * data, the unions of other operations, bind_mw and tso are. */
static struct ibv_send_wr request(uint64_t id, enum ibv_wr_opcode op, struct ibv_sge *sge)
{
	struct ibv_send_wr w;
	FILL(w);
	w.wr_id = id;
	w.next = NULL;
	w.sg_list = sge;
	w.num_sge = 1;
	w.opcode = op;
	w.send_flags = 0;
	return w;
}

static void talk(struct ibv_qp *from, struct ibv_qp *to, struct ibv_srq *srq, struct ibv_ah *ah)
{
	struct ibv_recv_wr r, *badr;
	struct ibv_send_wr w, *bad;
	struct ibv_sge into = { (uintptr_t)p.buf, 64, p.mr->lkey }, out = { (uintptr_t)p.buf + 4096, 8, p.mr->lkey };
	FILL(r);
	r.wr_id = 1;
	r.next = NULL;
	r.sg_list = &into;
	r.num_sge = 1;
	CHECK(!(srq ? ibv_post_srq_recv(srq, &r, &badr) : ibv_post_recv(to, &r, &badr)));
	w = request(2, IBV_WR_SEND, &out);
	if (ah) {
		w.wr.ud.ah = ah;
		w.wr.ud.remote_qpn = to->qp_num;
		w.wr.ud.remote_qkey = 0x11;
	}
	CHECK(!ibv_post_send(from, &w, &bad));
	struct ibv_wc wc;
	for (int seen = 0; seen != 3;) { /* in either order: two queue pairs */
		FILL(wc);
		if (ibv_poll_cq(p.a.cq, 1, &wc) != 1)
			continue;
		CHECK(wc.status == IBV_WC_SUCCESS && (wc.wr_id == 1 || wc.wr_id == 2));
		seen |= wc.wr_id;
	}
	if (from->qp_type == IBV_QPT_UD)
		return;
	w = request(3, IBV_WR_RDMA_WRITE, &out);
	w.wr.rdma.remote_addr = (uintptr_t)p.buf + 8192;
	w.wr.rdma.rkey = p.mr->rkey;
	CHECK(!ibv_post_send(from, &w, &bad));
	complete(3);
}

static void everything(enum ibv_qp_type type, int shared)
{
	struct ibv_srq *srq = NULL;
	struct ibv_srq_init_attr s;
	FILL(s);
	s.attr.max_wr = s.attr.max_sge = 1;
	if (shared) { /* srq_limit means nothing at creation */
		CHECK((srq = ibv_create_srq(p.pd, &s)) && srq->srq_context == s.srq_context);
	}
	struct ibv_qp *from = queue_pair(type, NULL), *to = queue_pair(type, srq);
	connect_to(from, to->qp_num);
	connect_to(to, from->qp_num);
	struct ibv_ah *ah = NULL;
	if (type == IBV_QPT_UD) {
		struct ibv_ah_attr a;
		FILL(a);
		CHECK(!ibv_query_gid(p.ctx, 1, 0, &a.grh.dgid));
		a.is_global = a.port_num = 1;
		a.grh.sgid_index = 0;
		CHECK((ah = ibv_create_ah(p.pd, &a)));
	}
	talk(from, to, srq, ah);
	CHECK(!ibv_destroy_qp(from) && !ibv_destroy_qp(to));
	CHECK(!ah || !ibv_destroy_ah(ah));
	CHECK(!srq || !ibv_destroy_srq(srq));
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	make_pair(&p, open_rvt0(), 0);
	for (int i = atoi(argv[1]); i > 0; i--)
		for (int shared = 0; shared < 2; shared++) {
			everything(IBV_QPT_RC, shared);
			everything(IBV_QPT_UC, shared);
			everything(IBV_QPT_UD, shared);
		}
	struct ibv_qp_init_attr wrong;
	FILL(wrong);
	wrong.send_cq = wrong.recv_cq = p.a.cq;
	wrong.srq = NULL;
	wrong.qp_type = IBV_QPT_RC;
	wrong.cap.max_send_wr = 0x7fffffff; /* a field that counts is not forgiven */
	CHECK(!ibv_create_qp(p.pd, &wrong) && errno == EINVAL);
	printf("ok\n");
	return 0;
}
