/*
 * cmpeer - one end of one attempt to connect by librdmacm, and a transcript of it.
 *
 * usage: cmpeer [-u] serve ADDRESS PORT ACTION BYTES
 *        cmpeer [-u] call  ADDRESS PORT ACTION BYTES
 *
 * ADDRESS is where the server listens. Each side sends BYTES bytes of private data. ACTION
 * says what happens, and both sides are told the same:
 *
 *   client, server  the connection is accepted, and that side disconnects it
 *   both            both sides disconnect at once
 *   reject, ece     the request is refused, with reason 28 with data, or 35
 *   ignore          the id of the request is destroyed without an answer
 *   nobody          nobody listens (for the client alone)
 *   refuse          the client refuses the answer
 *   caller, callee  that side destroys its id while the other waits: the client after its
 *                   request was received, the server after the connection was made
 *
 * What is printed does not depend on chance, so that transcripts can be compared: events in
 * their order with status and parameters, and calls that failed. Numbers of QPs, PSNs and
 * ports are compared with what they should be here. The exit status says that the transcript
 * is complete, nothing else.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CLIENT_QPN 0x5a0001
#define SERVER_QPN 0x5a0002

static int datagrams, server;
static const char *action;
static struct rdma_event_channel *ch;
static unsigned char pattern[256];

static int is(const char *a) { return !strcmp(action, a); }

static void fail(const char *what)
{
	printf("cannot: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* say prints the outcome of a call that may fail. */
static int say(const char *call, int rc)
{
	if (rc)
		printf("%s: %s\n", call, strerror(errno));
	else
		printf("%s: ok\n", call);
	return rc;
}

/* data prints private data: its length, how much of the pattern is in it, and whether the
 * rest is zero. */
static void data(const unsigned char *p, int n)
{
	int same = 0, zero = 1;

	while (same < n && p[same] == pattern[same])
		same++;
	for (int i = same; i < n; i++)
		zero &= !p[i];
	printf(" private %d bytes: %d of the pattern%s", n, same, n > same ? zero ? ", then zeros" : ", then others" : "");
}

static void params(struct rdma_cm_event *e)
{
	int peer = server ? CLIENT_QPN : SERVER_QPN;

	if (datagrams) {
		struct rdma_ud_param *u = &e->param.ud;

		printf(" qp %s qkey %#x", u->qp_num == (unsigned)peer ? "the peer's" : u->qp_num ? "other" : "none", u->qkey);
		printf(" ah %s", u->ah_attr.is_global ? "global" : "none");
		if (u->ah_attr.is_global)
			printf(" hop %d port %d", u->ah_attr.grh.hop_limit, u->ah_attr.port_num);
		data(u->private_data, u->private_data_len);
		return;
	}
	struct rdma_conn_param *c = &e->param.conn;

	printf(" qp %s rr %d depth %d flow %d retry %d rnr %d srq %d", c->qp_num == (unsigned)peer ? "the peer's" : c->qp_num ? "other" : "none",
	       c->responder_resources, c->initiator_depth, c->flow_control, c->retry_count, c->rnr_retry_count, c->srq);
	data(c->private_data, c->private_data_len);
}

/* next waits for an event, prints it, and hands it over. */
static struct rdma_cm_event *next(void)
{
	struct rdma_cm_event *e;

	if (rdma_get_cm_event(ch, &e))
		fail("rdma_get_cm_event");
	printf("%s status %d", rdma_event_str(e->event), e->status);
	params(e);
	printf("\n");
	return e;
}

static enum rdma_cm_event_type ack(struct rdma_cm_event *e)
{
	enum rdma_cm_event_type t = e->event;

	rdma_ack_cm_event(e);
	return t;
}

/* attributes prints what the QP would be given on its way to a state. */
static void attributes(struct rdma_cm_id *id, enum ibv_qp_state to, const char *name)
{
	struct ibv_qp_attr a = { .qp_state = to };
	int mask = 0;

	if (rdma_init_qp_attr(id, &a, &mask)) {
		printf("init_qp_attr %s: %s\n", name, strerror(errno));
		return;
	}
	printf("init_qp_attr %s: mask %#x", name, mask);
	if (mask & IBV_QP_ACCESS_FLAGS)
		printf(" access %#x", a.qp_access_flags & 0xff);
	if (mask & IBV_QP_AV)
		printf(" hop %d tclass %d dlid %d port %d", a.ah_attr.grh.hop_limit, a.ah_attr.grh.traffic_class, a.ah_attr.dlid, a.ah_attr.port_num);
	if (mask & IBV_QP_DEST_QPN)
		printf(" dest %s", a.dest_qp_num == (unsigned)(server ? CLIENT_QPN : SERVER_QPN) ? "the peer's" : "other");
	if (mask & IBV_QP_MIN_RNR_TIMER)
		printf(" mtu %d min_rnr %d", a.path_mtu, a.min_rnr_timer);
	if (mask & IBV_QP_MAX_DEST_RD_ATOMIC)
		printf(" dest_rd %d", a.max_dest_rd_atomic);
	if (mask & IBV_QP_MAX_QP_RD_ATOMIC)
		printf(" rd %d", a.max_rd_atomic);
	if (mask & IBV_QP_RETRY_CNT)
		printf(" retry %d rnr %d", a.retry_cnt, a.rnr_retry);
	printf("\n");
}

static void all_attributes(struct rdma_cm_id *id)
{
	attributes(id, IBV_QPS_INIT, "INIT");
	if (datagrams)
		return;
	attributes(id, IBV_QPS_RTR, "RTR");
	attributes(id, IBV_QPS_RTS, "RTS");
}

static struct rdma_conn_param parameters(int bytes)
{
	struct rdma_conn_param p = { .qp_num = server ? SERVER_QPN : CLIENT_QPN, .private_data = pattern, .private_data_len = (unsigned char)bytes,
				     .responder_resources = server ? 2 : 3, .initiator_depth = server ? 1 : 5, .flow_control = 1, .retry_count = 6, .rnr_retry_count = 5 };
	return p;
}

/* finish sees a connection to its end. */
static void finish(struct rdma_cm_id *id)
{
	int mine = is(server ? "server" : "client") || is("both"), leaves = server && is("callee");

	if (leaves)
		return;
	if (mine)
		say("disconnect", rdma_disconnect(id));
	/* A disconnect that crosses the peer's has to be repeated, so everybody does. */
	for (;;)
		switch (ack(next())) {
		case RDMA_CM_EVENT_DISCONNECTED:
			say("disconnect", rdma_disconnect(id));
			all_attributes(id);
			break;
		default:
			return;
		}
}

static void serve(struct rdma_cm_id *listener, int bytes)
{
	struct rdma_cm_event *e = next();
	struct rdma_cm_id *id = e->id;
	struct rdma_conn_param p = parameters(bytes);
	enum rdma_cm_event_type t;

	if (e->event != RDMA_CM_EVENT_CONNECT_REQUEST)
		fail("a request");
	ack(e);
	all_attributes(id);
	if (is("reject"))
		say("reject", rdma_reject(id, pattern, (unsigned char)bytes));
	else if (is("ece"))
		say("reject", rdma_reject_ece(id, pattern, (unsigned char)bytes));
	else if (!is("ignore") && !is("caller")) {
		if (!say("accept", rdma_accept(id, &p)) && !datagrams) {
			t = ack(next());
			if (t == RDMA_CM_EVENT_ESTABLISHED)
				finish(id);
		}
	} else if (is("caller")) {
		/* The client is gone already, or goes now: accept leads nowhere. */
		struct pollfd none = { ch->fd, POLLIN, 0 };

		printf("events before accept: %d\n", poll(&none, 1, 4000));
		say("accept", rdma_accept(id, &p));
	}
	say("destroy", rdma_destroy_id(id));
	say("destroy listener", rdma_destroy_id(listener));
}

static void call(struct rdma_cm_id *id, struct sockaddr *to, int bytes)
{
	struct rdma_conn_param p = parameters(bytes);

	if (say("resolve_addr", rdma_resolve_addr(id, NULL, to, 5000)) || ack(next()) != RDMA_CM_EVENT_ADDR_RESOLVED)
		return;
	if (say("resolve_route", rdma_resolve_route(id, 5000)) || ack(next()) != RDMA_CM_EVENT_ROUTE_RESOLVED)
		return;
	all_attributes(id);
	if (say("connect", rdma_connect(id, &p)))
		return;
	if (is("caller")) {
		struct pollfd none = { ch->fd, POLLIN, 0 };

		poll(&none, 1, 300); /* until the server has the request */
		return;
	}
	switch (ack(next())) {
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		all_attributes(id);
		if (is("refuse")) {
			say("reject", rdma_reject(id, pattern, (unsigned char)bytes));
			return;
		}
		if (say("establish", rdma_establish(id)))
			return;
		finish(id);
		return;
	default:
		say("connect again", rdma_connect(id, &p));
	}
}

int main(int argc, char **argv)
{
	struct addrinfo *to, hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV };
	struct rdma_cm_id *id;

	if (argc > 1 && !strcmp(argv[1], "-u")) {
		datagrams = 1;
		argv++, argc--;
	}
	if (argc != 6 || getaddrinfo(argv[2], argv[3], &hints, &to))
		return 64;
	setvbuf(stdout, NULL, _IOLBF, 0);
	server = !strcmp(argv[1], "serve");
	action = argv[4];
	for (int i = 0; i < 256; i++)
		pattern[i] = (unsigned char)(i + 1);
	if (!(ch = rdma_create_event_channel()) || rdma_create_id(ch, &id, NULL, datagrams ? RDMA_PS_UDP : RDMA_PS_TCP))
		fail("rdma_create_id");
	if (!server) {
		call(id, to->ai_addr, atoi(argv[5]));
		say("destroy", rdma_destroy_id(id));
		return 0;
	}
	if (say("bind", rdma_bind_addr(id, to->ai_addr)) || say("listen", rdma_listen(id, 0)))
		return 1;
	serve(id, atoi(argv[5]));
	return 0;
}
