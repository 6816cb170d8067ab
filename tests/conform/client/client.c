/*
 * client - a verbs program that is driven by lines, for the conformance suite.
 *
 *	client [-d DEVICE] [-i PORT] [-g GID-INDEX] [-s] [-w NETDEV]
 *
 * The suite (package conform) reads the cases and judges the answers; this program
 * carries out one call of libibverbs at a time, on whatever device that finds. Each line
 * of standard input is a command with its arguments, objects by name; each is answered
 * by one line: the errno of the call, 0 for success, and what it returned. Numbers are
 * decimal, those of libibverbs; data is in hexadecimal digits. The first line of output
 * says that the program is ready, where its memory is, and the device's address.
 *
 * -s is for libhfi1verbs, which crashes when a receive is posted to a queue pair that has
 * a shared receive queue: the answer is EINVAL then, and the library is not asked.
 *
 * -w names the other end of the wire that a RoCE device is on, such as the second half of a
 * pair of virtual Ethernet devices. From there packets can be sent to the device, and its
 * port can be taken down, which some cases need. It takes the rights CAP_NET_RAW and
 * CAP_NET_ADMIN, and accept_local on the device's half, since what arrives has its own
 * address as the source.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#define MEMORY (1 << 20)
#define MAX_SGE 128

/* ---- words of a command */

static char *rest; /* what follows on the present line */

static const char *word(void)
{
	while (*rest == ' ')
		rest++;
	char *w = rest;
	while (*rest && *rest != ' ')
		rest++;
	if (*rest)
		*rest++ = 0;
	return w;
}

static uint64_t num(void) { return strtoull(word(), NULL, 0); }
static int integer(void) { return (int)strtol(word(), NULL, 0); }

/* ---- objects, by kind and name */

enum kind { QP, SRQ, CQ, MW, MR, AH, PD }; /* the order in which they are destroyed */

struct object {
	struct object *next;
	enum kind kind;
	char name[32];
	void *p;
	struct ibv_comp_channel *channel; /* of a CQ */
};

static struct object *objects;

static struct object *find(enum kind kind, const char *name)
{
	for (struct object *o = objects; o; o = o->next)
		if (o->kind == kind && !strcmp(o->name, name))
			return o;
	return NULL;
}

static struct object *find_next(enum kind kind) { return find(kind, word()); }

static void *get(enum kind kind)
{
	struct object *o = find_next(kind);
	return o ? o->p : NULL;
}

/* keep remembers an object; p is NULL if the call failed. It returns the call's errno. */
static int keep(enum kind kind, const char *name, void *p)
{
	if (!p)
		return errno ? errno : EINVAL;
	struct object *o = calloc(1, sizeof *o);
	o->kind = kind;
	snprintf(o->name, sizeof o->name, "%s", name);
	o->p = p;
	o->next = objects;
	objects = o;
	return 0;
}

static int destroy(struct object *o)
{
	int e = 0;
	switch (o->kind) {
	case QP: e = ibv_destroy_qp(o->p); break;
	case SRQ: e = ibv_destroy_srq(o->p); break;
	case CQ: e = ibv_destroy_cq(o->p); break;
	case MW: e = ibv_dealloc_mw(o->p); break;
	case MR: e = ibv_dereg_mr(o->p); break;
	case AH: e = ibv_destroy_ah(o->p); break;
	case PD: e = ibv_dealloc_pd(o->p); break;
	}
	if (e)
		return e < 0 ? errno : e;
	if (o->channel)
		ibv_destroy_comp_channel(o->channel);
	struct object **at = &objects;
	while (*at != o)
		at = &(*at)->next;
	*at = o->next;
	free(o);
	return 0;
}

/* ---- the device and the program's memory */

static const char *device_name;
static int port = 1, gid_index = -1, spare_srq;
static struct ibv_context *ctx;
static union ibv_gid gid;
static uint8_t *memory;

static void non_blocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

/* choose takes the first address that is routable: not link-local, and IPv4 if there is one. */
static int choose(void)
{
	union ibv_gid g;
	struct ibv_port_attr a;
	if (ibv_query_port(ctx, port, &a))
		return -1;
	int best = -1, score = 0;
	for (int i = 0; i < a.gid_tbl_len; i++) {
		if (ibv_query_gid(ctx, port, i, &g) || (!g.global.subnet_prefix && !g.global.interface_id))
			continue;
		int s = g.raw[0] == 0xfe && g.raw[1] == 0x80 ? 1 : memcmp(g.raw, "\0\0\0\0\0\0\0\0\0\0\xff\xff", 12) ? 2 : 3;
		if (s > score)
			best = i, score = s;
	}
	return best;
}

static int open_device(void)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n), *d = NULL;
	for (int i = 0; list && i < n; i++)
		if (!d && (!device_name || !strcmp(device_name, ibv_get_device_name(list[i]))))
			d = list[i];
	ctx = d ? ibv_open_device(d) : NULL;
	if (list)
		ibv_free_device_list(list);
	if (!ctx)
		return d ? errno : ENODEV;
	if (gid_index < 0)
		gid_index = choose();
	if (gid_index < 0 || ibv_query_gid(ctx, port, gid_index, &gid))
		return ENOENT;
	non_blocking(ctx->async_fd);
	return 0;
}

/* reset destroys everything and begins anew. */
static void reset(void)
{
	for (int k = QP; k <= PD; k++)
		for (struct object *o = objects, *next; o; o = next) {
			next = o->next;
			if ((int)o->kind == k && destroy(o))
				fprintf(stderr, "client: %s was not destroyed: %s\n", o->name, strerror(errno));
		}
	if (ctx)
		ibv_close_device(ctx);
	memset(memory, 0, MEMORY);
	printf("%d\n", open_device());
}

static void peek(void)
{
	uint64_t off = num(), n = num();
	printf("0 ");
	for (uint64_t i = 0; i < n && off + i < MEMORY; i++)
		printf("%02x", memory[off + i]);
	printf("\n");
}

static int nibble(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

static void poke(void)
{
	uint64_t off = num();
	const char *hex = word();
	for (; hex[0] && hex[1] && off < MEMORY; hex += 2)
		memory[off++] = nibble(hex[0]) << 4 | nibble(hex[1]);
	printf("0\n");
}

/* ---- the wire */

static const char *far_end; /* of it */

/* own_netdev is the network device of the RDMA device. */
static int own_netdev(struct ifreq *r)
{
	char path[256];
	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/%d/gid_attrs/ndevs/%d", ibv_get_device_name(ctx->device), port, gid_index);
	FILE *f = fopen(path, "r");
	if (!f)
		return errno;
	memset(r, 0, sizeof *r);
	int n = fscanf(f, "%15s", r->ifr_name);
	fclose(f);
	return n == 1 ? 0 : ENODEV;
}

/* inject sends an Ethernet frame, except for its addresses, to the device. */
static int inject_frame(uint8_t *frame, size_t n)
{
	struct ifreq to, from = { 0 };
	struct sockaddr_ll at = { .sll_family = AF_PACKET, .sll_ifindex = if_nametoindex(far_end) };
	snprintf(from.ifr_name, sizeof from.ifr_name, "%s", far_end);
	int e = own_netdev(&to), s = socket(AF_PACKET, SOCK_RAW, 0);
	if (!e && (s < 0 || ioctl(s, SIOCGIFHWADDR, &to) || ioctl(s, SIOCGIFHWADDR, &from)))
		e = errno;
	if (!e) {
		memcpy(frame, to.ifr_hwaddr.sa_data, ETH_ALEN);
		memcpy(frame + ETH_ALEN, from.ifr_hwaddr.sa_data, ETH_ALEN);
		if (sendto(s, frame, n, 0, (void *)&at, sizeof at) != (ssize_t)n)
			e = errno;
	}
	if (s >= 0)
		close(s);
	return e;
}

static void inject(void)
{
	static uint8_t frame[8192];
	const char *hex = word();
	size_t n = 0;
	for (; hex[0] && hex[1] && n < sizeof frame; hex += 2)
		frame[n++] = nibble(hex[0]) << 4 | nibble(hex[1]);
	printf("%d\n", inject_frame(frame, n));
}

/* set_port takes the far end of the wire down or up, so that the device loses its carrier.
 * To take its own network device down would be another case: sends have no route then. */
static void set_port(void)
{
	int up = integer(), s = socket(AF_INET, SOCK_DGRAM, 0);
	struct ifreq r = { 0 };
	snprintf(r.ifr_name, sizeof r.ifr_name, "%s", far_end);
	int e = s < 0 || ioctl(s, SIOCGIFFLAGS, &r) ? errno : 0;
	if (!e) {
		r.ifr_flags = up ? r.ifr_flags | IFF_UP : r.ifr_flags & ~IFF_UP;
		if (ioctl(s, SIOCSIFFLAGS, &r))
			e = errno;
	}
	if (s >= 0)
		close(s);
	printf("%d\n", e);
}

/* ---- creating and destroying */

static void alloc_pd(void)
{
	const char *name = word();
	printf("%d\n", keep(PD, name, ibv_alloc_pd(ctx)));
}

static void reg_mr(void)
{
	const char *name = word();
	struct ibv_pd *pd = get(PD);
	void *addr = (void *)(uintptr_t)num();
	size_t len = num();
	struct ibv_mr *mr = ibv_reg_mr(pd, addr, len, integer());
	int e = keep(MR, name, mr);
	printf("%d %u %u\n", e, mr ? mr->lkey : 0, mr ? mr->rkey : 0);
}

static void alloc_mw(void)
{
	const char *name = word();
	struct ibv_pd *pd = get(PD);
	struct ibv_mw *mw = ibv_alloc_mw(pd, integer());
	int e = keep(MW, name, mw);
	printf("%d %u\n", e, mw ? mw->rkey : 0);
}

static void create_cq(void)
{
	const char *name = word();
	int cqe = integer();
	struct ibv_comp_channel *ch = ibv_create_comp_channel(ctx);
	struct ibv_cq *cq = ch ? ibv_create_cq(ctx, cqe, NULL, ch, 0) : NULL;
	int e = keep(CQ, name, cq);
	if (!e)
		objects->channel = ch;
	else if (ch)
		ibv_destroy_comp_channel(ch);
	if (ch && !e)
		non_blocking(ch->fd);
	printf("%d %d\n", e, cq ? cq->cqe : 0);
}

static void resize_cq(void)
{
	struct ibv_cq *cq = get(CQ);
	int e = ibv_resize_cq(cq, integer());
	printf("%d %d\n", e < 0 ? errno : e, cq->cqe);
}

static void create_srq(void)
{
	const char *name = word();
	struct ibv_pd *pd = get(PD);
	struct ibv_srq_init_attr a = { 0 };
	a.attr.max_wr = num();
	a.attr.max_sge = num();
	a.attr.srq_limit = num();
	printf("%d\n", keep(SRQ, name, ibv_create_srq(pd, &a)));
}

static void modify_srq(void)
{
	struct ibv_srq *srq = get(SRQ);
	int wr = integer(), limit = integer();
	struct ibv_srq_attr a = { .max_wr = wr < 0 ? 0 : wr, .srq_limit = limit < 0 ? 0 : limit };
	int e = ibv_modify_srq(srq, &a, (wr < 0 ? 0 : IBV_SRQ_MAX_WR) | (limit < 0 ? 0 : IBV_SRQ_LIMIT));
	printf("%d\n", e < 0 ? errno : e);
}

static void query_srq(void)
{
	struct ibv_srq_attr a = { 0 };
	int e = ibv_query_srq(get(SRQ), &a);
	printf("%d %u %u %u\n", e < 0 ? errno : e, a.max_wr, a.max_sge, a.srq_limit);
}

/* address is always our own, or a wrong one: the arguments are the distance of the GID
 * index from it, the port, and is_global. */
static struct ibv_ah_attr address(void)
{
	struct ibv_ah_attr a = { .grh = { .dgid = gid, .hop_limit = 64 } };
	a.grh.sgid_index = gid_index + integer();
	a.port_num = integer() - 1 + port;
	a.is_global = integer();
	return a;
}

static void create_ah(void)
{
	const char *name = word();
	struct ibv_pd *pd = get(PD);
	struct ibv_ah_attr a = address();
	printf("%d\n", keep(AH, name, ibv_create_ah(pd, &a)));
}

static void create_qp(void)
{
	const char *name = word();
	struct ibv_pd *pd = get(PD);
	struct ibv_qp_init_attr a = { 0 };
	a.send_cq = get(CQ);
	a.recv_cq = get(CQ);
	a.srq = get(SRQ);
	a.qp_type = integer();
	a.sq_sig_all = integer();
	a.cap.max_send_wr = num();
	a.cap.max_recv_wr = num();
	a.cap.max_send_sge = num();
	a.cap.max_recv_sge = num();
	a.cap.max_inline_data = num();
	struct ibv_qp *qp = ibv_create_qp(pd, &a);
	int e = keep(QP, name, qp);
	printf("%d %u %u %u %u %u %u\n", e, qp ? qp->qp_num : 0, a.cap.max_send_wr, a.cap.max_recv_wr, a.cap.max_send_sge,
	       a.cap.max_recv_sge, a.cap.max_inline_data);
}

static void remove_object(enum kind kind)
{
	struct object *o = find_next(kind);
	printf("%d\n", o ? destroy(o) : EINVAL);
}

static void destroy_qp(void) { remove_object(QP); }
static void destroy_srq(void) { remove_object(SRQ); }
static void destroy_cq(void) { remove_object(CQ); }
static void dealloc_mw(void) { remove_object(MW); }
static void dereg_mr(void) { remove_object(MR); }
static void destroy_ah(void) { remove_object(AH); }
static void dealloc_pd(void) { remove_object(PD); }

/* ---- queue pairs */

static void modify_qp(void)
{
	struct ibv_qp *qp = get(QP);
	int mask = integer();
	struct ibv_qp_attr a = { 0 };
	a.qp_state = integer();
	a.port_num = integer() - 1 + port;
	a.pkey_index = integer();
	a.qp_access_flags = integer();
	a.qkey = num();
	a.path_mtu = integer();
	a.dest_qp_num = num();
	a.rq_psn = num();
	a.sq_psn = num();
	a.max_dest_rd_atomic = integer();
	a.max_rd_atomic = integer();
	a.min_rnr_timer = integer();
	a.timeout = integer();
	a.retry_cnt = integer();
	a.rnr_retry = integer();
	a.en_sqd_async_notify = integer();
	a.ah_attr = address();
	int e = ibv_modify_qp(qp, &a, mask);
	printf("%d\n", e < 0 ? errno : e);
}

static void query_qp(void)
{
	struct ibv_qp *qp = get(QP);
	struct ibv_qp_attr a = { 0 };
	struct ibv_qp_init_attr init;
	int e = ibv_query_qp(qp, &a, IBV_QP_STATE, &init); /* changes qp->state as well */
	printf("%d %d %d %d\n", e < 0 ? errno : e, a.qp_state, qp->state, a.sq_draining);
}

/* ---- work */

static int list(struct ibv_sge *sge)
{
	int n = integer();
	for (int i = 0; i < n && i < MAX_SGE; i++) {
		sge[i].addr = num();
		sge[i].length = num();
		sge[i].lkey = num();
	}
	return n < MAX_SGE ? n : MAX_SGE;
}

static void post_send(void)
{
	struct ibv_sge sge[MAX_SGE];
	struct ibv_send_wr wr = { .sg_list = sge }, *bad;
	struct ibv_qp *qp = get(QP);
	wr.wr_id = num();
	wr.opcode = integer();
	wr.send_flags = integer();
	uint32_t imm = num(), inv = num();
	uint64_t remote = num();
	uint32_t rkey = num();
	uint64_t compare = num(), swap = num();
	struct ibv_ah *ah = get(AH);
	uint32_t qpn = num(), qkey = num();
	wr.num_sge = list(sge);
	if (wr.opcode == IBV_WR_SEND_WITH_INV || wr.opcode == IBV_WR_LOCAL_INV)
		wr.invalidate_rkey = inv;
	else
		wr.imm_data = htonl(imm);
	if (qp->qp_type == IBV_QPT_UD) {
		wr.wr.ud.ah = ah;
		wr.wr.ud.remote_qpn = qpn;
		wr.wr.ud.remote_qkey = qkey;
	} else if (wr.opcode == IBV_WR_ATOMIC_CMP_AND_SWP || wr.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
		wr.wr.atomic.remote_addr = remote;
		wr.wr.atomic.rkey = rkey;
		wr.wr.atomic.compare_add = compare;
		wr.wr.atomic.swap = swap;
	} else {
		wr.wr.rdma.remote_addr = remote;
		wr.wr.rdma.rkey = rkey;
	}
	printf("%d\n", ibv_post_send(qp, &wr, &bad));
}

static void bind_mw(void)
{
	struct ibv_send_wr wr = { .opcode = IBV_WR_BIND_MW }, *bad;
	struct ibv_qp *qp = get(QP);
	wr.wr_id = num();
	wr.send_flags = integer();
	wr.bind_mw.mw = get(MW);
	wr.bind_mw.bind_info.mr = get(MR);
	wr.bind_mw.rkey = num();
	wr.bind_mw.bind_info.addr = num();
	wr.bind_mw.bind_info.length = num();
	wr.bind_mw.bind_info.mw_access_flags = integer();
	printf("%d\n", ibv_post_send(qp, &wr, &bad));
}

static void post_recv(void)
{
	struct ibv_sge sge[MAX_SGE];
	struct ibv_recv_wr wr = { .sg_list = sge }, *bad;
	struct ibv_qp *qp = get(QP);
	wr.wr_id = num();
	wr.num_sge = list(sge);
	printf("%d\n", spare_srq && qp->srq ? EINVAL : ibv_post_recv(qp, &wr, &bad));
}

static void post_srq_recv(void)
{
	struct ibv_sge sge[MAX_SGE];
	struct ibv_recv_wr wr = { .sg_list = sge }, *bad;
	struct ibv_srq *srq = get(SRQ);
	wr.wr_id = num();
	wr.num_sge = list(sge);
	printf("%d\n", ibv_post_srq_recv(srq, &wr, &bad));
}

/* ---- what came of it */

static void poll_cq(void)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(get(CQ), 1, &wc);
	if (n != 1) {
		printf("0 0\n");
		return;
	}
	printf("0 1 %llu %d %d %u %u %u %u %u %u\n", (unsigned long long)wc.wr_id, wc.status, wc.opcode, wc.vendor_err, wc.byte_len,
	       ntohl(wc.imm_data), wc.qp_num, wc.src_qp, wc.wc_flags);
}

static void notify(void)
{
	struct ibv_cq *cq = get(CQ);
	printf("%d\n", ibv_req_notify_cq(cq, integer()));
}

/* comp_events takes and acknowledges what is there. */
static void comp_events(void)
{
	struct object *o = find_next(CQ);
	struct ibv_cq *cq;
	void *context;
	int n = 0;
	while (!ibv_get_cq_event(o->channel, &cq, &context)) {
		ibv_ack_cq_events(cq, 1);
		n++;
	}
	printf("0 %d\n", n);
}

/* async_event takes one event: its number and the name of its object, "-" if it has none. */
static void async_event(void)
{
	struct ibv_async_event ev;
	if (ibv_get_async_event(ctx, &ev)) {
		printf("0\n");
		return;
	}
	const char *name = "-";
	for (struct object *o = objects; o; o = o->next)
		if (o->kind <= CQ && o->p == (void *)ev.element.qp && ev.event_type != IBV_EVENT_PORT_ACTIVE && ev.event_type != IBV_EVENT_PORT_ERR)
			name = o->name;
	printf("0 %d %s\n", ev.event_type, name);
	ibv_ack_async_event(&ev);
}

static void nap(void)
{
	usleep(num());
	printf("0\n");
}

static const struct {
	const char *name;
	void (*run)(void);
} commands[] = {
	{ "reset", reset }, { "peek", peek }, { "poke", poke }, { "nap", nap }, { "inject", inject }, { "port", set_port },
	{ "alloc_pd", alloc_pd }, { "dealloc_pd", dealloc_pd }, { "reg_mr", reg_mr }, { "dereg_mr", dereg_mr },
	{ "alloc_mw", alloc_mw }, { "dealloc_mw", dealloc_mw },
	{ "create_cq", create_cq }, { "resize_cq", resize_cq }, { "destroy_cq", destroy_cq },
	{ "create_srq", create_srq }, { "modify_srq", modify_srq }, { "query_srq", query_srq }, { "destroy_srq", destroy_srq },
	{ "create_ah", create_ah }, { "destroy_ah", destroy_ah },
	{ "create_qp", create_qp }, { "modify_qp", modify_qp }, { "query_qp", query_qp }, { "destroy_qp", destroy_qp },
	{ "post_send", post_send }, { "bind_mw", bind_mw }, { "post_recv", post_recv }, { "post_srq_recv", post_srq_recv },
	{ "poll_cq", poll_cq }, { "req_notify_cq", notify }, { "comp_events", comp_events }, { "async_event", async_event },
};

/* carry_out runs the command of a line. */
static void carry_out(char *line)
{
	rest = line;
	const char *name = word();
	for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
		if (!strcmp(commands[i].name, name)) {
			errno = 0;
			commands[i].run();
			return;
		}
	printf("%d\n", ENOSYS);
}

int main(int argc, char **argv)
{
	for (int c; (c = getopt(argc, argv, "d:i:g:sw:")) != -1;)
		switch (c) {
		case 'd': device_name = optarg; break;
		case 'i': port = atoi(optarg); break;
		case 'g': gid_index = atoi(optarg); break;
		case 's': spare_srq = 1; break;
		case 'w': far_end = optarg; break;
		default: fprintf(stderr, "usage: client [-d DEVICE] [-i PORT] [-g GID-INDEX] [-s] [-w NETDEV]\n"); return 2;
		}
	memory = mmap(NULL, MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED) {
		perror("client");
		return 1;
	}
	int e = open_device();
	if (e) {
		fprintf(stderr, "client: no device to use: %s\n", strerror(e));
		return 1;
	}
	printf("rvtsim-conform 1 %llu %d ", (unsigned long long)(uintptr_t)memory, MEMORY);
	for (int i = 0; i < 16; i++)
		printf("%02x", gid.raw[i]);
	printf("%s\n", far_end ? " wire" : "");
	fflush(stdout);
	char *line = NULL;
	size_t room = 0;
	while (getline(&line, &room, stdin) > 0) {
		line[strcspn(line, "\n")] = 0;
		carry_out(line);
		fflush(stdout);
	}
	return 0;
}
