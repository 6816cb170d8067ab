/* What a program that nothing can be preloaded into does with a device. The first
 * argument says which part. */
#include "seccomp_verbs.h"
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>

static const char *self;

static void loopback(void)
{
	struct verbs v = open_verbs(O_CLOEXEC);
	struct pair p = make_pair(&v);
	for (int i = 1; i <= 20; i++)
		message(&p, (unsigned char)i);
}

static void is_device(const struct stat *st)
{
	CHECK(S_ISCHR(st->st_mode) && st->st_rdev == makedev(231, 192) && st->st_size == 0);
}

static void paths(void)
{
	struct stat st;
	struct statx stx;
	char b[4096];
	int found = 0, fd;
	CHECK(!syscall(SYS_newfstatat, AT_FDCWD, DEV, &st, 0));
	is_device(&st);
	CHECK(!stat("/dev//infiniband/./uverbs0", &st));
	is_device(&st);
	CHECK(!lstat("/sys/../dev/infiniband/uverbs0", &st));
	is_device(&st);
	CHECK(!statx(AT_FDCWD, DEV, 0, STATX_ALL, &stx) && S_ISCHR(stx.stx_mode) && stx.stx_rdev_major == 231 && stx.stx_rdev_minor == 192);
#ifdef SYS_open
	fd = (int)syscall(SYS_open, CLASS "/rvt0/node_type", O_RDONLY);
	CHECK(fd >= 0 && read(fd, b, sizeof b) == 6 && !memcmp(b, "1: CA\n", 6) && !close(fd));
	CHECK(!syscall(SYS_stat, DEV, &st));
	is_device(&st);
	CHECK(!syscall(SYS_access, CLASS "/rvt0/node_type", R_OK) && syscall(SYS_access, CLASS "/rvt0/node_type", W_OK) == -1 && errno == EACCES);
	CHECK(syscall(SYS_readlink, CLASS "_verbs/uverbs0/device", b, sizeof b) > 0);
#endif
	DIR *d = opendir(CLASS);
	CHECK(d);
	for (struct dirent *e; (e = readdir(d));)
		found += !strcmp(e->d_name, "rvt0");
	CHECK(found == 1);
	fd = openat(dirfd(d), "rvt0/ports/1/state", O_RDONLY);
	CHECK(fd >= 0 && read(fd, b, sizeof b) == 10 && !close(fd) && !closedir(d));
	d = opendir("/dev/infiniband");
	CHECK(d);
	fd = openat(dirfd(d), "uverbs0", O_RDWR);
	CHECK(fd >= 0 && !fstat(fd, &st));
	is_device(&st);
	CHECK(!close(fd) && !fstatat(dirfd(d), "uverbs0", &st, 0));
	is_device(&st);
	CHECK(!closedir(d));
	struct { uint64_t flags, mode, resolve; } how = { O_RDWR | O_CLOEXEC, 0, 0 };
	fd = (int)syscall(437 /* openat2 */, AT_FDCWD, DEV, &how, sizeof how);
	CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC) && !close(fd));
	CHECK(readlink(CLASS "/rvt0/node_type", b, sizeof b) == -1 && errno == EINVAL);
	CHECK(!access(DEV, R_OK | W_OK) && access(DEV, X_OK) == -1 && errno == EACCES && !access(CLASS "/rvt0", R_OK | X_OK));
	CHECK(access(CLASS "/rvt1", F_OK) == -1 && errno == ENOENT && open("/dev/infiniband/uverbs1", O_RDWR) == -1 && errno == ENOENT);
	CHECK(open("/dev/infiniband/uverbs00", O_RDWR) == -1 && errno == ENOENT && open(CLASS "/rvt0/new", O_CREAT | O_RDWR, 0600) == -1 && errno == EACCES);
	CHECK(open(CLASS "/rvt0/node_type", O_RDWR) == -1 && errno == EACCES && open(CLASS, O_RDWR) == -1 && errno == EISDIR);
	CHECK(open(DEV, O_RDONLY | O_DIRECTORY) == -1 && errno == ENOTDIR);
	CHECK(getxattr(CLASS "/rvt0", "user.none", b, sizeof b) == -1 && errno == EOPNOTSUPP);
	CHECK(socket(AF_NETLINK, SOCK_RAW, 20) == -1 && errno == EPROTONOSUPPORT);
	fd = socket(AF_NETLINK, SOCK_RAW, 0);
	CHECK(fd >= 0 && !close(fd));
	CHECK(!stat("/etc/passwd", &st) && S_ISREG(st.st_mode) && stat("/nonexistent/infiniband", &st) == -1 && errno == ENOENT);
	CHECK(syscall(SYS_openat, AT_FDCWD, (char *)8, O_RDONLY) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_newfstatat, AT_FDCWD, DEV, (char *)8, 0) == -1 && errno == EFAULT);
	char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(pages != MAP_FAILED && !munmap(pages + 4096, 4096));
	char *end = strcpy(pages + 4096 - sizeof DEV, DEV); /* a path up to the last byte that there is */
	CHECK(!stat(end, &st));
	is_device(&st);
	memset(pages, '/', 4096); /* and one without an end */
	CHECK(stat(pages + 4000, &st) == -1 && errno == EFAULT);
}

static void descriptors(void)
{
	struct stat st;
	struct statx stx;
	struct verbs v = open_verbs(O_CLOEXEC);
	struct pair p = make_pair(&v);
	CHECK(!fstat(v.fd, &st));
	is_device(&st);
	CHECK(!statx(v.fd, "", AT_EMPTY_PATH, STATX_ALL, &stx) && S_ISCHR(stx.stx_mode) && stx.stx_rdev_major == 231);
	CHECK(fcntl(v.fd, F_GETFD) & FD_CLOEXEC);
	int d = dup(v.fd), e = fcntl(v.fd, F_DUPFD_CLOEXEC, v.fd - 30);
	CHECK(d >= 0 && e >= v.fd - 30 && d != e && !(fcntl(d, F_GETFD) & FD_CLOEXEC) && (fcntl(e, F_GETFD) & FD_CLOEXEC));
	CHECK(answers(d) && answers(e) && !fstat(d, &st));
	is_device(&st);
	CHECK(fcntl(v.fd, F_DUPFD, 100000) == -1 && errno == EINVAL);
	CHECK(dup2(v.fd, 50) == -1 && errno == EBADF && dup2(v.fd, v.fd) == v.fd && dup3(v.fd, v.fd, 0) == -1 && errno == EINVAL);
	CHECK(dup2(v.fd, d) == d && answers(d) && dup3(v.fd, e, O_CLOEXEC) == e && answers(e));
	/* A file on a number that was a device is a file. */
	int f = open("/dev/null", O_RDWR);
	CHECK(dup2(f, e) == e && write(e, "x", 1) == 1 && !fstat(e, &st) && st.st_rdev == makedev(1, 3));
	CHECK(!close(e) && !close(f));
	/* The last copy keeps the device open; its mappings do, too. */
	CHECK(!close(v.fd) && answers(d));
	v.fd = d;
	message(&p, 1);
	struct ib_uverbs_cmd_hdr nonsense = { 2, 1, 1 };
	CHECK(syscall(SYS_write, v.fd, &nonsense, sizeof nonsense) == -1 && errno == EINVAL);
	CHECK(syscall(SYS_write, v.fd, NULL, 64) == -1 && errno == EFAULT);
	CHECK(syscall(SYS_write, v.fd, &nonsense, 1 << 20) == -1 && errno == EINVAL);
	CHECK(syscall(SYS_write, v.fd, &nonsense, 0) == -1 && errno == EINVAL);
	CHECK(pwrite(v.fd, &nonsense, sizeof nonsense, 0) == -1 && errno == ESPIPE);
	/* writev is one command after the other. */
	struct { struct ib_uverbs_cmd_hdr hdr; struct ib_uverbs_query_port q; } q[2];
	struct ib_uverbs_query_port_resp r[2] = { 0 };
	struct iovec iov[3] = { { &q[0], sizeof q[0] }, { &q[1], sizeof q[1] }, { &nonsense, sizeof nonsense } };
	for (int i = 0; i < 2; i++) {
		q[i].hdr = (struct ib_uverbs_cmd_hdr){ IB_USER_VERBS_CMD_QUERY_PORT, sizeof q[i] / 4, sizeof r[i] / 4 };
		q[i].q = (struct ib_uverbs_query_port){ .response = (uintptr_t)&r[i], .port_num = 1 };
	}
	CHECK(writev(v.fd, iov, 3) == 2 * sizeof q[0] && r[0].state == 4 && r[1].state == 4);
	/* An answer that cannot be stored. */
	q[0].q.response = 8;
	CHECK(write(v.fd, &q[0], sizeof q[0]) == -1 && errno == EFAULT);
	/* More than there are numbers for, and all of it given back. */
	int n = 0, fds[200];
	while (n < 200 && (fds[n] = open(DEV, O_RDWR)) >= 0)
		n++;
	CHECK(errno == EMFILE && n > 20 && n < 200);
	while (n)
		CHECK(!close(fds[--n]));
	CHECK((f = open(DEV, O_RDWR)) >= 0 && !close(f));
	message(&p, 2);
}

/* A copy of the descriptor that the filter does not see, made over a socket: its commands
 * fail, and the rings stay as they are. */
static void escaped(void)
{
	struct verbs v = open_verbs(O_CLOEXEC);
	struct pair p = make_pair(&v);
	int sv[2], low;
	CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sv));
	char c = 0, ctl[CMSG_SPACE(sizeof(int))] = { 0 };
	struct iovec iov = { &c, 1 };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = ctl, .msg_controllen = sizeof ctl };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);
	*h = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int)) };
	memcpy(CMSG_DATA(h), &v.fd, sizeof v.fd);
	CHECK(sendmsg(sv[0], &m, 0) == 1 && recvmsg(sv[1], &m, 0) == 1);
	memcpy(&low, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof low);
	CHECK(low >= 0 && low != v.fd && !answers(low));
	message(&p, 3);
	CHECK(!close(low));
	message(&p, 4);
}

static int status_of(pid_t pid)
{
	int st;
	CHECK(pid > 0 && waitpid(pid, &st, 0) == pid);
	return WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st);
}

static void forks(void)
{
	struct verbs v = open_verbs(0);
	struct pair p = make_pair(&v);
	/* A child of fork has memory of its own, and shares the device. */
	pid_t pid = fork();
	if (!pid) {
		struct verbs w = v;
		CHECK(answers(w.fd) && !alloc_pd(w.fd, &w.pd));
		struct pair q = make_pair(&w);
		for (int i = 0; i < 10; i++)
			message(&q, (unsigned char)(100 + i));
		_exit(17);
	}
	for (int i = 0; i < 10; i++)
		message(&p, (unsigned char)i);
	CHECK(status_of(pid) == 17);
	/* A child of vfork has its parent's memory until it becomes another program, which
	 * has its own, under the same number. */
	char number[16];
	snprintf(number, sizeof number, "%d", v.fd);
	for (int i = 0; i < 3; i++) {
		pid = vfork();
		if (!pid) {
			if (!answers(v.fd))
				_exit(1);
			execl(self, self, "inherited", number, (char *)NULL);
			_exit(2);
		}
		CHECK(status_of(pid) == 18);
		message(&p, (unsigned char)(50 + i));
	}
	/* Exec in the process that has used it. */
	pid = fork();
	if (!pid) {
		CHECK(answers(v.fd));
		execl(self, self, "inherited", number, (char *)NULL);
		_exit(2);
	}
	CHECK(status_of(pid) == 18);
	/* Children that end without a word do not end it for others, nor does a failing exec. */
	for (int i = 0; i < 5; i++) {
		pid = fork();
		if (!pid) {
			CHECK(answers(v.fd));
			kill(getpid(), SIGKILL);
		}
		CHECK(status_of(pid) == 128 + SIGKILL);
	}
	CHECK(execl("/nonexistent", "x", (char *)NULL) == -1);
	message(&p, 99);
}

static void inherited(const char *number)
{
	struct verbs v = { .fd = atoi(number) };
	struct stat st;
	CHECK(!fstat(v.fd, &st));
	is_device(&st);
	CHECK(answers(v.fd) && !alloc_pd(v.fd, &v.pd));
	struct pair p = make_pair(&v);
	message(&p, 7);
	_exit(18);
}

static void *ask(void *arg)
{
	for (int i = 0; i < 200; i++)
		CHECK(answers(*(int *)arg));
	return NULL;
}

static void *opens(void *arg)
{
	(void)arg;
	for (int i = 0; i < 20; i++) {
		struct verbs v = open_verbs(O_CLOEXEC);
		CHECK(answers(v.fd) && !close(v.async_fd) && !close(v.fd));
	}
	return NULL;
}

static void threads(void)
{
	struct verbs v = open_verbs(O_CLOEXEC);
	struct pair p = make_pair(&v);
	pthread_t t[6];
	for (int i = 0; i < 6; i++)
		CHECK(!pthread_create(&t[i], NULL, i < 4 ? ask : opens, &v.fd));
	for (int i = 0; i < 20; i++)
		message(&p, (unsigned char)i);
	for (int i = 0; i < 6; i++)
		CHECK(!pthread_join(t[i], NULL));
}

static volatile sig_atomic_t alarms;
static void on_alarm(int s) { (void)s; alarms++; }

/* A storm of signals: each command is carried out exactly once, as the handles show,
 * which count up. */
static void signals(void)
{
	struct verbs v = open_verbs(O_CLOEXEC);
	for (int restart = 0; restart < 2; restart++) {
		struct sigaction sa = { .sa_handler = on_alarm, .sa_flags = restart ? SA_RESTART : 0 };
		struct itimerval it = { { 0, 200 }, { 0, 200 } }, off = { 0 };
		uint32_t first, last = 0;
		int done = 0, interrupted = 0;
		CHECK(!alloc_pd(v.fd, &first) && !sigaction(SIGALRM, &sa, NULL) && !setitimer(ITIMER_REAL, &it, NULL));
		while (done < 2000) {
			int r = alloc_pd(v.fd, &last);
			CHECK(r == 0 || (r == -EINTR && !restart));
			done += !r;
			interrupted += r != 0;
		}
		CHECK(!setitimer(ITIMER_REAL, &off, NULL));
		CHECK(last == first + (uint32_t)done);
		printf("restart %d: %d done, %d interrupted, %d signals\n", restart, done, interrupted, (int)alarms);
		CHECK(alarms > 10);
	}
}

/* Stays until it is killed, with children that use the device too, or wait for it. */
static void victim(void)
{
	struct verbs v = open_verbs(0);
	struct pair p = make_pair(&v);
	for (int i = 0; i < 2; i++) {
		pid_t pid = fork();
		CHECK(pid >= 0);
		if (!pid) {
			char c;
			CHECK(answers(v.fd));
			if (i) {
				CHECK(read(v.async_fd, &c, 1) <= 0); /* until the device goes */
				pause();
			}
			while (answers(v.fd))
				;
			pause();
		}
	}
	message(&p, 1);
	puts("ready");
	fflush(stdout);
	while (answers(v.fd))
		usleep(1000);
	puts("gone");
	fflush(stdout);
	pause();
}

/* Opens many files, while somebody disturbs the supervisor. */
static void reopen(void)
{
	char b[16];
	puts("ready");
	fflush(stdout);
	for (int i = 0; i < 1000; i++) {
		int fd = open(CLASS "/rvt0/node_type", O_RDONLY);
		CHECK(fd > 2 && read(fd, b, sizeof b) == 6 && !close(fd));
	}
	for (int i = 0; i < 30; i++) {
		struct stat st;
		int fd = open(DEV, O_RDWR);
		CHECK(fd > 2 && !fstat(fd, &st));
		is_device(&st);
		CHECK(!close(fd));
	}
}

/* A limit below the numbers that devices get is raised as far as it takes. */
static void limit(void)
{
	struct rlimit r;
	CHECK(!getrlimit(RLIMIT_NOFILE, &r));
	r.rlim_cur = 100;
	CHECK(!setrlimit(RLIMIT_NOFILE, &r));
	struct verbs v = open_verbs(O_CLOEXEC);
	CHECK(answers(v.fd));
	CHECK(!getrlimit(RLIMIT_NOFILE, &r) && r.rlim_cur > (rlim_t)v.fd);
}

static double now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* The best of five loops, in microseconds. */
#define COST(name, n, expr)                                                       \
	do {                                                                      \
		double best = 1e9;                                                \
		for (int k = 0; k < 5; k++) {                                     \
			double t0 = now_us();                                     \
			for (int i = 0; i < (n); i++)                             \
				CHECK(expr);                                      \
			double us = (now_us() - t0) / (n);                        \
			best = us < best ? us : best;                             \
		}                                                                 \
		printf("cost %-28s %9.2f us\n", name, best);                      \
	} while (0)

static void cost(const char *device)
{
	int null = open("/dev/null", O_RDWR), f;
	struct stat st;
	CHECK(null >= 0);
	COST("getppid", 2000, syscall(SYS_getppid) >= 0);
	COST("write to a file", 2000, write(null, "x", 1) == 1);
	COST("fstat of a file", 2000, !fstat(null, &st));
	COST("stat of a file", 500, !stat("/dev/null", &st));
	COST("open and close of a file", 500, (f = open("/dev/null", O_RDONLY)) >= 0 && !close(f));
	if (!device)
		return;
	struct verbs v = open_verbs(O_CLOEXEC);
	struct pair p = make_pair(&v);
	COST("stat of the device", 500, !stat(DEV, &st));
	COST("fstat of the device", 500, !fstat(v.fd, &st));
	COST("open and close of the device", 100, (f = open(DEV, O_RDWR)) >= 0 && !close(f));
	COST("command (query_port)", 500, answers(v.fd));
	COST("doorbell", 500, (doorbell(&v, &p.a), 1));
	COST("message, both completions", 200, (message(&p, 1), 1));
}

int main(int argc, char **argv)
{
	self = argv[0];
	const char *part = argc > 1 ? argv[1] : "", *arg = argc > 2 ? argv[2] : NULL;
	static const struct { const char *name; void (*run)(void); } parts[] = {
		{ "loopback", loopback }, { "paths", paths }, { "descriptors", descriptors }, { "escaped", escaped },
		{ "forks", forks }, { "threads", threads }, { "signals", signals }, { "victim", victim }, { "limit", limit }, { "reopen", reopen },
	};
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		if (!strcmp(part, parts[i].name)) {
			parts[i].run();
			return 0;
		}
	if (!strcmp(part, "inherited") && arg)
		inherited(arg);
	if (!strcmp(part, "cost")) {
		cost(arg);
		return 0;
	}
	fprintf(stderr, "usage: %s PART\n", self);
	return 2;
}
