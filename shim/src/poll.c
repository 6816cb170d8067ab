/* Polling drives the engine. This is the one place that knows a structure of libibverbs:
 * the beginning of struct ibv_context, which inline functions of its header have built into
 * every program. See shim.h. */
#include "shim.h"

#include <dlfcn.h>

struct verbs_context {
	void *device;
	struct {
		void *before[11];
		int (*poll_cq)(void **cq, int n, void *wc);
		void *after[20];
	} ops;
	int cmd_fd;
};

typedef int (*poll_fn)(void **, int, void *);
static _Atomic poll_fn provider; /* there is one provider: the daemon chooses it */

static int poll_cq(void **cq, int n, void *wc)
{
	poll_fn f = provider;
	int r = f(cq, n, wc);
	if (r || !shim_engine_progress())
		return r;
	return f(cq, n, wc);
}

/* A program that finds this function in another way, by dlsym of the library, is served
 * by the engine's own thread. */
EXPORT struct verbs_context *ibv_open_device(void *device)
{
	static struct verbs_context *(*_Atomic real)(void *);
	if (!real) {
		void *lib = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
		if (lib)
			real = (struct verbs_context * (*)(void *)) dlvsym(lib, "ibv_open_device", "IBVERBS_1.1");
		if (!real)
			return NULL;
	}
	struct verbs_context *ctx = real(device);
	if (ctx && shim_has_engine() && shim_is_home(ctx->cmd_fd)) {
		poll_fn none = NULL;
		atomic_compare_exchange_strong(&provider, &none, ctx->ops.poll_cq);
		if (provider == ctx->ops.poll_cq)
			ctx->ops.poll_cq = poll_cq;
	}
	return ctx;
}
