/* Descriptors that are copied, moved and closed. See shim.h. */
#include "shim.h"

#include <errno.h>
#include <stdarg.h>

#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

/* The functions that ours stand in front of. Other preload libraries have some of them,
 * librspreload of librdmacm for one, and must be asked about descriptors that are not
 * devices. Before init, in constructors, the kernel is. */
static struct {
	int (*close)(int);
	int (*dup)(int);
	int (*dup2)(int, int);
	int (*dup3)(int, int, int);
	int (*fcntl)(int, int, ...);
	int (*fcntl64)(int, int, ...);
} next;

void shim_files_init(void)
{
	next.close = (int (*)(int))shim_next("close");
	next.dup = (int (*)(int))shim_next("dup");
	next.dup2 = (int (*)(int, int))shim_next("dup2");
	next.dup3 = (int (*)(int, int, int))shim_next("dup3");
	next.fcntl = (int (*)(int, int, ...))shim_next("fcntl");
	next.fcntl64 = (int (*)(int, int, ...))shim_next("fcntl64");
}

EXPORT int close(int fd)
{
	unsigned m = mark_of(fd);
	if (!m || shim_borrowed())
		return next.close ? next.close(fd) : (int)syscall(SYS_close, fd);
	/* Programs that close every number they can think of mean none of ours; exec
	 * closes those. */
	if (is_ours(m))
		return 0;
	sigset_t old;
	shim_guard(&old);
	int r = (int)syscall(SYS_close, fd);
	m = mark_of(fd);
	set_mark(fd, 0);
	if (m && !is_ours(m))
		shim_release(&shim_ctx[m - 1]);
	shim_unguard(&old);
	return r;
}

/* Descriptor to now is what from is. */
static void follow(int from, int to)
{
	if ((!mark_of(from) && !mark_of(to)) || shim_borrowed())
		return;
	sigset_t old;
	shim_guard(&old);
	unsigned was = mark_of(to);
	struct ctx *c = shim_lookup(from);
	set_mark(to, c ? (unsigned)(c - shim_ctx) + 1 : 0);
	if (was && !is_ours(was) && was != mark_of(to))
		shim_release(&shim_ctx[was - 1]);
	shim_unguard(&old);
}

/* Before another file is put on number to. */
static void make_room(int to)
{
	if (mark_of(to) != HIDDEN || shim_borrowed())
		return;
	sigset_t old;
	shim_guard(&old);
	if (mark_of(to) == HIDDEN)
		shim_evade(to);
	shim_unguard(&old);
}

EXPORT int dup(int fd)
{
	int r = next.dup ? next.dup(fd) : (int)syscall(SYS_dup, fd);
	if (r >= 0)
		follow(fd, r);
	return r;
}

/* Whether a file can be put on number to. */
static int may_replace(int to)
{
	if (mark_of(to) == ENGINE && !shim_borrowed()) {
		errno = EBUSY; /* as if somebody were just opening a file there */
		return 0;
	}
	make_room(to);
	return 1;
}

EXPORT int dup3(int from, int to, int flags)
{
	if (!may_replace(to))
		return -1;
	int r = next.dup3 ? next.dup3(from, to, flags) : (int)syscall(SYS_dup3, from, to, flags);
	if (r >= 0)
		follow(from, r);
	return r;
}

EXPORT int dup2(int from, int to)
{
	if (from == to)
		return next.dup2 ? next.dup2(from, to) : syscall(SYS_fcntl, from, F_GETFD) < 0 ? -1 : to;
	if (!may_replace(to))
		return -1;
	int r = next.dup2 ? next.dup2(from, to) : (int)syscall(SYS_dup3, from, to, 0);
	if (r >= 0)
		follow(from, r);
	return r;
}

static int fcntl_common(int (*real)(int, int, ...), int fd, int cmd, void *arg)
{
	int r = real ? real(fd, cmd, arg) : (int)syscall(SYS_fcntl, fd, cmd, arg);
	if (r >= 0 && (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC))
		follow(fd, r);
	return r;
}

EXPORT int fcntl(int fd, int cmd, ...)
{
	va_list ap;
	va_start(ap, cmd);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	return fcntl_common(next.fcntl, fd, cmd, arg);
}

EXPORT int fcntl64(int fd, int cmd, ...)
{
	va_list ap;
	va_start(ap, cmd);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	return fcntl_common(next.fcntl64, fd, cmd, arg);
}

/* Closes first to last but leaves the hidden descriptors of devices that stay open. */
static int close_around(unsigned first, unsigned last, int flags)
{
	unsigned from = first;
	for (unsigned fd = first; fd <= last && fd < MAX_FD; fd++) {
		if (!is_ours(mark_of((int)fd)))
			continue;
		if (fd > from && syscall(SYS_close_range, from, fd - 1, flags))
			return -1;
		from = fd + 1;
	}
	return from <= last ? (int)syscall(SYS_close_range, from, last, flags) : 0;
}

static void forget_range(unsigned first, unsigned last)
{
	for (unsigned fd = first; fd <= last && fd < MAX_FD; fd++)
		if (!is_ours(mark_of((int)fd)))
			set_mark((int)fd, 0);
	for (int i = 0; i < MAX_CTX; i++)
		shim_release(&shim_ctx[i]);
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	if (!shim_root[0] || first > last || shim_borrowed())
		return (int)syscall(SYS_close_range, first, last, flags);
	sigset_t old;
	shim_guard(&old);
	int r = close_around(first, last, flags);
	if (!r && !(flags & (int)CLOSE_RANGE_CLOEXEC))
		forget_range(first, last);
	shim_unguard(&old);
	return r;
}

EXPORT void closefrom(int first)
{
	if (first < 0)
		first = 0;
	if (!close_range((unsigned)first, ~0U, 0) || errno != ENOSYS)
		return;
	for (int fd = first; fd < MAX_FD; fd++) /* before Linux 5.9 */
		close(fd);
}
