/* Makes objects, says "ready", and sends to itself until it is killed, or until the
 * device goes away: then it must notice, in each of its ways to wait. */
#include "common.h"
#include <poll.h>

int main(int argc, char **argv)
{
	struct ibv_context *ctx = open_rvt0();
	struct pair p;
	make_pair(&p, ctx, 1);
	message(&p, 1);
	puts("ready");
	fflush(stdout);
	if (argc > 1 && !strcmp(argv[1], "poll")) { /* look at completion queues, nothing else */
		struct ibv_wc wc = { .status = IBV_WC_SUCCESS };
		for (uint64_t i = 1; i < 4; i++) {
			struct ibv_sge sge = { (uintptr_t)p.buf, 100, p.mr->lkey };
			struct ibv_recv_wr wr = { .wr_id = 70 + i, .sg_list = &sge, .num_sge = 1 }, *bad;
			CHECK(!ibv_post_recv(p.b.qp, &wr, &bad));
		}
		puts("polls");
		fflush(stdout);
		for (uint64_t i = 1; i < 4; i++) {
			while (!ibv_poll_cq(p.b.cq, 1, &wc))
				sched_yield();
			CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 70 + i && wc.qp_num == p.b.qp->qp_num);
		}
		while (!ibv_poll_cq(p.a.cq, 1, &wc)) /* nothing was outstanding here */
			sched_yield();
		CHECK(wc.status == IBV_WC_FATAL_ERR && wc.qp_num == p.a.qp->qp_num);
		CHECK(post_send(&p, p.buf, 10));
		puts("noticed");
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "sends")) { /* likewise, with sends that nobody takes */
		struct ibv_wc wc;
		for (int i = 0; i < 3; i++)
			CHECK(!post_send(&p, p.buf, 10));
		puts("polls");
		fflush(stdout);
		for (int i = 0; i < 3; i++) {
			while (!ibv_poll_cq(p.a.cq, 1, &wc))
				sched_yield();
			CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 2 && wc.qp_num == p.a.qp->qp_num);
		}
		CHECK(!ibv_poll_cq(p.a.cq, 1, &wc));
		puts("noticed");
		return 0;
	}
	if (argc > 1) { /* wait for the event */
		struct ibv_async_event ev;
		if (!ibv_get_async_event(ctx, &ev)) {
			CHECK(ev.event_type == IBV_EVENT_DEVICE_FATAL);
			ibv_ack_async_event(&ev);
			puts("fatal");
		} else {
			puts("end of file");
		}
		struct ibv_cq *cq;
		void *context;
		CHECK(ibv_get_cq_event(p.ch, &cq, &context) == -1);
		CHECK(!answers(ctx->cmd_fd));
		CHECK(!ibv_create_cq(ctx, 1, NULL, NULL, 0));
		int r = 0;
		for (int i = 0; i < 100000 && !r; i++) {
			struct ibv_wc wc;
			r = post_send(&p, p.buf, 10);
			if (r == ENOMEM) /* the ring is full, and nobody empties it */
				break;
			ibv_poll_cq(p.a.cq, 1, &wc);
		}
		CHECK(r);
		puts("noticed");
		return 0;
	}
	for (;;)
		message(&p, 2);
}
