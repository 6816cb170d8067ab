/* The engine in the program: loading it, entering it, and what it asks of its host. See
 * shim.h and engine.h. */
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "engine.h"

/* Set while this process has an engine of its own: not in children. */
static const struct rvtsim_engine *_Atomic engine;
static char library[PATH_MAX];
static char name[RVTSIM_ENGINE_NAME]; /* of the engine's socket; children inherit it */
static uint32_t unavailable;          /* RVTSIM_WHY_*: there will be no engine */
static int base;                      /* the engine's descriptors lie above */
static pthread_key_t thread_key;

#define ENGINE_FDS 256

/* Of this thread. */
static __thread struct {
	volatile sig_atomic_t inside; /* the engine, or DYING */
	char ready;                   /* it has been in before */
	void *stack;                  /* for signal handlers; NULL if the program has made one */
} me;

#define DYING 2 /* the engine's runtime takes leave of this thread, or has done so */

/* Does a tool watch the program that the engine's runtime does not get on with, because
 * it has plans of its own with memory, signals and stacks? */
static int watched(void)
{
	static const char *const signs[] = { "__asan_init", "__hwasan_init", "__lsan_init", "__tsan_init", "__msan_init" };
	const char *preload = getenv("LD_PRELOAD");
	for (size_t i = 0; i < sizeof signs / sizeof signs[0]; i++)
		if (dlsym(RTLD_DEFAULT, signs[i]))
			return 1;
	return preload && strstr(preload, "vgpreload"); /* valgrind */
}

void shim_program_init(void)
{
	const char *lib = getenv("RVTSIM_ENGINE");
	if (lib && strlen(lib) < sizeof library)
		strcpy(library, lib);
	if (getenv("RVTSIM_NO_ENGINE"))
		unavailable = RVTSIM_WHY_ABSENT;
	else if (library[0] && watched())
		unavailable = RVTSIM_WHY_TOOL;
}

int shim_has_engine(void) { return engine != NULL; }
int shim_wants_engine(void) { return library[0] && !unavailable; }
uint32_t shim_why_daemon(void) { return unavailable; }
const char *shim_engine_name(void) { return name; }
int shim_must_dial(void) { return !engine || me.inside == DYING; }

/* ---- entering ---- */

/* As much as handlers are used to: they may have run on a thread's own stack before. What
 * is not touched is not there. */
#define SIGNAL_STACK (2 << 20)
#define SIGNAL_GUARD (64 << 10) /* who needs still more shall crash, not write elsewhere */

/* The thread ends. The engine's runtime has a destructor of the same kind, which comes
 * later, for its key is younger; a signal handler must not enter the engine any more. */
static void thread_ends(void *p)
{
	stack_t off = { .ss_flags = SS_DISABLE };
	(void)p;
	me.inside = DYING;
	if (!me.stack)
		return;
	sigaltstack(&off, NULL);
	munmap((char *)me.stack - SIGNAL_GUARD, SIGNAL_STACK + SIGNAL_GUARD);
}

/* A handler that interrupts the engine must not run on the engine's stack, which is
 * small: signals.c makes all handlers use this one. */
static void give_stack(void)
{
	stack_t now, st = { .ss_size = SIGNAL_STACK };
	if (sigaltstack(NULL, &now) || !(now.ss_flags & SS_DISABLE))
		return;
	char *all = mmap(NULL, SIGNAL_STACK + SIGNAL_GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (all == MAP_FAILED)
		return;
	st.ss_sp = all + SIGNAL_GUARD;
	if (mprotect(st.ss_sp, SIGNAL_STACK, PROT_READ | PROT_WRITE) || sigaltstack(&st, NULL))
		munmap(all, SIGNAL_STACK + SIGNAL_GUARD);
	else
		me.stack = st.ss_sp;
}

/* The engine, or NULL: there is none, or this is a signal handler that has interrupted
 * it. To be followed by done. */
static const struct rvtsim_engine *enter(void)
{
	const struct rvtsim_engine *e = engine;
	if (!e || me.inside)
		return NULL;
	me.inside = 1;
	if (!me.ready) {
		me.ready = 1;
		pthread_setspecific(thread_key, &me);
		give_stack();
	}
	atomic_signal_fence(memory_order_seq_cst);
	return e;
}

static void done(void)
{
	atomic_signal_fence(memory_order_seq_cst);
	me.inside = 0;
}

/* 1: done; 0: a command is needed; -1: the engine cannot be entered now. */
int shim_engine_doorbell(int index, uint32_t qp)
{
	const struct rvtsim_engine *e = enter();
	if (!e)
		return -1;
	int r = e->doorbell(index, qp);
	done();
	return r;
}

/* Tells the engine that there is something in a ring, without entering it. 0: it must be
 * entered. Nothing here minds a signal handler, nor what it has interrupted. */
int shim_engine_ring(void)
{
	const struct rvtsim_engine *e = engine;
	if (!e || !__atomic_load_n(&e->bell->napping, __ATOMIC_RELAXED))
		return 0;
	__atomic_store_n(&e->bell->rung, 1, __ATOMIC_SEQ_CST);
	return __atomic_load_n(&e->bell->napping, __ATOMIC_SEQ_CST) != 0;
}

#define STACK_BELOW ((uintptr_t)256 << 10)
#define STACK_ABOVE ((uintptr_t)1 << 20)

/* The engine's runtime asks for the stack of each thread that enters for the first time.
 * The C library's answer allocates memory, which a signal handler must not. What lies
 * around here will do. */
EXPORT int pthread_getattr_np(pthread_t t, pthread_attr_t *a)
{
	static int (*_Atomic real)(pthread_t, pthread_attr_t *);
	if (me.inside && t == pthread_self()) {
		uintptr_t low = ((uintptr_t)a & ~(uintptr_t)4095) - STACK_BELOW;
		pthread_attr_init(a);
		return pthread_attr_setstack(a, (void *)low, STACK_BELOW + STACK_ABOVE);
	}
	if (!real)
		real = (int (*)(pthread_t, pthread_attr_t *))shim_next("pthread_getattr_np");
	return real(t, a);
}

int shim_engine_progress(void)
{
	const struct rvtsim_engine *e = enter();
	if (!e)
		return 0;
	e->progress();
	done();
	return 1;
}

/* Guarded. -1 if the engine cannot be entered now. */
int shim_engine_command(int index, int op, uint64_t arg, const void *buf, size_t n, void *out, size_t room, int *files, int *nfiles)
{
	static char copy[4 << 16];
	struct rvtsim_piece p = { (uintptr_t)buf, copy, (int64_t)n, (int64_t)n };
	if (n > sizeof copy) {
		errno = EINVAL;
		return -1;
	}
	if (shim_copy(&p, 1, 0) != 1) {
		errno = EFAULT;
		return -1;
	}
	const struct rvtsim_engine *e = enter();
	if (!e) {
		errno = EBUSY;
		return -1;
	}
	int r = e->command(index, op, arg, copy, n, out, room, files, nfiles);
	done();
	return r;
}

int shim_engine_open(struct rvtsim_opened *o)
{
	const struct rvtsim_engine *e = enter();
	if (!e)
		return EBUSY;
	int r = e->open(o);
	done();
	return r;
}

void shim_engine_close(int index)
{
	const struct rvtsim_engine *e = enter();
	if (!e)
		return;
	e->close(index);
	done();
}

__attribute__((destructor)) static void fini(void)
{
	if (shim_borrowed())
		return;
	const struct rvtsim_engine *e = enter();
	if (!e)
		return;
	e->leave();
	done();
}

/* A process that ends without cleaning up may owe acknowledgements of what it has received
 * a moment ago. */
EXPORT __attribute__((noreturn)) void _exit(int status)
{
	if (!shim_borrowed()) {
		const struct rvtsim_engine *e = enter();
		if (e) {
			e->settle();
			done();
		}
	}
	for (;;)
		syscall(SYS_exit_group, status);
}

EXPORT __attribute__((noreturn, alias("_exit"))) void _Exit(int);

/* ---- what the engine asks for ---- */

static int move_fd(int fd)
{
	int high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, base);
	if (high < 0)
		return fd;
	syscall(SYS_close, fd);
	set_mark(fd, 0);
	set_mark(high, ENGINE);
	return high;
}

static void forget_fd(int fd) { set_mark(fd, 0); }

/* The reader of a pipe may be gone: the signal that this raises is not the program's. */
static int write_event(int fd, const void *buf, size_t n)
{
	sigset_t pipe, old, pending;
	struct timespec now = { 0, 0 };
	int saved = errno, err = 0;
	sigemptyset(&pipe);
	sigaddset(&pipe, SIGPIPE);
	pthread_sigmask(SIG_BLOCK, &pipe, &old);
	sigpending(&pending);
	if (syscall(SYS_write, fd, buf, n) < 0)
		err = errno;
	if (err == EPIPE && !sigismember(&pending, SIGPIPE))
		while (sigtimedwait(&pipe, NULL, &now) < 0 && errno == EINTR)
			;
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	errno = saved;
	return err;
}

static const struct rvtsim_host host = {
	.move = move_fd,
	.forget = forget_fd,
	.copy = shim_copy,
	.landing = shim_landing,
	.compare_swap = shim_compare_swap,
	.fetch_add = shim_fetch_add,
	.write_event = write_event,
};

/* ---- loading ---- */

/* The runtime of the engine opens descriptors that it does not tell anybody about. While
 * it starts, every low number is taken, so that they are high ones. */
static int crowd(int fds[], int most)
{
	int n = 0;
	int null = (int)syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY | O_CLOEXEC);
	for (int fd = null; fd >= 0; fd = (int)syscall(SYS_fcntl, null, F_DUPFD_CLOEXEC, 0)) {
		if (fd >= base || n == most) {
			syscall(SYS_close, fd);
			break;
		}
		fds[n++] = fd;
	}
	return n;
}

/* Marks the descriptors that the runtime has opened. */
static void mark_runtime(void)
{
	char path[64], what[64];
	for (int fd = base; fd < base + ENGINE_FDS && fd < MAX_FD; fd++) {
		if (mark_of(fd))
			continue;
		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		ssize_t n = syscall(SYS_readlinkat, AT_FDCWD, path, what, sizeof what - 1);
		if (n <= 0)
			continue;
		what[n] = 0;
		if (!strcmp(what, "anon_inode:[eventpoll]") || !strcmp(what, "anon_inode:[eventfd]"))
			set_mark(fd, ENGINE);
	}
}

static void choose_base(void)
{
	struct rlimit r;
	long most = 4096;
	if (!getrlimit(RLIMIT_NOFILE, &r) && r.rlim_cur != RLIM_INFINITY && (long)r.rlim_cur < most)
		most = (long)r.rlim_cur;
	base = (int)(most > 4 * ENGINE_FDS - 1 ? most - ENGINE_FDS : most / 2);
}

static const struct rvtsim_engine *load(void)
{
	void *h = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	const struct rvtsim_engine *e = h ? dlsym(h, RVTSIM_ENGINE_TABLE) : NULL;
	return e && e->abi == RVTSIM_ENGINE_ABI ? e : NULL;
}

/* Loads the engine and gives it what the daemon has granted: bytes, the connection and the
 * node's socket. Guarded, so all signals are blocked: the engine's threads will leave the
 * program's to the program. Returns 0, or -1 and there will be no engine. */
int shim_engine_start(const void *grant, size_t n, int socket, int port)
{
	static int low[4096];
	struct shim_actions before;
	choose_base();
	int k = crowd(low, (int)(sizeof low / sizeof low[0]));
	shim_actions_save(&before);
	pthread_key_create(&thread_key, thread_ends); /* before the runtime makes its own */
	const struct rvtsim_engine *e = load();
	int err = e ? e->start(&host, grant, n, socket, port, name) : ENOENT;
	shim_actions_restore(&before, err == 0);
	mark_runtime();
	for (int i = 0; i < k; i++)
		syscall(SYS_close, low[i]);
	if (err) {
		unavailable = !e ? RVTSIM_WHY_LOAD : err == ENOEXEC ? RVTSIM_WHY_BUILD : RVTSIM_WHY_START;
		return -1;
	}
	engine = e;
	return 0;
}

void shim_engine_refused(uint32_t why) { unavailable = why; }

/* A child of fork has the engine's memory but not its threads. */
void shim_program_forked(void)
{
	me.inside = 0;
	if (!engine)
		return;
	engine = NULL;
	unavailable = RVTSIM_WHY_FORK;
	for (int fd = base; fd < base + ENGINE_FDS && fd < MAX_FD; fd++)
		if (mark_of(fd) == ENGINE) {
			syscall(SYS_close, fd);
			set_mark(fd, 0);
		}
}
