/* A verbs client without libibverbs, small enough to be linked statically: the kernel's
 * user ABI with the rings of librxe, as far as it takes to send a message from one queue
 * pair to another one of the same process. */
#ifndef SECCOMP_VERBS_H
#define SECCOMP_VERBS_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/ib_user_verbs.h>
#include <rdma/rdma_user_rxe.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define DEV "/dev/infiniband/uverbs0"
#define CLASS "/sys/class/infiniband"

#define CHECK(cond)                                                                          \
	do {                                                                                 \
		if (!(cond)) {                                                               \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #cond, strerror(errno)); \
			_exit(1);                                                            \
		}                                                                            \
	} while (0)

/* One write() to the device: a header, a command that begins with the address of its
 * answer if it has one, and room for the answer. */
static inline int command_at(int fd, uint32_t number, const void *cmd, size_t n, void *resp, size_t room)
{
	struct {
		struct ib_uverbs_cmd_hdr hdr;
		uint64_t body[32];
	} b = { { number, (uint16_t)((sizeof b.hdr + n) / 4), (uint16_t)(room / 4) }, { 0 } };
	memcpy(b.body, cmd, n);
	if (resp)
		b.body[0] = (uintptr_t)resp;
	size_t len = sizeof b.hdr + n;
	ssize_t r = write(fd, &b, len);
	return r == (ssize_t)len ? 0 : r < 0 ? -errno : -EIO;
}

#define COMMAND(fd, number, cmd, resp) CHECK(!command_at(fd, IB_USER_VERBS_CMD_##number, &(cmd), sizeof(cmd), &(resp), sizeof(resp)))
#define COMMAND_NO_ANSWER(fd, number, cmd) CHECK(!command_at(fd, IB_USER_VERBS_CMD_##number, &(cmd), sizeof(cmd), NULL, 0))

struct verbs {
	int fd, async_fd;
	uint32_t pd;
};

static inline void get_context(struct verbs *v)
{
	struct ib_uverbs_get_context cmd = { 0 };
	struct ib_uverbs_get_context_resp resp = { .async_fd = ~0U };
	COMMAND(v->fd, GET_CONTEXT, cmd, resp);
	v->async_fd = (int)resp.async_fd;
	CHECK(v->async_fd > 2 && (fcntl(v->async_fd, F_GETFD) & FD_CLOEXEC));
}

static inline int alloc_pd(int fd, uint32_t *pd)
{
	struct ib_uverbs_alloc_pd cmd = { 0 };
	struct ib_uverbs_alloc_pd_resp resp = { 0 };
	int r = command_at(fd, IB_USER_VERBS_CMD_ALLOC_PD, &cmd, sizeof cmd, &resp, sizeof resp);
	*pd = resp.pd_handle;
	return r;
}

/* Whether the device answers on descriptor fd. */
static inline int answers(int fd)
{
	struct ib_uverbs_query_port cmd = { .port_num = 1 };
	struct ib_uverbs_query_port_resp resp = { 0 };
	return !command_at(fd, IB_USER_VERBS_CMD_QUERY_PORT, &cmd, sizeof cmd, &resp, sizeof resp) && resp.state == 4;
}

static inline struct verbs open_verbs(int flags)
{
	struct verbs v = { .fd = open(DEV, O_RDWR | flags) };
	CHECK(v.fd >= 0);
	get_context(&v);
	CHECK(!alloc_pd(v.fd, &v.pd));
	return v;
}

static inline uint32_t reg_mr(struct verbs *v, void *p, size_t n)
{
	struct ib_uverbs_reg_mr cmd = { .start = (uintptr_t)p, .length = n, .hca_va = (uintptr_t)p, .pd_handle = v->pd,
					.access_flags = 7 /* local and remote write, remote read */ };
	struct ib_uverbs_reg_mr_resp resp;
	COMMAND(v->fd, REG_MR, cmd, resp);
	return resp.lkey;
}

static inline struct rxe_queue_buf *map_ring(struct verbs *v, const struct mminfo *mi)
{
	void *p = mmap(NULL, mi->size, PROT_READ | PROT_WRITE, MAP_SHARED, v->fd, (off_t)mi->offset);
	CHECK(p != MAP_FAILED);
	return p;
}

struct cq {
	uint32_t handle;
	struct rxe_queue_buf *ring;
};

static inline struct cq make_cq(struct verbs *v)
{
	struct ib_uverbs_create_cq cmd = { .cqe = 16, .comp_channel = -1 };
	struct {
		struct ib_uverbs_create_cq_resp core;
		struct rxe_create_cq_resp rxe;
	} resp;
	COMMAND(v->fd, CREATE_CQ, cmd, resp);
	return (struct cq){ resp.core.cq_handle, map_ring(v, &resp.rxe.mi) };
}

struct qp {
	uint32_t handle, num;
	struct rxe_queue_buf *rq, *sq;
};

static inline struct qp make_qp(struct verbs *v, const struct cq *cq)
{
	struct ib_uverbs_create_qp cmd = { .pd_handle = v->pd, .send_cq_handle = cq->handle, .recv_cq_handle = cq->handle,
					   .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1, .qp_type = 2 /* RC */ };
	struct {
		struct ib_uverbs_create_qp_resp core;
		struct rxe_create_qp_resp rxe;
	} resp;
	COMMAND(v->fd, CREATE_QP, cmd, resp);
	return (struct qp){ resp.core.qp_handle, resp.core.qpn, map_ring(v, &resp.rxe.rq_mi), map_ring(v, &resp.rxe.sq_mi) };
}

/* GID 0 as sysfs has it. */
static inline void gid0(uint8_t gid[16])
{
	char text[64] = { 0 };
	int fd = open(CLASS "/rvt0/ports/1/gids/0", O_RDONLY | O_CLOEXEC);
	CHECK(fd >= 0 && read(fd, text, sizeof text - 1) == 40 && !close(fd));
	for (int i = 0; i < 8; i++) {
		unsigned w;
		CHECK(sscanf(text + 5 * i, "%4x", &w) == 1);
		gid[2 * i] = (uint8_t)(w >> 8);
		gid[2 * i + 1] = (uint8_t)w;
	}
}

static inline void connect_qp(struct verbs *v, const struct qp *q, uint32_t peer)
{
	struct ib_uverbs_modify_qp m = { .qp_handle = q->handle, .attr_mask = 0x39, .qp_state = 1, .port_num = 1, .qp_access_flags = 6 };
	COMMAND_NO_ANSWER(v->fd, MODIFY_QP, m); /* INIT */
	m = (struct ib_uverbs_modify_qp){ .qp_handle = q->handle, .attr_mask = 0x129181, .qp_state = 2, .path_mtu = 3,
					  .dest_qp_num = peer, .max_dest_rd_atomic = 1, .min_rnr_timer = 12,
					  .dest = { .is_global = 1, .hop_limit = 64, .port_num = 1 } };
	gid0(m.dest.dgid);
	COMMAND_NO_ANSWER(v->fd, MODIFY_QP, m); /* RTR */
	m = (struct ib_uverbs_modify_qp){ .qp_handle = q->handle, .attr_mask = 0x12e01, .qp_state = 3, .timeout = 14,
					  .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1 };
	COMMAND_NO_ANSWER(v->fd, MODIFY_QP, m); /* RTS */
}

/* The next free element of a ring that the program fills. */
static inline void *next_element(struct rxe_queue_buf *r)
{
	return r->data + ((size_t)(r->producer_index & r->index_mask) << r->log2_elem_size);
}

static inline void produce(struct rxe_queue_buf *r)
{
	atomic_store_explicit((_Atomic uint32_t *)&r->producer_index, (r->producer_index + 1) & r->index_mask, memory_order_release);
}

static inline void post_recv(const struct qp *q, void *p, uint32_t n, uint32_t lkey)
{
	struct rxe_recv_wqe *w = next_element(q->rq);
	memset(w, 0, sizeof *w);
	w->wr_id = 1;
	w->dma.length = w->dma.resid = n;
	w->dma.num_sge = 1;
	w->dma.sge[0] = (struct rxe_sge){ (uintptr_t)p, n, lkey };
	produce(q->rq);
}

static inline void doorbell(struct verbs *v, const struct qp *q)
{
	struct ib_uverbs_post_send ring = { .qp_handle = q->handle };
	struct ib_uverbs_post_send_resp bad;
	COMMAND(v->fd, POST_SEND, ring, bad);
}

static inline void post_send(struct verbs *v, const struct qp *q, const void *p, uint32_t n, uint32_t lkey)
{
	struct rxe_send_wqe *w = next_element(q->sq);
	memset(w, 0, sizeof *w);
	w->wr.wr_id = 2;
	w->wr.opcode = 2;     /* IBV_WR_SEND */
	w->wr.send_flags = 2; /* IBV_SEND_SIGNALED */
	w->dma.length = w->dma.resid = n;
	w->dma.num_sge = 1;
	w->dma.sge[0] = (struct rxe_sge){ (uintptr_t)p, n, lkey };
	produce(q->sq);
	doorbell(v, q);
}

static inline void wait_cqe(const struct cq *cq, uint64_t wr_id, uint32_t bytes)
{
	struct rxe_queue_buf *r = cq->ring;
	while (atomic_load_explicit((_Atomic uint32_t *)&r->producer_index, memory_order_acquire) == r->consumer_index)
		sched_yield();
	struct ib_uverbs_wc *wc = (void *)(r->data + ((size_t)(r->consumer_index & r->index_mask) << r->log2_elem_size));
	CHECK(wc->status == 0 && wc->wr_id == wr_id && (wr_id != 1 || wc->byte_len == bytes));
	atomic_store_explicit((_Atomic uint32_t *)&r->consumer_index, (r->consumer_index + 1) & r->index_mask, memory_order_release);
}

struct pair {
	struct verbs *v;
	struct cq cq_a, cq_b;
	struct qp a, b;
	char *buf;
	uint32_t lkey;
};

#define PAIR_BYTES 65536

static inline struct pair make_pair(struct verbs *v)
{
	struct pair p = { .v = v, .cq_a = make_cq(v), .cq_b = make_cq(v) };
	p.a = make_qp(v, &p.cq_a);
	p.b = make_qp(v, &p.cq_b);
	p.buf = mmap(NULL, PAIR_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p.buf != MAP_FAILED);
	p.lkey = reg_mr(v, p.buf, PAIR_BYTES);
	connect_qp(v, &p.a, p.b.num);
	connect_qp(v, &p.b, p.a.num);
	return p;
}

/* One message from the first half of the buffer to the second, looked at. */
static inline void message(struct pair *p, unsigned char fill)
{
	const uint32_t n = 5000;
	char *to = p->buf + PAIR_BYTES / 2;
	memset(p->buf, fill, n);
	memset(to, 0, n);
	post_recv(&p->b, to, n, p->lkey);
	post_send(p->v, &p->a, p->buf, n, p->lkey);
	wait_cqe(&p->cq_b, 1, n);
	wait_cqe(&p->cq_a, 2, n);
	CHECK(!memcmp(p->buf, to, n));
}

#endif
