/* Completion channels: blocking, by poll, and not read at all before the destroy. */
#include "common.h"
#include <poll.h>

static void next_event(struct pair *p, struct ibv_cq *want)
{
	struct ibv_cq *cq;
	void *context;
	CHECK(!ibv_get_cq_event(p->ch, &cq, &context));
	CHECK(cq == want);
	ibv_ack_cq_events(cq, 1);
}

int main(void)
{
	struct ibv_context *ctx = open_rvt0();
	struct pair p;
	make_pair(&p, ctx, 1);
	for (int i = 0; i < 20; i++) {
		CHECK(!ibv_req_notify_cq(p.b.cq, i & 1));
		post_recv(&p, p.buf, 100);
		struct ibv_sge sge = { (uintptr_t)p.buf + 1000, 100, p.mr->lkey };
		struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
					  .send_flags = IBV_SEND_SIGNALED | IBV_SEND_SOLICITED }, *bad;
		CHECK(!ibv_post_send(p.a.qp, &wr, &bad));
		if (i >= 10) {
			struct pollfd f = { .fd = p.ch->fd, .events = POLLIN };
			CHECK(poll(&f, 1, 20000) == 1 && f.revents == POLLIN);
		}
		next_event(&p, p.b.cq);
		wait_cqe(p.b.cq, IBV_WC_RECV);
		wait_cqe(p.a.cq, IBV_WC_SEND);
	}
	CHECK(!fcntl(p.ch->fd, F_SETFL, O_NONBLOCK));
	struct ibv_cq *cq;
	void *context;
	CHECK(ibv_get_cq_event(p.ch, &cq, &context) == -1 && errno == EAGAIN);
	CHECK(!ibv_req_notify_cq(p.a.cq, 0));
	message(&p, 1); /* leaves an event that nobody reads */
	destroy_pair(&p);
	CHECK(!ibv_close_device(ctx));
	return 0;
}
