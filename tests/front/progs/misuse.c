/* A program that does one thing wrong, named by its argument. Strict mode must say which. */
#include <poll.h>
#include <pthread.h>
#include "common.h"

static struct pair p;

static int post(struct ibv_qp *qp, uint64_t id, enum ibv_wr_opcode op, int flags, uint32_t rkey, uint32_t n)
{
	struct ibv_sge sge = { (uintptr_t)p.buf + PAIR_BYTES - 4096, n, p.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1, .opcode = op, .send_flags = flags }, *bad;
	wr.wr.rdma.remote_addr = (uintptr_t)p.buf + PAIR_BYTES / 2;
	wr.wr.rdma.rkey = rkey;
	return ibv_post_send(qp, &wr, &bad);
}

static int capacity(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	CHECK(!ibv_query_qp(qp, &a, IBV_QP_CAP, &init));
	return init.cap.max_send_wr;
}

static void poll_one(struct ibv_cq *cq, struct ibv_wc *wc)
{
	while (!ibv_poll_cq(cq, 1, wc))
		sched_yield();
}

/* A completion is in the queue, unpolled, once the peer has what was sent. */
static void unpolled_send(void)
{
	post_recv(&p, p.buf + PAIR_BYTES / 2, 100);
	CHECK(!post_send(&p, p.buf, 100));
	wait_cqe(p.b.cq, IBV_WC_RECV);
	/* The acknowledgement travels apart: a READ behind it is answered later. */
	CHECK(!post(p.a.qp, 3, IBV_WR_RDMA_READ, 0, p.mr->rkey, 8));
	CHECK(!post(p.a.qp, 4, IBV_WR_RDMA_READ, 0, p.mr->rkey, 8));
}

static void unsignaled(void)
{
	for (int i = capacity(p.a.qp); i > 0; i--)
		CHECK(!post(p.a.qp, i, IBV_WR_RDMA_WRITE, 0, p.mr->rkey, 8));
	CHECK(post(p.a.qp, 99, IBV_WR_RDMA_WRITE, 0, p.mr->rkey, 8) == ENOMEM);
}

static void unpolled(void)
{
	struct ibv_wc wc;
	int n = capacity(p.a.qp);
	for (int i = 0; i < n; i++)
		CHECK(!post(p.a.qp, i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, p.mr->rkey, 8));
	/* All of them may be acknowledged; their slots are taken until one is polled. */
	CHECK(post(p.a.qp, 99, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, p.mr->rkey, 8) == ENOMEM);
	while (!ibv_poll_cq(p.a.cq, 1, &wc))
		CHECK(post(p.a.qp, 99, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, p.mr->rkey, 8) == ENOMEM);
	CHECK(!post(p.a.qp, n, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, p.mr->rkey, 8));
	for (int i = 1; i <= n; i++) {
		/* A poll frees a slot at once, as long as it is at least so often. */
		poll_one(p.a.cq, &wc);
		CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uint64_t)i);
		CHECK(!post(p.a.qp, n + i, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, p.mr->rkey, 8));
	}
}

static void buffer(void)
{
	memset(p.buf, 1, 5000);
	CHECK(!post_send(&p, p.buf, 5000)); /* finds no receive */
	CHECK(!post(p.b.qp, 3, IBV_WR_RDMA_READ, IBV_SEND_SIGNALED, p.mr->rkey, 8));
	wait_cqe(p.b.cq, IBV_WC_RDMA_READ); /* it has come by now */
	memset(p.buf, 2, 5000);
	post_recv(&p, p.buf + PAIR_BYTES / 2, 5000);
	wait_cqe(p.a.cq, IBV_WC_SEND);
}

static void overlap(void)
{
	post_recv(&p, p.buf + 1000, 100);
	post_recv(&p, p.buf + 1099, 100);
	CHECK(!post_send(&p, p.buf, 100));
	wait_cqe(p.b.cq, IBV_WC_RECV);
}

static void lost_wakeup(void)
{
	unpolled_send();
	struct pollfd f = { .fd = p.ch->fd, .events = POLLIN };
	for (int i = 0; i < 10; i++) { /* armed again and again without a poll */
		CHECK(!ibv_req_notify_cq(p.a.cq, 0));
		if (poll(&f, 1, 200))
			break;
	}
}

static void no_channel(void) { CHECK(!ibv_req_notify_cq(p.a.cq, 0)); }

static void small_queue(void)
{
	struct ibv_cq *cq = ibv_create_cq(p.ctx, 1, NULL, NULL, 0);
	CHECK(cq);
	int n = cq->cqe + 1;
	struct ibv_qp_init_attr init = { .send_cq = p.a.cq, .recv_cq = cq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 4, .max_recv_wr = n, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(p.pd, &init), *was = p.b.qp;
	CHECK(qp);
	to_rts(p.ctx, qp, p.a.qp->qp_num);
	p.b.qp = qp;
	for (int i = 0; i < n; i++)
		post_recv(&p, p.buf + 100 * i, 100);
	p.b.qp = was;
	CHECK(!ibv_destroy_qp(qp) && !ibv_destroy_cq(cq));
}

static void never_armed(void)
{
	struct pollfd f = { .fd = p.ch->fd, .events = POLLIN };
	CHECK(!post(p.a.qp, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, p.mr->rkey, 8));
	CHECK(!poll(&f, 1, 5000)); /* ibv_get_cq_event would wait for ever */
}

static void no_grh(void)
{
	struct end e;
	make_end(&p, &e);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(e.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = 17, .min_rnr_timer = 12,
				  .max_dest_rd_atomic = 1, .ah_attr = { .dlid = 7, .port_num = 1 } };
	CHECK(ibv_modify_qp(e.qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				      IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER) == EINVAL);
	CHECK(!ibv_destroy_qp(e.qp) && !ibv_destroy_cq(e.cq));
}

static void timers(void)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };
	CHECK(!ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE));
	union ibv_gid gid;
	CHECK(!ibv_query_gid(p.ctx, 1, 0, &gid));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = p.b.qp->qp_num, .min_rnr_timer = 0,
				  .ah_attr = { .is_global = 1, .grh = { .dgid = gid, .hop_limit = 64 }, .port_num = 1 } };
	CHECK(!ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
					 IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 31, .retry_cnt = 7 };
	CHECK(!ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
					 IBV_QP_MAX_QP_RD_ATOMIC));
}

static void freed_region(void)
{
	post_recv(&p, p.buf, 100);
	CHECK(!ibv_dereg_mr(p.mr));
	p.mr = ibv_reg_mr(p.pd, p.buf, PAIR_BYTES, IBV_ACCESS_LOCAL_WRITE);
	CHECK(p.mr);
}

static void wrong_key(void)
{
	struct ibv_wc wc;
	CHECK(p.mr->lkey != p.mr->rkey);
	CHECK(!post(p.a.qp, 1, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED, p.mr->lkey, 8));
	poll_one(p.a.cq, &wc);
	CHECK(wc.status == IBV_WC_REM_ACCESS_ERR && wc.wr_id == 1 && wc.qp_num == p.a.qp->qp_num);
	/* Nothing else means anything, and it shows. */
	CHECK(wc.byte_len == 0xbadc0de5 && wc.opcode != IBV_WC_RDMA_WRITE);
}

static void dead_queue_pair(void)
{
	struct ibv_wc wc;
	unpolled_send();
	CHECK(!ibv_destroy_qp(p.a.qp));
	poll_one(p.a.cq, &wc);
	CHECK(!ibv_destroy_cq(p.a.cq));
}

static int quick;

static void *acknowledge(void *cq)
{
	usleep(quick ? 1 : 1500000); /* the other thread has to wait meanwhile */
	ibv_ack_cq_events(cq, 2);
	return NULL;
}

static void unacknowledged(void)
{
	pthread_t late;
	for (int i = 0; i < 3; i++) {
		struct ibv_cq *cq;
		void *context;
		CHECK(!ibv_req_notify_cq(p.b.cq, 0));
		message(&p, i);
		CHECK(!ibv_get_cq_event(p.ch, &cq, &context) && cq == p.b.cq);
	}
	ibv_ack_cq_events(p.b.cq, 1);
	CHECK(!ibv_destroy_qp(p.b.qp));
	CHECK(!pthread_create(&late, NULL, acknowledge, p.b.cq));
	CHECK(!ibv_destroy_cq(p.b.cq));
	CHECK(!pthread_join(late, NULL));
}

static void nothing(void)
{
	quick = 1; /* who waits for another thread is right */
	unacknowledged();
	make_pair(&p, p.ctx, 1);
	for (int i = 0; i < 50; i++)
		message(&p, i);
}

static const struct {
	const char *name;
	int channel;
	void (*run)(void);
} table[] = {
	{ "unsignaled", 0, unsignaled }, { "unpolled", 0, unpolled },	    { "buffer", 0, buffer },
	{ "overlap", 0, overlap },	 { "lost-wakeup", 1, lost_wakeup }, { "no-channel", 0, no_channel },
	{ "small-queue", 0, small_queue }, { "no-grh", 0, no_grh },	    { "timers", 0, timers },
	{ "freed-region", 0, freed_region }, { "wrong-key", 0, wrong_key }, { "dead-qp", 0, dead_queue_pair },
	{ "unacknowledged", 1, unacknowledged }, { "never-armed", 1, never_armed },
	{ "nothing", 1, nothing },
};

int main(int argc, char **argv)
{
	struct ibv_context *ctx = open_rvt0();
	for (unsigned i = 0; argc == 2 && i < sizeof table / sizeof *table; i++)
		if (!strcmp(table[i].name, argv[1])) {
			make_pair(&p, ctx, table[i].channel);
			table[i].run();
			return 0; /* what is left is the device's to free */
		}
	return 2;
}
