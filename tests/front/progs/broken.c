/* A program that fails in one way, named by its argument, as people's first programs do. */
#include <sys/mman.h>
#include "common.h"

static struct pair p;
static struct opts { enum ibv_mtu mtu; uint8_t rd, dest_rd, timeout, retry, rnr, gid_index; uint32_t psn; int access; int port; int pkey; } std = {
	IBV_MTU_1024, 1, 1, 10, 2, 2, 0, 0, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC, 1, 0 };

static void fails(const char *call, int rc) { printf("%s: %s\n", call, rc ? strerror(rc) : "ok"); fflush(stdout); }

static void connect_to(struct ibv_qp *qp, uint32_t peer, struct opts o, int upto)
{
	union ibv_gid gid;
	CHECK(!ibv_query_gid(p.ctx, 1, 0, &gid));
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
	if (upto < 1) return;
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = o.port, .pkey_index = o.pkey, .qp_access_flags = o.access };
	fails("modify_qp INIT", ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	if (upto < 2) return;
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = o.mtu, .dest_qp_num = peer, .rq_psn = 0,
		.max_dest_rd_atomic = o.dest_rd, .min_rnr_timer = 12,
		.ah_attr = { .is_global = 1, .grh = { .dgid = gid, .sgid_index = o.gid_index, .hop_limit = 64 }, .port_num = 1 } };
	fails("modify_qp RTR", ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	if (upto < 3) return;
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = o.timeout, .retry_cnt = o.retry, .rnr_retry = o.rnr, .max_rd_atomic = o.rd, .sq_psn = o.psn };
	fails("modify_qp RTS", ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC));
}
static void both(struct opts a, struct opts b) { connect_to(p.a.qp, p.b.qp->qp_num, a, 3); connect_to(p.b.qp, p.a.qp->qp_num, b, 3); }

static int post(struct ibv_qp *qp, enum ibv_wr_opcode op, int flags, uint64_t raddr, uint32_t rkey, void *addr, uint32_t n, uint32_t lkey)
{
	struct ibv_sge sge = { (uintptr_t)addr, n, lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = flags | IBV_SEND_SIGNALED }, *bad;
	if (op == IBV_WR_ATOMIC_FETCH_AND_ADD || op == IBV_WR_ATOMIC_CMP_AND_SWP) {
		wr.wr.atomic.remote_addr = raddr; wr.wr.atomic.rkey = rkey; wr.wr.atomic.compare_add = 1;
	} else {
		wr.wr.rdma.remote_addr = raddr; wr.wr.rdma.rkey = rkey;
	}
	int rc = ibv_post_send(qp, &wr, &bad);
	fails("post_send", rc);
	return rc;
}
static void done(struct ibv_cq *cq)
{
	struct ibv_wc wc; int n;
	for (long i = 0; !(n = ibv_poll_cq(cq, 1, &wc)) && i < 400; i++)
		usleep(1000);
	if (!n) printf("nothing completed\n");
	else printf("wr %llu: %s vendor_err 0x%x\n", (unsigned long long)wc.wr_id, ibv_wc_status_str(wc.status), wc.vendor_err);
	fflush(stdout);
}
#define R ((uintptr_t)p.buf + PAIR_BYTES / 2)
static int all = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
static void w(uint64_t raddr, uint32_t rkey) { post(p.a.qp, IBV_WR_RDMA_WRITE, 0, raddr, rkey, p.buf, 8, p.mr->lkey); done(p.a.cq); }

static void rkey_range(void) { w((uintptr_t)p.buf + PAIR_BYTES - 4, p.mr->rkey); }
static void rkey_pd(void) { struct ibv_pd *q = ibv_alloc_pd(p.ctx); struct ibv_mr *m = ibv_reg_mr(q, p.buf, PAIR_BYTES, all); w(R, m->rkey); }
static void rkey_rights(void) { struct ibv_mr *m = ibv_reg_mr(p.pd, p.buf, PAIR_BYTES, IBV_ACCESS_LOCAL_WRITE); w(R, m->rkey); }
static void rkey_stale(void) { struct ibv_mr *m = ibv_reg_mr(p.pd, p.buf, PAIR_BYTES, all); uint32_t k = m->rkey; ibv_dereg_mr(m); w(R, k); }
static void lkey_wrong(void) { post(p.a.qp, IBV_WR_SEND, 0, 0, 0, p.buf, 8, 0x777); done(p.a.cq); }
static void lkey_pd(void) { struct ibv_pd *q = ibv_alloc_pd(p.ctx); struct ibv_mr *m = ibv_reg_mr(q, p.buf, PAIR_BYTES, all); post(p.a.qp, IBV_WR_SEND, 0, 0, 0, p.buf, 8, m->lkey); done(p.a.cq); }
static void lkey_range(void) { post(p.a.qp, IBV_WR_RDMA_WRITE, 0, R, p.mr->rkey, p.buf + PAIR_BYTES - 4, 8, p.mr->lkey); done(p.a.cq); }
static void read_target(void) { struct ibv_mr *m = ibv_reg_mr(p.pd, p.buf, 64, 0); post(p.a.qp, IBV_WR_RDMA_READ, 0, R, p.mr->rkey, p.buf, 8, m->lkey); done(p.a.cq); }
static void inline_big(void) { post(p.a.qp, IBV_WR_SEND, IBV_SEND_INLINE, 0, 0, p.buf, 4000, 0); }
static void inline_read(void) { post(p.a.qp, IBV_WR_RDMA_READ, IBV_SEND_INLINE, R, p.mr->rkey, p.buf, 8, p.mr->lkey); done(p.a.cq); }
static void wrong_qpn(void) { connect_to(p.a.qp, 0x4242, std, 3); w(R, p.mr->rkey); }
static void mtu(void) { struct opts o = std; o.mtu = IBV_MTU_4096; both(o, std); post(p.a.qp, IBV_WR_RDMA_WRITE, 0, R, p.mr->rkey, p.buf, 4096, p.mr->lkey); done(p.a.cq); }
static void mtu_read(void) { struct opts o = std; o.mtu = IBV_MTU_256; both(o, std); post(p.a.qp, IBV_WR_RDMA_READ, 0, R, p.mr->rkey, p.buf, 4096, p.mr->lkey); done(p.a.cq); }
static void gid_index(void) { struct opts o = std; o.gid_index = 99; connect_to(p.a.qp, p.b.qp->qp_num, o, 2); }
static void bad_port(void) { struct opts o = std; o.port = 2; connect_to(p.a.qp, p.b.qp->qp_num, o, 1); }
static void big_mtu(void) { struct opts o = std; o.mtu = 7; connect_to(p.a.qp, p.b.qp->qp_num, o, 2); }
static void big_timeout(void) { struct opts o = std; o.timeout = 40; connect_to(p.a.qp, p.b.qp->qp_num, o, 3); }
static void big_rd(void) { struct opts o = std; o.rd = 255; connect_to(p.a.qp, p.b.qp->qp_num, o, 3); }
static void rd_zero(void) { struct opts o = std; o.rd = 0; both(o, std); post(p.a.qp, IBV_WR_RDMA_READ, 0, R, p.mr->rkey, p.buf, 8, p.mr->lkey); done(p.a.cq); }
static void dest_rd_zero(void) { struct opts o = std; o.dest_rd = 0; both(std, o); post(p.a.qp, IBV_WR_RDMA_READ, 0, R, p.mr->rkey, p.buf, 8, p.mr->lkey); done(p.a.cq); }
static void misaligned(void) { both(std, std); struct ibv_mr *m = ibv_reg_mr(p.pd, p.buf, PAIR_BYTES, all); post(p.a.qp, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, R + 4, m->rkey, p.buf, 8, p.mr->lkey); done(p.a.cq); }
static void atomic_short(void) { both(std, std); struct ibv_mr *m = ibv_reg_mr(p.pd, p.buf, PAIR_BYTES, all); post(p.a.qp, IBV_WR_ATOMIC_FETCH_AND_ADD, 0, R, m->rkey, p.buf, 4, p.mr->lkey); done(p.a.cq); }
static void psn(void) { struct opts o = std; o.psn = 0x800; both(o, std); w(R, p.mr->rkey); }
static void psn_old(void) { struct opts o = std; o.psn = 0xfffff0; both(o, std); w(R, p.mr->rkey); }
static void peer_reset(void) { struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET }; both(std, std); CHECK(!ibv_modify_qp(p.b.qp, &a, IBV_QP_STATE)); w(R, p.mr->rkey); }
static void peer_other(void) { both(std, std); connect_to(p.b.qp, 0x9999, std, 3); w(R, p.mr->rkey); }
static void recv_small(void) { post_recv(&p, p.buf, 10); post(p.a.qp, IBV_WR_SEND, 0, 0, 0, p.buf, 5000, p.mr->lkey); done(p.a.cq); done(p.b.cq); }
static void recv_key(void) { struct ibv_mr *m = p.mr, x = *m; x.lkey = 0x888; p.mr = &x; post_recv(&p, p.buf, 10); p.mr = m; post(p.a.qp, IBV_WR_SEND, 0, 0, 0, p.buf, 8, p.mr->lkey); done(p.a.cq); done(p.b.cq); }
static void send_init(void) { connect_to(p.a.qp, p.b.qp->qp_num, std, 1); post(p.a.qp, IBV_WR_SEND, 0, 0, 0, p.buf, 8, p.mr->lkey); }
static void recv_reset(void) { connect_to(p.b.qp, 0, std, 0); struct ibv_sge sge = { (uintptr_t)p.buf, 8, p.mr->lkey }; struct ibv_recv_wr r = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad; fails("post_recv", ibv_post_recv(p.b.qp, &r, &bad)); }
static void recv_full(void) { for (int i = 0; i < 1000; i++) { struct ibv_sge sge = { (uintptr_t)p.buf, 8, p.mr->lkey }; struct ibv_recv_wr r = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad; int rc = ibv_post_recv(p.b.qp, &r, &bad); if (rc) { fails("post_recv", rc); return; } } }
static void two_sge(void) { struct ibv_sge sge[40] = { { (uintptr_t)p.buf, 8, p.mr->lkey } }; struct ibv_send_wr wr = { .wr_id = 7, .sg_list = sge, .num_sge = 40, .opcode = IBV_WR_SEND }, *bad; fails("post_send", ibv_post_send(p.a.qp, &wr, &bad)); }
static void mask(void) {
	union ibv_gid gid; CHECK(!ibv_query_gid(p.ctx, 1, 0, &gid));
	connect_to(p.a.qp, 0, std, 1);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 17, .ah_attr = { .is_global = 1, .grh = { .dgid = gid }, .port_num = 1 } };
	fails("RTR misses", ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN));
	fails("RTR surplus", ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER | IBV_QP_QKEY | IBV_QP_TIMEOUT));
	a.qp_state = IBV_QPS_RTS;
	fails("INIT to RTS", ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	a.qp_state = 9; fails("state 9", ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTR; a.cur_qp_state = IBV_QPS_RTS;
	fails("cur_qp_state", ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a.ah_attr.port_num = 3;
	fails("av port", ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
}
static void create(void) {
	fails("create_cq", ibv_create_cq(p.ctx, 100000000, NULL, NULL, 0) ? 0 : errno);
	fails("create_cq 0", ibv_create_cq(p.ctx, 0, NULL, NULL, 0) ? 0 : errno);
	fails("create_cq vector", ibv_create_cq(p.ctx, 10, NULL, NULL, 99) ? 0 : errno);
	struct ibv_qp_init_attr i = { .send_cq = p.a.cq, .recv_cq = p.a.cq, .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 100000, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 } };
	fails("create_qp wr", ibv_create_qp(p.pd, &i) ? 0 : errno);
	i.cap.max_send_wr = 1; i.cap.max_send_sge = 400; fails("create_qp sge", ibv_create_qp(p.pd, &i) ? 0 : errno);
	i.cap.max_send_sge = 1; i.cap.max_inline_data = 100000; fails("create_qp inline", ibv_create_qp(p.pd, &i) ? 0 : errno);
	i.cap.max_inline_data = 0; i.qp_type = IBV_QPT_RAW_PACKET; fails("create_qp raw", ibv_create_qp(p.pd, &i) ? 0 : errno);
	i.qp_type = 77; fails("create_qp 77", ibv_create_qp(p.pd, &i) ? 0 : errno);
	struct ibv_srq_init_attr s = { .attr = { .max_wr = 10000000, .max_sge = 1 } };
	fails("create_srq", ibv_create_srq(p.pd, &s) ? 0 : errno);
	fails("reg_mr rights", ibv_reg_mr(p.pd, p.buf, 100, IBV_ACCESS_REMOTE_WRITE) ? 0 : errno);
	fails("reg_mr nowhere", ibv_reg_mr(p.pd, (void *)0x1000, 100, all) ? 0 : errno);
	char *ro = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); CHECK(ro != MAP_FAILED);
	fails("reg_mr read-only", ibv_reg_mr(p.pd, ro, 100, IBV_ACCESS_LOCAL_WRITE) ? 0 : errno);
	fails("reg_mr read-only, to be read", ibv_reg_mr(p.pd, ro, 100, IBV_ACCESS_REMOTE_READ) ? 0 : errno);
	fails("reg_mr empty", ibv_reg_mr(p.pd, p.buf, 0, all) ? 0 : errno);
	struct ibv_ah_attr h = { .dlid = 3, .port_num = 1 };
	fails("create_ah", ibv_create_ah(p.pd, &h) ? 0 : errno);
}
static void busy(void) {
	struct ibv_srq_init_attr s = { .attr = { .max_wr = 10, .max_sge = 1 } };
	struct ibv_srq *q = ibv_create_srq(p.pd, &s); CHECK(q);
	struct ibv_qp_init_attr i = { .send_cq = p.a.cq, .recv_cq = p.a.cq, .srq = q, .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 10, .max_send_sge = 1 } };
	struct ibv_qp *x = ibv_create_qp(p.pd, &i); CHECK(x);
	fails("destroy_srq", ibv_destroy_srq(q));
	fails("destroy_cq", ibv_destroy_cq(p.a.cq));
	fails("dealloc_pd", ibv_dealloc_pd(p.pd));
	struct ibv_sge sge = { (uintptr_t)p.buf, 8, p.mr->lkey }; struct ibv_recv_wr r = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;
	fails("post_recv on srq qp", ibv_post_recv(x, &r, &bad));
	struct ibv_srq_attr sa = { .srq_limit = 50 };
	fails("modify_srq", ibv_modify_srq(q, &sa, IBV_SRQ_LIMIT));
	sa.max_wr = 100000000; fails("modify_srq size", ibv_modify_srq(q, &sa, IBV_SRQ_MAX_WR));
	int rc = 0; for (int k = 0; k < 1000 && !(rc = ibv_post_srq_recv(q, &r, &bad)); k++) ; fails("post_srq_recv", rc);
}
static void mw(void) {
	struct ibv_mw *m1 = ibv_alloc_mw(p.pd, IBV_MW_TYPE_1), *m2 = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2); CHECK(m1 && m2);
	struct ibv_mw_bind b = { .wr_id = 5, .send_flags = IBV_SEND_SIGNALED, .bind_info = { p.mr, (uintptr_t)p.buf, 64, IBV_ACCESS_REMOTE_WRITE } };
	fails("bind_mw of type 2", ibv_bind_mw(p.a.qp, m2, &b));
	fails("bind_mw without MW_BIND", ibv_bind_mw(p.a.qp, m1, &b)); 
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.bind_mw.mw = m1; wr.bind_mw.rkey = ibv_inc_rkey(m1->rkey); wr.bind_mw.bind_info = b.bind_info;
	fails("BIND_MW of type 1", ibv_post_send(p.a.qp, &wr, &bad));
	wr.bind_mw.mw = m2; wr.bind_mw.rkey = ibv_inc_rkey(m2->rkey);
	fails("BIND_MW", ibv_post_send(p.a.qp, &wr, &bad)); done(p.a.cq);
}
static void mw_range(void) {
	struct ibv_mw *m2 = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2); struct ibv_mr *m = ibv_reg_mr(p.pd, p.buf, 64, all | IBV_ACCESS_MW_BIND);
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.bind_mw.mw = m2; wr.bind_mw.rkey = ibv_inc_rkey(m2->rkey); wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ m, (uintptr_t)p.buf, 65, IBV_ACCESS_REMOTE_WRITE };
	fails("BIND_MW", ibv_post_send(p.a.qp, &wr, &bad)); done(p.a.cq);
}
static void dereg_mw(void) {
	struct ibv_mw *m2 = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2); struct ibv_mr *m = ibv_reg_mr(p.pd, p.buf, 64, all | IBV_ACCESS_MW_BIND);
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.bind_mw.mw = m2; wr.bind_mw.rkey = ibv_inc_rkey(m2->rkey); wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ m, (uintptr_t)p.buf, 60, IBV_ACCESS_REMOTE_WRITE };
	fails("BIND_MW", ibv_post_send(p.a.qp, &wr, &bad)); done(p.a.cq);
	fails("dereg_mr", ibv_dereg_mr(m));
	w(R, wr.bind_mw.rkey);
}
static void local_inv(void) { struct ibv_send_wr wr = { .wr_id = 7, .opcode = IBV_WR_LOCAL_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = p.mr->rkey }, *bad; fails("LOCAL_INV", ibv_post_send(p.a.qp, &wr, &bad)); done(p.a.cq); }
static void send_inv(void) { post_recv(&p, p.buf, 100); struct ibv_sge sge = { (uintptr_t)p.buf, 8, p.mr->lkey }; struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV, .send_flags = IBV_SEND_SIGNALED, .invalidate_rkey = p.mr->rkey }, *bad; fails("SEND_WITH_INV", ibv_post_send(p.a.qp, &wr, &bad)); done(p.a.cq); done(p.b.cq); }
static void cq_overrun(void) {
	struct ibv_cq *cq = ibv_create_cq(p.ctx, 1, NULL, NULL, 0); int n = cq->cqe;
	struct ibv_qp_init_attr i = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *x = ibv_create_qp(p.pd, &i);
	connect_to(x, p.b.qp->qp_num, std, 3); connect_to(p.b.qp, x->qp_num, std, 3);
	for (int k = 0; k < n + 2; k++) post(x, IBV_WR_RDMA_WRITE, 0, R, p.mr->rkey, p.buf, 8, p.mr->lkey);
	usleep(200000);
	for (int k = 0; k < n + 2; k++) done(cq);
}
static struct ibv_qp *ud(uint32_t qkey) {
	struct ibv_qp_init_attr i = { .send_cq = p.a.cq, .recv_cq = p.a.cq, .qp_type = IBV_QPT_UD, .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *x = ibv_create_qp(p.pd, &i); CHECK(x);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = qkey };
	CHECK(!ibv_modify_qp(x, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR; CHECK(!ibv_modify_qp(x, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS; CHECK(!ibv_modify_qp(x, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	return x;
}
static struct ibv_ah *ah(struct ibv_pd *pd) { union ibv_gid gid; CHECK(!ibv_query_gid(p.ctx, 1, 0, &gid)); struct ibv_ah_attr h = { .is_global = 1, .grh = { .dgid = gid, .hop_limit = 64 }, .port_num = 1 }; struct ibv_ah *x = ibv_create_ah(pd, &h); CHECK(x); return x; }
static void ud_send(struct ibv_qp *x, struct ibv_ah *h, uint32_t qpn, uint32_t qkey, uint32_t n) {
	struct ibv_sge sge = { (uintptr_t)p.buf, n, p.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.wr.ud.ah = h; wr.wr.ud.remote_qpn = qpn; wr.wr.ud.remote_qkey = qkey;
	fails("post_send ud", ibv_post_send(x, &wr, &bad));
}
static void ud_recv(struct ibv_qp *x, uint32_t n) { struct ibv_sge sge = { (uintptr_t)p.buf, n, p.mr->lkey }; struct ibv_recv_wr r = { .wr_id = 9, .sg_list = &sge, .num_sge = 1 }, *bad; fails("post_recv", ibv_post_recv(x, &r, &bad)); }
static void ud_qkey(void) { struct ibv_qp *x = ud(0x11), *y = ud(0x22); ud_recv(y, 100); ud_send(x, ah(p.pd), y->qp_num, 0x11, 8); done(p.a.cq); done(p.a.cq); }
static void ud_grh(void) { struct ibv_qp *x = ud(0x11), *y = ud(0x11); ud_recv(y, 100); ud_send(x, ah(p.pd), y->qp_num, 0x11, 100); done(p.a.cq); done(p.a.cq); }
static void ud_norecv(void) { struct ibv_qp *x = ud(0x11), *y = ud(0x11); ud_send(x, ah(p.pd), y->qp_num, 0x11, 100); done(p.a.cq); done(p.a.cq); }
static void ud_big(void) { struct ibv_qp *x = ud(0x11), *y = ud(0x11); ud_recv(y, 10000); ud_send(x, ah(p.pd), y->qp_num, 0x11, 9000); done(p.a.cq); }
static void ud_read(void) { struct ibv_qp *x = ud(0x11); post(x, IBV_WR_RDMA_READ, 0, R, p.mr->rkey, p.buf, 8, p.mr->lkey); done(p.a.cq); }
static void sq_full(void) { for (int i = 0; i < 100; i++) if (post(p.a.qp, IBV_WR_SEND, 0, 0, 0, p.buf, 8, p.mr->lkey)) return; }

/* The calls of ibv_wr_*, of which only the last one tells of an error. */
static struct ibv_qp_ex *batch(int sends) {
	struct ibv_qp_init_attr_ex i = { .send_cq = p.a.cq, .recv_cq = p.a.cq, .qp_type = IBV_QPT_RC, .pd = p.pd,
		.cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1, .max_inline_data = 16 },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS, .send_ops_flags = IBV_QP_EX_WITH_SEND };
	struct ibv_qp *q = ibv_create_qp_ex(p.ctx, &i); CHECK(q);
	connect_to(q, p.b.qp->qp_num, std, 3);
	struct ibv_qp_ex *x = ibv_qp_to_qp_ex(q); CHECK(x);
	ibv_wr_start(x);
	for (int k = 0; k < sends; k++) { x->wr_id = 70 + k; x->wr_flags = IBV_SEND_SIGNALED; ibv_wr_send(x); }
	return x;
}
static void wr_inline(void) { struct ibv_qp_ex *x = batch(1); ibv_wr_set_inline_data(x, p.buf, 4000); fails("wr_complete", ibv_wr_complete(x)); }
static void wr_pieces(void) { struct ibv_qp_ex *x = batch(1); struct ibv_data_buf b[2] = { { p.buf, 2000 }, { p.buf, 2000 } }; ibv_wr_set_inline_data_list(x, 2, b); fails("wr_complete", ibv_wr_complete(x)); }
static void wr_list(void) { struct ibv_qp_ex *x = batch(1); struct ibv_sge s[40] = { { (uintptr_t)p.buf, 8, p.mr->lkey } }; ibv_wr_set_sge_list(x, 40, s); fails("wr_complete", ibv_wr_complete(x)); }
static void wr_full(void) { struct ibv_qp_ex *x = batch(100); ibv_wr_set_sge(x, p.mr->lkey, (uintptr_t)p.buf, 8); fails("wr_complete", ibv_wr_complete(x)); }
static void wr_right(void) { struct ibv_qp_ex *x = batch(1); ibv_wr_set_inline_data(x, p.buf, 8); fails("wr_complete", ibv_wr_complete(x)); }
static void bind_zero(void) {
	struct ibv_mr *m = ibv_reg_mr(p.pd, p.buf, 4096, all | IBV_ACCESS_MW_BIND); struct ibv_mw *w1 = ibv_alloc_mw(p.pd, IBV_MW_TYPE_1); CHECK(m && w1);
	struct ibv_mw_bind b = { .wr_id = 5, .send_flags = IBV_SEND_SIGNALED, .bind_info = { m, (uintptr_t)p.buf, 64, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED } };
	fails("bind_mw", ibv_bind_mw(p.a.qp, w1, &b));
	b.bind_info.mw_access_flags = IBV_ACCESS_REMOTE_WRITE; fails("bind_mw", ibv_bind_mw(p.a.qp, w1, &b)); done(p.a.cq);
	fails("dereg_mr", ibv_dereg_mr(m));
}
static void bind_full(void) {
	struct ibv_mr *m = ibv_reg_mr(p.pd, p.buf, 4096, all | IBV_ACCESS_MW_BIND); struct ibv_mw *w1 = ibv_alloc_mw(p.pd, IBV_MW_TYPE_1); CHECK(m && w1);
	struct ibv_mw_bind b = { .wr_id = 5, .bind_info = { m, (uintptr_t)p.buf, 64, IBV_ACCESS_REMOTE_WRITE } };
	for (int k = 0; k < 100; k++) { post(p.a.qp, IBV_WR_SEND, 0, 0, 0, p.buf, 8, p.mr->lkey); int rc = ibv_bind_mw(p.a.qp, w1, &b); if (rc) { fails("bind_mw", rc); return; } }
}
/* Work that the program itself sends back, and some more behind it. */
static void to_err(void) {
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	for (int k = 0; k < 3; k++) post_recv(&p, p.buf, 8);
	CHECK(!ibv_modify_qp(p.b.qp, &a, IBV_QP_STATE));
	for (int k = 0; k < 3; k++) done(p.b.cq);
	for (int k = 0; k < 2; k++) { post(p.b.qp, IBV_WR_SEND, 0, 0, 0, p.buf, 8, p.mr->lkey); done(p.b.cq); }
}
/* Everything in order: nothing to explain. */
static void in_order(void) {
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };
	post_recv(&p, p.buf, 8); post(p.a.qp, IBV_WR_SEND, 0, 0, 0, p.buf, 8, p.mr->lkey); done(p.a.cq); done(p.b.cq);
	CHECK(!ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE)); CHECK(!ibv_modify_qp(p.b.qp, &a, IBV_QP_STATE));
}

/* Further mistakes, which nobody reported. */
static char *pages(int prot) { char *m = mmap(NULL, 8192, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); CHECK(m != MAP_FAILED); return m; }
static void unmapped(void) { char *m = pages(PROT_READ | PROT_WRITE); struct ibv_mr *r = ibv_reg_mr(p.pd, m, 8192, all); CHECK(r && !munmap(m, 8192)); post(p.a.qp, IBV_WR_RDMA_WRITE, 0, R, p.mr->rkey, m, 8, r->lkey); done(p.a.cq); }
static void unmapped_target(void) { char *m = pages(PROT_READ | PROT_WRITE); struct ibv_mr *r = ibv_reg_mr(p.pd, m, 8192, all); CHECK(r && !munmap(m, 8192)); w((uintptr_t)m, r->rkey); }
static void nobody(void) { /* an address that no node has */
	union ibv_gid gid; CHECK(!ibv_query_gid(p.ctx, 1, 0, &gid)); gid.raw[15] ^= 0x55;
	connect_to(p.a.qp, p.b.qp->qp_num, std, 1);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = p.b.qp->qp_num, .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = { .is_global = 1, .grh = { .dgid = gid, .hop_limit = 64 }, .port_num = 1 } };
	fails("RTR", ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 10, .retry_cnt = 2 };
	fails("RTS", ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	w(R, p.mr->rkey);
}
static void retry_bits(void) { struct opts o = std; o.retry = 8; connect_to(p.a.qp, p.b.qp->qp_num, o, 3); o = std; o.rnr = 9; connect_to(p.a.qp, p.b.qp->qp_num, o, 3); }
static void window_of_another(void) { /* bound by a, used by a stranger */
	struct ibv_mw *m2 = ibv_alloc_mw(p.pd, IBV_MW_TYPE_2); struct ibv_mr *m = ibv_reg_mr(p.pd, p.buf, PAIR_BYTES, all | IBV_ACCESS_MW_BIND); CHECK(m2 && m);
	struct ibv_send_wr wr = { .wr_id = 7, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED }, *bad;
	wr.bind_mw.mw = m2; wr.bind_mw.rkey = ibv_inc_rkey(m2->rkey); wr.bind_mw.bind_info = (struct ibv_mw_bind_info){ m, (uintptr_t)p.buf, 64, IBV_ACCESS_REMOTE_WRITE };
	fails("BIND_MW", ibv_post_send(p.a.qp, &wr, &bad)); done(p.a.cq);
	w((uintptr_t)p.buf, wr.bind_mw.rkey);
}
static void imm_norecv(void) { struct opts o = std; o.rnr = 0; both(o, std); post(p.a.qp, IBV_WR_RDMA_WRITE_WITH_IMM, 0, R, p.mr->rkey, p.buf, 8, p.mr->lkey); done(p.a.cq); }
static void ud_domain(void) { struct ibv_qp *x = ud(0x11), *y = ud(0x11); ud_recv(y, 100); ud_send(x, ah(ibv_alloc_pd(p.ctx)), y->qp_num, 0x11, 8); }
static void ud_stranger(void) { struct ibv_qp *x = ud(0x11); ud_send(x, ah(p.pd), 0x4242, 0x11, 8); done(p.a.cq); }
static void shrink(void) { for (int k = 0; k < 4; k++) post(p.a.qp, IBV_WR_RDMA_WRITE, 0, R, p.mr->rkey, p.buf, 8, p.mr->lkey); usleep(100000); fails("resize_cq", ibv_resize_cq(p.a.cq, 2)); }
static void mcast_rc(void) { union ibv_gid g = { .raw = { 0xff, 0x0e, [15] = 1 } }; fails("attach", ibv_attach_mcast(p.a.qp, &g, 0)); }
static void zero_receives(void) { struct ibv_qp_init_attr i = { .send_cq = p.a.cq, .recv_cq = p.a.cq, .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 4, .max_send_sge = 1 } }; struct ibv_qp *x = ibv_create_qp(p.pd, &i); CHECK(x); connect_to(x, p.b.qp->qp_num, std, 3); struct ibv_sge sge = { (uintptr_t)p.buf, 8, p.mr->lkey }; struct ibv_recv_wr r = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad; fails("post_recv", ibv_post_recv(x, &r, &bad)); }
static void second_client(void) { struct ibv_qp_init_attr i = { .send_cq = p.a.cq, .recv_cq = p.a.cq, .qp_type = IBV_QPT_RC, .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } }; struct ibv_qp *x = ibv_create_qp(p.pd, &i); CHECK(x); connect_to(x, p.b.qp->qp_num, std, 3); post(x, IBV_WR_RDMA_WRITE, 0, R, p.mr->rkey, p.buf, 8, p.mr->lkey); done(p.a.cq); }
static void cut_uc(void) { /* one end cuts its messages otherwise than the other expects */
	struct ibv_srq_init_attr s = { .attr = { .max_wr = 4, .max_sge = 1 } }; struct ibv_srq *q = ibv_create_srq(p.pd, &s); CHECK(q);
	struct ibv_qp *x[2];
	for (int k = 0; k < 2; k++) {
		struct ibv_qp_init_attr i = { .send_cq = p.a.cq, .recv_cq = p.b.cq, .srq = k ? q : NULL, .qp_type = IBV_QPT_UC, .sq_sig_all = 1, .cap = { .max_send_wr = 4, .max_send_sge = 1, .max_recv_wr = 1, .max_recv_sge = 1 } };
		CHECK((x[k] = ibv_create_qp(p.pd, &i)));
	}
	union ibv_gid gid; CHECK(!ibv_query_gid(p.ctx, 1, 0, &gid));
	for (int k = 0; k < 2; k++) {
		struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
		CHECK(!ibv_modify_qp(x[k], &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
		a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = k ? IBV_MTU_1024 : IBV_MTU_512, .dest_qp_num = x[1 - k]->qp_num, .ah_attr = { .is_global = 1, .grh = { .dgid = gid, .hop_limit = 64 }, .port_num = 1 } };
		CHECK(!ibv_modify_qp(x[k], &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN));
		a.qp_state = IBV_QPS_RTS; CHECK(!ibv_modify_qp(x[k], &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	}
	struct ibv_sge sge = { (uintptr_t)p.buf, 4096, p.mr->lkey }; struct ibv_recv_wr r = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_srq_recv(q, &r, &bad));
	post(x[0], IBV_WR_SEND, 0, 0, 0, p.buf, 3000, p.mr->lkey); done(p.a.cq); done(p.b.cq);
}

#define M(x) { #x, x }
static const struct { const char *name; void (*run)(void); } table[] = {
 M(rkey_range), M(rkey_pd), M(rkey_rights), M(rkey_stale), M(lkey_wrong), M(lkey_pd), M(lkey_range), M(read_target), M(inline_big), M(inline_read), M(wrong_qpn), M(mtu), M(mtu_read), M(gid_index), M(bad_port), M(big_mtu), M(big_timeout), M(big_rd), M(rd_zero), M(dest_rd_zero), M(misaligned), M(atomic_short), M(psn), M(psn_old), M(peer_reset), M(peer_other), M(recv_small), M(recv_key), M(send_init), M(recv_reset), M(recv_full), M(two_sge), M(mask), M(create), M(busy), M(mw), M(mw_range), M(dereg_mw), M(local_inv), M(send_inv), M(cq_overrun), M(ud_qkey), M(ud_grh), M(ud_norecv), M(ud_big), M(ud_read), M(sq_full),
 M(wr_inline), M(wr_pieces), M(wr_list), M(wr_full), M(wr_right), M(bind_zero), M(bind_full), M(to_err), M(in_order),
 M(unmapped), M(unmapped_target), M(nobody), M(retry_bits), M(window_of_another), M(imm_norecv), M(ud_domain), M(ud_stranger), M(shrink), M(mcast_rc), M(zero_receives), M(second_client), M(cut_uc),
};
int main(int argc, char **argv)
{
	if (argc < 2) { for (unsigned i = 0; i < sizeof table / sizeof *table; i++) puts(table[i].name); return 0; }
	struct ibv_context *ctx = open_rvt0();
	for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
		if (!strcmp(table[i].name, argv[1])) { make_pair(&p, ctx, 0); table[i].run(); return 0; }
	return 2;
}
