/*
 * rvtsim preload library: lets an unmodified verbs program reach a device of the
 * rvtsim daemon. It does three things and knows nothing of verbs beyond them:
 *
 *   - paths under /sys/class/infiniband*, /sys/class/misc/rdma_cm and
 *     /dev/infiniband lead into the node's own view, $RVTSIM_ROOT;
 *   - opening /dev/infiniband/uverbsN gives a memfd of the daemon's, so that mmap
 *     works natively, and a hidden connection;
 *   - a write() to that descriptor is a command: it goes to the daemon, and the
 *     answer is copied to where the command says.
 *
 * The command path uses system calls, static memory and one lock, and runs with
 * signals blocked, so a signal handler may use verbs as far as the libraries allow.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include "protocol.h"

#define EXPORT __attribute__((visibility("default")))
#define MAX_CTX 1024
#define MAX_FD 65536

/* What the launcher told us; root is empty if we are to do nothing. */
static char root[PATH_MAX], sockpath[108], node[64];

/* One opened device. Every descriptor that refers to it leads here. */
struct ctx {
	int used;
	uint64_t token;
	uint32_t kind;            /* RVTSIM_DEV_* */
	dev_t dev, rdev;          /* of the memfd; what stat is to say */
	ino_t ino;
	int sock, efd;            /* hidden descriptors of this process */
	ino_t sock_ino;           /* tells whether somebody closed it */
	pid_t pid;                /* process that made the connection */
	_Atomic uint32_t *bell;   /* doorbell word, shared with the daemon */
};

static struct ctx ctxs[MAX_CTX];
static uint16_t mark[MAX_FD];     /* index into ctxs plus 1; 0: not ours */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char inbuf[RVTSIM_MAX_MSG];

/* The C library's own functions. */
static struct {
	int (*open)(const char *, int, ...);
	ssize_t (*write)(int, const void *, size_t);
	FILE *(*fopen)(const char *, const char *);
	DIR *(*opendir)(const char *);
	int (*scandir)(const char *, struct dirent ***, int (*)(const struct dirent *),
		       int (*)(const struct dirent **, const struct dirent **));
	char *(*realpath)(const char *, char *);
	void (*closefrom)(int);
} real;

static void *next(const char *name) { return dlsym(RTLD_NEXT, name); }

static void at_prepare(void) { pthread_mutex_lock(&lock); }
static void at_done(void) { pthread_mutex_unlock(&lock); }

static void copy_env(char *dst, size_t n, const char *name)
{
	const char *v = getenv(name);
	if (v && strlen(v) < n)
		strcpy(dst, v);
}

__attribute__((constructor)) static void init(void)
{
	copy_env(root, sizeof root, "RVTSIM_ROOT");
	copy_env(sockpath, sizeof sockpath, "RVTSIM_SOCKET");
	copy_env(node, sizeof node, "RVTSIM_NODE");
	if (!sockpath[0] || !node[0])
		root[0] = 0;
	real.open = next("open");
	real.write = next("write");
	real.fopen = next("fopen64");
	real.opendir = next("opendir");
	real.scandir = next("scandir64");
	real.realpath = next("realpath");
	real.closefrom = next("closefrom");
	pthread_atfork(at_prepare, at_done, at_done);
}

/* ---- paths ---- */

static int begins(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

/* Where the program really is to look for path. buf holds the answer if it differs. */
static const char *view(const char *path, char buf[PATH_MAX])
{
	if (!root[0] || !path || path[0] != '/')
		return path;
	if (!begins(path, "/sys/class/infiniband") && !begins(path, "/sys/class/misc/rdma_cm") &&
	    strcmp(path, "/dev/infiniband") && !begins(path, "/dev/infiniband/"))
		return path;
	if (strlen(root) + strlen(path) >= PATH_MAX)
		return path;
	strcpy(buf, root);
	strcat(buf, path);
	return buf;
}

/* The device that a path names: kind and number, or 0. */
static uint32_t device_of(const char *path, unsigned *index)
{
	static const char uverbs[] = "/dev/infiniband/uverbs";
	if (!root[0] || !path)
		return 0;
	*index = 0;
	if (!strcmp(path, "/dev/infiniband/rdma_cm"))
		return RVTSIM_DEV_CM;
	if (!begins(path, uverbs))
		return 0;
	const char *p = path + sizeof uverbs - 1;
	if (!*p || strlen(p) > 4)
		return 0;
	for (; *p; p++) {
		if (*p < '0' || *p > '9')
			return 0;
		*index = *index * 10 + (unsigned)(*p - '0');
	}
	return RVTSIM_DEV_UVERBS;
}

static dev_t rdev_of(uint32_t kind, unsigned index)
{
	return kind == RVTSIM_DEV_CM ? makedev(10, 58) : makedev(231, 192 + index);
}

/* ---- descriptors ---- */

static int sys_fstat(int fd, struct stat *st)
{
	return (int)syscall(SYS_newfstatat, fd, "", st, AT_EMPTY_PATH);
}

/* The context behind fd, or NULL. The mark may be stale: the inode decides. */
static struct ctx *lookup(int fd)
{
	struct stat st;
	if ((unsigned)fd >= MAX_FD || !mark[fd])
		return NULL;
	struct ctx *c = &ctxs[mark[fd] - 1];
	int saved = errno;
	int ok = c->used && !sys_fstat(fd, &st) && st.st_ino == c->ino && st.st_dev == c->dev;
	errno = saved;
	if (!ok) {
		mark[fd] = 0;
		return NULL;
	}
	return c;
}

/* Moves a hidden descriptor out of the way of programs that count theirs. */
static int hide(int fd)
{
	struct rlimit r;
	int want = 400;
	if (!getrlimit(RLIMIT_NOFILE, &r) && r.rlim_cur != RLIM_INFINITY && r.rlim_cur < 800)
		want = (int)(r.rlim_cur / 2);
	int high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, want);
	if (high < 0)
		return fd;
	syscall(SYS_close, fd);
	return high;
}

static int marked(const struct ctx *c)
{
	for (int fd = 0; fd < MAX_FD; fd++)
		if (mark[fd] == c - ctxs + 1 && lookup(fd))
			return 1;
	return 0;
}

/* Ends the context in this process if no descriptor refers to it any more. */
static void release(struct ctx *c)
{
	struct stat st;
	if (marked(c))
		return;
	if (!sys_fstat(c->sock, &st) && st.st_ino == c->sock_ino)
		syscall(SYS_close, c->sock);
	if (c->efd >= 0)
		syscall(SYS_close, c->efd);
	if (c->bell)
		munmap((void *)((uintptr_t)c->bell & ~(uintptr_t)4095), 4096);
	memset(c, 0, sizeof *c);
}

static void forget(int fd)
{
	if ((unsigned)fd >= MAX_FD || !mark[fd])
		return;
	struct ctx *c = &ctxs[mark[fd] - 1];
	mark[fd] = 0;
	if (c->used)
		release(c);
}

static void follow(int from, int to)
{
	struct ctx *c = lookup(from);
	if ((unsigned)to < MAX_FD)
		mark[to] = c ? (uint16_t)(c - ctxs + 1) : 0;
}

static void guard(sigset_t *old)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, old);
	pthread_mutex_lock(&lock);
}

static void unguard(const sigset_t *old)
{
	int saved = errno;
	pthread_mutex_unlock(&lock);
	pthread_sigmask(SIG_SETMASK, old, NULL);
	errno = saved;
}

/* ---- messages ---- */

struct fds {
	int n;
	int fd[RVTSIM_MAX_FILES];
};

static int send_msg(int sock, const struct rvtsim_req *rq, const void *data, size_t n, int fd)
{
	struct iovec iov[2] = { { (void *)rq, sizeof *rq }, { (void *)data, n } };
	union {
		struct cmsghdr h;
		char b[CMSG_SPACE(sizeof(int))];
	} ctl;
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = n ? 2 : 1 };
	if (fd >= 0) {
		m.msg_control = &ctl;
		m.msg_controllen = sizeof ctl;
		ctl.h.cmsg_level = SOL_SOCKET;
		ctl.h.cmsg_type = SCM_RIGHTS;
		ctl.h.cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(&ctl.h), &fd, sizeof(int));
	}
	for (;;) {
		ssize_t r = syscall(SYS_sendmsg, sock, &m, MSG_NOSIGNAL);
		if (r >= 0)
			return 0;
		if (errno != EINTR)
			return -1;
	}
}

/* Receives one answer into inbuf. Its length, or -1 if the daemon is gone. */
static ssize_t recv_msg(int sock, struct fds *fds)
{
	struct iovec iov = { inbuf, sizeof inbuf };
	union {
		struct cmsghdr h;
		char b[CMSG_SPACE(sizeof(int) * RVTSIM_MAX_FILES)];
	} ctl;
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = &ctl, .msg_controllen = sizeof ctl };
	ssize_t r;
	fds->n = 0;
	do
		r = syscall(SYS_recvmsg, sock, &m, MSG_CMSG_CLOEXEC);
	while (r < 0 && errno == EINTR);
	for (struct cmsghdr *h = r > 0 ? CMSG_FIRSTHDR(&m) : NULL; h; h = CMSG_NXTHDR(&m, h)) {
		if (h->cmsg_level != SOL_SOCKET || h->cmsg_type != SCM_RIGHTS)
			continue;
		int n = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds->fd, CMSG_DATA(h), (size_t)n * sizeof(int));
		fds->n = n;
	}
	if (r < (ssize_t)sizeof(struct rvtsim_rep)) {
		errno = EIO;
		return -1;
	}
	return r;
}

static int dial(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	strcpy(a.sun_path, sockpath);
	int s = (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s < 0)
		return -1;
	if (syscall(SYS_connect, s, &a, sizeof a)) {
		syscall(SYS_close, s);
		errno = ENODEV;
		return -1;
	}
	return hide(s);
}

static void fill(struct rvtsim_req *rq, uint16_t op, uint64_t token)
{
	memset(rq, 0, sizeof *rq);
	rq->magic = RVTSIM_MAGIC;
	rq->version = RVTSIM_VERSION;
	rq->op = op;
	rq->pid = (uint32_t)getpid();
	rq->token = token;
	memcpy(rq->node, node, sizeof rq->node);
}

/* Introduces this process to the daemon: OPEN for a new context, ATTACH for one that
 * was inherited over fork. Returns the socket. */
static int introduce(uint16_t op, uint32_t kind, unsigned index, uint64_t token, struct fds *fds)
{
	struct rvtsim_req rq;
	int s = dial();
	if (s < 0)
		return -1;
	int mem = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC);
	fill(&rq, op, token);
	rq.kind = kind;
	rq.index = index;
	int bad = send_msg(s, &rq, NULL, 0, mem);
	if (mem >= 0)
		syscall(SYS_close, mem);
	if (bad || recv_msg(s, fds) < 0) {
		syscall(SYS_close, s);
		errno = ENODEV;
		return -1;
	}
	struct rvtsim_rep *rp = (struct rvtsim_rep *)inbuf;
	if (rp->error) {
		syscall(SYS_close, s);
		errno = rp->error;
		return -1;
	}
	return s;
}

static int open_device(uint32_t kind, unsigned index, int flags)
{
	struct fds fds;
	struct stat st;
	struct ctx *c = NULL;
	for (int i = 0; i < MAX_CTX && !c; i++)
		if (!ctxs[i].used)
			c = &ctxs[i];
	if (!c) {
		errno = EMFILE;
		return -1;
	}
	int s = introduce(RVTSIM_OPEN, kind, index, 0, &fds);
	if (s < 0)
		return -1;
	struct rvtsim_rep *rp = (struct rvtsim_rep *)inbuf;
	int fd = fds.n > 0 ? fds.fd[0] : -1;
	if (fd < 0 || fd >= MAX_FD || sys_fstat(fd, &st)) {
		syscall(SYS_close, s);
		errno = EMFILE;
		return -1;
	}
	if (!(flags & O_CLOEXEC))
		syscall(SYS_fcntl, fd, F_SETFD, 0);
	if (flags & O_NONBLOCK)
		syscall(SYS_fcntl, fd, F_SETFL, syscall(SYS_fcntl, fd, F_GETFL) | O_NONBLOCK);
	memset(c, 0, sizeof *c);
	c->used = 1;
	c->kind = kind;
	c->token = rp->token;
	c->dev = st.st_dev;
	c->ino = st.st_ino;
	c->rdev = rdev_of(kind, index);
	c->sock = s;
	c->pid = getpid();
	c->efd = fds.n > 1 ? hide(fds.fd[1]) : -1;
	if (!sys_fstat(s, &st))
		c->sock_ino = st.st_ino;
	if (kind == RVTSIM_DEV_UVERBS) {
		void *p = (void *)syscall(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, rp->bell_offset);
		c->bell = p == MAP_FAILED ? NULL : p;
	}
	mark[fd] = (uint16_t)(c - ctxs + 1);
	return fd;
}

/* Makes sure that this process has a live connection of its own. */
static int connected(struct ctx *c)
{
	struct stat st;
	struct fds fds;
	int own = c->pid == getpid();
	if (own && !sys_fstat(c->sock, &st) && st.st_ino == c->sock_ino)
		return 0;
	int s = introduce(RVTSIM_ATTACH, c->kind, 0, c->token, &fds);
	if (s < 0)
		return -1;
	if (!own && !sys_fstat(c->sock, &st) && st.st_ino == c->sock_ino)
		syscall(SYS_close, c->sock);
	c->sock = s;
	c->pid = getpid();
	if (!sys_fstat(s, &st))
		c->sock_ino = st.st_ino;
	return 0;
}

/* Carries out the answer in inbuf. */
static int apply(const struct fds *fds, size_t len)
{
	struct rvtsim_rep *rp = (struct rvtsim_rep *)inbuf;
	size_t at = sizeof *rp;
	uint32_t *off = (uint32_t *)(inbuf + at);
	at += rp->nfiles * sizeof(uint32_t);
	char *out = inbuf + at;
	at += (rp->out_len + 7u) & ~7u;
	if (rp->nfiles > RVTSIM_MAX_FILES || at > len || (int)rp->nfiles > fds->n) {
		errno = EIO;
		return -1;
	}
	for (uint32_t i = 0; i < rp->nfiles; i++)
		if (off[i] + sizeof(int) <= rp->out_len)
			memcpy(out + off[i], &fds->fd[i], sizeof(int));
	if (rp->out_len)
		memcpy((void *)(uintptr_t)rp->out_addr, out, rp->out_len);
	for (uint32_t i = 0; i < rp->nwrites; i++) {
		struct rvtsim_write *w = (struct rvtsim_write *)(inbuf + at);
		if (at + sizeof *w > len || at + sizeof *w + w->len > len)
			break;
		memcpy((void *)(uintptr_t)w->addr, w + 1, w->len);
		at += sizeof *w + ((w->len + 7u) & ~7u);
	}
	if (rp->error) {
		errno = rp->error;
		return -1;
	}
	return 0;
}

/* One command and its answer. The daemon may ask what a descriptor number in the
 * command refers to before it answers. */
static int command(struct ctx *c, uint16_t op, uint64_t arg, const void *buf, size_t n)
{
	struct rvtsim_req rq;
	struct fds fds;
	struct stat st;
	if (connected(c))
		return -1;
	fill(&rq, op, c->token);
	rq.arg = arg;
	if (send_msg(c->sock, &rq, buf, n, -1)) {
		errno = errno == EMSGSIZE ? EINVAL : EIO;
		return -1;
	}
	for (;;) {
		ssize_t r = recv_msg(c->sock, &fds);
		if (r < 0)
			return -1;
		struct rvtsim_rep *rp = (struct rvtsim_rep *)inbuf;
		if (rp->kind != RVTSIM_QUERY_FD)
			return apply(&fds, (size_t)r);
		fill(&rq, RVTSIM_FDINFO, c->token);
		rq.arg = sys_fstat((int)rp->query_fd, &st) ? 0 : st.st_ino;
		if (send_msg(c->sock, &rq, NULL, 0, -1)) {
			errno = EIO;
			return -1;
		}
	}
}

/* A post_send of a provider that has put its WQEs into a ring: no answer needed. */
static int is_doorbell(const void *buf, size_t n)
{
	const uint32_t *w = buf;
	return n == 32 && w[0] == RVTSIM_CMD_POST_SEND && w[5] == 0;
}

static int ring(struct ctx *c)
{
	static const uint64_t one = 1;
	if (!c->bell || c->efd < 0)
		return -1;
	if (atomic_exchange(c->bell, 1) == 0)
		syscall(SYS_write, c->efd, &one, sizeof one);
	return 0;
}

/* ---- interposed calls ---- */

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	struct ctx *c = (unsigned)fd < MAX_FD && mark[fd] ? lookup(fd) : NULL;
	if (!c)
		return real.write ? real.write(fd, buf, n) : syscall(SYS_write, fd, buf, n);
	if (c->kind == RVTSIM_DEV_UVERBS && is_doorbell(buf, n) && !ring(c))
		return (ssize_t)n;
	sigset_t old;
	guard(&old);
	int r = command(c, RVTSIM_WRITE, 0, buf, n);
	unguard(&old);
	return r ? -1 : (ssize_t)n;
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	va_start(ap, request);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	struct ctx *c = (unsigned)fd < MAX_FD && mark[fd] ? lookup(fd) : NULL;
	if (!c || request != RVTSIM_VERBS_IOCTL)
		return (int)syscall(SYS_ioctl, fd, request, arg);
	sigset_t old;
	guard(&old);
	/* The first word of the argument is its length. */
	int r = command(c, RVTSIM_IOCTL, (uintptr_t)arg, arg, *(uint16_t *)arg);
	unguard(&old);
	return r;
}

static int open_common(int dirfd, const char *path, int flags, mode_t mode)
{
	char buf[PATH_MAX];
	unsigned index;
	uint32_t kind = device_of(path, &index);
	if (!kind) {
		const char *p = view(path, buf);
		return (int)syscall(SYS_openat, dirfd, p, flags, mode);
	}
	if (syscall(SYS_faccessat, AT_FDCWD, view(path, buf), F_OK))
		return -1; /* ENOENT: the node has no such device */
	sigset_t old;
	guard(&old);
	int fd = open_device(kind, index, flags);
	unguard(&old);
	return fd;
}

#define MODE_ARG(flags)                                                 \
	mode_t mode = 0;                                                \
	if ((flags) & (O_CREAT | O_TMPFILE)) {                          \
		va_list ap;                                             \
		va_start(ap, flags);                                    \
		mode = va_arg(ap, mode_t);                              \
		va_end(ap);                                             \
	}

EXPORT int open(const char *path, int flags, ...)
{
	MODE_ARG(flags)
	return open_common(AT_FDCWD, path, flags, mode);
}

EXPORT int openat(int dirfd, const char *path, int flags, ...)
{
	MODE_ARG(flags)
	return open_common(dirfd, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
	MODE_ARG(flags)
	return open_common(AT_FDCWD, path, flags, mode);
}

EXPORT int openat64(int dirfd, const char *path, int flags, ...)
{
	MODE_ARG(flags)
	return open_common(dirfd, path, flags, mode);
}

EXPORT int __open_2(const char *path, int flags) { return open_common(AT_FDCWD, path, flags, 0); }
EXPORT int __open64_2(const char *path, int flags) { return open_common(AT_FDCWD, path, flags, 0); }
EXPORT int __openat_2(int d, const char *path, int flags) { return open_common(d, path, flags, 0); }
EXPORT int __openat64_2(int d, const char *path, int flags) { return open_common(d, path, flags, 0); }

EXPORT FILE *fopen(const char *path, const char *mode)
{
	char buf[PATH_MAX];
	if (!real.fopen)
		real.fopen = next("fopen64");
	return real.fopen(view(path, buf), mode);
}

EXPORT FILE *fopen64(const char *path, const char *mode) { return fopen(path, mode); }

EXPORT DIR *opendir(const char *path)
{
	char buf[PATH_MAX];
	if (!real.opendir)
		real.opendir = next("opendir");
	return real.opendir(view(path, buf));
}

EXPORT int scandir(const char *path, struct dirent ***list, int (*sel)(const struct dirent *),
		   int (*cmp)(const struct dirent **, const struct dirent **))
{
	char buf[PATH_MAX];
	if (!real.scandir)
		real.scandir = next("scandir64");
	return real.scandir(view(path, buf), list, sel, cmp);
}

EXPORT int scandir64(const char *path, struct dirent64 ***list, int (*sel)(const struct dirent64 *),
		     int (*cmp)(const struct dirent64 **, const struct dirent64 **))
{
	return scandir(path, (struct dirent ***)list, (int (*)(const struct dirent *))(void *)sel,
		       (int (*)(const struct dirent **, const struct dirent **))(void *)cmp);
}

EXPORT char *realpath(const char *path, char *out)
{
	char buf[PATH_MAX];
	if (!real.realpath)
		real.realpath = next("realpath");
	return real.realpath(view(path, buf), out);
}

EXPORT ssize_t readlink(const char *path, char *out, size_t n)
{
	char buf[PATH_MAX];
	return syscall(SYS_readlinkat, AT_FDCWD, view(path, buf), out, n);
}

EXPORT int access(const char *path, int mode)
{
	char buf[PATH_MAX];
	return (int)syscall(SYS_faccessat, AT_FDCWD, view(path, buf), mode);
}

/* ---- stat in all its forms ---- */

static void dress(struct stat *st, dev_t rdev)
{
	st->st_mode = S_IFCHR | 0666;
	st->st_rdev = rdev;
	st->st_size = 0;
}

static int stat_common(int dirfd, const char *path, struct stat *st, int flags)
{
	char buf[PATH_MAX];
	unsigned index;
	int r = (int)syscall(SYS_newfstatat, dirfd, view(path, buf), st, flags);
	if (r)
		return r;
	uint32_t kind = device_of(path, &index);
	if (kind) {
		dress(st, rdev_of(kind, index));
	} else if (path && !path[0] && (flags & AT_EMPTY_PATH)) {
		struct ctx *c = lookup(dirfd);
		if (c)
			dress(st, c->rdev);
	}
	return 0;
}

EXPORT int stat(const char *p, struct stat *st) { return stat_common(AT_FDCWD, p, st, 0); }
EXPORT int lstat(const char *p, struct stat *st) { return stat_common(AT_FDCWD, p, st, AT_SYMLINK_NOFOLLOW); }
EXPORT int fstat(int fd, struct stat *st) { return stat_common(fd, "", st, AT_EMPTY_PATH); }
EXPORT int fstatat(int d, const char *p, struct stat *st, int f) { return stat_common(d, p, st, f); }

/* On 64-bit systems struct stat64 is struct stat. */
EXPORT int stat64(const char *p, struct stat64 *st) { return stat(p, (struct stat *)st); }
EXPORT int lstat64(const char *p, struct stat64 *st) { return lstat(p, (struct stat *)st); }
EXPORT int fstat64(int fd, struct stat64 *st) { return fstat(fd, (struct stat *)st); }
EXPORT int fstatat64(int d, const char *p, struct stat64 *st, int f) { return fstatat(d, p, (struct stat *)st, f); }

/* What programs that were linked before glibc 2.33 call. */
EXPORT int __xstat(int v, const char *p, struct stat *st) { (void)v; return stat(p, st); }
EXPORT int __lxstat(int v, const char *p, struct stat *st) { (void)v; return lstat(p, st); }
EXPORT int __fxstat(int v, int fd, struct stat *st) { (void)v; return fstat(fd, st); }
EXPORT int __fxstatat(int v, int d, const char *p, struct stat *st, int f) { (void)v; return fstatat(d, p, st, f); }
EXPORT int __xstat64(int v, const char *p, struct stat64 *st) { (void)v; return stat64(p, st); }
EXPORT int __lxstat64(int v, const char *p, struct stat64 *st) { (void)v; return lstat64(p, st); }
EXPORT int __fxstat64(int v, int fd, struct stat64 *st) { (void)v; return fstat64(fd, st); }
EXPORT int __fxstatat64(int v, int d, const char *p, struct stat64 *st, int f) { (void)v; return fstatat64(d, p, st, f); }

EXPORT int statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *stx)
{
	char buf[PATH_MAX];
	unsigned index;
	int r = (int)syscall(SYS_statx, dirfd, view(path, buf), flags, mask, stx);
	if (r)
		return r;
	uint32_t kind = device_of(path, &index);
	struct ctx *c = !kind && !path[0] ? lookup(dirfd) : NULL;
	if (!kind && !c)
		return 0;
	dev_t rdev = kind ? rdev_of(kind, index) : c->rdev;
	stx->stx_mode = S_IFCHR | 0666;
	stx->stx_rdev_major = major(rdev);
	stx->stx_rdev_minor = minor(rdev);
	return 0;
}

/* ---- descriptors that move ---- */

EXPORT int close(int fd)
{
	if ((unsigned)fd >= MAX_FD || !mark[fd])
		return (int)syscall(SYS_close, fd);
	sigset_t old;
	guard(&old);
	int r = (int)syscall(SYS_close, fd);
	int saved = errno;
	forget(fd);
	errno = saved;
	unguard(&old);
	return r;
}

/* Replaces what was known of descriptor to by what is known of from. */
static void moved(int from, int to)
{
	if ((unsigned)from < MAX_FD && !mark[from] && (unsigned)to < MAX_FD && !mark[to])
		return;
	sigset_t old;
	guard(&old);
	uint16_t was = (unsigned)to < MAX_FD ? mark[to] : 0;
	follow(from, to);
	if (was && was != mark[to] && ctxs[was - 1].used)
		release(&ctxs[was - 1]);
	unguard(&old);
}

EXPORT int dup(int fd)
{
	int r = (int)syscall(SYS_dup, fd);
	if (r >= 0)
		moved(fd, r);
	return r;
}

EXPORT int dup3(int from, int to, int flags)
{
	int r = (int)syscall(SYS_dup3, from, to, flags);
	if (r >= 0)
		moved(from, r);
	return r;
}

EXPORT int dup2(int from, int to)
{
	int r = from == to ? (syscall(SYS_fcntl, from, F_GETFD) < 0 ? -1 : to) : (int)syscall(SYS_dup3, from, to, 0);
	if (r >= 0 && from != to)
		moved(from, r);
	return r;
}

static int fcntl_common(int fd, int cmd, void *arg)
{
	int r = (int)syscall(SYS_fcntl, fd, cmd, arg);
	if (r >= 0 && (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC))
		moved(fd, r);
	return r;
}

EXPORT int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	va_start(ap, cmd);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	return fcntl_common(fd, cmd, arg);
}

EXPORT int fcntl64(int fd, int cmd, ...)
{
	va_list ap;
	va_start(ap, cmd);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	return fcntl_common(fd, cmd, arg);
}

static void forget_range(unsigned first, unsigned last)
{
	sigset_t old;
	guard(&old);
	for (unsigned fd = first; fd <= last && fd < MAX_FD; fd++)
		if (mark[fd] && !lookup((int)fd))
			mark[fd] = 0;
	for (int i = 0; i < MAX_CTX; i++)
		if (ctxs[i].used)
			release(&ctxs[i]);
	unguard(&old);
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	int r = (int)syscall(SYS_close_range, first, last, flags);
	if (!r && !(flags & CLOSE_RANGE_CLOEXEC))
		forget_range(first, last);
	return r;
}

EXPORT void closefrom(int first)
{
	if (real.closefrom)
		real.closefrom(first);
	else
		syscall(SYS_close_range, first, ~0U, 0);
	forget_range((unsigned)first, MAX_FD);
}

/* A host may have the kernel's RDMA netlink; libibverbs would then never look at the
 * files. It falls back to them when the protocol does not exist. */
EXPORT int socket(int domain, int type, int protocol)
{
	if (root[0] && domain == AF_NETLINK && protocol == 20 /* NETLINK_RDMA */) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return (int)syscall(SYS_socket, domain, type, protocol);
}
