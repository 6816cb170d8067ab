/* What the test programs share: checks that say where they failed, and a pair of queue
 * pairs of one process that talk to each other. */
#ifndef COMMON_H
#define COMMON_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(cond)                                                                          \
	do {                                                                                 \
		if (!(cond)) {                                                               \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #cond, strerror(errno)); \
			_exit(1);                                                            \
		}                                                                            \
	} while (0)

static inline struct ibv_context *open_rvt0(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);
	CHECK(list && n == 1);
	CHECK(!strcmp(ibv_get_device_name(list[0]), "rvt0"));
	struct ibv_context *ctx = ibv_open_device(list[0]);
	CHECK(ctx);
	ibv_free_device_list(list);
	return ctx;
}

/* Whether the device answers on descriptor fd: QUERY_PORT as a bare write(). */
static inline int answers(int fd)
{
	struct {
		uint32_t command;
		uint16_t in_words, out_words;
		uint64_t response;
		uint8_t port, reserved[7];
	} cmd = { 2, sizeof cmd / 4, 10, 0, 1, { 0 } };
	uint32_t resp[10] = { 0 };
	_Static_assert(sizeof cmd == 24, "struct ib_uverbs_query_port");
	cmd.response = (uintptr_t)resp;
	if (write(fd, &cmd, sizeof cmd) != (ssize_t)sizeof cmd)
		return 0;
	for (int i = 0; i < 10; i++)
		if (resp[i])
			return 1;
	return 0;
}

struct end {
	struct ibv_cq *cq;
	struct ibv_qp *qp;
};

struct pair {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *ch;
	struct ibv_mr *mr;
	char *buf;
	struct end a, b;
};

#define PAIR_BYTES 65536

static inline void to_rts(struct ibv_context *ctx, struct ibv_qp *qp, uint32_t peer)
{
	union ibv_gid gid;
	CHECK(!ibv_query_gid(ctx, 1, 0, &gid));
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				 .qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer,
				  .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
				  .ah_attr = { .is_global = 1, .grh = { .dgid = gid, .hop_limit = 64 }, .port_num = 1 } };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
				     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){ .qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				     IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline void make_end(struct pair *p, struct end *e)
{
	e->cq = ibv_create_cq(p->ctx, 64, NULL, p->ch, 0);
	CHECK(e->cq);
	struct ibv_qp_init_attr init = { .send_cq = e->cq, .recv_cq = e->cq, .qp_type = IBV_QPT_RC,
					 .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 } };
	e->qp = ibv_create_qp(p->pd, &init);
	CHECK(e->qp);
}

/* Everything for traffic within one process; with events if channel is set. */
static inline void make_pair(struct pair *p, struct ibv_context *ctx, int channel)
{
	memset(p, 0, sizeof *p);
	p->ctx = ctx;
	p->pd = ibv_alloc_pd(ctx);
	CHECK(p->pd);
	if (channel)
		CHECK((p->ch = ibv_create_comp_channel(ctx)));
	CHECK(!posix_memalign((void **)&p->buf, 4096, PAIR_BYTES));
	memset(p->buf, 0, PAIR_BYTES);
	p->mr = ibv_reg_mr(p->pd, p->buf, PAIR_BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	CHECK(p->mr);
	make_end(p, &p->a);
	make_end(p, &p->b);
	to_rts(ctx, p->a.qp, p->b.qp->qp_num);
	to_rts(ctx, p->b.qp, p->a.qp->qp_num);
}

static inline void destroy_pair(struct pair *p)
{
	CHECK(!ibv_destroy_qp(p->a.qp) && !ibv_destroy_qp(p->b.qp));
	CHECK(!ibv_destroy_cq(p->a.cq) && !ibv_destroy_cq(p->b.cq));
	if (p->ch)
		CHECK(!ibv_destroy_comp_channel(p->ch));
	CHECK(!ibv_dereg_mr(p->mr));
	CHECK(!ibv_dealloc_pd(p->pd));
	free(p->buf);
}

static inline void wait_cqe(struct ibv_cq *cq, enum ibv_wc_opcode op)
{
	struct ibv_wc wc;
	int n;
	while (!(n = ibv_poll_cq(cq, 1, &wc)))
		sched_yield();
	CHECK(n == 1);
	if (wc.status != IBV_WC_SUCCESS)
		fprintf(stderr, "completion: %s\n", ibv_wc_status_str(wc.status));
	CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == op);
}

static inline void post_recv(struct pair *p, char *to, uint32_t n)
{
	struct ibv_sge sge = { (uintptr_t)to, n, p->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = 1, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_recv(p->b.qp, &wr, &bad));
}

static inline int post_send(struct pair *p, const char *from, uint32_t n)
{
	struct ibv_sge sge = { (uintptr_t)from, n, p->mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	return ibv_post_send(p->a.qp, &wr, &bad);
}

/* One message from the first half of the buffer to the second, looked at. */
static inline void message(struct pair *p, unsigned char fill)
{
	const uint32_t n = 5000;
	char *to = p->buf + PAIR_BYTES / 2;
	memset(p->buf, fill, n);
	memset(to, 0, n);
	post_recv(p, to, n);
	CHECK(!post_send(p, p->buf, n));
	wait_cqe(p->b.cq, IBV_WC_RECV);
	wait_cqe(p->a.cq, IBV_WC_SEND);
	CHECK(!memcmp(p->buf, to, n));
}

#endif
