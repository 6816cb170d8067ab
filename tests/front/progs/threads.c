/* Commands from many threads at once, while a timer interrupts them; commands from the
 * signal handler too. */
#include "common.h"
#include <pthread.h>
#include <signal.h>
#include <sys/time.h>

static struct ibv_context *ctx;
static volatile sig_atomic_t handled, failed;

static void on_alarm(int sig)
{
	(void)sig;
	int saved = errno;
	if (!answers(ctx->cmd_fd))
		failed = 1;
	handled++;
	errno = saved;
}

static void *work(void *arg)
{
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	CHECK(ch);
	for (int i = 0; i < 50; i++) {
		struct ibv_cq *cq = ibv_create_cq(ctx, 1 + i, NULL, i & 1 ? ch : NULL, 0);
		CHECK(cq && cq->cqe >= 1 + i);
		CHECK(!ibv_req_notify_cq(cq, 0));
		CHECK(!ibv_destroy_cq(cq));
		CHECK(answers(ctx->cmd_fd));
	}
	CHECK(!ibv_destroy_comp_channel(ch));
	return arg;
}

int main(void)
{
	pthread_t t[8];
	ctx = open_rvt0();
	struct sigaction sa = { .sa_handler = on_alarm }; /* without SA_RESTART */
	CHECK(!sigaction(SIGALRM, &sa, NULL));
	struct itimerval tv = { { 0, 500 }, { 0, 500 } };
	CHECK(!setitimer(ITIMER_REAL, &tv, NULL));
	for (int i = 0; i < 8; i++)
		CHECK(!pthread_create(&t[i], NULL, work, NULL));
	for (int i = 0; i < 8; i++)
		while (pthread_join(t[i], NULL))
			;
	struct itimerval off = { { 0, 0 }, { 0, 0 } };
	CHECK(!setitimer(ITIMER_REAL, &off, NULL));
	CHECK(handled > 0 && !failed);
	CHECK(!ibv_close_device(ctx));
	return 0;
}
