/* Does to its device what no program should: valid commands with some bytes changed, in
 * two processes that share the context, while a thread in each writes nonsense into the
 * rings that the device is reading. The first argument is the seed, the second for how
 * many milliseconds. It may end in any way; only the others must not notice. */
#include "common.h"
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>

static uint64_t state;

static uint32_t rnd(void)
{
	uint64_t x = __atomic_fetch_add(&state, 0x9e3779b97f4a7c15u, __ATOMIC_RELAXED);
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (uint32_t)(x >> 32);
}

static uint32_t word(void)
{
	static const uint32_t odd[] = { 0, 1, 2, 63, 64, 0x7fffffff, 0x80000000u, 0xffffffffu };
	return rnd() & 1 ? odd[rnd() % 8] : rnd() >> (rnd() & 31);
}

static struct { uint32_t *at; size_t words; } maps[64];
static int nmaps;

/* The memory shared with the device: what is mapped of the memfd. */
static void find_maps(void)
{
	char line[512];
	FILE *f = fopen("/proc/self/maps", "r");
	CHECK(f);
	while (nmaps < 64 && fgets(line, sizeof line, f)) {
		unsigned long from, to;
		if (strstr(line, "memfd:rvtsim") && sscanf(line, "%lx-%lx", &from, &to) == 2) {
			maps[nmaps].at = (uint32_t *)from;
			maps[nmaps++].words = (to - from) / 4;
		}
	}
	fclose(f);
	CHECK(nmaps >= 4);
}

static void *scribble(void *arg)
{
	for (;;) {
		int m = (int)(rnd() % (unsigned)nmaps);
		size_t i = rnd() & 1 ? rnd() % 100 : rnd() % maps[m].words; /* indices come first */
		__atomic_store_n(&maps[m].at[i % maps[m].words], word(), __ATOMIC_RELAXED);
		if (!(rnd() & 1023))
			usleep(100);
	}
	return arg;
}

static uint32_t resp[4096];

/* A command of the kernel's, most of whose fields are plausible. */
static size_t command(uint32_t *c, struct pair *p)
{
	const struct ibv_qp *qp = rnd() & 1 ? p->a.qp : p->b.qp;
	uint32_t handles[] = { p->pd->handle, p->mr->handle, p->a.cq->handle, qp->handle, word() & 15 };
	uint32_t words = 6 + rnd() % 40;
	c[0] = rnd() % 44;
	if (!(rnd() & 7))
		c[0] |= 0x80000000u;
	c[1] = words | (uint32_t)(rnd() % 64) << 16;
	c[2] = (uint32_t)(uintptr_t)resp;
	c[3] = (uint32_t)((uintptr_t)resp >> 32);
	for (uint32_t i = 4; i < words; i++)
		c[i] = rnd() & 1 ? handles[rnd() % 5] : rnd() & 1 ? word() : 0;
	if (!(rnd() & 7)) { /* but not the address of the answer: that harms nobody else */
		uint32_t i = rnd() % words;
		if (i != 2 && i != 3)
			c[i] = word();
	}
	return words * 4;
}

/* Posts what makes no sense, through the library, which may well fall over a ring. */
static void post(struct pair *p)
{
	struct ibv_sge sge = { (uintptr_t)p->buf + word() % PAIR_BYTES, word(), rnd() & 3 ? p->mr->lkey : word() };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = rnd() % 8, .send_flags = rnd() & 15 }, *bad;
	struct ibv_wc wc;
	wr.wr.rdma.remote_addr = (uintptr_t)p->buf + word() % PAIR_BYTES;
	wr.wr.rdma.rkey = p->mr->rkey;
	if (sge.length < PAIR_BYTES || !(wr.send_flags & IBV_SEND_INLINE)) /* the library would copy */
		ibv_post_send(p->a.qp, &wr, &bad);
	ibv_poll_cq(p->a.cq, 1, &wc);
}

static void misbehave(struct pair *p, int with_library, const struct timespec *end)
{
	static uint32_t c[256];
	struct timespec now;
	pthread_t t;
	CHECK(!pthread_create(&t, NULL, scribble, NULL));
	do {
		if (with_library)
			post(p);
		uint32_t bell[8] = { 28, 8 | 1 << 16, (uint32_t)(uintptr_t)resp, (uint32_t)((uintptr_t)resp >> 32), p->a.qp->handle };
		CHECK(write(p->ctx->cmd_fd, bell, sizeof bell) || 1);
		CHECK(write(p->ctx->cmd_fd, c, command(c, p)) || 1);
		clock_gettime(CLOCK_MONOTONIC, &now);
	} while (now.tv_sec < end->tv_sec || (now.tv_sec == end->tv_sec && now.tv_nsec < end->tv_nsec));
}

static void fell(int sig)
{
	(void)sig;
	_exit(0);
}

int main(int argc, char **argv)
{
	CHECK(argc > 2);
	state = strtoull(argv[1], NULL, 0) << 20;
	long ms = atol(argv[2]);
	struct timespec end;
	struct pair p;
	make_pair(&p, open_rvt0(), 0);
	find_maps();
	signal(SIGSEGV, fell);
	signal(SIGBUS, fell);
	alarm((unsigned)(ms / 1000 + 20)); /* a library that is lost in its own rings */
	clock_gettime(CLOCK_MONOTONIC, &end);
	end.tv_sec += ms / 1000;
	end.tv_nsec += ms % 1000 * 1000000;
	if (end.tv_nsec >= 1000000000) {
		end.tv_sec++;
		end.tv_nsec -= 1000000000;
	}
	puts("ready");
	fflush(stdout);
	if (!fork()) {
		alarm((unsigned)(ms / 1000 + 20));
		state ^= 0x5555;
		misbehave(&p, 0, &end);
		_exit(0);
	}
	misbehave(&p, 1, &end);
	_exit(0);
}
