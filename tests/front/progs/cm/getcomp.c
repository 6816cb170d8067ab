/* rdma_get_recv_comp and rdma_get_send_comp, every statement of their pages, between two
 * synchronous endpoints of one process. Usage: getcomp ADDRESS. */
#include "../common.h"
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

static struct rdma_cm_id *listener, *s, *c;
static struct ibv_mr *smr, *cmr;
static char sbuf[4096], cbuf[4096];

static struct ibv_qp_init_attr attr(void)
{
	struct ibv_qp_init_attr a = { .cap = { 20, 20, 1, 1, 32 }, .qp_type = IBV_QPT_RC, .sq_sig_all = 1 };
	return a;
}

static void *serve(void *unused)
{
	CHECK(!rdma_get_request(listener, &s));
	CHECK((smr = rdma_reg_msgs(s, sbuf, sizeof sbuf)));
	CHECK(!rdma_accept(s, NULL));
	return unused;
}

static void set_up(const char *addr)
{
	struct rdma_addrinfo hints = { .ai_flags = RAI_PASSIVE, .ai_port_space = RDMA_PS_TCP }, *res;
	struct ibv_qp_init_attr a = attr();
	pthread_t t;
	CHECK(!rdma_getaddrinfo(addr, "7700", &hints, &res));
	CHECK(!rdma_create_ep(&listener, res, NULL, &a));
	rdma_freeaddrinfo(res);
	CHECK(!rdma_listen(listener, 0));
	hints.ai_flags = 0;
	CHECK(!rdma_getaddrinfo(addr, "7700", &hints, &res));
	a = attr();
	CHECK(!rdma_create_ep(&c, res, NULL, &a));
	rdma_freeaddrinfo(res);
	CHECK((cmr = rdma_reg_msgs(c, cbuf, sizeof cbuf)));
	CHECK(!pthread_create(&t, NULL, serve, NULL));
	CHECK(!rdma_connect(c, NULL));
	CHECK(!pthread_join(t, NULL));
}

static double now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static double sent_at;
static void *send_later(void *unused)
{
	struct timespec d = { 0, 200000000 };
	nanosleep(&d, NULL); /* the receiver is to be asleep by now */
	sent_at = now();
	CHECK(!rdma_post_send(c, (void *)0x5e, cbuf, 10, cmr, 0));
	return unused;
}

/* It blocks until a request completes, returns 1, and wr_id is the context of the request. */
static void blocks(void)
{
	struct ibv_wc wc;
	pthread_t t;
	strcpy(cbuf, "delivered");
	CHECK(!rdma_post_recv(s, (void *)0x4ec, sbuf, 100, smr));
	CHECK(!pthread_create(&t, NULL, send_later, NULL));
	CHECK(rdma_get_recv_comp(s, &wc) == 1);
	CHECK(now() >= sent_at && sent_at > 0);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 0x4ec && wc.opcode == IBV_WC_RECV && wc.byte_len == 10);
	CHECK(!strcmp(sbuf, "delivered"));
	CHECK(!pthread_join(t, NULL));
	CHECK(rdma_get_send_comp(c, &wc) == 1);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 0x5e && wc.opcode == IBV_WC_SEND);
}

/* One completion per call, in order, also when several wait. Sends and receives have
 * queues of their own: each call returns its own kind. */
static void separate(void)
{
	struct ibv_wc wc;
	CHECK(s->send_cq != s->recv_cq && s->send_cq_channel != s->recv_cq_channel);
	for (uintptr_t i = 1; i <= 5; i++) {
		CHECK(!rdma_post_recv(s, (void *)i, sbuf + 100 * i, 100, smr));
		CHECK(!rdma_post_recv(c, (void *)(i + 100), cbuf + 100 * i, 100, cmr));
	}
	for (uintptr_t i = 1; i <= 5; i++) {
		CHECK(!rdma_post_send(c, (void *)(i + 10), cbuf, 10 + i, cmr, 0));
		CHECK(!rdma_post_send(s, (void *)(i + 20), sbuf, 20 + i, smr, 0));
	}
	for (uintptr_t i = 1; i <= 5; i++) {
		CHECK(rdma_get_send_comp(s, &wc) == 1 && wc.wr_id == i + 20 && wc.opcode == IBV_WC_SEND);
		CHECK(rdma_get_recv_comp(s, &wc) == 1 && wc.wr_id == i && wc.opcode == IBV_WC_RECV && wc.byte_len == 10 + i);
		CHECK(rdma_get_recv_comp(c, &wc) == 1 && wc.wr_id == i + 100 && wc.byte_len == 20 + i);
		CHECK(rdma_get_send_comp(c, &wc) == 1 && wc.wr_id == i + 10);
	}
}

/* READ and WRITE complete on the send side; only the initiator sees them. */
static void one_sided(void)
{
	struct ibv_wc wc;
	struct ibv_mr *m;
	static char target[64];
	strcpy(target, "read me");
	CHECK((m = ibv_reg_mr(s->pd, target, sizeof target, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE)));
	CHECK(!rdma_post_read(c, (void *)1, cbuf, 8, cmr, 0, (uintptr_t)target, m->rkey));
	CHECK(rdma_get_send_comp(c, &wc) == 1 && wc.opcode == IBV_WC_RDMA_READ && !strcmp(cbuf, "read me"));
	strcpy(cbuf, "written");
	CHECK(!rdma_post_write(c, (void *)2, cbuf, 8, cmr, IBV_SEND_INLINE, (uintptr_t)target, m->rkey));
	CHECK(rdma_get_send_comp(c, &wc) == 1 && wc.opcode == IBV_WC_RDMA_WRITE && !strcmp(target, "written"));
	CHECK(ibv_poll_cq(s->recv_cq, 1, &wc) == 0);
	CHECK(!rdma_dereg_mr(m));
}

/* On a channel that does not block there is EAGAIN instead of waiting. */
static void nonblocking(void)
{
	struct ibv_wc wc;
	int fd = s->recv_cq_channel->fd, flags = fcntl(fd, F_GETFL);
	CHECK(!fcntl(fd, F_SETFL, flags | O_NONBLOCK));
	/* What earlier calls left announced without having to wait for it goes first. */
	struct ibv_cq *q;
	void *context;
	while (!ibv_get_cq_event(s->recv_cq_channel, &q, &context))
		ibv_ack_cq_events(q, 1);
	errno = 0;
	CHECK(rdma_get_recv_comp(s, &wc) == -1 && errno == EAGAIN);
	CHECK(!rdma_post_recv(s, (void *)7, sbuf, 100, smr));
	CHECK(!rdma_post_send(c, NULL, cbuf, 10, cmr, 0));
	CHECK(rdma_get_send_comp(c, &wc) == 1);
	int r;
	while ((r = rdma_get_recv_comp(s, &wc)) == -1 && errno == EAGAIN)
		;
	CHECK(r == 1 && wc.wr_id == 7);
	CHECK(!fcntl(fd, F_SETFL, flags));
}

static void on_alarm(int sig)
{
	(void)sig;
}

/* Other errors than that of a request are those of the call: -1, and errno says what. */
static void interrupted(void)
{
	struct ibv_wc wc;
	struct sigaction sa = { .sa_handler = on_alarm };
	struct itimerval soon = { { 0, 0 }, { 0, 50000 } };
	CHECK(!sigaction(SIGALRM, &sa, NULL) && !setitimer(ITIMER_REAL, &soon, NULL));
	CHECK((errno = 0, rdma_get_recv_comp(s, &wc)) == -1 && errno == EINTR);
	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
	CHECK((errno = 0, rdma_get_send_comp(s, &wc)) == -1 && errno == EINTR);
	/* Nothing is lost by that. */
	CHECK(!rdma_post_recv(s, (void *)8, sbuf, 100, smr));
	CHECK(!rdma_post_send(c, NULL, cbuf, 10, cmr, 0));
	CHECK(rdma_get_recv_comp(s, &wc) == 1 && wc.wr_id == 8);
	CHECK(rdma_get_send_comp(c, &wc) == 1);
}

static void *hang_up(void *unused)
{
	CHECK(!rdma_disconnect(s));
	return unused;
}

/* A request that fails is a completion like others: 1, and the status says so. */
static void failures(void)
{
	struct ibv_wc wc;
	for (uintptr_t i = 1; i <= 3; i++)
		CHECK(!rdma_post_recv(s, (void *)i, sbuf, 100, smr));
	CHECK(!rdma_post_read(c, (void *)0xbad, cbuf, 8, cmr, 0, (uintptr_t)sbuf, 0xdead));
	CHECK(!rdma_post_send(c, (void *)0xbae, cbuf, 8, cmr, 0));
	CHECK(rdma_get_send_comp(c, &wc) == 1 && wc.wr_id == 0xbad && wc.status == IBV_WC_REM_ACCESS_ERR);
	CHECK(rdma_get_send_comp(c, &wc) == 1 && wc.wr_id == 0xbae && wc.status == IBV_WC_WR_FLUSH_ERR);
	pthread_t t;
	CHECK(!pthread_create(&t, NULL, hang_up, NULL));
	CHECK(!rdma_disconnect(c));
	CHECK(!pthread_join(t, NULL));
	for (uintptr_t i = 1; i <= 3; i++)
		CHECK(rdma_get_recv_comp(s, &wc) == 1 && wc.wr_id == i && wc.status == IBV_WC_WR_FLUSH_ERR);
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	for (int round = 0; round < 2; round++) {
		sent_at = 0;
		set_up(argv[1]);
		blocks();
		separate();
		one_sided();
		nonblocking();
		interrupted();
		failures();
		CHECK(!rdma_dereg_mr(smr) && !rdma_dereg_mr(cmr));
		rdma_destroy_ep(s);
		rdma_destroy_ep(c);
		rdma_destroy_ep(listener);
	}
	puts("ok");
	return 0;
}
