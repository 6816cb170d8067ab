/* Posts that libibverbs or its provider refuses by itself, so that no command is made of
 * them: on nodes that explain failures the daemon is told. As poll.c, this knows structures
 * that are built into every program. */
#include "shim.h"

#include <errno.h>
#include <stddef.h>

#include "verbs.h"

struct queue { /* struct ibv_qp, struct ibv_srq */
	struct verbs_context *context;
};
#define QP_HANDLE 48
#define SRQ_HANDLE 24

struct sge {
	uint64_t addr;
	uint32_t length, lkey;
};

struct work { /* struct ibv_send_wr; struct ibv_recv_wr ends with num_sge */
	uint64_t wr_id;
	struct work *next;
	struct sge *list;
	int num_sge;
	uint32_t opcode, flags, imm;
	uint64_t remote_addr; /* of RDMA and atomics */
};

typedef int (*post_fn)(struct queue *q, struct work *wr, struct work **bad);

static _Atomic post_fn provider_send, provider_recv, provider_srq_recv;

static void tell(struct queue *q, size_t handle, uint32_t verb, int error, const struct work *w)
{
	struct rvtsim_refused r = { .verb = verb, .error = (uint32_t)error };
	int ours, saved = errno;
	memcpy(&r.handle, (const char *)q + handle, sizeof r.handle);
	if (w) {
		r.wr_id = w->wr_id;
		r.num_sge = (uint32_t)w->num_sge;
		/* A list that is far too long may not be there. */
		for (int i = 0; i < w->num_sge && i < 32; i++) {
			r.length += w->list[i].length;
			if (!i)
				r.first = w->list[i].length;
		}
		if (verb == RVTSIM_POST_SEND) {
			r.opcode = w->opcode;
			r.flags = w->flags;
			r.remote_addr = w->remote_addr;
		}
	}
	(void)shim_command(q->context->cmd_fd, RVTSIM_REFUSED, 0, &r, sizeof r, &ours);
	errno = saved;
}

/* Calls the provider. If that made a command that failed, the daemon knows already. */
static int post(struct queue *q, struct work *wr, struct work **bad, post_fn f, size_t handle, uint32_t verb)
{
	struct work *which = NULL;
	unsigned before = shim_failures;
	int r = f(q, wr, &which);
	if (r && bad)
		*bad = which;
	if (r && shim_failures == before)
		tell(q, handle, verb, r, which);
	return r;
}

static int post_send(struct queue *q, struct work *wr, struct work **bad)
{
	return post(q, wr, bad, provider_send, QP_HANDLE, RVTSIM_POST_SEND);
}

static int post_recv(struct queue *q, struct work *wr, struct work **bad)
{
	return post(q, wr, bad, provider_recv, QP_HANDLE, RVTSIM_POST_RECV);
}

static int post_srq_recv(struct queue *q, struct work *wr, struct work **bad)
{
	return post(q, wr, bad, provider_srq_recv, SRQ_HANDLE, RVTSIM_POST_SRQ_RECV);
}

static void replace(void **slot, _Atomic post_fn *provider, post_fn ours)
{
	post_fn none = NULL, theirs = (post_fn)*slot;
	if (!theirs || theirs == ours)
		return;
	atomic_compare_exchange_strong(provider, &none, theirs);
	if (*provider == theirs)
		*slot = (void *)ours;
}

void shim_watch_posts(struct verbs_context *ctx)
{
	replace(&ctx->ops.post_srq_recv, &provider_srq_recv, post_srq_recv);
	replace(&ctx->ops.post_send, &provider_send, post_send);
	replace(&ctx->ops.post_recv, &provider_recv, post_recv);
}
