package spectables

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/wire"
)

// derived and written make columns.
func derived(name, typ, text string) Column { return Column{name, typ, text, true} }
func written(name, typ, text string) Column { return Column{name, typ, text, false} }

// sources are the tables.
var sources = []*source{
	{name: "opcodes", title: "BTH opcodes and the headers that follow", source: "IBTA 9.2, 9.3; Linux rxe_opcode[]", key: []string{"opcode"}, rows: opcodeRows,
		columns: []Column{
			derived("opcode", "hex", "first byte of the BTH"), derived("name", "string", "operation, with the transport in front unless it is RC"),
			derived("transport", "string", "RC, UC, UD or CNP"), derived("kind", "string", "request or response; empty for a CNP"),
			derived("operation", "string", "what the message does"), derived("first", "bool", "first packet of a message"), derived("last", "bool", "last packet of a message"),
			derived("headers", "list", "headers in the order of the wire"), derived("header_bytes", "int", "their length, the BTH's included"),
			derived("payload", "bool", "payload may follow"), derived("takes_receive", "bool", "uses up a receive if its message needs one"), derived("completes", "bool", "makes a receive completion"),
		}},
	{name: "qp-transitions", title: "State changes of a queue pair with the attributes they must and may bring", source: "ibv_modify_qp(3); Linux qp_state_table", key: []string{"from", "to", "type"}, rows: transitionRows,
		columns: []Column{
			derived("from", "string", "state before"), derived("to", "string", "state after"), derived("type", "string", "queue pair type"),
			derived("required", "list", "bits of attr_mask without IBV_QP_ besides STATE"), derived("optional", "list", "bits that may be set too"),
		}},
	{name: "qp-states", title: "What a queue pair does in each state", source: "Linux ib_rvt_state_ops", key: []string{"state"}, rows: stateRows,
		columns: []Column{
			derived("state", "string", "state"), derived("value", "int", "number (enum ibv_qp_state)"), derived("post_recv", "bool", "receives may be posted"), derived("process_recv", "bool", "packets are accepted"),
			derived("flush_recv", "bool", "receives are flushed"), derived("post_send", "bool", "sends may be posted"), derived("process_send", "bool", "sends that were started go on"),
			derived("process_next_send", "bool", "sends are started"), derived("flush_send", "bool", "sends are flushed"),
		}},
	{name: "operations", title: "Send operations, the transports that have them, and their properties", source: "ibv_post_send(3); Linux hfi1_post_parms", key: []string{"name"}, rows: operationRows,
		columns: []Column{
			derived("name", "string", "operation without IBV_WR_"), derived("wr_opcode", "int", "number in the work request"), derived("wc_opcode", "string", "opcode of its completion"), derived("wc_value", "int", "number of that"),
			derived("rc", "bool", "on RC"), derived("uc", "bool", "on UC"), derived("ud", "bool", "on UD"),
			derived("properties", "list", "local: sends nothing; atomic; rd_atomic: counts against max_rd_atomic; credit: takes a receive; inline: may be INLINE; local_write: its list needs LOCAL_WRITE; solicited: may be SOLICITED; rdma: has address and rkey; imm; reserved: has a number, is not implemented"),
		}},
	{name: "statuses", title: "Completion statuses", source: "ibv_poll_cq(3); IBTA 9.9, 10.3", key: []string{"name"}, rows: statusRows,
		columns: []Column{
			derived("value", "int", "number (enum ibv_wc_status)"), derived("name", "string", "status without IBV_WC_"),
			written("side", "string", "requester: completes a send; responder: completes a receive; both; none: no device here makes it"),
			written("meaning", "string", "what happened"), written("state", "string", "state of the queue pair afterwards"),
			written("valid", "list", "fields of struct ibv_wc that mean something"), written("causes", "list", "vendor_err that may come with it; names of causes.yaml"),
		}},
	{name: "events", title: "Asynchronous events", source: "ibv_get_async_event(3); IBTA 11.6", key: []string{"name"}, rows: eventRows,
		columns: []Column{
			derived("value", "int", "number (enum ibv_event_type)"), derived("name", "string", "event without IBV_EVENT_"),
			written("object", "string", "what it is about: qp, cq, srq, port, device, wq"), written("when", "string", "what raises it"),
			written("profiles", "list", "profiles whose engine raises it"),
		}},
	{name: "rnr-timers", title: "RNR NAK timer codes", source: "IBTA 9.7, table 45; Linux ib_rvt_rnr_table", key: []string{"code"}, rows: rnrRows,
		columns: []Column{derived("code", "int", "min_rnr_timer, low five bits of the syndrome"), derived("microseconds", "int", "wait before the next attempt")}},
	{name: "ack-timeouts", title: "Local ACK timeout codes", source: "ibv_modify_qp(3)", key: []string{"code"}, rows: timeoutRows,
		columns: []Column{derived("code", "int", "timeout of modify_qp"), derived("nanoseconds", "int", "4096 ns times 2^code; 0: never")}},
	{name: "credits", title: "End-to-end credit codes", source: "IBTA 9.7; Linux credit_table", key: []string{"code"}, rows: creditRows,
		columns: []Column{derived("code", "int", "low five bits of an ACK's syndrome; 31 says that no credits are given"), derived("credits", "int", "receives that are posted")}},
	{name: "causes", title: "vendor_err codes of failed completions", source: "this device", key: []string{"value"}, rows: causeRows,
		columns: []Column{
			derived("value", "hex", "vendor_err"), written("name", "string", "short name"), derived("class", "string", "local: before anything was sent; responder: in the responder's own completion; peer: learned from the peer or its silence; flush"),
			derived("text", "string", "the exact cause"),
		}},
	{name: "drivers", title: "What driver and library of each kind of device decide by themselves", source: "Linux 6.1: rxe, rdma-core providers; rdmavt with hfi1", key: []string{"field"}, rows: driverRows,
		columns: []Column{
			derived("field", "string", "field of qp.Driver"), derived("ibta", "string", "value with profile ibta"), derived("rdmavt", "string", "with rdmavt"), derived("rxe", "string", "with rxe"),
			written("why", "string", "what it is about, and the source"),
		}},
}

func transport(o ib.Opcode) string {
	switch o.Transport() {
	case ib.TransportRC:
		return "RC"
	case ib.TransportUC:
		return "UC"
	case ib.TransportUD:
		return "UD"
	}
	return "CNP"
}

func opcodeRows() (rows []Row) {
	for o := range 256 {
		i := wire.Info(ib.Opcode(o))
		if i == nil {
			continue
		}
		m := i.Mask
		kind, op := "", ""
		for _, k := range []struct {
			bit  wire.Mask
			name string
		}{{wire.Request, "request"}, {wire.Response, "response"}} {
			if m&k.bit != 0 {
				kind = k.name
			}
		}
		for _, k := range []struct {
			bit  wire.Mask
			name string
		}{{wire.Send, "send"}, {wire.Write, "write"}, {wire.Read, "read"}, {wire.Atomic, "atomic"}, {wire.Flush, "flush"}, {wire.AtomicWrite, "atomic_write"}, {wire.Ack, "ack"}} {
			if m&k.bit != 0 {
				op = k.name
			}
		}
		headers := []string{"BTH"}
		for _, h := range []struct {
			bit  wire.Mask
			name string
		}{{wire.HasDETH, "DETH"}, {wire.HasFETH, "FETH"}, {wire.HasRETH, "RETH"}, {wire.HasAtomicETH, "AtomicETH"}, {wire.HasAETH, "AETH"}, {wire.HasAtomicAck, "AtomicAckETH"}, {wire.HasImm, "ImmDt"}, {wire.HasIETH, "IETH"}} {
			if m&h.bit != 0 {
				headers = append(headers, h.name)
			}
		}
		rows = append(rows, Row{"opcode": o, "name": i.Name, "transport": transport(ib.Opcode(o)), "kind": kind, "operation": op, "first": m&wire.Start != 0, "last": m&wire.End != 0,
			"headers": headers, "header_bytes": i.HeaderBytes, "payload": m&wire.Payload != 0, "takes_receive": m&wire.TakesRecv != 0, "completes": m&wire.Completes != 0})
	}
	return rows
}

// maskNames lists the bits of an attribute mask.
func maskNames(m ib.AttrMask) []string {
	names := []string{}
	for bit := ib.AttrMask(1); bit&ib.AttrStandardMask != 0; bit <<= 1 {
		if m&bit != 0 {
			names = append(names, bit.String())
		}
	}
	return names
}

func transitionRows() (rows []Row) {
	for from := range ib.QPState(ib.NumQPStates) {
		for to := range ib.QPState(ib.NumQPStates) {
			for _, t := range []ib.QPType{ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD, ib.QPTypeGSI} {
				if req, opt, ok := qp.TransitionMasks(from, to, t); ok {
					rows = append(rows, Row{"from": from.String(), "to": to.String(), "type": t.String(), "required": maskNames(req), "optional": maskNames(opt)})
				}
			}
		}
	}
	return rows
}

func stateRows() (rows []Row) {
	for s := range ib.QPState(ib.NumQPStates) {
		o := qp.StateOps(s)
		rows = append(rows, Row{"state": s.String(), "value": int(s), "post_recv": o&qp.PostRecvOK != 0, "process_recv": o&qp.ProcessRecvOK != 0, "flush_recv": o&qp.FlushRecv != 0,
			"post_send": o&qp.PostSendOK != 0, "process_send": o&qp.ProcessSendOK != 0, "process_next_send": o&qp.ProcessNextSendOK != 0, "flush_send": o&qp.FlushSend != 0})
	}
	return rows
}

func operationRows() (rows []Row) {
	for o := range 256 {
		p := swqe.Params(ib.WROpcode(o))
		if p == nil {
			continue
		}
		props := []string{}
		for _, f := range []struct {
			bit  swqe.OpFlags
			name string
		}{{swqe.OpLocal, "local"}, {swqe.OpAtomic, "atomic"}, {swqe.OpRdAtomic, "rd_atomic"}, {swqe.OpCredit, "credit"}, {swqe.OpInline, "inline"}, {swqe.OpLocalWrite, "local_write"}, {swqe.OpSolicit, "solicited"}, {swqe.OpRDMA, "rdma"}, {swqe.OpImm, "imm"}, {swqe.OpPlacement, "placement"}, {swqe.OpReserved, "reserved"}} {
			if p.Has(f.bit) {
				props = append(props, f.name)
			}
		}
		rows = append(rows, Row{"name": p.Name, "wr_opcode": o, "wc_opcode": p.WCOpcode.String(), "wc_value": int(p.WCOpcode),
			"rc": p.Allowed(ib.QPTypeRC), "uc": p.Allowed(ib.QPTypeUC), "ud": p.Allowed(ib.QPTypeUD), "properties": props})
	}
	return rows
}

func statusRows() (rows []Row) {
	for s := range ib.WCStatus(ib.NumWCStatuses) {
		rows = append(rows, Row{"value": int(s), "name": s.String()})
	}
	return rows
}

func eventRows() (rows []Row) {
	for e := ib.EventCQErr; e <= ib.EventWQFatal; e++ {
		rows = append(rows, Row{"value": int(e), "name": e.String()})
	}
	return rows
}

func rnrRows() (rows []Row) {
	for c := range 32 {
		rows = append(rows, Row{"code": c, "microseconds": ib.RNRTimeout(uint8(c)).Microseconds()})
	}
	return rows
}

func timeoutRows() (rows []Row) {
	for c := range 32 {
		d, _ := ib.AckTimeout(uint8(c))
		rows = append(rows, Row{"code": c, "nanoseconds": d.Nanoseconds()})
	}
	return rows
}

func creditRows() (rows []Row) {
	for c := range 32 {
		if n, ok := ib.Credits(uint8(c)); ok {
			rows = append(rows, Row{"code": c, "credits": n})
		}
	}
	return rows
}

// maxCause bounds the search for causes; they are small numbers in classes of 256.
const maxCause = 0x1000

func causeRows() (rows []Row) {
	class := []string{"none", "local", "responder", "peer", "flush", "injected"}
	for n := range ib.Cause(maxCause) {
		if strings.HasPrefix(n.String(), "cause 0x") {
			continue
		}
		c := "other"
		if int(n>>8) < len(class) {
			c = class[n>>8]
		}
		rows = append(rows, Row{"value": int(n), "class": c, "text": n.String()})
	}
	return rows
}

func driverRows() (rows []Row) {
	drivers := map[string]reflect.Value{}
	for _, p := range []string{"ibta", "rdmavt", "rxe"} {
		drivers[p] = reflect.ValueOf(qp.DriverByName(p))
	}
	typ := drivers["ibta"].Type()
	for i := range typ.NumField() {
		r := Row{"field": typ.Field(i).Name}
		for p, v := range drivers {
			r[p] = driverValue(v.Field(i).Interface())
		}
		rows = append(rows, r)
	}
	return rows
}

// driverValue shows a field of a driver: "no" and "none" stand for zero values.
func driverValue(v any) string {
	switch x := v.(type) {
	case bool:
		if x {
			return "yes"
		}
		return "no"
	case ib.AttrMask:
		if x == 0 {
			return "none"
		}
		return x.String()
	case ib.WCStatus:
		if x == 0 {
			return "of the profile"
		}
		return x.String()
	}
	return fmt.Sprint(v)
}
