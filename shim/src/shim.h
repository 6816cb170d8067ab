/*
 * rvtsim preload library: lets an unmodified verbs program reach a device of the
 * rvtsim daemon. It does three things and knows nothing of verbs beyond them:
 *
 *   paths.c    paths under /sys/class/infiniband*, /sys/class/misc/rdma_cm and
 *              /dev/infiniband lead into the node's own view, $RVTSIM_ROOT;
 *   context.c  opening /dev/infiniband/uverbsN gives a memfd of the daemon's, so that
 *              mmap works natively, and a hidden connection; a write() to that
 *              descriptor is a command: it goes to the daemon, and the answer is
 *              copied to where the command says;
 *   files.c    descriptors that are copied, moved and closed;
 *   posts.c    posts that the libraries refuse, for nodes that explain failures;
 *   cm.c       /dev/infiniband/rdma_cm, whose descriptor is a pipe: waiting for events.
 *
 * A process may instead have an engine of its own, a library that does the daemon's work
 * (engine.h). Then a command is a call, and the daemon is asked for a place on the node
 * only:
 *
 *   program.c  loads the engine when the device is opened, and enters it;
 *   signals.c  faults in the program's memory, and signals that interrupt the engine;
 *   poll.c     lets the program's polling drive the engine.
 *
 * The command path uses system calls, static memory and one lock, and runs with signals
 * blocked, so a signal handler may use verbs as far as the libraries allow. Nothing here
 * allocates memory or uses thread-local storage other than errno.
 */
#ifndef RVTSIM_SHIM_H
#define RVTSIM_SHIM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include "protocol.h"

#define EXPORT __attribute__((visibility("default")))
#define MAX_CTX 4096
#define MAX_FD 65536
#define HIDDEN 0xffff /* mark of a descriptor that the program does not know of */
#define ENGINE 0xfffe /* likewise one of the engine, which cannot move */

/* What the launcher told us; root is empty if we are to do nothing. */
extern char shim_root[PATH_MAX];

/* One opened device. Every descriptor that refers to it leads here. */
struct ctx {
	int used;
	uint64_t token;
	uint32_t kind;          /* RVTSIM_DEV_* */
	dev_t dev, rdev;        /* of the memfd; what stat is to say */
	ino_t ino;
	int sock, efd;          /* hidden descriptors of this process */
	ino_t sock_ino;         /* tells whether somebody closed it behind our back */
	pid_t pid;              /* process that made the connection */
	_Atomic uint32_t *bell; /* doorbell word, shared with the daemon */
	_Atomic uint32_t unheard;
	_Atomic uint32_t waited; /* posts that did not enter the engine */
	int home;               /* it was opened in the engine of a process, under this index */
	int index;
	int sites;              /* the daemon wants to know where calls are made */
};

extern struct ctx shim_ctx[MAX_CTX];
/* Per descriptor: 0 is not ours, HIDDEN, or an index into shim_ctx plus 1. */
extern _Atomic uint16_t shim_mark[MAX_FD];

static inline unsigned mark_of(int fd)
{
	return (unsigned)fd < MAX_FD ? atomic_load_explicit(&shim_mark[fd], memory_order_relaxed) : 0;
}

static inline int is_ours(unsigned m) { return m >= ENGINE; }

static inline void set_mark(int fd, unsigned m)
{
	if ((unsigned)fd < MAX_FD)
		atomic_store_explicit(&shim_mark[fd], (uint16_t)m, memory_order_relaxed);
}

static inline int sys_fstat(int fd, struct stat *st)
{
#ifdef SYS_newfstatat
	return (int)syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
#else
	return (int)syscall(SYS_fstat, fd, st);
#endif
}

/* context.c. The lock is taken with all signals blocked. */
void shim_guard(sigset_t *old);
void shim_unguard(const sigset_t *old);
int shim_borrowed(void);            /* is this a child of vfork, in its parent's memory? */
struct ctx *shim_lookup(int fd);    /* the context behind fd; the inode decides */
void shim_release(struct ctx *c);   /* guarded: ends c if no descriptor refers to it */
void shim_evade(int fd);            /* guarded: moves a hidden descriptor away from fd */
int shim_open(uint32_t kind, unsigned index, int flags);
int shim_command(int fd, uint16_t op, uint64_t arg, const void *buf, size_t n, int *ours);
void *shim_next(const char *name);  /* the function that ours stands in front of */

/* site.c: where in the program a call was made, as protocol.h has it. */
struct site {
	size_t n;
	char b[RVTSIM_MAX_SITE];
};
void shim_site(struct site *s);

/* files.c */
void shim_files_init(void);

/* cm.c */
int shim_waits(const void *buf, size_t n);
ssize_t shim_get_event(int fd, const void *buf, size_t n);

int shim_tells_sites(int fd);       /* does the daemon want to know where calls are made? */
extern _Atomic unsigned shim_failures; /* commands that failed */
int shim_is_home(int fd);           /* is it a context of this process's engine? */

/* program.c */
struct rvtsim_opened;
void shim_program_init(void);
void shim_program_forked(void);
int shim_has_engine(void);
int shim_wants_engine(void);            /* is it worth asking the daemon? */
void shim_engine_refused(uint32_t why); /* RVTSIM_WHY_* */
uint32_t shim_why_daemon(void);
int shim_must_dial(void);               /* this thread cannot call the engine: it needs its socket */
const char *shim_engine_name(void);     /* of its socket, for children */
int shim_engine_start(const void *grant, size_t n, int socket, int port);
int shim_engine_open(struct rvtsim_opened *o);
void shim_engine_close(int index);
int shim_engine_command(int index, int op, uint64_t arg, const void *buf, size_t n, void *out, size_t room, int *files, int *nfiles);
int shim_engine_doorbell(int index, uint32_t qp);
int shim_engine_ring(void);
int shim_engine_progress(void);

/* signals.c */
struct rvtsim_piece;
struct shim_actions {
	struct sigaction of[_NSIG];
};
void shim_actions_save(struct shim_actions *a);
void shim_actions_restore(const struct shim_actions *a, int running);
int64_t shim_copy(const struct rvtsim_piece *p, int64_t n, int to_program);
int shim_landing(uintptr_t start, uintptr_t end, uintptr_t landing);
int shim_compare_swap(uint64_t addr, uint64_t compare, uint64_t swap, uint64_t *old);
int shim_fetch_add(uint64_t addr, uint64_t add, uint64_t *old);

/* paths.c */
const char *shim_view(const char *path, char buf[PATH_MAX]);

#endif
