/* What a program may do that has an engine inside, whether it knows or not. The argument
 * chooses a part. */
#include "common.h"
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <ucontext.h>

/* ---- signals ---- */

static volatile sig_atomic_t alarms, urgent, elsewhere;
static char *own_stack;

#define OWN_STACK (128 << 10)
#define DEEP (300 << 10)

/* Needs more stack than a signal usually finds on a stack of its own. */
static void on_alarm(int sig)
{
	volatile char deep[DEEP];
	(void)sig;
	for (int i = 0; i < DEEP; i += 4096)
		deep[i] = 1;
	alarms += deep[0];
}

static void on_urgent(int sig)
{
	(void)sig;
	urgent++;
}

static void on_own_stack(int sig)
{
	char here;
	(void)sig;
	if (&here < own_stack || &here >= own_stack + OWN_STACK)
		elsewhere = 1;
	alarms++;
}

static void storm(void (*handler)(int), int flags)
{
	struct sigaction sa = { .sa_handler = handler, .sa_flags = SA_RESTART | flags }, back;
	struct itimerval t = { { 0, 300 }, { 0, 300 } };
	CHECK(!sigaction(SIGALRM, &sa, NULL));
	CHECK(!sigaction(SIGALRM, NULL, &back) && back.sa_handler == handler && !(back.sa_flags & SA_ONSTACK) == !flags);
	CHECK(!setitimer(ITIMER_REAL, &t, NULL));
}

static void calm(void)
{
	struct itimerval t = { { 0, 0 }, { 0, 0 } };
	CHECK(!setitimer(ITIMER_REAL, &t, NULL));
}

static void *talk(void *arg)
{
	struct pair p;
	make_pair(&p, arg, 0);
	for (int i = 0; i < 1000; i++)
		message(&p, (unsigned char)(i + 1));
	destroy_pair(&p);
	return arg;
}

static void signals(struct ibv_context *ctx)
{
	pthread_t t;
	struct sigaction sa = { .sa_handler = on_urgent };
	CHECK(!sigaction(SIGURG, &sa, NULL));
	storm(on_alarm, 0);
	CHECK(!pthread_create(&t, NULL, talk, ctx));
	talk(ctx);
	CHECK(!pthread_join(t, NULL));
	calm();
	CHECK(alarms > 0);
	CHECK(urgent == 0); /* nobody has sent one */
}

/* A program that has its own stack for signals keeps it. */
static void own_signal_stack(struct ibv_context *ctx)
{
	own_stack = mmap(NULL, OWN_STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	stack_t st = { .ss_sp = own_stack, .ss_size = OWN_STACK }, now;
	CHECK(!sigaltstack(&st, NULL));
	storm(on_own_stack, SA_ONSTACK);
	talk(ctx);
	calm();
	CHECK(alarms > 0 && !elsewhere);
	CHECK(!sigaltstack(NULL, &now) && now.ss_sp == own_stack);
}

static sigjmp_buf back;

static void on_fault(int sig, siginfo_t *si, void *uc)
{
	(void)uc;
	if (sig == SIGSEGV && si->si_addr == (void *)8)
		siglongjmp(back, 1);
	_exit(3);
}

/* The program's faults are the program's, and the engine's are none of its business. */
static void faults(struct ibv_context *ctx)
{
	struct pair p;
	struct ibv_wc wc;
	struct sigaction sa = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO };
	CHECK(!sigaction(SIGSEGV, &sa, NULL));
	make_pair(&p, ctx, 0);
	for (int i = 0; i < 100; i++) {
		message(&p, (unsigned char)(i + 1));
		if (!sigsetjmp(back, 1)) {
			*(volatile int *)8 = 1;
			CHECK(0);
		}
	}
	char *gone = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct ibv_mr *mr = ibv_reg_mr(p.pd, gone, 8192, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	CHECK(!munmap(gone, 8192));
	struct ibv_sge sge = { (uintptr_t)gone, 5000, mr->lkey };
	struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;
	CHECK(!ibv_post_send(p.a.qp, &wr, &bad));
	while (!ibv_poll_cq(p.a.cq, 1, &wc))
		;
	CHECK(wc.status == IBV_WC_LOC_PROT_ERR);
	CHECK(!ibv_dereg_mr(mr));
	destroy_pair(&p);
}

/* ---- threads and stacks ---- */

static void *small(void *arg)
{
	message(arg, 7);
	return NULL;
}

static long resident(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	CHECK(f && fscanf(f, "%*d %ld", &pages) == 1);
	fclose(f);
	return pages * 4;
}

/* Threads come and go, with little stack. */
static void threads(struct ibv_context *ctx)
{
	struct pair p;
	pthread_attr_t a;
	pthread_t t;
	long before = 0;
	make_pair(&p, ctx, 0);
	CHECK(!pthread_attr_init(&a) && !pthread_attr_setstacksize(&a, 64 << 10));
	for (int i = 0; i < 600; i++) {
		CHECK(!pthread_create(&t, &a, small, &p));
		CHECK(!pthread_join(t, NULL));
		if (i == 100)
			before = resident();
	}
	CHECK(resident() - before < 8192);
	destroy_pair(&p);
}

static ucontext_t home, away;
static struct pair *their_pair;

static void coroutine(void)
{
	for (int i = 0; i < 50; i++) {
		message(their_pair, (unsigned char)(i + 1));
		CHECK(!swapcontext(&away, &home));
	}
}

/* A thread that changes its stack under the engine. */
static void coroutines(struct ibv_context *ctx)
{
	struct pair p;
	make_pair(&p, ctx, 0);
	their_pair = &p;
	CHECK(!getcontext(&away));
	away.uc_stack.ss_sp = malloc(64 << 10);
	away.uc_stack.ss_size = 64 << 10;
	away.uc_link = &home;
	makecontext(&away, coroutine, 0);
	for (int i = 0; i < 50; i++) {
		CHECK(!swapcontext(&home, &away));
		message(&p, (unsigned char)(i + 1));
	}
	destroy_pair(&p);
}

/* ---- the library comes and goes ---- */

/* A plug-in that uses verbs, as others load and unload it. */
static void plugin(void)
{
	for (int i = 0; i < 5; i++) {
		void *lib = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
		CHECK(lib);
		struct ibv_device **(*list_of)(int *) = (struct ibv_device * *(*)(int *)) dlsym(lib, "ibv_get_device_list");
		struct ibv_context *(*open_it)(struct ibv_device *) = (struct ibv_context * (*)(struct ibv_device *)) dlsym(lib, "ibv_open_device");
		int (*close_it)(struct ibv_context *) = (int (*)(struct ibv_context *))dlsym(lib, "ibv_close_device");
		CHECK(list_of && open_it && close_it);
		struct ibv_device **list = list_of(NULL);
		CHECK(list && list[0]);
		struct ibv_context *ctx = open_it(list[0]);
		CHECK(ctx && answers(ctx->cmd_fd));
		CHECK(!close_it(ctx));
		CHECK(!dlclose(lib));
	}
}

/* ---- ways to end ---- */

static void *forever(void *arg)
{
	struct pair p;
	make_pair(&p, arg, 0);
	for (unsigned char i = 1;; i++)
		message(&p, i ? i : 1);
	return NULL;
}

/* Ends amid the traffic of two threads, in each of its ways. */
static void end(struct ibv_context *ctx, const char *how, char **argv)
{
	pthread_t t;
	struct pair p;
	for (int i = 0; i < 2; i++)
		CHECK(!pthread_create(&t, NULL, forever, ctx));
	make_pair(&p, ctx, 0);
	for (int i = 0; i < 200; i++)
		message(&p, (unsigned char)(i + 1));
	if (!strcmp(how, "exit"))
		exit(7);
	if (!strcmp(how, "_exit"))
		_exit(7);
	if (!strcmp(how, "quick_exit"))
		quick_exit(7);
	if (!strcmp(how, "abort"))
		abort();
	if (!strcmp(how, "segv"))
		*(volatile int *)8 = 1;
	if (!strcmp(how, "term"))
		kill(getpid(), SIGTERM);
	if (!strcmp(how, "exec")) {
		argv[1] = "once";
		argv[2] = NULL;
		execv("/proc/self/exe", argv);
	}
	if (!strcmp(how, "return"))
		return;
	pause();
	CHECK(0);
}

int main(int argc, char **argv)
{
	const char *part = argc > 1 ? argv[1] : "once";
	struct rlimit none = { 0, 0 };
	setrlimit(RLIMIT_CORE, &none);
	if (!strcmp(part, "plugin")) {
		plugin();
		return 0;
	}
	struct ibv_context *ctx = open_rvt0();
	if (!strcmp(part, "signals"))
		signals(ctx);
	else if (!strcmp(part, "sigstack"))
		own_signal_stack(ctx);
	else if (!strcmp(part, "faults"))
		faults(ctx);
	else if (!strcmp(part, "threads"))
		threads(ctx);
	else if (!strcmp(part, "coroutines"))
		coroutines(ctx);
	else if (!strcmp(part, "once"))
		talk(ctx);
	else
		end(ctx, part, argv);
	return !strcmp(part, "return") ? 7 : 0;
}
