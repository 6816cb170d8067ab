/* Paths into the node's view, and stat in all its forms. See shim.h. */
#include "shim.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static int begins(const char *s, const char *prefix)
{
	return !strncmp(s, prefix, strlen(prefix));
}

/* Where the program really is to look for path. buf holds the answer if it differs. */
const char *shim_view(const char *path, char buf[PATH_MAX])
{
	if (!shim_root[0] || !path || path[0] != '/')
		return path;
	if (!begins(path, "/sys/class/infiniband") && !begins(path, "/sys/class/misc/rdma_cm") &&
	    strcmp(path, "/dev/infiniband") && !begins(path, "/dev/infiniband/"))
		return path;
	if (strlen(shim_root) + strlen(path) >= PATH_MAX)
		return path;
	strcpy(buf, shim_root);
	strcat(buf, path);
	return buf;
}

/* The device that a path names: kind and number, or 0. */
static uint32_t device_of(const char *path, unsigned *index)
{
	static const char uverbs[] = "/dev/infiniband/uverbs";
	*index = 0;
	if (!shim_root[0] || !path || path[0] != '/')
		return 0;
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

/* ---- open ---- */

static int open_common(int dirfd, const char *path, int flags, mode_t mode)
{
	char buf[PATH_MAX];
	unsigned index;
	uint32_t kind = device_of(path, &index);
	const char *p = shim_view(path, buf);
	if (!kind)
		return (int)syscall(SYS_openat, dirfd, p, flags, mode);
	if (syscall(SYS_faccessat, AT_FDCWD, p, F_OK))
		return -1; /* ENOENT: the node has no such device */
	return shim_open(kind, index, flags);
}

#define MODE_ARG(flags)                                                   \
	mode_t mode = 0;                                                  \
	if (((flags) & O_CREAT) || ((flags) & O_TMPFILE) == O_TMPFILE) {  \
		va_list ap;                                               \
		va_start(ap, flags);                                      \
		mode = va_arg(ap, mode_t);                                \
		va_end(ap);                                               \
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

/* What open becomes when a program is compiled with _FORTIFY_SOURCE. */
EXPORT int __open_2(const char *path, int flags) { return open_common(AT_FDCWD, path, flags, 0); }
EXPORT int __open64_2(const char *path, int flags) { return open_common(AT_FDCWD, path, flags, 0); }
EXPORT int __openat_2(int d, const char *path, int flags) { return open_common(d, path, flags, 0); }
EXPORT int __openat64_2(int d, const char *path, int flags) { return open_common(d, path, flags, 0); }

/* Calls the C library's function of that name, looked up once, with what the view makes
 * of path. Two threads that look it up at the same time find the same. */
#define PASS(type, name, symbol, params, args)                            \
	EXPORT type name params                                           \
	{                                                                 \
		static type (*_Atomic real) params;                       \
		char buf[PATH_MAX];                                       \
		if (!real)                                                \
			real = (type (*) params)shim_next(symbol);        \
		return real args;                                         \
	}

typedef int (*select_fn)(const struct dirent *);
typedef int (*compare_fn)(const struct dirent **, const struct dirent **);
typedef int (*select64_fn)(const struct dirent64 *);
typedef int (*compare64_fn)(const struct dirent64 **, const struct dirent64 **);

PASS(FILE *, fopen, "fopen64", (const char *path, const char *mode), (shim_view(path, buf), mode))
PASS(FILE *, fopen64, "fopen64", (const char *path, const char *mode), (shim_view(path, buf), mode))
PASS(FILE *, freopen, "freopen64", (const char *path, const char *mode, FILE *f), (shim_view(path, buf), mode, f))
PASS(FILE *, freopen64, "freopen64", (const char *path, const char *mode, FILE *f), (shim_view(path, buf), mode, f))
PASS(DIR *, opendir, "opendir", (const char *path), (shim_view(path, buf)))
PASS(int, scandir, "scandir", (const char *path, struct dirent ***list, select_fn sel, compare_fn cmp),
     (shim_view(path, buf), list, sel, cmp))
PASS(int, scandir64, "scandir64", (const char *path, struct dirent64 ***list, select64_fn sel, compare64_fn cmp),
     (shim_view(path, buf), list, sel, cmp))
PASS(int, scandirat, "scandirat", (int d, const char *path, struct dirent ***list, select_fn sel, compare_fn cmp),
     (d, shim_view(path, buf), list, sel, cmp))
PASS(int, scandirat64, "scandirat64",
     (int d, const char *path, struct dirent64 ***list, select64_fn sel, compare64_fn cmp),
     (d, shim_view(path, buf), list, sel, cmp))
PASS(char *, realpath, "realpath", (const char *path, char *out), (shim_view(path, buf), out))
PASS(char *, __realpath_chk, "__realpath_chk", (const char *path, char *out, size_t n), (shim_view(path, buf), out, n))
PASS(char *, canonicalize_file_name, "canonicalize_file_name", (const char *path), (shim_view(path, buf)))

EXPORT int chdir(const char *path)
{
	char buf[PATH_MAX];
	return (int)syscall(SYS_chdir, shim_view(path, buf));
}

EXPORT ssize_t readlinkat(int d, const char *path, char *out, size_t n)
{
	char buf[PATH_MAX];
	return syscall(SYS_readlinkat, d, shim_view(path, buf), out, n);
}

EXPORT ssize_t readlink(const char *path, char *out, size_t n) { return readlinkat(AT_FDCWD, path, out, n); }
EXPORT ssize_t __readlink_chk(const char *path, char *out, size_t n, size_t room)
{
	return readlink(path, out, n < room ? n : room);
}

/* ---- access ---- */

EXPORT int faccessat(int d, const char *path, int mode, int flags)
{
	static int (*_Atomic real)(int, const char *, int, int);
	char buf[PATH_MAX];
	if (!real)
		real = (int (*)(int, const char *, int, int))shim_next("faccessat");
	return real(d, shim_view(path, buf), mode, flags);
}

EXPORT int access(const char *path, int mode)
{
	char buf[PATH_MAX];
	return (int)syscall(SYS_faccessat, AT_FDCWD, shim_view(path, buf), mode);
}

EXPORT int euidaccess(const char *path, int mode) { return faccessat(AT_FDCWD, path, mode, AT_EACCESS); }
EXPORT int eaccess(const char *path, int mode) { return faccessat(AT_FDCWD, path, mode, AT_EACCESS); }

/* ---- extended attributes: ls -l asks for them ---- */

EXPORT ssize_t getxattr(const char *path, const char *name, void *v, size_t n)
{
	char buf[PATH_MAX];
	return syscall(SYS_getxattr, shim_view(path, buf), name, v, n);
}

EXPORT ssize_t lgetxattr(const char *path, const char *name, void *v, size_t n)
{
	char buf[PATH_MAX];
	return syscall(SYS_lgetxattr, shim_view(path, buf), name, v, n);
}

EXPORT ssize_t listxattr(const char *path, char *list, size_t n)
{
	char buf[PATH_MAX];
	return syscall(SYS_listxattr, shim_view(path, buf), list, n);
}

EXPORT ssize_t llistxattr(const char *path, char *list, size_t n)
{
	char buf[PATH_MAX];
	return syscall(SYS_llistxattr, shim_view(path, buf), list, n);
}

/* ---- stat in all its forms ---- */

static void dress(struct stat *st, dev_t rdev)
{
	st->st_mode = S_IFCHR | 0666;
	st->st_rdev = rdev;
	st->st_size = 0;
	st->st_blocks = 0;
}

static int stat_common(int dirfd, const char *path, struct stat *st, int flags)
{
	char buf[PATH_MAX];
	unsigned index;
	int r = (int)syscall(SYS_newfstatat, dirfd, shim_view(path, buf), st, flags);
	if (r)
		return r;
	uint32_t kind = device_of(path, &index);
	if (kind) {
		dress(st, rdev_of(kind, index));
	} else if ((flags & AT_EMPTY_PATH) && mark_of(dirfd) && (!path || !path[0])) {
		struct ctx *c = shim_lookup(dirfd);
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
_Static_assert(sizeof(struct stat) == sizeof(struct stat64), "this library is for 64-bit systems");
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
	int r = (int)syscall(SYS_statx, dirfd, shim_view(path, buf), flags, mask, stx);
	if (r)
		return r;
	uint32_t kind = device_of(path, &index);
	struct ctx *c = !kind && mark_of(dirfd) && !path[0] ? shim_lookup(dirfd) : NULL;
	if (!kind && !c)
		return 0;
	dev_t rdev = kind ? rdev_of(kind, index) : c->rdev;
	stx->stx_mode = S_IFCHR | 0666;
	stx->stx_rdev_major = major(rdev);
	stx->stx_rdev_minor = minor(rdev);
	stx->stx_size = 0;
	stx->stx_blocks = 0;
	return 0;
}
