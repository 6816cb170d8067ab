/* Traffic of a program that polls by ibv_start_poll alone. With "hooked"
 * the engine must be behind it: otherwise only its own thread would see to
 * the queue. Also says whether the structures are as the preload library has them. */
#include "common.h"
#include <dlfcn.h>
#include <stddef.h>

#define WORD 8
_Static_assert(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, create_cq_ex) == 15 * WORD, "create_cq_ex");
_Static_assert(offsetof(struct verbs_context, context) - offsetof(struct verbs_context, sz) == WORD, "sz");

static struct ibv_cq_ex *make_cq(struct ibv_context *ctx)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = 64, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(ctx, &attr);
	CHECK(cq);
	return cq;
}

/* Without ibv_next_poll: if there is nothing more soft-RoCE's provider ends the poll in it,
 * other providers want ibv_end_poll. */
static void take(struct ibv_cq_ex *cq, int want, enum ibv_wc_opcode op)
{
	struct ibv_poll_cq_attr attr = { 0 };
	while (want) {
		int r = ibv_start_poll(cq, &attr);
		if (r == ENOENT)
			continue;
		CHECK(!r && cq->status == IBV_WC_SUCCESS && ibv_wc_read_opcode(cq) == op);
		ibv_end_poll(cq);
		want--;
	}
}

int main(int argc, char **argv)
{
	struct ibv_context *ctx = open_rvt0();
	struct pair p;
	Dl_info where;
	make_pair(&p, ctx, 0);
	struct ibv_cq_ex *a = make_cq(ctx), *b = make_cq(ctx);
	CHECK(dladdr((void *)a->start_poll, &where));
	if (argc > 1 && !strcmp(argv[1], "hooked"))
		CHECK(strstr(where.dli_fname, "shim"));
	struct ibv_qp_init_attr init = { .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
					 .cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 } };
	CHECK(!ibv_destroy_qp(p.a.qp) && !ibv_destroy_qp(p.b.qp));
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(a);
	CHECK((p.a.qp = ibv_create_qp(p.pd, &init)));
	init.send_cq = init.recv_cq = ibv_cq_ex_to_cq(b);
	CHECK((p.b.qp = ibv_create_qp(p.pd, &init)));
	to_rts(ctx, p.a.qp, p.b.qp->qp_num);
	to_rts(ctx, p.b.qp, p.a.qp->qp_num);
	for (int i = 0; i < 2000; i++) {
		char *to = p.buf + PAIR_BYTES / 2;
		memset(p.buf, i + 1, 3000);
		post_recv(&p, to, 3000);
		post_recv(&p, to, 3000);
		CHECK(!post_send(&p, p.buf, 3000) && !post_send(&p, p.buf, 3000));
		take(b, 2, IBV_WC_RECV);
		take(a, 2, IBV_WC_SEND);
		CHECK(!memcmp(p.buf, to, 3000));
	}
	CHECK(!ibv_destroy_qp(p.a.qp) && !ibv_destroy_qp(p.b.qp));
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(a)) && !ibv_destroy_cq(ibv_cq_ex_to_cq(b)));
	return 0;
}
