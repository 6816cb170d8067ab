/* A post to a QP that takes no sends fails at once, although doorbells go one way. */
#include "common.h"

int main(void)
{
	struct ibv_context *ctx = open_rvt0();
	struct pair p;
	make_pair(&p, ctx, 0);
	message(&p, 1);
	struct end fresh;
	make_end(&p, &fresh);
	struct end was = p.a;
	p.a = fresh;
	CHECK(post_send(&p, p.buf, 10) == EINVAL); /* RESET */
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1 };
	CHECK(!ibv_modify_qp(fresh.qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	CHECK(post_send(&p, p.buf, 10) == EINVAL); /* INIT */
	p.a = was;
	message(&p, 2);
	a.qp_state = IBV_QPS_RESET;
	CHECK(!ibv_modify_qp(p.a.qp, &a, IBV_QP_STATE));
	CHECK(post_send(&p, p.buf, 10) == EINVAL);
	CHECK(!ibv_destroy_qp(fresh.qp) && !ibv_destroy_cq(fresh.cq));
	destroy_pair(&p);
	CHECK(!ibv_close_device(ctx));
	return 0;
}
