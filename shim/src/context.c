/* Contexts: opened devices, their hidden connections, and commands. See shim.h. */
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/sysmacros.h>
#include <sys/un.h>

#include "engine.h"

char shim_root[PATH_MAX];
static char sockpath[sizeof(((struct sockaddr_un *)0)->sun_path)], node[RVTSIM_NODE_LEN];

struct ctx shim_ctx[MAX_CTX];
_Atomic uint16_t shim_mark[MAX_FD];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sigset_t fork_mask; /* of the thread that forks, while it holds the lock */
static pid_t owner;        /* process whose memory this is */
static size_t page;
static int no_ioctl; /* programs are to see a kernel that has write() only */
static union {
	struct rvtsim_rep rep;
	char b[RVTSIM_MAX_MSG];
} in; /* the answer; under the lock */
static ssize_t (*real_write)(int, const void *, size_t);
static int (*real_ioctl)(int, unsigned long, ...);
static int (*real_socket)(int, int, int);

void *shim_next(const char *name) { return dlsym(RTLD_NEXT, name); }

void shim_guard(sigset_t *old)
{
	sigset_t all;
	sigfillset(&all);
	sigdelset(&all, SIGSEGV); /* a fault cannot be blocked, only be made fatal */
	sigdelset(&all, SIGBUS);
	pthread_sigmask(SIG_SETMASK, &all, old);
	pthread_mutex_lock(&lock);
}

void shim_unguard(const sigset_t *old)
{
	int saved = errno;
	pthread_mutex_unlock(&lock);
	pthread_sigmask(SIG_SETMASK, old, NULL);
	errno = saved;
}

static void before_fork(void)
{
	sigset_t old;
	shim_guard(&old);
	fork_mask = old;
}

static void after_fork(void)
{
	sigset_t old = fork_mask;
	shim_unguard(&old);
}

static void after_fork_in_child(void)
{
	owner = getpid();
	shim_program_forked();
	after_fork();
}

/* A child of vfork shares our memory but not our descriptors, until it calls exec. What
 * it does to its descriptors must not reach our tables: its parent would lose a device.
 * A child of fork has been through after_fork_in_child. */
int shim_borrowed(void) { return getpid() != owner; }

static void copy_env(char *dst, size_t n, const char *name)
{
	const char *v = getenv(name);
	if (v && strlen(v) < n)
		strcpy(dst, v);
}

__attribute__((constructor)) static void init(void)
{
	copy_env(sockpath, sizeof sockpath, "RVTSIM_SOCKET");
	copy_env(node, sizeof node, "RVTSIM_NODE");
	if (sockpath[0] && node[0])
		copy_env(shim_root, sizeof shim_root, "RVTSIM_ROOT");
	const char *off = getenv("RVTSIM_IOCTL");
	no_ioctl = off && !strcmp(off, "off");
	owner = getpid();
	page = (size_t)sysconf(_SC_PAGESIZE);
	real_write = shim_next("write");
	real_ioctl = shim_next("ioctl");
	real_socket = shim_next("socket");
	shim_files_init();
	shim_program_init();
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---- descriptors ---- */

/* The context behind fd, or NULL. The mark may be stale, because somebody made the
 * system call himself: the inode decides. */
struct ctx *shim_lookup(int fd)
{
	struct stat st;
	unsigned m = mark_of(fd);
	if (!m || is_ours(m))
		return NULL;
	struct ctx *c = &shim_ctx[m - 1];
	int saved = errno;
	int ok = c->used && !sys_fstat(fd, &st) && st.st_ino == c->ino && st.st_dev == c->dev;
	errno = saved;
	return ok ? c : NULL;
}

/* Moves a hidden descriptor out of the way of programs that count theirs. */
static int hide(int fd)
{
	struct rlimit r;
	int want = 400;
	if (!getrlimit(RLIMIT_NOFILE, &r) && r.rlim_cur != RLIM_INFINITY && r.rlim_cur < 800)
		want = (int)(r.rlim_cur / 2);
	int high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, want);
	if (high >= 0) {
		syscall(SYS_close, fd);
		fd = high;
	}
	set_mark(fd, HIDDEN);
	return fd;
}

static void close_hidden(int fd)
{
	if (fd < 0 || mark_of(fd) != HIDDEN)
		return;
	set_mark(fd, 0);
	syscall(SYS_close, fd);
}

/* Somebody is about to put another file on number fd with dup2. */
void shim_evade(int fd)
{
	for (int i = 0; i < MAX_CTX; i++) {
		struct ctx *c = &shim_ctx[i];
		int *p = !c->used ? NULL : c->sock == fd ? &c->sock : c->efd == fd ? &c->efd : NULL;
		if (!p)
			continue;
		int to = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, fd + 1);
		if (to < 0)
			to = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 0);
		*p = to;
		if (to >= 0)
			set_mark(to, HIDDEN);
		break;
	}
	set_mark(fd, 0);
}

static int has_descriptor(const struct ctx *c)
{
	for (int fd = 0; fd < MAX_FD; fd++)
		if (mark_of(fd) == (unsigned)(c - shim_ctx) + 1 && shim_lookup(fd))
			return 1;
	return 0;
}

static int connection_alive(const struct ctx *c)
{
	struct stat st;
	return c->sock >= 0 && !sys_fstat(c->sock, &st) && st.st_ino == c->sock_ino;
}

/* Ends the context in this process if no descriptor refers to it any more. */
void shim_release(struct ctx *c)
{
	if (!c->used || has_descriptor(c))
		return;
	int saved = errno;
	if (c->home && shim_has_engine())
		shim_engine_close(c->index);
	if (connection_alive(c))
		close_hidden(c->sock);
	else
		set_mark(c->sock, 0);
	close_hidden(c->efd);
	if (c->bell)
		munmap((void *)c->bell, page);
	memset(c, 0, sizeof *c);
	errno = saved;
}

/* ---- messages ---- */

struct fds {
	int n;
	int fd[RVTSIM_MAX_FILES];
};

static int send_msg(int sock, const struct rvtsim_req *rq, const void *data, size_t n, const struct site *site, int fd)
{
	struct iovec iov[3] = { { (void *)rq, sizeof *rq }, { (void *)data, n }, { site ? (void *)site->b : NULL, site ? site->n : 0 } };
	union {
		struct cmsghdr h;
		char b[CMSG_SPACE(sizeof(int))];
	} ctl = { .b = { 0 } };
	struct msghdr m = { .msg_iov = iov, .msg_iovlen = 3 };
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

static void close_all(const struct fds *fds)
{
	for (int i = 0; i < fds->n; i++)
		syscall(SYS_close, fds->fd[i]);
}

/* Receives one answer. Its length, or -1 if the daemon is gone. */
static ssize_t recv_msg(int sock, struct fds *fds)
{
	struct iovec iov = { in.b, sizeof in.b };
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
		fds->n = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(fds->fd, CMSG_DATA(h), (size_t)fds->n * sizeof(int));
	}
	if (r < (ssize_t)sizeof in.rep) {
		close_all(fds);
		errno = EIO;
		return -1;
	}
	return r;
}

/* Connects to the daemon, or to the engine of that name. */
static int dial(const char *engine)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	socklen_t len = sizeof a;
	if (engine) { /* in the abstract name space */
		strcpy(a.sun_path + 1, engine);
		len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(engine));
	} else {
		strcpy(a.sun_path, sockpath);
	}
	int s = (int)syscall(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s < 0)
		return -1;
	if (syscall(SYS_connect, s, &a, len)) {
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
 * was inherited over fork, from the engine of that name perhaps, HOST for a place on the
 * node. Returns the hidden socket; the answer is in in, n bytes long. */
static int introduce(uint16_t op, uint32_t kind, unsigned index, uint64_t token, const char *engine, struct fds *fds, ssize_t *n)
{
	struct rvtsim_req rq;
	int s = dial(engine);
	if (s < 0)
		return -1;
	/* A program that is not dumpable cannot open this; the daemon sees whether it
	 * needs it. Who hosts himself keeps it to himself. */
	int mem = op == RVTSIM_HOST ? -1 : (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC);
	fill(&rq, op, token);
	rq.kind = kind;
	rq.index = index;
	rq.why = op == RVTSIM_OPEN && kind == RVTSIM_DEV_UVERBS ? shim_why_daemon() : 0;
	int bad = send_msg(s, &rq, NULL, 0, NULL, mem);
	if (mem >= 0)
		syscall(SYS_close, mem);
	if (bad || (*n = recv_msg(s, fds)) < 0) {
		close_hidden(s);
		errno = ENODEV;
		return -1;
	}
	if (in.rep.error) {
		close_all(fds);
		close_hidden(s);
		errno = in.rep.error;
		return -1;
	}
	return s;
}

static void set_up(struct ctx *c, uint32_t kind, unsigned index, const struct stat *st, int s, const struct fds *fds)
{
	struct stat sock;
	memset(c, 0, sizeof *c);
	c->used = 1;
	c->kind = kind;
	c->token = in.rep.token;
	c->dev = st->st_dev;
	c->ino = st->st_ino;
	c->rdev = kind == RVTSIM_DEV_CM ? makedev(10, 58) : makedev(231, 192 + index);
	c->sock = s;
	c->pid = getpid();
	c->efd = fds->n > 1 ? hide(fds->fd[1]) : -1;
	if (!sys_fstat(s, &sock))
		c->sock_ino = sock.st_ino;
	if (kind == RVTSIM_DEV_UVERBS && c->efd >= 0) {
		void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fds->fd[0], (off_t)in.rep.bell_offset);
		c->bell = p == MAP_FAILED ? NULL : p;
		c->sites = in.rep.query_fd == RVTSIM_WANT_SITES;
	}
}

/* Asks the daemon for a place on the node and starts the engine there. */
static void start_engine(void)
{
	struct fds fds;
	ssize_t n;
	int s = introduce(RVTSIM_HOST, RVTSIM_DEV_UVERBS, 0, 0, NULL, &fds, &n);
	if (s < 0) {
		if (errno == EOPNOTSUPP || errno == EPROTO)
			shim_engine_refused(RVTSIM_WHY_REFUSED);
		return;
	}
	if (fds.n != 1 || sizeof in.rep + in.rep.out_len > (size_t)n) {
		close_all(&fds);
		close_hidden(s);
		shim_engine_refused(RVTSIM_WHY_START);
		return;
	}
	set_mark(s, 0); /* it belongs to the engine now */
	if (shim_engine_start(in.b + sizeof in.rep, in.rep.out_len, s, fds.fd[0]))
		return; /* and it has closed what it was given */
}

/* Opens the device in the engine. */
static int open_at_home(struct ctx *c, int flags)
{
	struct rvtsim_opened o;
	struct stat st;
	int err = shim_engine_open(&o);
	if (!err && (o.memory >= MAX_FD || sys_fstat(o.memory, &st))) {
		syscall(SYS_close, o.memory);
		syscall(SYS_close, o.event);
		shim_engine_close(o.index);
		err = EMFILE;
	}
	if (err) {
		errno = err;
		return -1;
	}
	if (!(flags & O_CLOEXEC))
		syscall(SYS_fcntl, o.memory, F_SETFD, 0);
	struct fds fds = { 2, { o.memory, o.event } };
	memset(&in.rep, 0, sizeof in.rep);
	in.rep.token = o.token;
	in.rep.bell_offset = o.bell_offset;
	set_up(c, RVTSIM_DEV_UVERBS, 0, &st, -1, &fds);
	c->home = 1;
	c->index = o.index;
	set_mark(o.memory, (unsigned)(c - shim_ctx) + 1);
	return o.memory;
}

int shim_is_home(int fd)
{
	struct ctx *c = shim_lookup(fd);
	return c && c->home;
}

/* Opens a device, in the engine or in the daemon. Guards itself. */
int shim_open(uint32_t kind, unsigned index, int flags)
{
	struct fds fds;
	struct stat st;
	struct ctx *c = NULL;
	sigset_t old;
	ssize_t n;
	int fd = -1;
	shim_guard(&old);
	for (int i = 0; i < MAX_CTX && !c; i++)
		if (!shim_ctx[i].used)
			c = &shim_ctx[i];
	if (c && kind == RVTSIM_DEV_UVERBS && shim_wants_engine()) {
		if (!shim_has_engine())
			start_engine();
		if (shim_has_engine()) {
			fd = open_at_home(c, flags);
			goto out;
		}
	}
	int s = c ? introduce(RVTSIM_OPEN, kind, index, 0, NULL, &fds, &n) : -1;
	if (!c)
		errno = EMFILE;
	if (s < 0)
		goto out;
	if (fds.n < 1 || fds.fd[0] >= MAX_FD || sys_fstat(fds.fd[0], &st)) {
		close_all(&fds);
		close_hidden(s);
		errno = EMFILE;
		goto out;
	}
	fd = fds.fd[0];
	if (!(flags & O_CLOEXEC))
		syscall(SYS_fcntl, fd, F_SETFD, 0);
	if (kind == RVTSIM_DEV_CM && (flags & O_NONBLOCK))
		syscall(SYS_fcntl, fd, F_SETFL, O_NONBLOCK);
	set_up(c, kind, index, &st, s, &fds);
	set_mark(fd, (unsigned)(c - shim_ctx) + 1);
out:
	shim_unguard(&old);
	return fd;
}

/* Makes sure that this process has a live connection of its own. */
static int connected(struct ctx *c)
{
	struct stat st;
	struct fds fds;
	ssize_t n;
	int alive = connection_alive(c);
	if (alive && c->pid == getpid())
		return 0;
	int s = introduce(RVTSIM_ATTACH, c->kind, 0, c->token, c->home ? shim_engine_name() : NULL, &fds, &n);
	if (s < 0)
		return -1;
	close_all(&fds);
	if (alive)
		close_hidden(c->sock); /* the parent's, inherited */
	c->sock = s;
	c->pid = getpid();
	if (!sys_fstat(s, &st))
		c->sock_ino = st.st_ino;
	return 0;
}

static size_t padded(size_t n) { return (n + 7) & ~(size_t)7; }

/* Carries out the answer: descriptor numbers into it, bytes to where they belong. */
static int apply(const struct fds *fds, size_t len)
{
	const struct rvtsim_rep *rp = &in.rep;
	size_t at = sizeof *rp;
	const uint32_t *off = (const uint32_t *)(in.b + at);
	if (rp->nfiles > RVTSIM_MAX_FILES || (int)rp->nfiles > fds->n)
		goto bad;
	at += padded(rp->nfiles * sizeof *off);
	char *out = in.b + at;
	at += padded(rp->out_len);
	if (at > len)
		goto bad;
	for (uint32_t i = 0; i < rp->nfiles; i++)
		if (rp->out_len >= sizeof(int) && off[i] <= rp->out_len - sizeof(int))
			memcpy(out + off[i], &fds->fd[i], sizeof(int));
	if (rp->out_len)
		memcpy((void *)(uintptr_t)rp->out_addr, out, rp->out_len);
	for (uint32_t i = 0; i < rp->nwrites; i++) {
		const struct rvtsim_write *w = (const struct rvtsim_write *)(in.b + at);
		if (at + sizeof *w > len || w->len > len - at - sizeof *w)
			goto bad;
		memcpy((void *)(uintptr_t)w->addr, w + 1, w->len);
		at += sizeof *w + padded(w->len);
	}
	if (!rp->error)
		return 0;
	errno = rp->error;
	return -1;
bad:
	close_all(fds);
	errno = EIO;
	return -1;
}

/* One command and its answer. The daemon may ask what a descriptor number in the
 * command refers to before it answers. */
static int command(struct ctx *c, uint16_t op, uint64_t arg, const void *buf, size_t n, const struct site *site)
{
	struct rvtsim_req rq;
	struct fds fds;
	struct stat st;
	if (c->home && !shim_must_dial()) {
		int r = shim_engine_command(c->index, op, arg, buf, n, in.b, sizeof in.b, fds.fd, &fds.n);
		return r < 0 ? -1 : apply(&fds, (size_t)r);
	}
	if (connected(c))
		return -1;
	fill(&rq, op, c->token);
	rq.arg = arg;
	rq.why = (uint32_t)site->n;
	if (send_msg(c->sock, &rq, buf, n, site, -1)) {
		errno = errno == EMSGSIZE ? EINVAL : errno == EFAULT ? EFAULT : EIO;
		return -1;
	}
	for (;;) {
		ssize_t r = recv_msg(c->sock, &fds);
		if (r < 0)
			return -1;
		if (in.rep.kind != RVTSIM_QUERY_FD)
			return apply(&fds, (size_t)r);
		close_all(&fds);
		fill(&rq, RVTSIM_FDINFO, c->token);
		if (!sys_fstat((int)in.rep.query_fd, &st)) {
			rq.arg = st.st_ino;
			rq.index = (uint32_t)st.st_dev;
		}
		if (send_msg(c->sock, &rq, NULL, 0, NULL, -1)) {
			errno = EIO;
			return -1;
		}
	}
}

/* ---- doorbells ---- */

/* A post_send of a provider that has put its work requests into a ring: the write has
 * no content, and its answer is not looked at. */
static int is_doorbell(const void *buf, size_t n)
{
	const uint32_t *w = buf;
	return n == 32 && w[0] == RVTSIM_CMD_POST_SEND && w[5] == 0 && w[6] == 0;
}

#define UNHEARD_CHECK 256

/* Tells the daemon, if the QP needs no answer, that there is something in a ring: only the one who finds the word
 * clear pays for a system call. The daemon clears the word before it looks at the rings.
 * Once in a while, if it does not clear it, look whether it lives. */
static int ring(struct ctx *c, uint32_t qp)
{
	static const uint64_t one = 1;
	if (!c->bell || c->efd < 0 || !qp)
		return -1;
	if (atomic_load_explicit(&c->bell[RVTSIM_GATE_FIRST + qp % RVTSIM_GATE_WORDS], memory_order_relaxed) != qp)
		return -1; /* post_send may have to fail */
	if (atomic_exchange(c->bell, 1) == 0) {
		atomic_store_explicit(&c->unheard, 0, memory_order_relaxed);
		syscall(SYS_write, c->efd, &one, sizeof one);
		return 0;
	}
	if (atomic_fetch_add_explicit(&c->unheard, 1, memory_order_relaxed) % UNHEARD_CHECK != UNHEARD_CHECK - 1)
		return 0;
	struct pollfd p = { .fd = c->sock };
	struct timespec now = { 0, 0 };
	return syscall(SYS_ppoll, &p, 1, &now, NULL, 0) == 1 && (p.revents & POLLHUP) ? -1 : 0;
}

/* At the latest each so many posts enter the engine, which then sends what has come together.
 * As many it would let wait by itself. */
#define MAY_WAIT 32

/* A post to a QP with sends under way need not leave at once if the program polls: it is
 * enough that the engine knows of it when it is entered next. Most of such a post's cost
 * would be to enter. */
static int may_wait(struct ctx *c, uint32_t qp)
{
	uint32_t i = qp % RVTSIM_GATE_WORDS;
	if (!c->bell || !qp || atomic_load_explicit(&c->bell[RVTSIM_GATE_FIRST + i], memory_order_relaxed) != qp ||
	    atomic_load_explicit(&c->bell[RVTSIM_BUSY_FIRST + i], memory_order_relaxed) != qp)
		return 0;
	if (atomic_fetch_add_explicit(&c->waited, 1, memory_order_relaxed) % MAY_WAIT == MAY_WAIT - 1)
		return 0;
	return shim_engine_ring();
}

/* ---- the calls ---- */

_Atomic unsigned shim_failures;

int shim_tells_sites(int fd)
{
	unsigned m = mark_of(fd);
	return m && !is_ours(m) && shim_ctx[m - 1].sites;
}

/* Runs a command on fd. *ours is 0 if fd is not a device after all. */
int shim_command(int fd, uint16_t op, uint64_t arg, const void *buf, size_t n, int *ours)
{
	sigset_t old;
	int r = -1;
	struct site site;
	site.n = 0;
	if (shim_tells_sites(fd))
		shim_site(&site); /* before the lock: it may have to load a library */
	shim_guard(&old);
	struct ctx *c = shim_lookup(fd);
	*ours = c != NULL;
	if (c)
		r = command(c, op, arg, buf, n, &site);
	else
		set_mark(fd, 0);
	shim_unguard(&old);
	if (r < 0)
		shim_failures++;
	return r;
}

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	unsigned m = mark_of(fd);
	if (m && !is_ours(m)) {
		/* No fstat here: what looks like a doorbell is one, and this is the path
		 * that must be quick. */
		struct ctx *c = &shim_ctx[m - 1];
		int ours;
		if (c->kind == RVTSIM_DEV_CM && shim_waits(buf, n) && shim_lookup(fd))
			return shim_get_event(fd, buf, n);
		if (c->kind == RVTSIM_DEV_UVERBS && is_doorbell(buf, n)) {
			uint32_t qp = ((const uint32_t *)buf)[4];
			if (c->home && may_wait(c, qp))
				return (ssize_t)n;
			int r = c->home ? shim_engine_doorbell(c->index, qp) : -1;
			if (r > 0 || (r < 0 && !ring(c, qp)))
				return (ssize_t)n;
		}
		int r = shim_command(fd, RVTSIM_WRITE, 0, buf, n, &ours);
		if (ours)
			return r ? -1 : (ssize_t)n;
	}
	return real_write ? real_write(fd, buf, n) : syscall(SYS_write, fd, buf, n);
}

EXPORT int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	va_start(ap, request);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	unsigned m = mark_of(fd);
	if (m && !is_ours(m) && request == RVTSIM_VERBS_IOCTL && arg) {
		int ours;
		if (no_ioctl) {
			errno = ENOTTY;
			return -1;
		}
		/* struct ib_uverbs_ioctl_hdr begins with the length of it all. */
		int r = shim_command(fd, RVTSIM_IOCTL, (uintptr_t)arg, arg, *(uint16_t *)arg, &ours);
		if (ours)
			return r;
	}
	return real_ioctl ? real_ioctl(fd, request, arg) : (int)syscall(SYS_ioctl, fd, request, arg);
}

/* A host may have the kernel's RDMA netlink; libibverbs would then never look at the
 * files. It falls back to them when the protocol does not exist. */
EXPORT int socket(int domain, int type, int protocol)
{
	if (shim_root[0] && domain == AF_NETLINK && protocol == 20 /* NETLINK_RDMA */) {
		errno = EPROTONOSUPPORT;
		return -1;
	}
	return real_socket ? real_socket(domain, type, protocol) : (int)syscall(SYS_socket, domain, type, protocol);
}
