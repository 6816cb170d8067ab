/* Where in the program a call was made. Only programs whose misuse or failures are to be
 * explained pay for it. */
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#ifdef __GLIBC__
#include <execinfo.h>
#include <link.h>

#define DEPTH 24  /* of the stack that is looked at */
#define FRAMES 6  /* of it that are told */

/* in_between tells the libraries between the program and us: libibverbs and its providers,
 * and libc, which calls main. */
static int in_between(const char *file)
{
	const char *base = strrchr(file, '/');
	base = base ? base + 1 : file;
	return !strncmp(base, "libibverbs.", 11) || strstr(base, "-rdmav") || !strncmp(base, "libc.", 5);
}

void shim_site(struct site *s)
{
	void *pc[DEPTH];
	char exe[PATH_MAX];
	Dl_info own, at;
	struct link_map *map;
	int saved = errno, n = backtrace(pc, DEPTH), told = 0;
	ssize_t len = syscall(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", exe, sizeof exe - 1);
	exe[len > 0 ? len : 0] = 0;
	s->n = 0;
	for (int i = 0; i < n && told < FRAMES && dladdr((void *)shim_site, &own); i++) {
		const char *call = (const char *)pc[i] - 1; /* the address is where it returns to */
		if (!dladdr1(call, &at, (void **)&map, RTLD_DL_LINKMAP) || at.dli_fbase == own.dli_fbase)
			continue;
		const char *file = map->l_name && map->l_name[0] ? map->l_name : exe; /* the program has no name */
		if (in_between(file))
			continue;
		int k = snprintf(s->b + s->n, sizeof s->b - s->n, "%lx %s\n", (unsigned long)((uintptr_t)call - map->l_addr), file);
		if (k < 0 || (size_t)k >= sizeof s->b - s->n)
			break;
		s->n += (size_t)k;
		told++;
	}
	errno = saved;
}

#else /* no backtrace */
void shim_site(struct site *s) { s->n = 0; }
#endif
