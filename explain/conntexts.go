package explain

import (
	"time"

	"github.com/rvtsim/rvtsim/cm"
)

// connInfo is a meaning, and what to look at.
type connInfo struct {
	meaning string
	advice  []string
}

func vtimes(n int) time.Duration { return time.Duration(n) }

func reasonText(r cm.Reason) string {
	if i, ok := reasons[r]; ok {
		return i.meaning
	}
	return "the peer refused; Linux never gives this reason"
}

func sidrText(s cm.SIDRStatus) string {
	if i, ok := sidrStatuses[s]; ok {
		return i.meaning
	}
	return "the peer refused"
}

var nobodyListens = []string{
	"Start the server first, and let it listen at this port: on this address, or on the wildcard.",
	"Both sides must use the same port space: RDMA_PS_TCP for connections, RDMA_PS_UDP for datagrams.",
	"Ports of librdmacm are not those of TCP: ss does not show them. rvtsim ls --json shows the ids of programs, listeners among them.",
}

// reasons are those that Linux sends, and what rdma_cm makes of them.
var reasons = map[cm.Reason]connInfo{
	cm.RejTimeout: {"the caller gave up waiting, or its program has ended", []string{
		"The side that called destroyed its id before the answer came: by a timeout of its own, by ending, or by closing its event channel.",
	}},
	cm.RejInvalidServiceID: {"nobody listens there", nobodyListens},
	cm.RejStaleConn: {"the QP that calls has a connection with the peer already", []string{
		"The peer still has the connection that a program with the same queue pair number had before. It has ended it now: call again, with a new id.",
	}},
	cm.RejInvalidGID: {"the addresses in the request are not the peer's, or it has no route back", []string{
		"Look at the addresses of both sides: rvtsim ls, or ibv_devinfo -v.",
	}},
	cm.RejConsumerDefined: {"the program there refused, or rdma_cm did for it", []string{
		"rdma_reject gives this reason, and so does a program that destroys the id of a request, or its listener, without an answer.",
		"An rdma_accept that fails refuses as well: too much private data, more than 196 bytes, for one.",
		"rdma_cm refuses by itself what does not fit the listener: another address, another type of QP.",
		"The private data of the event may say more; its meaning is the program's.",
	}},
	cm.RejVendorOption: {"the program there does not take the vendor's options (rdma_reject_ece)", nil},
}

// sidrStatuses are those of a SIDR_REP.
var sidrStatuses = map[cm.SIDRStatus]connInfo{
	cm.SIDRUnsupported: {"nobody listens there", nobodyListens},
	cm.SIDRRejected: {"the program there refused", []string{
		"rdma_reject, an rdma_accept that failed, or a request that was destroyed without an answer.",
	}},
	cm.SIDRNoQP:     {"the program there has no QP for it", nil},
	cm.SIDRRedirect: {"the peer names somebody else, which rdma_cm does not follow", nil},
	cm.SIDRVersion:  {"the peer does not know this version of the request", nil},
}

// connEvents are the events of ids.
var connEvents = [...]connInfo{
	cm.EventAddrResolved: {"the address was resolved: the id has a device, and rdma_resolve_route may follow.", nil},
	cm.EventAddrError: {"the address was not resolved.", []string{
		"Is the address right, and is the machine on? rvtsim ls lists the addresses of nodes.",
		"On the loopback network an address is there as long as somebody has its UDP port 4791: a node of any rvtsim on this machine.",
		"The id may try again: rdma_resolve_addr.",
	}},
	cm.EventRouteResolved:   {"the path is known: rdma_connect may follow.", nil},
	cm.EventRouteError:      {"no path was found.", nil},
	cm.EventConnectRequest:  {"somebody calls: answer with rdma_accept or rdma_reject, on the new id of the event.", nil},
	cm.EventConnectResponse: {"the peer has accepted; the program brings its QP up and confirms with rdma_establish. With a QP of librdmacm's the library does both, and says ESTABLISHED.", nil},
	cm.EventConnectError: {"the peer has accepted, but the QP could not be brought up.", []string{
		"The reason is the refused modify_qp: rvtsim explain --node tells it.",
	}},
	cm.EventUnreachable: {"the peer's connection manager did not answer.", []string{
		"Does a RoCE adapter run at that address? A machine without one gives no answer at all; one that runs, but has no listener, says REJECTED at once.",
		"Is UDP port 4791 open in the firewalls between them, in both directions?",
		"rvtsim ls shows what is wrong with the links between nodes: partitions, loss.",
		"An id serves one attempt: create a new one to try again.",
	}},
	cm.EventRejected: {"the peer refused; the status is the reason.", []string{
		"rvtsim explain REJECTED 8 explains the reason 8. An id serves one attempt: create a new one to try again.",
	}},
	cm.EventEstablished: {"the connection is up.", nil},
	cm.EventDisconnected: {"the connection has ended.", []string{
		"Status 0: one side called rdma_disconnect, or ended. Call rdma_disconnect too: only that answers the peer.",
		"Status -110: the peer did not answer the DREQ; it has gone, or the network has.",
	}},
	cm.EventDeviceRemoval:  {"the device is gone. The ids can only be destroyed.", nil},
	cm.EventMulticastJoin:  {"the group was joined; the event says where to send.", nil},
	cm.EventMulticastError: {"the group was not joined.", nil},
	cm.EventAddrChange:     {"the network device has another hardware address.", nil},
	cm.EventTimeWaitExit:   {"no packet of the connection can be under way any more: its QP may be used again.", nil},
}

// connCalls says what usually makes a call of the connection manager fail.
var connCalls = map[string][]string{
	"connect": {
		"The order is rdma_resolve_addr, ADDR_RESOLVED, rdma_resolve_route, ROUTE_RESOLVED, rdma_connect. An id serves one attempt: create a new one to try again.",
	},
	"accept": {
		"A request can be accepted once, on the id that its event brought, and not any more when the caller has given up. The caller was refused now.",
	},
	"reject": {
		"Only a request, or a response, that was not answered yet can be refused, with reason 28 or 35 and up to 148 bytes.",
	},
	"establish": {
		"Confirm after CONNECT_RESPONSE, once. With a QP of librdmacm's the library does it.",
	},
	"resolve_addr": {
		"An id is resolved once, when it is new or bound; source and destination are of one family. After ADDR_ERROR it may be resolved again.",
	},
	"resolve_route": {
		"Resolve the address first, and wait for ADDR_RESOLVED. The timeout must be positive. Loopback addresses that are no node's have no route.",
	},
	"listen": {
		"An id listens once, when it is new or bound, and needs its port for itself: no other id may have the port, REUSEADDR or not.",
	},
	"bind": {
		"The address must be the node's own, or the wildcard: rvtsim ls. An id is bound once; a port belongs to one id unless all have REUSEADDR. Ports are those of the node, not those of TCP.",
	},
	"disconnect": {
		"Only an id that has tried to connect, or got a request, can be disconnected.",
	},
	"init_qp_attr": {
		"RTR and RTS have attributes only while there is a peer: after CONNECT_REQUEST or CONNECT_RESPONSE, and before the end.",
	},
	"join_mcast": {
		"Groups are joined by ids of RDMA_PS_UDP that are bound or have a resolved address, before rdma_resolve_route. RoCE v2 takes IPv4 groups only.",
	},
	"leave_mcast": {"The id is not, or not any more, a member of the group."},
	"migrate_id":  {"The id must be of the channel that is named, and that channel must be open."},
	"set_option":  {"Options have their time: REUSEADDR and AFONLY before bind, ACK_TIMEOUT and TOS before rdma_resolve_route."},
	"notify":      {"rdma_notify is for COMM_EST, before the connection is established."},
}

// connVerbs are other names of the same calls.
var connVerbs = map[string]string{"bind_ip": "bind", "bind_addr": "bind", "resolve_ip": "resolve_addr", "join_ip_mcast": "join_mcast", "join_multicast": "join_mcast", "leave_multicast": "leave_mcast", "reject_ece": "reject"}

// privateData is the advice for private data that is too long.
var privateData = []string{
	"rdma_cm puts 36 bytes of its own, with the addresses, in front: of the 92 bytes of a REQ 56 are the program's, of the 216 of a SIDR_REQ 180. An answer carries more: 196 bytes in a REP, 148 in a REJ, 136 in a SIDR_REP.",
	"Send the rest as the first message of the connection.",
}
