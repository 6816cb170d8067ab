/* fork with traffic in parent and children, on contexts that they share; vfork and
 * posix_spawn whose child closes everything. */
#include "common.h"
#include <signal.h>
#include <spawn.h>

extern char **environ;

static int status_of(pid_t pid)
{
	int st;
	CHECK(waitpid(pid, &st, 0) == pid);
	return st;
}

static void shared_context(struct ibv_context *ctx)
{
	struct pair p, q;
	make_pair(&p, ctx, 0);
	message(&p, 1);
	pid_t pid[3];
	for (int i = 0; i < 3; i++) {
		CHECK((pid[i] = fork()) >= 0);
		if (pid[i] == 0) {
			/* Memory that the child registers is the child's. */
			for (int k = 0; k < 5; k++) {
				make_pair(&q, ctx, k & 1);
				for (int j = 0; j < 4; j++)
					message(&q, (unsigned char)(16 * i + j + 1));
				destroy_pair(&q);
				CHECK(answers(ctx->cmd_fd));
			}
			_exit(0);
		}
	}
	for (int k = 0; k < 40; k++) {
		message(&p, (unsigned char)(k + 1));
		CHECK(answers(ctx->cmd_fd));
	}
	for (int i = 0; i < 3; i++)
		CHECK(status_of(pid[i]) == 0);
	message(&p, 99);
	destroy_pair(&p);
}

/* A child of vfork runs in our memory: what it does to descriptors is its own business. */
static void borrowed_memory(struct ibv_context *ctx)
{
	struct pair p;
	make_pair(&p, ctx, 0);
	int null = open("/dev/null", O_RDWR);
	pid_t pid = vfork();
	CHECK(pid >= 0);
	if (pid == 0) {
		close(ctx->cmd_fd);
		dup2(null, ctx->cmd_fd);
		for (int fd = 3; fd < 1000; fd++)
			close(fd);
		close_range(3, ~0U, 0);
		execl("/bin/true", "true", (char *)NULL);
		_exit(9);
	}
	CHECK(status_of(pid) == 0);
	CHECK(answers(ctx->cmd_fd));
	message(&p, 7);

	char *argv[] = { "true", NULL };
	CHECK(!posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ));
	CHECK(status_of(pid) == 0);
	message(&p, 8);
	destroy_pair(&p);
	close(null);
}

/* Parent goes, child stays: the context lives as long as somebody has it. */
static void orphan(void)
{
	int out[2];
	char c = 0;
	CHECK(!pipe(out));
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		struct ibv_context *ctx = open_rvt0();
		pid_t grandchild = fork();
		CHECK(grandchild >= 0);
		if (grandchild > 0)
			_exit(0);
		while (getppid() != 1 && kill(getppid(), 0) == 0 && c++ < 100)
			usleep(1000);
		struct pair p;
		make_pair(&p, ctx, 1);
		message(&p, 5);
		destroy_pair(&p);
		CHECK(write(out[1], "k", 1) == 1);
		_exit(0);
	}
	CHECK(status_of(pid) == 0);
	close(out[1]);
	CHECK(read(out[0], &c, 1) == 1 && c == 'k');
	close(out[0]);
}

int main(void)
{
	struct ibv_context *ctx = open_rvt0();
	shared_context(ctx);
	borrowed_memory(ctx);
	CHECK(!ibv_close_device(ctx));
	orphan();
	return 0;
}
