/* Memory that goes away while an adapter works at it. A child is the peer, with a device of its
 * own: what they say to each other goes from one engine to the other. Each round has a hole at
 * another place of a message, and queue pairs of its own. */
#include "common.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>

#define BYTES (256 << 10)
#define PAGE 4096

static int peer; /* a socket */
static const size_t holes[] = { 0, PAGE, BYTES / 2, BYTES - 2 * PAGE, BYTES - PAGE };
#define ROUNDS (sizeof holes / sizeof holes[0])

static void on_fault(int sig)
{
	(void)sig;
	_exit(3); /* the engine's faults are none of the program's business */
}

static struct pair p; /* of which only the end a is used */

static void tell(const void *b, size_t n) { CHECK(write(peer, b, n) == (ssize_t)n); }
static void hear(void *b, size_t n) { CHECK(read(peer, b, n) == (ssize_t)n); }

static void meet(void)
{
	char c = 0;
	tell(&c, 1);
	hear(&c, 1);
}

/* Memory, its region, and a queue pair that is connected with the peer's. */
static void begin(void)
{
	uint32_t mine, theirs;
	p.buf = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(p.buf != MAP_FAILED);
	CHECK((p.mr = ibv_reg_mr(p.pd, p.buf, BYTES, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)));
	make_end(&p, &p.a);
	p.b = p.a;
	mine = p.a.qp->qp_num;
	tell(&mine, sizeof mine);
	hear(&theirs, sizeof theirs);
	to_rts(p.ctx, p.a.qp, theirs);
	meet();
}

static void end(void)
{
	meet();
	CHECK(!ibv_destroy_qp(p.a.qp) && !ibv_destroy_cq(p.a.cq) && !ibv_dereg_mr(p.mr));
	CHECK(!munmap(p.buf, BYTES));
}

static void lose(size_t hole) { CHECK(!munmap(p.buf + hole, PAGE)); }

static enum ibv_wc_status status(void)
{
	struct ibv_wc wc;
	int n;
	while (!(n = ibv_poll_cq(p.a.cq, 1, &wc)))
		sched_yield();
	CHECK(n == 1);
	return wc.status;
}

static void fill(int with)
{
	for (size_t i = 0; i < BYTES; i++)
		p.buf[i] = (char)(i * 7 + i / PAGE + (size_t)with);
}

static void filled(int with)
{
	for (size_t i = 0; i < BYTES; i++)
		CHECK(p.buf[i] == (char)(i * 7 + i / PAGE + (size_t)with));
}

/* One message that arrives, so that both know the way to each other. */
static void greet(int sends, int with)
{
	if (sends) {
		fill(with);
		meet();
		CHECK(!post_send(&p, p.buf, BYTES));
		wait_cqe(p.a.cq, IBV_WC_SEND);
	} else {
		post_recv(&p, p.buf, BYTES);
		meet();
		wait_cqe(p.a.cq, IBV_WC_RECV);
		filled(with);
	}
	meet();
}

/* The sender's memory: its queue pair fails, and the peer sees a message that does not end. */
static void sender(int sends, size_t hole)
{
	struct ibv_wc wc;
	if (!sends) {
		post_recv(&p, p.buf, BYTES);
		meet();
		meet(); /* the sender has failed */
		CHECK(!ibv_poll_cq(p.a.cq, 1, &wc));
		return;
	}
	meet();
	lose(hole);
	CHECK(!post_send(&p, p.buf, BYTES));
	CHECK(status() == IBV_WC_LOC_PROT_ERR);
	meet();
}

/* The receiver's memory: both queue pairs fail. */
static void receiver(int sends, size_t hole)
{
	if (!sends) {
		post_recv(&p, p.buf, BYTES);
		lose(hole);
		meet();
		CHECK(status() == IBV_WC_LOC_PROT_ERR);
		return;
	}
	meet();
	CHECK(!post_send(&p, p.buf, BYTES));
	CHECK(status() == IBV_WC_REM_OP_ERR);
}

/* The memory of the one who is asked: the other is told. */
static void reads(int asks, size_t hole)
{
	struct {
		uint64_t addr;
		uint32_t rkey;
	} at = { (uintptr_t)p.buf, p.mr->rkey };
	if (!asks) {
		lose(hole);
		tell(&at, sizeof at);
		return;
	}
	hear(&at, sizeof at);
	struct ibv_sge sge = { (uintptr_t)p.buf, BYTES, p.mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_READ, .send_flags = IBV_SEND_SIGNALED,
				  .wr.rdma = { at.addr, at.rkey } }, *bad;
	CHECK(!ibv_post_send(p.a.qp, &wr, &bad));
	CHECK(status() == IBV_WC_REM_OP_ERR);
}

int main(void)
{
	int sv[2];
	static void (*const parts[])(int, size_t) = { sender, receiver, reads };
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	pid_t child = fork(); /* before either has a device */
	CHECK(child >= 0);
	peer = sv[child == 0];
	CHECK(!close(sv[child != 0]));
	CHECK(signal(SIGSEGV, on_fault) != SIG_ERR && signal(SIGBUS, on_fault) != SIG_ERR);
	p.ctx = open_rvt0();
	CHECK((p.pd = ibv_alloc_pd(p.ctx)));
	for (size_t part = 0; part < sizeof parts / sizeof parts[0]; part++)
		for (size_t i = 0; i < ROUNDS; i++) {
			begin();
			greet(child != 0, (int)(part + i));
			parts[part](child != 0, holes[i]);
			end();
		}
	CHECK(!ibv_dealloc_pd(p.pd) && !ibv_close_device(p.ctx));
	int how = 0;
	if (child > 0)
		CHECK(waitpid(child, &how, 0) == child);
	return how != 0;
}
