/* The view of sysfs and /dev through every call that takes a path; the device file's
 * type and number through every stat. */
#include "common.h"
#include <dirent.h>
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/xattr.h>

#define CLASS "/sys/class/infiniband"
#define DEV "/dev/infiniband/uverbs0"

static void is_device(const struct stat *st)
{
	CHECK(S_ISCHR(st->st_mode) && st->st_rdev == makedev(231, 192) && st->st_size == 0);
}

static void stats(void)
{
	struct stat st;
	struct statx stx;
	CHECK(!stat(DEV, &st));
	is_device(&st);
	CHECK(!lstat(DEV, &st));
	is_device(&st);
	CHECK(!fstatat(AT_FDCWD, DEV, &st, 0));
	is_device(&st);
	CHECK(!statx(AT_FDCWD, DEV, 0, STATX_ALL, &stx));
	CHECK(S_ISCHR(stx.stx_mode) && stx.stx_rdev_major == 231 && stx.stx_rdev_minor == 192);
	int (*xstat)(int, const char *, struct stat *) = (int (*)(int, const char *, struct stat *))dlsym(RTLD_DEFAULT, "__xstat");
	int (*fxstat)(int, int, struct stat *) = (int (*)(int, int, struct stat *))dlsym(RTLD_DEFAULT, "__fxstat");
	CHECK(xstat && fxstat);
	CHECK(!xstat(1, DEV, &st));
	is_device(&st);
	int fd = open(DEV, O_RDWR | O_CLOEXEC);
	CHECK(fd >= 0 && (fcntl(fd, F_GETFD) & FD_CLOEXEC));
	CHECK(!fstat(fd, &st));
	is_device(&st);
	CHECK(!fxstat(1, fd, &st));
	is_device(&st);
	CHECK(!fstatat(fd, "", &st, AT_EMPTY_PATH));
	is_device(&st);
	CHECK(!statx(fd, "", AT_EMPTY_PATH, STATX_ALL, &stx) && S_ISCHR(stx.stx_mode));
	CHECK(!close(fd));
	fd = openat(AT_FDCWD, DEV, O_RDWR);
	CHECK(fd >= 0 && !(fcntl(fd, F_GETFD) & FD_CLOEXEC));
	CHECK(!close(fd));
	CHECK(stat("/dev/infiniband/uverbs1", &st) == -1 && errno == ENOENT);
	CHECK(open("/dev/infiniband/uverbs1", O_RDWR) == -1 && errno == ENOENT);
	CHECK(!stat("/etc/passwd", &st) && S_ISREG(st.st_mode) && !stat("/dev/null", &st) && st.st_rdev == makedev(1, 3));
}

static int accept_all(const struct dirent *d) { return d->d_name[0] != '.'; }

static void paths(void)
{
	char b[4096];
	FILE *f = fopen(CLASS "/rvt0/node_type", "r");
	CHECK(f && fgets(b, sizeof b, f) && !strcmp(b, "1: CA\n"));
	f = freopen(CLASS "/rvt0/ports/1/state", "r", f);
	CHECK(f && fgets(b, sizeof b, f) && !strcmp(b, "4: ACTIVE\n"));
	fclose(f);
	CHECK(!access(CLASS "/rvt0", R_OK) && !faccessat(AT_FDCWD, CLASS, F_OK, 0) && !euidaccess(DEV, R_OK | W_OK));
	CHECK(access(CLASS "/rvt1", F_OK) == -1 && errno == ENOENT);
	DIR *d = opendir(CLASS);
	int found = 0;
	CHECK(d);
	for (struct dirent *e; (e = readdir(d));)
		found += !strcmp(e->d_name, "rvt0");
	CHECK(found == 1);
	int fd = openat(dirfd(d), "rvt0/node_type", O_RDONLY);
	CHECK(fd >= 0 && read(fd, b, 5) == 5);
	close(fd);
	closedir(d);
	struct dirent **list;
	CHECK(scandir(CLASS, &list, accept_all, alphasort) == 1 && !strcmp(list[0]->d_name, "rvt0"));
	CHECK(realpath(CLASS "_verbs/uverbs0/device", b) && strstr(b, "/rvt0/device"));
	CHECK(readlink(CLASS "_verbs/uverbs0/device", b, sizeof b) > 0);
	CHECK(readlink(CLASS "/rvt0/node_type", b, sizeof b) == -1 && errno == EINVAL);
	CHECK(getxattr(CLASS "/rvt0", "user.none", b, sizeof b) == -1 && errno != ENOENT);
	CHECK(!chdir(CLASS "/rvt0") && !access("node_type", R_OK) && !chdir("/"));
	CHECK(socket(AF_NETLINK, SOCK_RAW, 20) == -1 && errno == EPROTONOSUPPORT);
	fd = socket(AF_NETLINK, SOCK_RAW, 0);
	CHECK(fd >= 0 && !close(fd));
}

/* Calls that create files take a mode. */
static void modes(void)
{
	char dir[] = "/tmp/rvtsim-test-XXXXXX", name[64];
	struct stat st;
	CHECK(mkdtemp(dir));
	snprintf(name, sizeof name, "%s/f", dir);
	umask(0);
	int fd = open(name, O_CREAT | O_RDWR | O_EXCL, 0640);
	CHECK(fd >= 0 && !fstat(fd, &st) && (st.st_mode & 07777) == 0640);
	CHECK(!close(fd) && !unlink(name));
	fd = open(dir, O_DIRECTORY | O_RDONLY);
	CHECK(fd >= 0 && !close(fd));
	fd = open(dir, O_TMPFILE | O_RDWR, 0604);
	CHECK(fd < 0 || (!fstat(fd, &st) && (st.st_mode & 07777) == 0604));
	CHECK(!rmdir(dir));
}

int main(void)
{
	stats();
	paths();
	modes();
	CHECK(!system("ibv_devices | grep -q rvt0")); /* a child with the same view */
	return 0;
}
