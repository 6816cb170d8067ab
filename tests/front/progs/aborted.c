/* aborted DIR from|to: UC messages and datagrams of three, three, one and one packets. The
 * receives of "to" come from a shared queue. The network loses the second packet of the first
 * message, and the first datagram is too long for its receive. "to" prints what completes:
 * wr_id and status, which are defined for a failed completion, and no more. DIR is where both
 * leave their addresses. */
#include "common.h"

static struct pair p;
static struct ibv_srq *srq;

static struct ibv_qp *queue_pair(enum ibv_qp_type type, struct ibv_srq *shared)
{
	struct ibv_qp_init_attr init = { .send_cq = p.a.cq, .recv_cq = type == IBV_QPT_UD ? p.b.cq : p.a.cq, .srq = shared, .qp_type = type, .sq_sig_all = 1,
					 .cap = { .max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1 } };
	struct ibv_qp *qp = ibv_create_qp(p.pd, &init);
	CHECK(qp);
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 0x11 };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | (type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)));
	return qp;
}

struct address {
	union ibv_gid gid;
	uint32_t uc, ud;
};

/* leave writes an address where the other end finds it, whole. */
static void leave(const char *dir, const char *name, const struct address *a)
{
	char file[4096], last[4096 + 8];
	snprintf(last, sizeof last, "%s/%s", dir, name);
	snprintf(file, sizeof file, "%s/.%s", dir, name);
	int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	CHECK(fd >= 0 && write(fd, a, sizeof *a) == sizeof *a && !close(fd) && !rename(file, last));
}

static struct address find(const char *dir, const char *name)
{
	char file[4096];
	struct address a;
	int fd;
	snprintf(file, sizeof file, "%s/%s", dir, name);
	while ((fd = open(file, O_RDONLY)) < 0)
		usleep(1000);
	CHECK(read(fd, &a, sizeof a) == sizeof a && !close(fd));
	return a;
}

static struct ibv_ah_attr way(const struct address *a)
{
	return (struct ibv_ah_attr){ .is_global = 1, .grh = { .dgid = a->gid, .hop_limit = 64 }, .port_num = 1 };
}

static void ready(struct ibv_qp *qp, const struct address *peer)
{
	int more = qp->qp_type == IBV_QPT_UD ? 0 : IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->uc, .ah_attr = way(peer) };
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | more));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
}

static void give(uint64_t id, uint32_t n)
{
	struct ibv_sge sge = { (uintptr_t)p.buf + PAIR_BYTES / 2, n, p.mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = id, .sg_list = &sge, .num_sge = 1 }, *bad;
	CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
}

static struct ibv_wc complete(struct ibv_cq *cq)
{
	struct ibv_wc wc;
	while (!ibv_poll_cq(cq, 1, &wc))
		;
	return wc;
}

static void say(struct ibv_qp *qp, struct ibv_ah *ah, uint32_t remote, uint32_t n)
{
	struct ibv_sge sge = { (uintptr_t)p.buf, n, p.mr->lkey };
	struct ibv_send_wr wr = { .wr_id = 7, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND }, *bad;
	if (ah) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = remote;
		wr.wr.ud.remote_qkey = 0x11;
	}
	CHECK(!ibv_post_send(qp, &wr, &bad));
	CHECK(complete(qp->send_cq).status == IBV_WC_SUCCESS);
}

static void hear(struct ibv_qp *qp)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr init;
	for (int i = 0; i < 2; i++) {
		struct ibv_wc wc = complete(qp->recv_cq);
		CHECK(wc.qp_num == qp->qp_num);
		printf("receive %llu: status %d\n", (unsigned long long)wc.wr_id, wc.status);
	}
	CHECK(!ibv_query_qp(qp, &a, IBV_QP_STATE, &init));
	CHECK(init.srq == srq);
	printf("state %d\n", a.qp_state);
}

int main(int argc, char **argv)
{
	CHECK(argc == 3);
	int to = !strcmp(argv[2], "to");
	make_pair(&p, open_rvt0(), 0);
	struct ibv_srq_init_attr s = { .attr = { .max_wr = 8, .max_sge = 1 } };
	if (to)
		CHECK((srq = ibv_create_srq(p.pd, &s)));
	struct ibv_qp *uc = queue_pair(IBV_QPT_UC, srq), *ud = queue_pair(IBV_QPT_UD, srq);
	struct address here = { .uc = uc->qp_num, .ud = ud->qp_num }, peer;
	CHECK(!ibv_query_gid(p.ctx, 1, 0, &here.gid));
	if (to) {
		peer = find(argv[1], "from");
		ready(uc, &peer);
		ready(ud, &peer);
		give(1, 4096);
		give(2, 4096);
		give(3, 64);
		give(4, 128);
		leave(argv[1], "to", &here);
		hear(uc);
		hear(ud);
		return 0;
	}
	leave(argv[1], "from", &here);
	peer = find(argv[1], "to");
	ready(uc, &peer);
	ready(ud, &peer);
	say(uc, NULL, 0, 3000); /* FIRST, MIDDLE, LAST */
	say(uc, NULL, 0, 3000);
	struct ibv_ah_attr a = way(&peer);
	struct ibv_ah *ah = ibv_create_ah(p.pd, &a);
	CHECK(ah);
	say(ud, ah, peer.ud, 64); /* and 40 bytes of header */
	say(ud, ah, peer.ud, 64);
	return 0;
}
