/* Polling drives the engine. See shim.h. */
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stddef.h>

#include "verbs.h"

struct extended_context { /* the end of struct verbs_context, which grows at its beginning */
	struct extended_cq *(*create_cq_ex)(struct verbs_context *ctx, void *attr);
	void *others[12];
	uint64_t placeholder;
	size_t size; /* of it all */
	struct verbs_context context;
};

struct extended_cq { /* the beginning of struct ibv_cq_ex */
	void *context, *channel, *cq_context;
	uint32_t handle;
	int cqe;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	uint32_t comp_events_completed, async_events_completed, comp_mask;
	int status;
	uint64_t wr_id;
	int (*start_poll)(struct extended_cq *cq, void *attr);
};

typedef int (*poll_fn)(void **, int, void *);
typedef int (*start_fn)(struct extended_cq *, void *);
typedef struct extended_cq *(*create_fn)(struct verbs_context *, void *);

/* There is one provider: the daemon chooses it. */
static _Atomic poll_fn provider;
static _Atomic start_fn provider_start;
static _Atomic create_fn provider_create;

static int poll_cq(void **cq, int n, void *wc)
{
	poll_fn f = provider;
	int r = f(cq, n, wc);
	if (r || !shim_engine_progress())
		return r;
	return f(cq, n, wc);
}

static int start_poll(struct extended_cq *cq, void *attr)
{
	start_fn f = provider_start;
	int r = f(cq, attr);
	if (r != ENOENT || !shim_engine_progress())
		return r;
	return f(cq, attr);
}

static struct extended_cq *create_cq_ex(struct verbs_context *ctx, void *attr)
{
	start_fn none = NULL;
	create_fn create = provider_create;
	struct extended_cq *cq = create(ctx, attr);
	if (!cq || !cq->start_poll)
		return cq;
	atomic_compare_exchange_strong(&provider_start, &none, cq->start_poll);
	if (provider_start == cq->start_poll)
		cq->start_poll = start_poll;
	return cq;
}

/* Puts our functions before those of the provider. */
static void hook(struct verbs_context *ctx)
{
	poll_fn none = NULL;
	create_fn nobody = NULL;
	atomic_compare_exchange_strong(&provider, &none, ctx->ops.poll_cq);
	if (provider == ctx->ops.poll_cq)
		ctx->ops.poll_cq = poll_cq;
	if (ctx->abi_compat != (void *)UINTPTR_MAX) /* __VERBS_ABI_IS_EXTENDED */
		return;
	struct extended_context *x = (void *)((char *)ctx - offsetof(struct extended_context, context));
	if (x->size < sizeof *x || !x->create_cq_ex)
		return;
	atomic_compare_exchange_strong(&provider_create, &nobody, x->create_cq_ex);
	if (provider_create == x->create_cq_ex)
		x->create_cq_ex = create_cq_ex;
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
	if (ctx && shim_has_engine() && shim_is_home(ctx->cmd_fd))
		hook(ctx);
	else if (ctx && shim_tells_sites(ctx->cmd_fd))
		shim_watch_posts(ctx);
	return ctx;
}
