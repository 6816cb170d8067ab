/* What programs see of the connection manager through librdmacm: many connections,
 * private data, refusals, events that wait, channels that do or do not block, signals,
 * fork, threads. One process connects to itself, with asynchronous ids.
 * Usage: manage ADDRESS CONNECTIONS. */
#include "../common.h"
#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <signal.h>
#include <sys/time.h>
#include <time.h>

static struct rdma_event_channel *ch;
static struct sockaddr_in addr;

/* Waits for an event; the caller acknowledges it. */
static struct rdma_cm_event *event(enum rdma_cm_event_type want)
{
	struct rdma_cm_event *e;
	CHECK(!rdma_get_cm_event(ch, &e));
	if (e->event != want) {
		fprintf(stderr, "%s (status %d), want %s\n", rdma_event_str(e->event), e->status, rdma_event_str(want));
		_exit(1);
	}
	return e;
}

static struct rdma_cm_id *await(enum rdma_cm_event_type want)
{
	struct rdma_cm_event *e = event(want);
	struct rdma_cm_id *id = e->id;
	CHECK(!rdma_ack_cm_event(e));
	return id;
}

static struct rdma_cm_id *listener(int port, int backlog)
{
	struct rdma_cm_id *l;
	CHECK(!rdma_create_id(ch, &l, NULL, RDMA_PS_TCP));
	addr.sin_port = htons((uint16_t)port);
	CHECK(!rdma_bind_addr(l, (struct sockaddr *)&addr));
	CHECK(!rdma_listen(l, backlog));
	CHECK(rdma_get_src_port(l) == htons((uint16_t)port));
	return l;
}

static struct rdma_cm_id *resolved(int port)
{
	struct rdma_cm_id *id;
	CHECK(!rdma_create_id(ch, &id, NULL, RDMA_PS_TCP));
	addr.sin_port = htons((uint16_t)port);
	CHECK(!rdma_resolve_addr(id, NULL, (struct sockaddr *)&addr, 2000));
	CHECK(await(RDMA_CM_EVENT_ADDR_RESOLVED) == id);
	CHECK(id->verbs && id->pd);
	CHECK(!rdma_resolve_route(id, 2000));
	CHECK(await(RDMA_CM_EVENT_ROUTE_RESOLVED) == id);
	return id;
}

/* Without a QP of librdmacm's: the program would bring up its own. */
static struct rdma_conn_param param(uint32_t qpn, const void *data, size_t n)
{
	struct rdma_conn_param p = { .qp_num = qpn, .private_data = data, .private_data_len = (uint8_t)n,
				     .responder_resources = 1, .initiator_depth = 1, .retry_count = 7, .rnr_retry_count = 7 };
	return p;
}

static unsigned char pattern[256];

static int carries(const struct rdma_cm_event *e, size_t sent, size_t room)
{
	const struct rdma_conn_param *p = &e->param.conn;
	if (p->private_data_len != room || memcmp(p->private_data, pattern, sent))
		return 0;
	for (size_t i = sent; i < room; i++)
		if (((const unsigned char *)p->private_data)[i])
			return 0;
	return 1;
}

static void finish(struct rdma_cm_id *c, struct rdma_cm_id *s)
{
	CHECK(!rdma_disconnect(c));
	CHECK(await(RDMA_CM_EVENT_DISCONNECTED) == s);
	CHECK(!rdma_disconnect(s));
	CHECK(await(RDMA_CM_EVENT_DISCONNECTED) == c);
	CHECK(!rdma_destroy_id(c) && !rdma_destroy_id(s));
}

/* Connects with so much private data each way. */
static void with_data(size_t req, size_t rep)
{
	static uint32_t qpn = 0x1000;
	struct rdma_cm_id *l = listener(7800, 0), *c = resolved(7800), *s;
	struct rdma_conn_param p = param(++qpn, pattern, req);
	CHECK(!rdma_connect(c, &p));
	struct rdma_cm_event *e = event(RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(carries(e, req, 56) && e->listen_id == l);
	s = e->id;
	CHECK(!rdma_ack_cm_event(e));
	p = param(++qpn, pattern, rep);
	CHECK(!rdma_accept(s, &p));
	e = event(RDMA_CM_EVENT_CONNECT_RESPONSE);
	CHECK(carries(e, rep, 196) && e->id == c);
	CHECK(!rdma_ack_cm_event(e));
	CHECK(!rdma_establish(c));
	e = event(RDMA_CM_EVENT_ESTABLISHED);
	CHECK(e->id == s && !e->param.conn.private_data_len);
	CHECK(!rdma_ack_cm_event(e));
	finish(c, s);
	CHECK(!rdma_destroy_id(l));
}

/* What is too long is refused before anything is sent, and an accept that fails refuses. */
static void too_much(void)
{
	struct rdma_cm_id *l = listener(7801, 0), *c = resolved(7801);
	static const size_t sizes[] = { 57, 92, 196, 255 };
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		struct rdma_conn_param p = param(0x900, pattern, sizes[i]);
		CHECK(rdma_connect(c, &p) == -1 && errno == EINVAL);
	}
	struct rdma_conn_param p = param(0x900, NULL, 0);
	CHECK(!rdma_connect(c, &p));
	struct rdma_cm_id *s = await(RDMA_CM_EVENT_CONNECT_REQUEST);
	p = param(0x901, pattern, 197);
	CHECK(rdma_accept(s, &p) == -1 && errno == EINVAL);
	struct rdma_cm_event *e = event(RDMA_CM_EVENT_REJECTED);
	CHECK(e->status == 28);
	CHECK(!rdma_ack_cm_event(e));
	CHECK(!rdma_destroy_id(c) && !rdma_destroy_id(s) && !rdma_destroy_id(l));
}

/* Reasons: nobody listens, the program refuses (with data), it goes away, the listener
 * goes away with requests that nobody has fetched. */
static void refusals(void)
{
	struct rdma_cm_id *c = resolved(7802), *l, *s;
	struct rdma_conn_param p = param(0x700, NULL, 0);
	CHECK(!rdma_connect(c, &p));
	struct rdma_cm_event *e = event(RDMA_CM_EVENT_REJECTED);
	CHECK(e->status == 8);
	CHECK(!rdma_ack_cm_event(e));
	CHECK(rdma_connect(c, &p) == -1 && errno == EINVAL);
	CHECK(!rdma_destroy_id(c));
	l = listener(7802, 0);
	for (int how = 0; how < 4; how++) {
		c = resolved(7802);
		CHECK(!rdma_connect(c, &p));
		int fetch = how < 3;
		if (fetch) {
			s = await(RDMA_CM_EVENT_CONNECT_REQUEST);
			if (how == 0)
				CHECK(rdma_reject(s, pattern, 149) == -1 && !rdma_reject(s, pattern, 148));
			else if (how == 1)
				CHECK(!rdma_reject_ece(s, NULL, 0));
			CHECK(!rdma_destroy_id(s));
		} else {
			struct pollfd f = { ch->fd, POLLIN, 0 };
			CHECK(poll(&f, 1, 10000) == 1);
			CHECK(!rdma_destroy_id(l));
		}
		e = event(RDMA_CM_EVENT_REJECTED);
		CHECK(e->status == (how == 1 ? 35 : 28) && e->id == c);
		CHECK(how != 0 || carries(e, 148, 148));
		CHECK(!rdma_ack_cm_event(e) && !rdma_destroy_id(c));
	}
}

static int alarms;
static void on_alarm(int sig)
{
	(void)sig;
	alarms++;
}

static void *connect_later(void *id)
{
	struct timespec d = { 0, 250000000 };
	struct rdma_conn_param p = param(0x800, NULL, 0);
	nanosleep(&d, NULL);
	CHECK(!rdma_connect(id, &p));
	return NULL;
}

/* The descriptor of a channel is readable while events wait. What blocks can be
 * interrupted, or is restarted, as the handler has it. */
static void waiting(void)
{
	struct rdma_cm_event *e;
	struct pollfd f = { ch->fd, POLLIN, 0 };
	int flags = fcntl(ch->fd, F_GETFL);
	CHECK(poll(&f, 1, 0) == 0);
	CHECK(!fcntl(ch->fd, F_SETFL, flags | O_NONBLOCK));
	CHECK(rdma_get_cm_event(ch, &e) == -1 && errno == EAGAIN);
	CHECK(!fcntl(ch->fd, F_SETFL, flags));

	struct rdma_cm_id *l = listener(7803, 0), *c = resolved(7803);
	struct sigaction sa = { .sa_handler = on_alarm };
	struct itimerval soon = { { 0, 0 }, { 0, 50000 } };
	CHECK(!sigaction(SIGALRM, &sa, NULL) && !setitimer(ITIMER_REAL, &soon, NULL));
	CHECK(rdma_get_cm_event(ch, &e) == -1 && errno == EINTR && alarms == 1);
	sa.sa_flags = SA_RESTART;
	pthread_t t;
	sigset_t block;
	sigemptyset(&block);
	sigaddset(&block, SIGALRM);
	CHECK(!sigaction(SIGALRM, &sa, NULL));
	pthread_sigmask(SIG_BLOCK, &block, NULL);
	CHECK(!pthread_create(&t, NULL, connect_later, c));
	pthread_sigmask(SIG_UNBLOCK, &block, NULL);
	CHECK(!setitimer(ITIMER_REAL, &soon, NULL));
	struct rdma_cm_id *s = await(RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(alarms == 2);
	CHECK(!pthread_join(t, NULL));
	CHECK(poll(&f, 1, 0) == 0);
	CHECK(!rdma_reject(s, NULL, 0));
	CHECK(poll(&f, 1, 10000) == 1 && f.revents == POLLIN);
	CHECK(await(RDMA_CM_EVENT_REJECTED) == c);
	CHECK(!rdma_destroy_id(c) && !rdma_destroy_id(s) && !rdma_destroy_id(l));
}

static void *take(void *unused)
{
	await(RDMA_CM_EVENT_CONNECT_REQUEST);
	return unused;
}

/* Threads that wait at one channel get one event each; one that waits in vain can be
 * cancelled. */
static void threads(void)
{
	enum { N = 4 };
	pthread_t t[N], idle;
	struct rdma_cm_id *l = listener(7804, 0), *c[N];
	for (int i = 0; i < N; i++)
		c[i] = resolved(7804);
	for (int i = 0; i < N; i++)
		CHECK(!pthread_create(&t[i], NULL, take, NULL));
	for (int i = 0; i < N; i++) {
		struct rdma_conn_param p = param(0x600 + (uint32_t)i, NULL, 0);
		CHECK(!rdma_connect(c[i], &p));
	}
	for (int i = 0; i < N; i++)
		CHECK(!pthread_join(t[i], NULL));
	void *how;
	CHECK(!pthread_create(&idle, NULL, take, NULL));
	CHECK(!pthread_cancel(idle) && !pthread_join(idle, &how) && how == PTHREAD_CANCELED);
	for (int i = 0; i < N; i++)
		CHECK(!rdma_destroy_id(c[i]));
	CHECK(!rdma_destroy_id(l));
}

/* An id moves to another channel with the events that wait for it. */
static void migrate(void)
{
	struct rdma_event_channel *first = ch, *other = rdma_create_event_channel();
	CHECK(other);
	struct rdma_cm_id *l = listener(7805, 0), *c = resolved(7805);
	struct rdma_conn_param p = param(0x500, NULL, 0);
	CHECK(!rdma_connect(c, &p));
	struct pollfd f = { ch->fd, POLLIN, 0 };
	CHECK(poll(&f, 1, 10000) == 1);
	CHECK(!rdma_migrate_id(l, other));
	CHECK(poll(&f, 1, 0) == 0);
	ch = other;
	struct rdma_cm_id *s = await(RDMA_CM_EVENT_CONNECT_REQUEST);
	CHECK(!rdma_reject(s, NULL, 0));
	ch = first;
	await(RDMA_CM_EVENT_REJECTED);
	CHECK(!rdma_destroy_id(c) && !rdma_destroy_id(s) && !rdma_destroy_id(l));
	rdma_destroy_event_channel(other);
}

/* A child of fork shares the channel and what is in it, as it shares any open file; a copy
 * of the descriptor is as good as the first. */
static void sharing(void)
{
	struct rdma_cm_id *l = listener(7808, 0), *c = resolved(7808);
	struct rdma_conn_param p = param(0x400, NULL, 0);
	struct pollfd f = { ch->fd, POLLIN, 0 };
	int copy = dup(ch->fd), status;
	CHECK(copy >= 0);
	CHECK(!rdma_connect(c, &p));
	CHECK(poll(&f, 1, 10000) == 1);
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (!pid) {
		struct {
			uint32_t cmd;
			uint16_t in, out;
			uint64_t response;
		} get = { 12, 8, 336, 0 };
		uint32_t answer[84] = { 0 };
		get.response = (uintptr_t)answer;
		CHECK(write(copy, &get, sizeof get) == sizeof get);
		CHECK(answer[3] == RDMA_CM_EVENT_CONNECT_REQUEST);
		CHECK(!fcntl(copy, F_SETFL, fcntl(copy, F_GETFL) | O_NONBLOCK));
		CHECK(write(copy, &get, sizeof get) == -1 && errno == EAGAIN);
		CHECK(!fcntl(copy, F_SETFL, fcntl(copy, F_GETFL) & ~O_NONBLOCK));
		_exit(0);
	}
	CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && !WEXITSTATUS(status));
	CHECK(poll(&f, 1, 0) == 0);
	CHECK(!close(copy));
	/* The request counts as reported, and nobody will acknowledge it: so no rdma_destroy_id of
	 * the listener, which would wait for that. The end of the channel takes it along. */
	(void)l;
	CHECK(!rdma_destroy_id(c));
}

/* What must not bind. */
static void addresses(void)
{
	struct rdma_cm_id *a, *b;
	struct sockaddr_in x = addr;
	CHECK(!rdma_create_id(ch, &a, NULL, RDMA_PS_TCP) && !rdma_create_id(ch, &b, NULL, RDMA_PS_TCP));
	x.sin_port = 0;
	CHECK(!rdma_bind_addr(a, (struct sockaddr *)&x));
	CHECK(rdma_get_src_port(a) && a->verbs);
	x.sin_port = rdma_get_src_port(a);
	CHECK(rdma_bind_addr(b, (struct sockaddr *)&x) == -1 && errno == EADDRINUSE);
	x.sin_addr.s_addr = htonl(0xc0000201);
	CHECK(rdma_bind_addr(b, (struct sockaddr *)&x) == -1 && errno == EADDRNOTAVAIL);
	int one = 1;
	struct rdma_cm_id *r[2];
	for (int i = 0; i < 2; i++) {
		CHECK(!rdma_create_id(ch, &r[i], NULL, RDMA_PS_TCP));
		CHECK(!rdma_set_option(r[i], RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &one, sizeof one));
		addr.sin_port = htons(7806);
		CHECK(!rdma_bind_addr(r[i], (struct sockaddr *)&addr));
	}
	CHECK(rdma_listen(r[0], 0) == -1 && errno == EADDRINUSE);
	CHECK(!rdma_destroy_id(r[0]) && !rdma_listen(r[1], 0) && !rdma_destroy_id(r[1]));
	CHECK(!rdma_destroy_id(a) && !rdma_destroy_id(b));
}

/* So many connections at once, over one listener. */
static void storm(int n)
{
	struct rdma_cm_id *l = listener(7807, 0), **c = calloc((size_t)n, sizeof *c), **s = calloc((size_t)n, sizeof *s);
	int requests = 0, responses = 0, established = 0, gone = 0;
	for (int i = 0; i < n; i++) {
		c[i] = resolved(7807);
		c[i]->context = &c[i];
	}
	for (int i = 0; i < n; i++) {
		struct rdma_conn_param p = param(0x10000 + (uint32_t)i, &i, sizeof i);
		CHECK(!rdma_connect(c[i], &p));
	}
	while (established < n) {
		struct rdma_cm_event *e;
		struct rdma_cm_id *id;
		int i;
		CHECK(!rdma_get_cm_event(ch, &e));
		id = e->id;
		switch (e->event) {
		case RDMA_CM_EVENT_CONNECT_REQUEST:
			memcpy(&i, e->param.conn.private_data, sizeof i);
			CHECK(i >= 0 && i < n && !s[i]);
			s[i] = id;
			requests++;
			struct rdma_conn_param p = param(0x20000 + (uint32_t)i, NULL, 0);
			CHECK(!rdma_ack_cm_event(e) && !rdma_accept(id, &p));
			continue;
		case RDMA_CM_EVENT_CONNECT_RESPONSE:
			responses++;
			CHECK(!rdma_ack_cm_event(e) && !rdma_establish(id));
			continue;
		case RDMA_CM_EVENT_ESTABLISHED:
			established++;
			CHECK(!rdma_ack_cm_event(e));
			continue;
		default:
			fprintf(stderr, "%s, status %d\n", rdma_event_str(e->event), e->status);
			_exit(1);
		}
	}
	CHECK(requests == n && responses == n);
	for (int i = 0; i < n; i++)
		CHECK(!rdma_destroy_id(c[i]));
	while (gone < n) {
		struct rdma_cm_id *id = await(RDMA_CM_EVENT_DISCONNECTED);
		CHECK(!rdma_destroy_id(id));
		gone++;
	}
	CHECK(!rdma_destroy_id(l));
	free(c);
	free(s);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	for (int i = 0; i < 256; i++)
		pattern[i] = (unsigned char)(i + 1);
	addr.sin_family = AF_INET;
	CHECK(inet_pton(AF_INET, argv[1], &addr.sin_addr) == 1);
	CHECK((ch = rdma_create_event_channel()));
	static const size_t reqs[] = { 0, 1, 56 }, reps[] = { 0, 56, 92, 196 };
	for (int i = 0; i < 3; i++)
		for (int j = 0; j < 4; j++)
			with_data(reqs[i], reps[j]);
	too_much();
	refusals();
	waiting();
	threads();
	migrate();
	addresses();
	storm(atoi(argv[2]));
	sharing();
	rdma_destroy_event_channel(ch);
	puts("ok");
	return 0;
}
