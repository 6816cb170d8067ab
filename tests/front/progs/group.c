/* Multicast by verbs alone, without librdmacm: "group" attaches a queue pair and takes five
 * datagrams, "group send" sends them. */
#include "common.h"

int main(int argc, char **argv)
{
	struct ibv_context *ctx = open_rvt0();
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	struct ibv_cq *cq = ibv_create_cq(ctx, 32, NULL, NULL, 0);
	CHECK(pd && cq);
	struct ibv_qp_init_attr init = { .send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_UD, .sq_sig_all = 1, .cap = { 16, 16, 1, 1, 0 } };
	struct ibv_qp *qp = ibv_create_qp(pd, &init);
	CHECK(qp);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x1234 };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	union ibv_gid group = { .raw = { [10] = 0xff, 0xff, 239, 7, 7, 7 } };
	char *buf = calloc(1, 4096);
	struct ibv_mr *mr = ibv_reg_mr(pd, buf, 4096, IBV_ACCESS_LOCAL_WRITE);
	CHECK(mr);
	struct ibv_wc wc;
	if (argc > 1 && !strcmp(argv[1], "send")) {
		struct ibv_ah_attr to = { .is_global = 1, .grh = { .dgid = group, .hop_limit = 1 }, .port_num = 1 };
		struct ibv_ah *ah = ibv_create_ah(pd, &to);
		CHECK(ah);
		for (int i = 0; i < 5; i++) {
			snprintf(buf, 64, "datagram %d", i);
			struct ibv_sge sge = { (uintptr_t)buf, 64, mr->lkey };
			struct ibv_send_wr wr = { .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND,
						  .wr.ud = { ah, 0xffffff, 0x1234 } }, *bad;
			CHECK(!ibv_post_send(qp, &wr, &bad));
			while (!ibv_poll_cq(cq, 1, &wc))
				sched_yield();
			CHECK(wc.status == IBV_WC_SUCCESS);
		}
		return 0;
	}
	CHECK(!ibv_attach_mcast(qp, &group, 0));
	for (int i = 0; i < 5; i++) {
		struct ibv_sge sge = { (uintptr_t)buf + 200 * i, 200, mr->lkey };
		struct ibv_recv_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1 }, *bad;
		CHECK(!ibv_post_recv(qp, &wr, &bad));
	}
	puts("attached");
	fflush(stdout);
	for (int i = 0; i < 5; i++) {
		char want[64];
		snprintf(want, sizeof want, "datagram %d", i);
		while (!ibv_poll_cq(cq, 1, &wc))
			sched_yield();
		CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == 64 + 40 && wc.wc_flags & IBV_WC_GRH);
		CHECK(!strcmp(buf + 200 * i + 40, want));
	}
	CHECK(!ibv_detach_mcast(qp, &group, 0));
	CHECK(!ibv_destroy_qp(qp));
	puts("taken");
	return 0;
}
