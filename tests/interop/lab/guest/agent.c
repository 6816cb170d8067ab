/*
 * agent - what the tests talk to inside the virtual machine.
 *
 * It listens on a TCP port. Each connection is a process of its own and begins with one
 * line: "sh COMMAND" runs a shell command, with its output on the connection and
 * "exit STATUS" as the last line; "verbs" starts a verbs program that is driven by lines
 * of the form "command key=value ...". Each of them is answered by one line, "ok" with
 * more keys and values or "error ERRNO what"; "client" is the client of the conformance
 * suite. When the connection ends everything that
 * it made is gone. Objects are named by small numbers that the other side chooses.
 */
#define _GNU_SOURCE /* POLLRDHUP */
#include <arpa/inet.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SLOTS 32
#define CQ_ENTRIES 4096

static FILE *in, *out;

/* ---- requests and replies */

static const char *args; /* what follows the command on the present line */

static const char *find(const char *key)
{
	size_t n = strlen(key);

	for (const char *p = args; (p = strstr(p, key)); p += n)
		if (p[-1] == ' ' && p[n] == '=')
			return p + n + 1;
	return NULL;
}

static uint64_t num(const char *key)
{
	const char *p = find(key);

	return p ? strtoull(p, NULL, 0) : 0;
}

static int nibble(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* bytes decodes hexadecimal digits and returns the number of bytes. */
static size_t bytes(const char *key, uint8_t *to, size_t room)
{
	const char *p = find(key);
	size_t n = 0;

	while (p && n < room && nibble(p[0]) >= 0 && nibble(p[1]) >= 0) {
		to[n++] = nibble(p[0]) << 4 | nibble(p[1]);
		p += 2;
	}
	return n;
}

static void ok(const char *format, ...)
{
	va_list ap;

	fputs("ok ", out);
	va_start(ap, format);
	vfprintf(out, format, ap);
	va_end(ap);
	fputc('\n', out);
	fflush(out);
}

static void fail(int number, const char *what)
{
	fprintf(out, "error %d %s\n", number, what);
	fflush(out);
}

static void hex(const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		fprintf(out, "%02x", p[i]);
}

/* done answers a call that returns an errno. */
static void done(int number, const char *what)
{
	if (number)
		fail(number < 0 ? errno : number, what);
	else
		ok("");
}

/* ---- objects of a session */

static struct ibv_context *ctx;
static struct ibv_pd *pd;
static struct ibv_comp_channel *channel;
static struct ibv_cq *cqs[2]; /* of sends, of receives */
static struct ibv_mr *mrs[SLOTS];
static struct ibv_qp *qps[SLOTS];
static struct ibv_srq *srqs[SLOTS];
static struct ibv_ah *ahs[SLOTS];
static struct ibv_mw *mws[SLOTS];
static int gid_index;

static int slot(const char *key)
{
	return num(key) % SLOTS;
}

/* open_device finds rxe0 and the entry of its GID table for a family that is no link-local address. */
static void open_device(void)
{
	int want4 = num("family") == 4;
	int n, found = 0;
	union ibv_gid gid;
	struct ibv_port_attr port;
	struct ibv_device **list = ibv_get_device_list(&n);

	if (!list || !n || !(ctx = ibv_open_device(list[0])))
		return fail(errno, "open_device");
	for (gid_index = 0; gid_index < 32 && !found; gid_index++) {
		if (ibv_query_gid(ctx, 1, gid_index, &gid))
			break;
		int is4 = !memcmp(gid.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);
		int link_local = gid.raw[0] == 0xfe && gid.raw[1] == 0x80;
		int empty = !gid.global.subnet_prefix && !gid.global.interface_id;
		found = !empty && !link_local && is4 == want4;
	}
	if (!found)
		return fail(ENOENT, "no GID of this family");
	gid_index--;
	pd = ibv_alloc_pd(ctx);
	channel = ibv_create_comp_channel(ctx);
	for (int i = 0; i < 2; i++)
		cqs[i] = ibv_create_cq(ctx, CQ_ENTRIES, NULL, channel, 0);
	if (!pd || !channel || !cqs[0] || !cqs[1] || ibv_query_port(ctx, 1, &port))
		return fail(errno, "objects of the session");
	fputs("ok gid=", out);
	hex(gid.raw, 16);
	fprintf(out, " index=%d mtu=%d\n", gid_index, port.active_mtu);
	fflush(out);
}

static void reg_mr(void)
{
	size_t len = num("len");
	void *p = aligned_alloc(4096, (len + 4095) & ~(size_t)4095);
	struct ibv_mr *mr;

	memset(p, 0, len);
	mr = mrs[slot("n")] = ibv_reg_mr(pd, p, len, num("access"));
	if (!mr)
		return fail(errno, "reg_mr");
	ok("addr=%llu lkey=%u rkey=%u", (unsigned long long)(uintptr_t)p, mr->lkey, mr->rkey);
}

static void put(void)
{
	struct ibv_mr *mr = mrs[slot("n")];
	size_t off = num("off");

	if (off > mr->length)
		return fail(EINVAL, "put");
	bytes("data", (uint8_t *)mr->addr + off, mr->length - off);
	ok("");
}

static void get(void)
{
	struct ibv_mr *mr = mrs[slot("n")];
	size_t off = num("off"), len = num("len");

	if (off > mr->length || len > mr->length - off)
		return fail(EINVAL, "get");
	fputs("ok data=", out);
	hex((uint8_t *)mr->addr + off, len);
	fputc('\n', out);
	fflush(out);
}

static void create_srq(void)
{
	struct ibv_srq_init_attr a = { .attr = { .max_wr = num("wr"), .max_sge = 1 } };

	if (!(srqs[slot("n")] = ibv_create_srq(pd, &a)))
		return fail(errno, "create_srq");
	ok("");
}

/* create_rc makes a QP that takes ATOMIC_WRITE, which only ibv_wr_* can post, besides the rest. */
static struct ibv_qp *create_rc(const struct ibv_qp_init_attr *a)
{
	struct ibv_qp_init_attr_ex x = {
		.send_cq = a->send_cq,
		.recv_cq = a->recv_cq,
		.srq = a->srq,
		.cap = a->cap,
		.qp_type = a->qp_type,
		.pd = pd,
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_ATOMIC_WRITE,
	};

	return ibv_create_qp_ex(ctx, &x);
}

static void create_qp(void)
{
	struct ibv_qp_init_attr a = {
		.send_cq = cqs[0],
		.recv_cq = cqs[1],
		.qp_type = num("type"),
		.cap = { .max_send_wr = num("wr"), .max_recv_wr = num("wr"), .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64 },
		.srq = find("srq") ? srqs[slot("srq")] : NULL,
	};
	struct ibv_qp *qp = a.qp_type == IBV_QPT_RC ? create_rc(&a) : ibv_create_qp(pd, &a);

	if (!(qps[slot("n")] = qp))
		return fail(errno, "create_qp");
	ok("qpn=%u", qp->qp_num);
}

static struct ibv_ah_attr address(void)
{
	struct ibv_ah_attr a = { .is_global = 1, .port_num = 1, .grh = { .sgid_index = gid_index, .hop_limit = 64 } };

	bytes("dgid", a.grh.dgid.raw, 16);
	return a;
}

static void to_init(void)
{
	struct ibv_qp *qp = qps[slot("n")];
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = num("access"), .qkey = num("qkey") };
	int last = qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;

	done(ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | last), "modify_qp to INIT");
}

static void to_rtr(void)
{
	struct ibv_qp *qp = qps[slot("n")];
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = num("mtu"),
		.dest_qp_num = num("qpn"),
		.rq_psn = num("psn"),
		.max_dest_rd_atomic = num("rd"),
		.min_rnr_timer = num("rnr"),
		.ah_attr = address(),
	};
	int mask = IBV_QP_STATE;

	if (qp->qp_type != IBV_QPT_UD)
		mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
	done(ibv_modify_qp(qp, &a, mask), "modify_qp to RTR");
}

static void to_rts(void)
{
	struct ibv_qp *qp = qps[slot("n")];
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = num("psn"),
		.timeout = num("timeout"),
		.retry_cnt = num("retry"),
		.rnr_retry = num("rnr"),
		.max_rd_atomic = num("rd"),
	};
	int mask = IBV_QP_STATE | IBV_QP_SQ_PSN;

	if (qp->qp_type == IBV_QPT_RC)
		mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
	done(ibv_modify_qp(qp, &a, mask), "modify_qp to RTS");
}

static void set_state(void)
{
	struct ibv_qp_attr a = { .qp_state = num("state") };

	done(ibv_modify_qp(qps[slot("n")], &a, IBV_QP_STATE), "modify_qp");
}

static void get_state(void)
{
	struct ibv_qp_attr a;
	struct ibv_qp_init_attr ia;
	int e = ibv_query_qp(qps[slot("n")], &a, IBV_QP_STATE, &ia);

	if (e)
		return fail(e, "query_qp");
	ok("state=%d", a.qp_state);
}

/* segment is the scatter/gather list of a request: one entry, or none without a length. */
static int segment(struct ibv_sge *s)
{
	struct ibv_mr *mr = mrs[slot("mr")];

	if (!find("len"))
		return 0;
	s->addr = (uintptr_t)mr->addr + num("off");
	s->length = num("len");
	s->lkey = mr->lkey + num("badkey");
	return 1;
}

static void post_recv(void)
{
	struct ibv_sge s;
	struct ibv_recv_wr *bad, wr = { .wr_id = num("wr"), .sg_list = &s, .num_sge = segment(&s) };
	int e;

	if (find("srq"))
		e = ibv_post_srq_recv(srqs[slot("srq")], &wr, &bad);
	else
		e = ibv_post_recv(qps[slot("n")], &wr, &bad);
	done(e, "post_recv");
}

static void post_atomic_write(void)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(qps[slot("n")]);
	struct ibv_mr *mr = mrs[slot("mr")];

	ibv_wr_start(qp);
	qp->wr_id = num("wr");
	qp->wr_flags = num("flags");
	ibv_wr_atomic_write(qp, num("rkey"), num("raddr"), (char *)mr->addr + num("off"));
	done(ibv_wr_complete(qp), "wr_complete");
}

static void post_send(void)
{
	struct ibv_qp *qp = qps[slot("n")];
	struct ibv_sge s;
	struct ibv_send_wr *bad, wr = {
		.wr_id = num("wr"),
		.sg_list = &s,
		.num_sge = segment(&s),
		.opcode = num("op"),
		.send_flags = num("flags"),
	};

	if (wr.opcode == IBV_WR_ATOMIC_WRITE)
		return post_atomic_write();
	if (wr.opcode == IBV_WR_SEND_WITH_INV || wr.opcode == IBV_WR_LOCAL_INV)
		wr.invalidate_rkey = num("inv");
	else
		wr.imm_data = htonl(num("imm"));
	if (qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = ahs[slot("ah")];
		wr.wr.ud.remote_qpn = num("qpn");
		wr.wr.ud.remote_qkey = num("qkey");
	} else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = num("raddr");
		wr.wr.atomic.rkey = num("rkey");
		wr.wr.atomic.compare_add = num("add");
		wr.wr.atomic.swap = num("swap");
	} else {
		wr.wr.rdma.remote_addr = num("raddr");
		wr.wr.rdma.rkey = num("rkey");
	}
	done(ibv_post_send(qp, &wr, &bad), "post_send");
}

static void create_ah(void)
{
	struct ibv_ah_attr a = address();

	if (!(ahs[slot("n")] = ibv_create_ah(pd, &a)))
		return fail(errno, "create_ah");
	ok("");
}

static void alloc_mw(void)
{
	struct ibv_mw *mw = mws[slot("n")] = ibv_alloc_mw(pd, IBV_MW_TYPE_2);

	if (!mw)
		return fail(errno, "alloc_mw");
	ok("rkey=%u", mw->rkey);
}

static void bind_mw(void)
{
	struct ibv_mr *mr = mrs[slot("mr")];
	struct ibv_send_wr *bad, wr = {
		.wr_id = num("wr"),
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
		.bind_mw = {
			.mw = mws[slot("mw")],
			.rkey = num("rkey"),
			.bind_info = {
				.mr = mr,
				.addr = (uintptr_t)mr->addr + num("off"),
				.length = num("len"),
				.mw_access_flags = num("access"),
			},
		},
	};

	done(ibv_post_send(qps[slot("n")], &wr, &bad), "post_send of a bind");
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* poll_cq waits until max completions came or ms milliseconds passed. */
static void poll_cq(void)
{
	struct ibv_cq *cq = cqs[num("cq") & 1];
	int max = num("max"), n = 0;
	int64_t end = now_ms() + num("ms");
	struct ibv_wc wc;

	fputs("ok", out);
	while (n < max) {
		int got = ibv_poll_cq(cq, 1, &wc);
		if (got < 0)
			break;
		if (got == 0) {
			if (now_ms() >= end)
				break;
			usleep(200);
			continue;
		}
		n++;
		fprintf(out, " wc=%llu,%d,%d,%u,%u,%u,%u,%u", (unsigned long long)wc.wr_id, wc.status, wc.opcode,
			wc.byte_len, wc.wc_flags, ntohl(wc.imm_data), wc.qp_num, wc.src_qp);
	}
	fputc('\n', out);
	fflush(out);
}

/* wait_event says which queue had an event within ms milliseconds, 2 if none had. */
static void wait_event(void)
{
	struct pollfd p = { .fd = channel->fd, .events = POLLIN };
	struct ibv_cq *cq;
	void *context;

	if (poll(&p, 1, num("ms")) != 1)
		return ok("cq=2");
	if (ibv_get_cq_event(channel, &cq, &context))
		return fail(errno, "get_cq_event");
	ibv_ack_cq_events(cq, 1);
	ok("cq=%d", cq == cqs[1]);
}

/* join makes the system deliver the packets of a group; a UDP socket is the way to say so. */
static int join(const uint8_t *gid)
{
	if (!memcmp(gid, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12)) {
		struct ip_mreqn m = { .imr_ifindex = 2 };
		memcpy(&m.imr_multiaddr, gid + 12, 4);
		return setsockopt(socket(AF_INET, SOCK_DGRAM, 0), IPPROTO_IP, IP_ADD_MEMBERSHIP, &m, sizeof m);
	}
	struct ipv6_mreq m = { .ipv6mr_interface = 2 };
	memcpy(&m.ipv6mr_multiaddr, gid, 16);
	return setsockopt(socket(AF_INET6, SOCK_DGRAM, 0), IPPROTO_IPV6, IPV6_JOIN_GROUP, &m, sizeof m);
}

static void attach(void)
{
	union ibv_gid g;

	if (bytes("gid", g.raw, 16) != 16)
		return fail(EINVAL, "attach");
	if (join(g.raw))
		return fail(errno, "join");
	done(ibv_attach_mcast(qps[slot("n")], &g, 0), "attach_mcast");
}

static void arm(void) { done(ibv_req_notify_cq(cqs[num("cq") & 1], num("solicited")), "req_notify_cq"); }
static void destroy_qp(void) { done(ibv_destroy_qp(qps[slot("n")]), "destroy_qp"); }
static void dereg_mr(void) { done(ibv_dereg_mr(mrs[slot("n")]), "dereg_mr"); }

static const struct {
	const char *name;
	void (*run)(void);
} commands[] = {
	{ "open", open_device }, { "mr", reg_mr }, { "put", put }, { "get", get }, { "srq", create_srq }, { "qp", create_qp },
	{ "init", to_init }, { "rtr", to_rtr }, { "rts", to_rts }, { "set", set_state }, { "state", get_state },
	{ "recv", post_recv }, { "send", post_send }, { "ah", create_ah }, { "mw", alloc_mw }, { "bind", bind_mw },
	{ "poll", poll_cq }, { "arm", arm }, { "event", wait_event }, { "attach", attach },
	{ "destroy", destroy_qp }, { "dereg", dereg_mr },
};

static void verbs_session(void)
{
	char *line = NULL;
	size_t room = 0;

	while (getline(&line, &room, in) > 0) {
		size_t i, n = strcspn(line, " \n");
		size_t count = sizeof commands / sizeof *commands;

		line[strcspn(line, "\n")] = 0;
		args = line + n;
		for (i = 0; i < count; i++)
			if (strlen(commands[i].name) == n && !strncmp(commands[i].name, line, n))
				break;
		if (i < count)
			commands[i].run();
		else
			fail(ENOSYS, "no such command");
	}
}

/* ---- shell commands */

/* shell_session runs a command until it ends, or the other side hangs up. */
static void shell_session(const char *command, int fd)
{
	int status = 0;
	pid_t child = fork();

	if (child == 0) {
		setpgid(0, 0);
		signal(SIGPIPE, SIG_DFL);
		dup2(fd, 1);
		dup2(fd, 2);
		close(0);
		execl("/bin/sh", "sh", "-c", command, NULL);
		_exit(127);
	}
	setpgid(child, child);
	while (waitpid(child, &status, WNOHANG) == 0) {
		struct pollfd p = { .fd = fd, .events = POLLRDHUP };
		if (poll(&p, 1, 5) == 1)
			kill(-child, SIGKILL);
	}
	fprintf(out, "\nexit %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
	fflush(out);
}

static void session(int fd)
{
	char *line = NULL;
	size_t room = 0;

	in = fdopen(fd, "r");
	out = fdopen(dup(fd), "w");
	if (!in || !out || getline(&line, &room, in) <= 0)
		return;
	line[strcspn(line, "\n")] = 0;
	if (!strncmp(line, "sh ", 3))
		shell_session(line + 3, fd);
	else if (!strcmp(line, "verbs"))
		verbs_session();
	else if (!strcmp(line, "client")) {
		dup2(fd, 0);
		dup2(fd, 1);
		execl("/bin/conform-client", "conform-client", "-d", "rxe1", "-w", "wire0", NULL);
	}
	else
		fail(EINVAL, "sh, verbs or client");
}

int main(int argc, char **argv)
{
	struct sockaddr_in6 a = { .sin6_family = AF_INET6, .sin6_port = htons(argc > 1 ? atoi(argv[1]) : 7000) };
	int one = 1, s = socket(AF_INET6, SOCK_STREAM, 0);

	signal(SIGPIPE, SIG_IGN);
	setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(s, (void *)&a, sizeof a) || listen(s, 64)) {
		perror("agent");
		return 1;
	}
	for (;;) {
		int fd = accept(s, NULL, NULL);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (fd < 0)
			continue;
		if (fork() == 0) {
			close(s);
			session(fd);
			_exit(0);
		}
		close(fd);
	}
}
