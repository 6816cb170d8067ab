/* librpma: a connection of a process with itself, and every statement of the page of
 * rpma_cq_get_wc(3). Usage: rpma ADDRESS. */
#include "../common.h"
#include <arpa/inet.h>
#include <librpma.h>
#include <poll.h>

#define RPMA(call) CHECK((errno = 0, (call) == 0))
#define FAILS(want, call)                                                                     \
	do {                                                                                  \
		int got_ = (call);                                                            \
		if (got_ != (want)) {                                                         \
			fprintf(stderr, "%s:%d: %s: %d, want %s\n", __FILE__, __LINE__, #call, got_, #want); \
			_exit(1);                                                             \
		}                                                                             \
	} while (0)

#define SIZE 8192
static char *addr;
static struct rpma_peer *peer;
static struct ibv_context *ctx;
static char mem[2][SIZE] __attribute__((aligned(4096)));

/* One end of a connection, with its memory. */
struct half {
	struct rpma_conn *conn;
	struct rpma_cq *cq, *rcq; /* rcq is NULL if there is none */
	struct rpma_mr_local *mr;
	struct rpma_mr_remote *remote; /* the other end's memory */
	uint32_t qpn;
};

static void next_event(struct rpma_conn *c, enum rpma_conn_event want)
{
	enum rpma_conn_event e = RPMA_CONN_UNDEFINED;
	RPMA(rpma_conn_next_event(c, &e));
	if (e != want) {
		fprintf(stderr, "event %s, want %s\n", rpma_utils_conn_event_2str(e), rpma_utils_conn_event_2str(want));
		_exit(1);
	}
}

static void half_init(struct half *h, int i)
{
	RPMA(rpma_conn_get_cq(h->conn, &h->cq));
	RPMA(rpma_conn_get_rcq(h->conn, &h->rcq));
	RPMA(rpma_conn_get_qp_num(h->conn, &h->qpn));
	RPMA(rpma_mr_reg(peer, mem[i], SIZE,
			 RPMA_MR_USAGE_READ_SRC | RPMA_MR_USAGE_READ_DST | RPMA_MR_USAGE_WRITE_SRC | RPMA_MR_USAGE_WRITE_DST |
				 RPMA_MR_USAGE_SEND | RPMA_MR_USAGE_RECV | RPMA_MR_USAGE_FLUSH_TYPE_VISIBILITY,
			 &h->mr));
}

static void exchange(struct half *from, struct half *to)
{
	size_t n;
	char desc[64];
	RPMA(rpma_mr_get_descriptor_size(from->mr, &n));
	CHECK(n <= sizeof desc);
	RPMA(rpma_mr_get_descriptor(from->mr, desc));
	FAILS(RPMA_E_INVAL, rpma_mr_remote_from_descriptor(desc, n - 1, &to->remote));
	RPMA(rpma_mr_remote_from_descriptor(desc, n, &to->remote));
}

/* Connects client and server; rcq is the size of their receive queues' own CQs, 0 for
 * none. */
static void make(struct half *client, struct half *server, int rcq)
{
	struct rpma_conn_cfg *cfg;
	struct rpma_ep *ep;
	struct rpma_conn_req *creq, *sreq;
	RPMA(rpma_conn_cfg_new(&cfg));
	RPMA(rpma_conn_cfg_set_rcq_size(cfg, (uint32_t)rcq));
	RPMA(rpma_conn_cfg_set_sq_size(cfg, 20));
	RPMA(rpma_conn_cfg_set_rq_size(cfg, 20));
	RPMA(rpma_conn_cfg_set_cq_size(cfg, 40));
	RPMA(rpma_ep_listen(peer, addr, "7654", &ep));
	RPMA(rpma_conn_req_new(peer, addr, "7654", cfg, &creq));
	char hello[] = "hello", welcome[] = "welcome";
	struct rpma_conn_private_data out = { hello, sizeof hello }, in;
	RPMA(rpma_conn_req_connect(&creq, &out, &client->conn));
	CHECK(!creq);
	RPMA(rpma_ep_next_conn_req(ep, cfg, &sreq));
	RPMA(rpma_conn_req_get_private_data(sreq, &in));
	CHECK(in.len == 56 && !strcmp(in.ptr, hello));
	for (int i = sizeof hello; i < 56; i++)
		CHECK(!((char *)in.ptr)[i]);
	out = (struct rpma_conn_private_data){ welcome, sizeof welcome };
	RPMA(rpma_conn_req_connect(&sreq, &out, &server->conn));
	next_event(client->conn, RPMA_CONN_ESTABLISHED);
	next_event(server->conn, RPMA_CONN_ESTABLISHED);
	RPMA(rpma_conn_get_private_data(client->conn, &in));
	CHECK(in.len == 196 && !strcmp(in.ptr, welcome));
	half_init(client, 0);
	half_init(server, 1);
	exchange(client, server);
	exchange(server, client);
	CHECK(!client->rcq == !rcq && !server->rcq == !rcq);
	RPMA(rpma_conn_cfg_delete(&cfg));
	RPMA(rpma_ep_shutdown(&ep));
}

static void half_delete(struct half *h)
{
	RPMA(rpma_mr_remote_delete(&h->remote));
	RPMA(rpma_mr_dereg(&h->mr));
	RPMA(rpma_conn_delete(&h->conn));
	CHECK(!h->conn);
}

static void unmake(struct half *client, struct half *server)
{
	RPMA(rpma_conn_disconnect(client->conn));
	next_event(server->conn, RPMA_CONN_CLOSED);
	RPMA(rpma_conn_disconnect(server->conn));
	next_event(client->conn, RPMA_CONN_CLOSED);
	half_delete(client);
	half_delete(server);
}

/* Waits until the queue has a completion, and takes it. */
static struct ibv_wc one(struct rpma_cq *cq)
{
	struct ibv_wc wc;
	for (;;) {
		int r = rpma_cq_get_wc(cq, 1, &wc, NULL);
		if (!r)
			return wc;
		CHECK(r == RPMA_E_NO_COMPLETION);
		int w = rpma_cq_wait(cq);
		CHECK(!w || w == RPMA_E_NO_COMPLETION);
	}
}

static struct ibv_wc expect(struct rpma_cq *cq, enum ibv_wc_opcode op, void *context)
{
	struct ibv_wc wc = one(cq);
	if (wc.status != IBV_WC_SUCCESS || wc.opcode != op || wc.wr_id != (uintptr_t)context) {
		fprintf(stderr, "opcode %d, status %s, wr_id %lu\n", wc.opcode, ibv_wc_status_str(wc.status), (unsigned long)wc.wr_id);
		_exit(1);
	}
	return wc;
}

static void empty(struct rpma_cq *cq)
{
	struct ibv_wc wc[4];
	int got = 77;
	FAILS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(cq, 1, wc, NULL));
	FAILS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(cq, 4, wc, &got));
}

#define ALWAYS RPMA_F_COMPLETION_ALWAYS
#define ON_ERROR RPMA_F_COMPLETION_ON_ERROR

/* RPMA_E_INVAL: num_entries < 1, cq or wc is NULL, num_entries > 1 and num_entries_got is
 * NULL. num_entries_got may be NULL if num_entries is 1. */
static void arguments(struct half *c)
{
	struct ibv_wc wc[4];
	int got;
	FAILS(RPMA_E_INVAL, rpma_cq_get_wc(NULL, 1, wc, &got));
	FAILS(RPMA_E_INVAL, rpma_cq_get_wc(c->cq, 1, NULL, &got));
	FAILS(RPMA_E_INVAL, rpma_cq_get_wc(c->cq, 0, wc, &got));
	FAILS(RPMA_E_INVAL, rpma_cq_get_wc(c->cq, -1, wc, &got));
	FAILS(RPMA_E_INVAL, rpma_cq_get_wc(c->cq, 2, wc, NULL));
	empty(c->cq);
	RPMA(rpma_write(c->conn, c->remote, 0, c->mr, 0, 8, ALWAYS, NULL));
	expect(c->cq, IBV_WC_RDMA_WRITE, NULL);
}

/* The first num_entries completions, in order, or all that there are; their number goes to
 * num_entries_got. */
static void amounts(struct half *c)
{
	struct ibv_wc wc[8];
	int got = 0;
	for (uintptr_t i = 1; i <= 5; i++)
		RPMA(rpma_write(c->conn, c->remote, 0, c->mr, 0, 8, ALWAYS, (void *)i));
	/* When the fifth is there, all are: a read after it says so. */
	RPMA(rpma_read(c->conn, c->mr, 0, c->remote, 0, 8, ON_ERROR, NULL));
	uintptr_t next = 1;
	while (next <= 5) {
		int r = rpma_cq_get_wc(c->cq, 3, wc, &got);
		if (r == RPMA_E_NO_COMPLETION)
			continue;
		CHECK(!r && got >= 1 && got <= 3);
		for (int i = 0; i < got; i++)
			CHECK(wc[i].wr_id == next++ && wc[i].status == IBV_WC_SUCCESS && wc[i].qp_num == c->qpn);
	}
	empty(c->cq);
	RPMA(rpma_read(c->conn, c->mr, 0, c->remote, 0, 8, ALWAYS, (void *)9));
	while (rpma_cq_get_wc(c->cq, 8, wc, &got) == RPMA_E_NO_COMPLETION)
		;
	CHECK(got == 1 && wc[0].wr_id == 9 && wc[0].opcode == IBV_WC_RDMA_READ);
}

/* Operations with ALWAYS generate completions on success, with ON_ERROR they do not. */
static void silence(struct half *c, struct half *s)
{
	FAILS(RPMA_E_INVAL, rpma_write(c->conn, c->remote, 0, c->mr, 0, 8, 0, NULL));
	for (int i = 0; i < 15; i++)
		RPMA(rpma_write(c->conn, c->remote, 0, c->mr, 0, 8, ON_ERROR, (void *)1));
	RPMA(rpma_read(c->conn, c->mr, 0, c->remote, 0, 8, ALWAYS, (void *)2));
	expect(c->cq, IBV_WC_RDMA_READ, (void *)2);
	empty(c->cq);
	(void)s;
}

/* Each operation moves what it should. */
static void operations(struct half *c, struct half *s)
{
	struct rpma_cq *from = s->rcq ? s->rcq : s->cq;
	memset(mem, 0, sizeof mem);
	strcpy(mem[0], "written");
	RPMA(rpma_write(c->conn, c->remote, 100, c->mr, 0, 8, ALWAYS, mem));
	expect(c->cq, IBV_WC_RDMA_WRITE, mem);
	CHECK(!strcmp(mem[1] + 100, "written"));
	strcpy(mem[1] + 200, "to be read");
	RPMA(rpma_read(c->conn, c->mr, 300, c->remote, 200, 11, ALWAYS, mem));
	expect(c->cq, IBV_WC_RDMA_READ, mem);
	CHECK(!strcmp(mem[0] + 300, "to be read"));
	RPMA(rpma_write(c->conn, NULL, 0, NULL, 0, 0, ALWAYS, mem));
	expect(c->cq, IBV_WC_RDMA_WRITE, mem);

	RPMA(rpma_recv(s->conn, s->mr, 1000, 100, s));
	strcpy(mem[0] + 400, "sent");
	RPMA(rpma_send(c->conn, c->mr, 400, 5, ALWAYS, c));
	struct ibv_wc wc = expect(from, IBV_WC_RECV, s);
	CHECK(wc.byte_len == 5 && wc.qp_num == s->qpn && !(wc.wc_flags & IBV_WC_WITH_IMM) && !strcmp(mem[1] + 1000, "sent"));
	expect(c->cq, IBV_WC_SEND, c);
	RPMA(rpma_recv(s->conn, s->mr, 1000, 100, s));
	RPMA(rpma_send_with_imm(c->conn, NULL, 0, 0, ALWAYS, 0x12345678, c));
	wc = expect(from, IBV_WC_RECV, s);
	CHECK(wc.byte_len == 0 && (wc.wc_flags & IBV_WC_WITH_IMM) && ntohl(wc.imm_data) == 0x12345678);
	expect(c->cq, IBV_WC_SEND, c);
	RPMA(rpma_recv(s->conn, NULL, 0, 0, s));
	RPMA(rpma_write_with_imm(c->conn, c->remote, 500, c->mr, 400, 5, ALWAYS, 0xcafebabe, c));
	wc = expect(from, IBV_WC_RECV_RDMA_WITH_IMM, s);
	CHECK(wc.byte_len == 5 && ntohl(wc.imm_data) == 0xcafebabe && !strcmp(mem[1] + 500, "sent"));
	expect(c->cq, IBV_WC_RDMA_WRITE, c);

	char eight[8] = "atomic!";
	FAILS(RPMA_E_INVAL, rpma_atomic_write(c->conn, c->remote, 604, eight, ALWAYS, c));
	RPMA(rpma_atomic_write(c->conn, c->remote, 600, eight, ALWAYS, c));
	one(c->cq); /* its opcode depends on the provider */
	CHECK(!memcmp(mem[1] + 600, eight, 8));
	RPMA(rpma_write(c->conn, c->remote, 700, c->mr, 400, 5, ON_ERROR, NULL));
	RPMA(rpma_flush(c->conn, c->remote, 700, 5, RPMA_FLUSH_TYPE_VISIBILITY, ALWAYS, c));
	wc = one(c->cq);
	CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == (uintptr_t)c);
	CHECK(!strcmp(mem[1] + 700, "sent"));
	FAILS(RPMA_E_NOSUPP, rpma_flush(c->conn, c->remote, 700, 5, RPMA_FLUSH_TYPE_PERSISTENT, ALWAYS, c));
	empty(s->cq);
}

/* If a receive CQ exists the main CQ never returns RECV or RECV_RDMA_WITH_IMM: it stays
 * empty while the other one fills. */
static void receives(struct half *c, struct half *s)
{
	struct ibv_wc wc[8];
	int got = 0, n = 0;
	for (uintptr_t i = 1; i <= 6; i++)
		RPMA(rpma_recv(s->conn, s->mr, 64 * i, 64, (void *)i));
	for (int i = 0; i < 3; i++) {
		RPMA(rpma_send(c->conn, c->mr, 0, 8, ON_ERROR, NULL));
		RPMA(rpma_write_with_imm(c->conn, c->remote, 0, c->mr, 0, 8, ALWAYS, 1, NULL));
		expect(c->cq, IBV_WC_RDMA_WRITE, NULL);
	}
	while (n < 6) {
		FAILS(RPMA_E_NO_COMPLETION, rpma_cq_get_wc(s->cq, 8, wc, &got));
		int r = rpma_cq_get_wc(s->rcq, 8, wc, &got);
		if (r == RPMA_E_NO_COMPLETION)
			continue;
		CHECK(!r);
		for (int i = 0; i < got; i++, n++)
			CHECK(wc[i].wr_id == (uint64_t)n + 1 && wc[i].opcode == (n & 1 ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV));
	}
	empty(s->rcq);
	/* Sends of the same end complete in the main CQ. */
	RPMA(rpma_write(s->conn, s->remote, 0, s->mr, 0, 8, ALWAYS, s));
	expect(s->cq, IBV_WC_RDMA_WRITE, s);
}

/* The descriptor of a queue becomes readable, wait takes what made it so. */
static void waiting(struct half *c)
{
	int fd;
	RPMA(rpma_cq_get_fd(c->cq, &fd));
	while (!rpma_cq_get_wc(c->cq, 1, &(struct ibv_wc){ 0 }, NULL))
		;
	int flags = fcntl(fd, F_GETFL);
	CHECK(!fcntl(fd, F_SETFL, flags | O_NONBLOCK));
	while (!rpma_cq_wait(c->cq)) /* announcements of what was polled without waiting */
		;
	FAILS(RPMA_E_NO_COMPLETION, rpma_cq_wait(c->cq));
	CHECK(!fcntl(fd, F_SETFL, flags));
	RPMA(rpma_write(c->conn, c->remote, 0, c->mr, 0, 8, ALWAYS, c));
	struct pollfd p = { fd, POLLIN, 0 };
	CHECK(poll(&p, 1, 20000) == 1 && p.revents == POLLIN);
	RPMA(rpma_cq_wait(c->cq));
	CHECK(poll(&p, 1, 0) == 0);
	expect(c->cq, IBV_WC_RDMA_WRITE, c);
}

/* A completion with an error: of its fields wr_id, status, qp_num and vendor_err are valid. */
static void expect_error(struct rpma_cq *cq, uintptr_t context, enum ibv_wc_status status, uint32_t qpn)
{
	struct ibv_wc wc = one(cq);
	if (wc.wr_id != context || wc.status != status || wc.qp_num != qpn || !wc.vendor_err) {
		fprintf(stderr, "wr_id %lx, status %s, qp_num %u, vendor_err %x; want %lx, %s, %u and a vendor_err\n", (unsigned long)wc.wr_id,
			ibv_wc_status_str(wc.status), wc.qp_num, wc.vendor_err, (unsigned long)context, ibv_wc_status_str(status), qpn);
		_exit(1);
	}
}

/* All operations generate completions on error, those with ON_ERROR too. If a receive CQ
 * exists, failed receives go there as well, and never to the main CQ. */
static void errors(struct half *c, struct half *s)
{
	struct rpma_cq *from = s->rcq ? s->rcq : s->cq;
	char eight[8] = "atomic!";
	for (uintptr_t i = 1; i <= 3; i++)
		RPMA(rpma_recv(s->conn, s->mr, 0, 8, (void *)i));
	/* Beyond the end of the peer's memory. */
	RPMA(rpma_write(c->conn, c->remote, SIZE, c->mr, 0, 8, ON_ERROR, (void *)0x51));
	RPMA(rpma_write(c->conn, c->remote, 0, c->mr, 0, 8, ON_ERROR, (void *)0x52));
	expect_error(c->cq, 0x51, IBV_WC_REM_ACCESS_ERR, c->qpn);
	expect_error(c->cq, 0x52, IBV_WC_WR_FLUSH_ERR, c->qpn);
	empty(c->cq);
	for (uintptr_t i = 1; i <= 3; i++)
		expect_error(from, i, IBV_WC_WR_FLUSH_ERR, s->qpn);
	/* Every operation, on a connection that has failed. */
	RPMA(rpma_read(c->conn, c->mr, 0, c->remote, 0, 8, ON_ERROR, (void *)1));
	RPMA(rpma_write(c->conn, c->remote, 0, c->mr, 0, 8, ON_ERROR, (void *)2));
	RPMA(rpma_write_with_imm(c->conn, c->remote, 0, c->mr, 0, 8, ON_ERROR, 1, (void *)3));
	RPMA(rpma_atomic_write(c->conn, c->remote, 0, eight, ON_ERROR, (void *)4));
	RPMA(rpma_flush(c->conn, c->remote, 0, 8, RPMA_FLUSH_TYPE_VISIBILITY, ON_ERROR, (void *)5));
	RPMA(rpma_send(c->conn, c->mr, 0, 8, ON_ERROR, (void *)6));
	RPMA(rpma_send_with_imm(c->conn, c->mr, 0, 8, ON_ERROR, 1, (void *)7));
	for (uintptr_t i = 1; i <= 7; i++)
		expect_error(c->cq, i, IBV_WC_WR_FLUSH_ERR, c->qpn);
	/* A receive would lie there until the next command: the provider tells nobody of it. */
	empty(c->cq);
	empty(s->cq);
}

/* RPMA_E_PROVIDER if ibv_poll_cq fails, RPMA_E_UNKNOWN if it says something impossible.
 * Only a provider that is wrong does so. */
static int poll_result;
static int broken_poll(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	(void)cq, (void)n, (void)wc;
	return poll_result;
}

static void provider(struct half *c)
{
	struct ibv_wc wc[2];
	int got;
	int (*real)(struct ibv_cq *, int, struct ibv_wc *) = ctx->ops.poll_cq;
	ctx->ops.poll_cq = broken_poll;
	poll_result = -1;
	FAILS(RPMA_E_PROVIDER, rpma_cq_get_wc(c->cq, 1, wc, NULL));
	poll_result = 3;
	FAILS(RPMA_E_UNKNOWN, rpma_cq_get_wc(c->cq, 2, wc, &got));
	ctx->ops.poll_cq = real;
	empty(c->cq);
}

/* Requests that are refused, and addresses without anybody. */
static void refusals(void)
{
	struct rpma_conn_req *req;
	struct rpma_conn *conn;
	struct rpma_ep *ep;
	RPMA(rpma_conn_req_new(peer, addr, "7655", NULL, &req));
	RPMA(rpma_conn_req_connect(&req, NULL, &conn));
	next_event(conn, RPMA_CONN_REJECTED);
	RPMA(rpma_conn_delete(&conn));
	RPMA(rpma_ep_listen(peer, addr, "7656", &ep));
	RPMA(rpma_conn_req_new(peer, addr, "7656", NULL, &req));
	RPMA(rpma_conn_req_connect(&req, NULL, &conn));
	struct rpma_conn_req *in;
	RPMA(rpma_ep_next_conn_req(ep, NULL, &in));
	RPMA(rpma_conn_req_delete(&in));
	next_event(conn, RPMA_CONN_REJECTED);
	RPMA(rpma_conn_delete(&conn));
	int fd;
	RPMA(rpma_ep_get_fd(ep, &fd));
	CHECK(!fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK));
	struct pollfd p = { fd, POLLIN, 0 };
	CHECK(poll(&p, 1, 0) == 0);
	FAILS(RPMA_E_NO_EVENT, (errno = 0, rpma_ep_next_conn_req(ep, NULL, &in)) == RPMA_E_PROVIDER && errno == EAGAIN ? RPMA_E_NO_EVENT : 0);
	RPMA(rpma_ep_shutdown(&ep));
	FAILS(RPMA_E_PROVIDER, rpma_ep_listen(peer, "192.0.2.1", "7656", &ep));
}

int main(int argc, char **argv)
{
	CHECK(argc == 2);
	addr = argv[1];
	struct half c = { 0 }, s = { 0 };
	rpma_log_set_threshold(RPMA_LOG_THRESHOLD, RPMA_LOG_DISABLED);
	RPMA(rpma_utils_get_ibv_context(addr, RPMA_UTIL_IBV_CONTEXT_LOCAL, &ctx));
	RPMA(rpma_peer_new(ctx, &peer));
	for (int rcq = 0; rcq <= 20; rcq += 20) {
		make(&c, &s, rcq);
		arguments(&c);
		amounts(&c);
		silence(&c, &s);
		operations(&c, &s);
		if (rcq)
			receives(&c, &s);
		waiting(&c);
		provider(&c);
		errors(&c, &s);
		unmake(&c, &s);
	}
	refusals();
	RPMA(rpma_peer_delete(&peer));
	puts("ok");
	return 0;
}
