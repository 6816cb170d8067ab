/* Signals in a program that has an engine: memory that is not there, and handlers that
 * interrupt the engine. Without an engine nothing here has any effect. See shim.h.
 *
 * The engine copies from and to the program's buffers, which the program may have
 * unmapped. The fault is caught here; any other one goes where the program wants it.
 *
 * The engine's code runs on small stacks of its own. So that a handler of the program
 * never runs on one, every handler gets SA_ONSTACK; program.c provides the stack. */
#include "shim.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <ucontext.h>

#include "engine.h"

typedef int (*sigaction_fn)(int, const struct sigaction *, struct sigaction *);

static sigaction_fn real(void)
{
	static sigaction_fn _Atomic f;
	if (!f)
		f = (sigaction_fn)shim_next("sigaction");
	return f;
}

static _Atomic int armed;                 /* the engine is there */
static struct sigaction wanted[_NSIG];    /* what the program has asked for, by signal */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int is_function(const struct sigaction *a)
{
	return (a->sa_flags & SA_SIGINFO) || (a->sa_handler != SIG_DFL && a->sa_handler != SIG_IGN);
}

static int is_caught(int sig) { return sig == SIGSEGV || sig == SIGBUS; }

/* ---- faults ---- */

/* What this thread is copying. */
static __thread struct {
	sigjmp_buf *volatile back;
	volatile uint64_t addr, len;
} copying;

/* Lets the program's action take its course. */
static void pass_on(int sig, siginfo_t *si, void *uc)
{
	struct sigaction a = wanted[sig];
	if (!is_function(&a)) {
		struct sigaction dfl = { .sa_handler = SIG_DFL };
		if (a.sa_handler == SIG_IGN && si->si_code <= 0)
			return;
		real()(sig, &dfl, NULL); /* a fault happens again on return */
		if (si->si_code <= 0)
			raise(sig);
		return;
	}
	if (a.sa_flags & SA_RESETHAND)
		wanted[sig] = (struct sigaction){ .sa_handler = SIG_DFL };
	if (!(a.sa_flags & SA_NODEFER))
		sigaddset(&a.sa_mask, sig);
	pthread_sigmask(SIG_BLOCK, &a.sa_mask, NULL);
	if (a.sa_flags & SA_SIGINFO)
		a.sa_sigaction(sig, si, uc);
	else
		a.sa_handler(sig);
}

/* The engine's own code that touches the program's memory. */
static struct {
	uintptr_t start, end, landing;
} guards[4];
static _Atomic int nguards;

int shim_landing(uintptr_t start, uintptr_t end, uintptr_t landing)
{
#ifdef __x86_64__
	int n = nguards;
	if (n == sizeof guards / sizeof guards[0] || start >= end)
		return -1;
	guards[n].start = start;
	guards[n].end = end;
	guards[n].landing = landing;
	nguards = n + 1;
	return 0;
#else
	(void)start, (void)end, (void)landing;
	return -1;
#endif
}

/* Leads a fault of the engine's own code to where that wants it. */
static int land(void *context)
{
#ifdef __x86_64__
	ucontext_t *uc = context;
	uintptr_t at = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
	for (int i = 0; i < nguards; i++)
		if (at >= guards[i].start && at < guards[i].end) {
			uc->uc_mcontext.gregs[REG_RIP] = (greg_t)guards[i].landing;
			return 1;
		}
#else
	(void)context;
#endif
	return 0;
}

static void on_fault(int sig, siginfo_t *si, void *uc)
{
	uint64_t at = (uintptr_t)si->si_addr;
	if (si->si_code > 0 && land(uc))
		return;
	if (copying.back && (si->si_code == SI_KERNEL || (si->si_code > 0 && at - copying.addr < copying.len)))
		siglongjmp(*copying.back, 1);
	pass_on(sig, si, uc);
}

/* Runs a statement that touches n bytes of the program at a; what follows FAULT is done if
 * they are not there. */
#define TOUCH(a, n, statement, FAULT)                                       \
	do {                                                                \
		sigjmp_buf back;                                            \
		copying.addr = (a);                                         \
		copying.len = (n);                                          \
		if (sigsetjmp(back, 0)) {                                   \
			copying.back = NULL;                                \
			FAULT;                                              \
		}                                                           \
		copying.back = &back;                                       \
		atomic_signal_fence(memory_order_seq_cst);                  \
		statement;                                                  \
		atomic_signal_fence(memory_order_seq_cst);                  \
		copying.back = NULL;                                        \
	} while (0)

#define TAIL 8

/* The end of a piece is written last: a program that polls it finds the rest in place. */
static void write_piece(char *dst, const char *src, size_t n)
{
	if (n > TAIL) {
		memcpy(dst, src, n - TAIL);
		atomic_thread_fence(memory_order_release);
		dst += n - TAIL;
		src += n - TAIL;
		n = TAIL;
	}
	memcpy(dst, src, n);
}

static __attribute__((noinline)) void move_piece(const struct rvtsim_piece *p, int to_program)
{
	char *there = (char *)(uintptr_t)p->addr;
	if (to_program)
		write_piece(there, p->buf, (size_t)p->len);
	else
		memcpy(p->buf, there, (size_t)p->len);
}

static __attribute__((noinline)) int copy_piece(const struct rvtsim_piece *const p, const int to_program)
{
	TOUCH(p->addr, (uint64_t)p->len, move_piece(p, to_program), return -1);
	return 0;
}

int64_t shim_copy(const struct rvtsim_piece *p, int64_t n, int to_program)
{
	for (int64_t i = 0; i < n; i++)
		if (copy_piece(&p[i], to_program))
			return i;
	return n;
}

int shim_compare_swap(uint64_t addr, uint64_t compare, uint64_t swap, uint64_t *old)
{
	TOUCH(addr, 8, __atomic_compare_exchange_n((uint64_t *)(uintptr_t)addr, &compare, swap, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST), return -1);
	*old = compare; /* what was there, also if it was replaced */
	return 0;
}

int shim_fetch_add(uint64_t addr, uint64_t add, uint64_t *old)
{
	TOUCH(addr, 8, *old = __atomic_fetch_add((uint64_t *)(uintptr_t)addr, add, __ATOMIC_SEQ_CST), return -1);
	return 0;
}

/* ---- before and after the engine is loaded ---- */

void shim_actions_save(struct shim_actions *a)
{
	for (int sig = 1; sig < _NSIG; sig++)
		if (real()(sig, NULL, &a->of[sig]))
			a->of[sig] = (struct sigaction){ .sa_handler = SIG_DFL };
}

/* The engine's runtime has installed handlers of its own. They give way. */
void shim_actions_restore(const struct shim_actions *a, int running)
{
	pthread_mutex_lock(&lock);
	for (int sig = 1; sig < _NSIG; sig++) {
		struct sigaction was = a->of[sig];
		wanted[sig] = was;
		if (running && is_caught(sig)) {
			struct sigaction ours = { .sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER | SA_RESTART };
			real()(sig, &ours, NULL);
			continue;
		}
		if (running && is_function(&was))
			was.sa_flags |= SA_ONSTACK;
		if (sig == SIGKILL || sig == SIGSTOP || sig == 32 || sig == 33) /* of the C library */
			continue;
		real()(sig, &was, NULL);
	}
	armed = running;
	pthread_mutex_unlock(&lock);
}

/* ---- what the program asks for ---- */

static int change(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct sigaction was = wanted[sig], now;
	int r = 0;
	if (act)
		now = *act; /* old may be the same */
	if (!is_caught(sig)) {
		struct sigaction set = act ? now : was, seen;
		if (act && is_function(&set))
			set.sa_flags |= SA_ONSTACK;
		r = real()(sig, act ? &set : NULL, &seen);
		if (r)
			return r;
		if (!(was.sa_flags & SA_ONSTACK))
			seen.sa_flags &= ~SA_ONSTACK;
		was = seen;
	}
	if (act)
		wanted[sig] = now;
	if (old)
		*old = was;
	return 0;
}

EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	sigset_t all, mask;
	if (!armed || sig < 1 || sig >= _NSIG)
		return real()(sig, act, old);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &mask);
	pthread_mutex_lock(&lock);
	int r = change(sig, act, old);
	int saved = errno;
	pthread_mutex_unlock(&lock);
	pthread_sigmask(SIG_SETMASK, &mask, NULL);
	errno = saved;
	return r;
}

typedef void (*handler_fn)(int);

static handler_fn simple(int sig, handler_fn h, int flags)
{
	struct sigaction act = { .sa_handler = h, .sa_flags = flags }, old;
	if (h == SIG_ERR) {
		errno = EINVAL;
		return SIG_ERR;
	}
	return sigaction(sig, &act, &old) ? SIG_ERR : old.sa_handler;
}

#define SIMPLE(name, flags)                                                \
	EXPORT handler_fn name(int sig, handler_fn h)                      \
	{                                                                  \
		static handler_fn (*_Atomic f)(int, handler_fn);           \
		if (armed)                                                 \
			return simple(sig, h, flags);                      \
		if (!f)                                                    \
			f = (handler_fn(*)(int, handler_fn))shim_next(#name); \
		return f ? f(sig, h) : simple(sig, h, flags);              \
	}

SIMPLE(signal, SA_RESTART)
SIMPLE(ssignal, SA_RESTART)
SIMPLE(bsd_signal, SA_RESTART)
SIMPLE(sysv_signal, (int)(SA_RESETHAND | SA_NODEFER))
SIMPLE(__sysv_signal, (int)(SA_RESETHAND | SA_NODEFER))
