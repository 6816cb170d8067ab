/* Makes objects, says "ready", and sends to itself until it is killed, or until the
 * device goes away: then it must notice, in each of its ways to wait. */
#include "common.h"
#include <poll.h>

int main(int argc, char **argv)
{
	(void)argv;
	struct ibv_context *ctx = open_rvt0();
	struct pair p;
	make_pair(&p, ctx, 1);
	message(&p, 1);
	puts("ready");
	fflush(stdout);
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
