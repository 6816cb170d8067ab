/* Polls the last byte of what its peer writes, and then believes the rest to be there. */
#include "common.h"
static struct pair p;
int main(int argc, char **argv)
{
	CHECK(argc == 2);
	make_pair(&p, open_rvt0(), 0);
	volatile unsigned char *to = (unsigned char *)p.buf + PAIR_BYTES / 2;
	int n = atoi(argv[1]), size = 2000;
	for (int i = 1; i <= n; i++) {
		unsigned char v = 1 + i % 250;
		memset(p.buf, v, size);
		struct ibv_sge sge = { (uintptr_t)p.buf, size, p.mr->lkey };
		struct ibv_send_wr wr = { .wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED }, *bad;
		wr.wr.rdma.remote_addr = (uintptr_t)to; wr.wr.rdma.rkey = p.mr->rkey;
		CHECK(!ibv_post_send(p.a.qp, &wr, &bad));
		while (to[size - 1] != v)
			;
		for (int k = 0; k < size; k++)
			if (to[k] != v) {
				puts("torn");
				return 0;
			}
		struct ibv_wc wc;
		while (!ibv_poll_cq(p.a.cq, 1, &wc))
			;
		CHECK(wc.status == IBV_WC_SUCCESS);
	}
	puts("whole");
	return 0;
}
