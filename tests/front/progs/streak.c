/* Polls for a while, then posts to a queue pair that is busy and does not poll: what it has
 * posted is done all the same. */
#include "common.h"

#include <sched.h>
#include <time.h>

#define STREAK 8

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(void)
{
	struct pair p;
	make_pair(&p, open_rvt0(), 0);
	volatile unsigned char *to = (unsigned char *)p.buf + PAIR_BYTES / 2;
	struct ibv_wc wc;
	for (int round = 1; round <= 100; round++) {
		double start = now();
		while (now() - start < 0.003)
			CHECK(ibv_poll_cq(p.a.cq, 1, &wc) == 0);
		memset(p.buf, round, STREAK);
		for (int i = 0; i < STREAK; i++) {
			struct ibv_sge sge = { (uintptr_t)p.buf + i, 1, p.mr->lkey };
			struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
						  .send_flags = i == STREAK - 1 ? IBV_SEND_SIGNALED : 0 }, *bad;
			wr.wr.rdma.remote_addr = (uintptr_t)to + i;
			wr.wr.rdma.rkey = p.mr->rkey;
			CHECK(!ibv_post_send(p.a.qp, &wr, &bad));
		}
		for (int i = 0; i < STREAK; i++)
			while (to[i] != round)
				sched_yield();
		wait_cqe(p.a.cq, IBV_WC_RDMA_WRITE);
	}
	destroy_pair(&p);
	CHECK(!ibv_close_device(p.ctx));
	return 0;
}
