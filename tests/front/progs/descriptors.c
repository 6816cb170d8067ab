/* The command descriptor copied, moved and closed in every way; numbers that are used
 * again for other files; programs that close everything they can think of. */
#include "common.h"
#include <dirent.h>

static int is_device(int fd)
{
	struct stat st;
	return !fstat(fd, &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(231, 192);
}

static void copies(struct ibv_context *ctx)
{
	int cmd = ctx->cmd_fd, other = open("/dev/null", O_RDWR);
	CHECK(is_device(cmd) && answers(cmd) && !is_device(other));
	int d = dup(cmd);
	CHECK(d >= 0 && is_device(d) && answers(d));
	CHECK(dup2(d, other) == other && is_device(other) && answers(other));
	CHECK(dup3(cmd, other, O_CLOEXEC) == other && answers(other));
	CHECK(dup2(cmd, cmd) == cmd && answers(cmd));
	int e = fcntl(cmd, F_DUPFD, 100), f = fcntl(cmd, F_DUPFD_CLOEXEC, 100);
	CHECK(e >= 100 && answers(e) && f > e && answers(f));
	CHECK(!close(d) && !close(e) && !close(f) && !close(other));
	CHECK(answers(cmd));
	CHECK(!answers(d) && errno == EBADF);
	errno = 0;
	CHECK(dup2(-1, cmd) == -1 && answers(cmd)); /* a dup2 that fails changes nothing */
}

/* Descriptor fd is a file now: what is written to it must arrive there. */
static void is_file(int fd)
{
	char text[32] = "thirty-two bytes into a file...";
	struct stat st;
	CHECK(!is_device(fd));
	CHECK(write(fd, text, sizeof text) == sizeof text);
	CHECK(!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size == sizeof text);
}

static void recycled(struct ibv_context *ctx)
{
	char name[] = "/tmp/rvtsim-test-XXXXXX";
	int d = dup(ctx->cmd_fd);
	CHECK(!close(d));
	int f = mkstemp(name);
	CHECK(f == d && !unlink(name));
	is_file(f);
	CHECK(!ftruncate(f, 0) && !lseek(f, 0, SEEK_SET));

	/* Behind the library's back. */
	CHECK(dup2(ctx->cmd_fd, d) == d && answers(d));
	strcpy(name, "/tmp/rvtsim-test-XXXXXX");
	f = mkstemp(name);
	CHECK(f >= 0 && !unlink(name));
	CHECK(syscall(SYS_dup3, f, d, 0) == d);
	is_file(d);
	CHECK(!close(d) && !close(f));
	CHECK(answers(ctx->cmd_fd));
}

static void closes_everything(struct ibv_context *ctx)
{
	int keep = ctx->cmd_fd;
	for (int fd = 3; fd < 2000; fd++)
		if (fd != keep && fd != ctx->async_fd)
			close(fd);
	CHECK(answers(keep));
	CHECK(!close_range(keep + 1 + (ctx->async_fd == keep + 1), ~0U, 0));
	CHECK(answers(keep));
	CHECK(!close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) && answers(keep));
}

/* Files put on top of the hidden descriptors. */
static void overwritten(struct ibv_context *ctx)
{
	int null = open("/dev/null", O_RDWR), n = 0;
	for (int fd = 3; fd < 2000; fd++) {
		struct stat st;
		if (fd == ctx->cmd_fd || fd == ctx->async_fd || fd == null || syscall(SYS_fcntl, fd, F_GETFD) < 0)
			continue;
		CHECK(dup2(null, fd) == fd);
		CHECK(!fstat(fd, &st) && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3));
		CHECK(answers(ctx->cmd_fd));
		CHECK(!close(fd));
		if (++n == 2) /* the socket and the eventfd, which move on when trodden upon */
			break;
	}
	CHECK(n == 2);
	CHECK(answers(ctx->cmd_fd));
}

int main(void)
{
	struct ibv_context *ctx = open_rvt0();
	struct pair p;
	copies(ctx);
	recycled(ctx);
	make_pair(&p, ctx, 0);
	message(&p, 1);
	closes_everything(ctx);
	message(&p, 2);
	overwritten(ctx);
	message(&p, 3);
	destroy_pair(&p);
	int d = dup(ctx->cmd_fd);
	CHECK(!ibv_close_device(ctx));
	CHECK(answers(d)); /* the last copy keeps the device open */
	CHECK(!close(d));
	ctx = open_rvt0(); /* and another one may be opened */
	make_pair(&p, ctx, 0);
	message(&p, 4);
	destroy_pair(&p);
	CHECK(!ibv_close_device(ctx));
	return 0;
}
