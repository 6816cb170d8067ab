/* The device of the connection manager: waiting for events. See shim.h. */
#include "shim.h"

#include <errno.h>
#include <pthread.h>

#define CMD_GET_EVENT 12 /* RDMA_USER_CM_CMD_GET_EVENT */
#define EVENT_MIN_BYTES 324

struct header { /* struct rdma_ucm_cmd_hdr */
	uint32_t cmd;
	uint16_t in, out;
};

/* Is it a GET_EVENT that is going to wait? One that makes no sense is refused at once. */
int shim_waits(const void *buf, size_t n)
{
	struct header h;
	if (n < sizeof h + sizeof(uint64_t))
		return 0;
	memcpy(&h, buf, sizeof h);
	return h.cmd == CMD_GET_EVENT && h.in + sizeof h <= n && h.out >= EVENT_MIN_BYTES;
}

/* Another descriptor of the same file: a call under way goes on with its file when
 * another thread closes the descriptor that it was made with. */
static int hold(int fd)
{
	sigset_t old;
	int own = -1;
	shim_guard(&old);
	struct ctx *c = shim_lookup(fd);
	if (c)
		own = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 3);
	else
		errno = EBADF;
	if (own >= MAX_FD) {
		syscall(SYS_close, own);
		own = -1;
		errno = EMFILE;
	}
	if (own >= 0)
		set_mark(own, (unsigned)(c - shim_ctx) + 1);
	shim_unguard(&old);
	return own;
}

static void let_go(void *fd)
{
	int saved = errno;
	close(*(int *)fd);
	errno = saved;
}

/* The descriptor is a pipe that holds a byte while events wait. Whoever takes the byte
 * asks for the event, and the daemon puts the byte back if there are more. So whether
 * the call blocks, fails with EAGAIN, or is interrupted by a signal or restarted, is what
 * the kernel makes of a read of this descriptor; and like the write that it stands for, a
 * read is where threads can be cancelled. */
ssize_t shim_get_event(int fd, const void *buf, size_t n)
{
	ssize_t r = -1;
	int own = hold(fd);
	if (own < 0)
		return -1;
	pthread_cleanup_push(let_go, &own);
	do {
		char token;
		int ours;
		r = read(own, &token, 1);
		if (r == 1)
			r = shim_command(own, RVTSIM_WRITE, 0, buf, n, &ours) ? -2 : (ssize_t)n;
		else if (!r) {
			errno = EIO; /* the daemon is gone */
			r = -1;
		}
		/* Somebody else may have got the event that the byte stood for. */
	} while (r == -2 && errno == EAGAIN);
	pthread_cleanup_pop(1);
	return r < 0 ? -1 : r;
}
