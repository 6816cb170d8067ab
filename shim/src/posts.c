/* Posts that libibverbs or its provider refuses by itself, so that no command is made of
 * them: on nodes that explain failures the daemon is told. As poll.c, this knows structures
 * that are built into every program. */
#include "shim.h"

#include <dlfcn.h>
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

static void tell_daemon(struct queue *q, struct rvtsim_refused *r)
{
	int ours, saved = errno;
	(void)shim_command(q->context->cmd_fd, RVTSIM_REFUSED, 0, r, sizeof *r, &ours);
	errno = saved;
}

static void say(struct queue *q, size_t handle, struct rvtsim_refused *r)
{
	memcpy(&r->handle, (const char *)q + handle, sizeof r->handle);
	tell_daemon(q, r);
}

static void tell(struct queue *q, size_t handle, uint32_t verb, int error, const struct work *w)
{
	struct rvtsim_refused r = { .verb = verb, .error = (uint32_t)error };
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
	say(q, handle, &r);
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

/* ibv_wr_*: whoever refuses one of a batch says so at its end only. */
struct batch { /* struct ibv_qp_ex; struct ibv_qp is 160 bytes long */
	struct queue qp;
	char base[160 - sizeof(struct queue)];
	uint64_t comp_mask, wr_id;
	unsigned flags;
	void *operations[13];
	void *set_inline, *set_inline_list, *set_sge, *set_sge_list;
	void *start, *complete, *abort;
};
_Static_assert(offsetof(struct batch, comp_mask) == 160, "struct ibv_qp_ex");

struct piece { /* struct ibv_data_buf */
	void *addr;
	size_t length;
};

static void (*_Atomic provider_inline)(struct batch *, void *, size_t);
static void (*_Atomic provider_inline_list)(struct batch *, size_t, const struct piece *);
static void (*_Atomic provider_sge_list)(struct batch *, size_t, const struct sge *);
static int (*_Atomic provider_complete)(struct batch *);
static _Thread_local size_t most_inline, most_sge; /* of this batch */

static void set_inline(struct batch *b, void *addr, size_t length)
{
	if (length > most_inline)
		most_inline = length;
	provider_inline(b, addr, length);
}

static void set_inline_list(struct batch *b, size_t n, const struct piece *list)
{
	size_t length = 0;
	for (size_t i = 0; i < n; i++)
		length += list[i].length;
	if (length > most_inline)
		most_inline = length;
	provider_inline_list(b, n, list);
}

static void set_sge_list(struct batch *b, size_t n, const struct sge *list)
{
	if (n > most_sge)
		most_sge = n;
	provider_sge_list(b, n, list);
}

static int complete(struct batch *b)
{
	unsigned before = shim_failures;
	int r = provider_complete(b);
	if (r && shim_failures == before) {
		struct rvtsim_refused t = { .verb = RVTSIM_WR_COMPLETE, .error = (uint32_t)r, .wr_id = b->wr_id,
					    .num_sge = (uint32_t)most_sge, .length = most_inline };
		say(&b->qp, QP_HANDLE, &t);
	}
	most_inline = most_sge = 0;
	return r;
}

/* REPLACE puts ours before a provider's function, if that is the one we know or the first. */
#define REPLACE(slot, provider, ours)                                                        \
	do {                                                                                 \
		__typeof__(&(ours)) none_ = NULL, theirs_ = (__typeof__(&(ours)))(slot);      \
		if (!theirs_ || theirs_ == (ours))                                           \
			break;                                                               \
		atomic_compare_exchange_strong(&(provider), &none_, theirs_);                \
		if ((provider) == theirs_)                                                   \
			(slot) = (void *)(ours);                                             \
	} while (0)

EXPORT struct batch *ibv_qp_to_qp_ex(struct queue *qp)
{
	static struct batch *(*_Atomic real)(struct queue *);
	if (!real) {
		void *lib = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
		if (lib)
			real = (struct batch * (*)(struct queue *)) dlvsym(lib, "ibv_qp_to_qp_ex", "IBVERBS_1.6");
		if (!real)
			return NULL;
	}
	struct batch *b = real(qp);
	if (b && shim_tells_sites(qp->context->cmd_fd)) {
		REPLACE(b->set_inline, provider_inline, set_inline);
		REPLACE(b->set_inline_list, provider_inline_list, set_inline_list);
		REPLACE(b->set_sge_list, provider_sge_list, set_sge_list);
		REPLACE(b->complete, provider_complete, complete);
	}
	return b;
}

/* The library counts acknowledgements, and destroys nothing before it has as many as there
 * were events: a program that forgot one hangs there. */
struct destroyed {
	const char *name;
	uint32_t verb;
	size_t handle, completion, async; /* places in struct ibv_cq and ibv_qp; 0: none */
	int (*_Atomic real)(struct queue *);
};
static struct destroyed cqs = { "ibv_destroy_cq", RVTSIM_DESTROY_CQ, 24, 120, 124, NULL };
static struct destroyed qps = { "ibv_destroy_qp", RVTSIM_DESTROY_QP, QP_HANDLE, 0, 152, NULL };

static int destroy(struct queue *q, struct destroyed *at)
{
	if (!at->real) {
		void *lib = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_NOLOAD);
		if (lib)
			at->real = (int (*)(struct queue *))dlvsym(lib, at->name, "IBVERBS_1.1");
		if (!at->real)
			return ENOSYS;
	}
	if (!shim_tells_sites(q->context->cmd_fd))
		return at->real(q);
	struct queue context = *q; /* it is freed below */
	struct rvtsim_refused r = { .verb = at->verb };
	uint32_t n;
	memcpy(&n, (char *)q + at->async, sizeof n);
	r.remote_addr = n;
	if (at->completion) {
		memcpy(&n, (char *)q + at->completion, sizeof n);
		r.length = n;
	}
	say(q, at->handle, &r);
	int failed = at->real(q);
	r.verb = RVTSIM_DESTROYED;
	tell_daemon(&context, &r);
	return failed;
}

EXPORT int ibv_destroy_cq(struct queue *cq) { return destroy(cq, &cqs); }
EXPORT int ibv_destroy_qp(struct queue *qp) { return destroy(qp, &qps); }

struct bind { /* struct ibv_mw_bind */
	uint64_t wr_id;
	unsigned flags;
	void *mr;
	uint64_t addr, length;
	unsigned access;
};

static int (*_Atomic provider_bind)(struct queue *, void *, struct bind *);

/* What ibv_bind_mw checks by itself is compiled into the program: nobody is called. */
static int bind_mw(struct queue *q, void *mw, struct bind *w)
{
	unsigned before = shim_failures;
	int r = provider_bind(q, mw, w);
	if (r && shim_failures == before) {
		struct rvtsim_refused t = { .verb = RVTSIM_BIND_MW, .error = (uint32_t)r, .wr_id = w->wr_id, .flags = w->access };
		say(q, QP_HANDLE, &t);
	}
	return r;
}

void shim_watch_posts(struct verbs_context *ctx)
{
	REPLACE(ctx->ops.post_srq_recv, provider_srq_recv, post_srq_recv);
	REPLACE(ctx->ops.post_send, provider_send, post_send);
	REPLACE(ctx->ops.post_recv, provider_recv, post_recv);
	REPLACE(ctx->ops.bind_mw, provider_bind, bind_mw);
}
