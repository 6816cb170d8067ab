package conform

import (
	"strconv"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// verbs are the steps a case may have. README.md describes each.
var verbs map[string]func(*runner, *args) result

func init() {
	verbs = map[string]func(*runner, *args) result{
		"set": doSet, "connect": doConnect, "reconnect": doReconnect, "create": doCreate, "modify": doModify, "destroy_qp": doDestroyQP,
		"pd": doPD, "dealloc_pd": doDeallocPD, "mr": doMR, "dereg_mr": doDeregMR, "mw": doMW, "dealloc_mw": doDeallocMW,
		"create_cq": doCreateCQ, "destroy_cq": doDestroyCQ, "resize_cq": doResizeCQ,
		"srq": doSRQ, "modify_srq": doModifySRQ, "query_srq": doQuerySRQ, "destroy_srq": doDestroySRQ,
		"create_ah": doCreateAH, "post_send": doPostSend, "bind_mw": doBindMW, "post_recv": doPostRecv,
		"notify": doNotify, "comp_events": doCompEvents, "events": doEvents, "drain": doDrain, "sleep": doSleep,
		"state": doState, "fill": doFill, "store64": doStore64, "note": doNote, "forget": doForget,
		"inject": doInject, "port": doPort,
	}
}

// parseAccess reads LOCAL_WRITE,REMOTE_READ, "all", or "none".
func parseAccess(a *args, s string) ib.Access {
	switch s {
	case "all":
		return allAccess
	case "none":
		return 0
	}
	var acc ib.Access
	for _, w := range strings.Split(s, ",") {
		bit := ib.Access(1)
		for ; bit <= ib.AccessFlushPersistent && bit.String() != w; bit <<= 1 {
		}
		if bit > ib.AccessFlushPersistent {
			if w != "all" {
				a.fail("no access flag %q", w)
			}
			bit = allAccess
		}
		acc |= bit
	}
	return acc
}

func parseType(a *args, s string) ib.QPType {
	for _, t := range []ib.QPType{ib.QPTypeRC, ib.QPTypeUC, ib.QPTypeUD} {
		if t.String() == s {
			return t
		}
	}
	a.fail("no queue pair type %q", s)
	return ib.QPTypeRC
}

func parseMTU(a *args, n int) ib.MTU {
	m, ok := ib.MTUFromBytes(n)
	if !ok {
		a.fail("no MTU of %d bytes", n)
	}
	return m
}

// doSet changes the attributes that create, connect and modify use from now on.
func doSet(r *runner, a *args) result {
	c := &r.cfg
	c.typ = parseType(a, a.str("type", c.typ.String()))
	if n := a.int("sq_sig_all", -1); n >= 0 {
		c.sigAll = n != 0
	}
	for _, v := range []struct {
		key string
		dst *int
	}{{"max_send_wr", &c.sendWR}, {"max_recv_wr", &c.recvWR}, {"max_sge", &c.sge}, {"max_inline", &c.inline}, {"send_cqe", &c.sendCQE}, {"recv_cqe", &c.recvCQE}} {
		*v.dst = a.int(v.key, *v.dst)
	}
	if s := a.str("access_a", ""); s != "" {
		c.accessA = parseAccess(a, s)
	}
	if s := a.str("access_b", ""); s != "" {
		c.accessB = parseAccess(a, s)
	}
	c.attrs(r, a)
	return result{}
}

// attrs reads the attributes that modify may override too.
func (c *settings) attrs(r *runner, a *args) {
	for _, v := range []struct {
		key string
		dst *int
	}{{"timeout", &c.timeout}, {"retry_cnt", &c.retry}, {"rnr_retry", &c.rnrRetry}, {"min_rnr_timer", &c.rnrTimer}, {"max_rd_atomic", &c.rd}, {"max_dest_rd_atomic", &c.drd}, {"pkey_index", &c.pkeyIndex}, {"port_num", &c.portNum}, {"sgid_index", &c.sgidIndex}} {
		*v.dst = a.int(v.key, *v.dst)
	}
	if n := a.int("path_mtu", 0); n != 0 {
		c.mtu = parseMTU(a, n)
	}
	switch s := a.str("dest_qp_num", ""); s {
	case "":
	case "A", "B":
		c.destQPN = r.ep(a, s).qpn
	default:
		n, err := strconv.ParseUint(s, 0, 24)
		if err != nil {
			a.fail("bad dest_qp_num=%s", s)
		}
		c.destQPN = ib.QPN(n)
	}
	c.enSQD = a.int("en_sqd_async_notify", 0) != 0
}

// ep returns a queue pair of the case; one that is not there has number 0.
func (r *runner) ep(a *args, name string) *endpoint {
	if name != "A" && name != "B" {
		a.fail("no queue pair %q: they are A and B", name)
	}
	if e := r.eps[name]; e != nil {
		return e
	}
	return &endpoint{name: name, typ: r.cfg.typ}
}

// create makes a queue pair with completion queues of its own.
func (r *runner) create(name, srq string) ib.Errno {
	c := &r.cfg
	for _, q := range []struct {
		name string
		cqe  int
	}{{name + ".s", c.sendCQE}, {name + ".r", c.recvCQE}} {
		n, e := r.dut.CreateCQ(q.name, q.cqe)
		if e != 0 {
			list(&r.rec.Calls, "create_cq=%s", errnoName(e))
			return e
		}
		r.cqe[q.name] = n
	}
	cap, qpn, e := r.dut.CreateQP(name, QPInit{PD: "pd", SendCQ: name + ".s", RecvCQ: name + ".r", SRQ: srq, Type: c.typ, SQSigAll: c.sigAll,
		Cap: QPCap{c.sendWR, c.recvWR, c.sge, c.sge, c.inline}})
	if e != 0 {
		list(&r.rec.Calls, "create_qp=%s", errnoName(e))
		return e
	}
	r.eps[name] = &endpoint{name: name, live: true, qpn: qpn, cap: cap, typ: c.typ}
	return 0
}

func doCreate(r *runner, a *args) result {
	name := a.name("queue pair")
	r.ep(a, name)
	return result{errno: r.create(name, a.str("srq", "")), said: true}
}

// doConnect creates A and B and connects them.
func doConnect(r *runner, a *args) result {
	srq := a.str("srq", "")
	if e := r.create("A", ""); e != 0 {
		return result{e, false, true}
	}
	if e := r.create("B", srq); e != 0 {
		return result{e, false, true}
	}
	e := r.up(r.cfg.destQPN)
	if e == 0 && r.cfg.typ == ib.QPTypeUD {
		e = r.dut.CreateAH("ah", "pd", AV{PortNum: 1, IsGlobal: true})
	}
	if e != 0 {
		list(&r.rec.Calls, "connect=%s", errnoName(e))
	}
	return result{e, false, true}
}

// doReconnect takes A and B from RESET to RTS again.
func doReconnect(r *runner, _ *args) result { return result{errno: r.up(0)} }

// up takes both queue pairs to RTS.
func (r *runner) up(dest ib.QPN) ib.Errno {
	a, b := r.eps["A"], r.eps["B"]
	if a == nil || b == nil {
		return ib.EINVAL
	}
	if dest == 0 {
		dest = b.qpn
	}
	for _, m := range []struct {
		ep   *endpoint
		to   ib.QPState
		dest ib.QPN
	}{{a, ib.StateInit, 0}, {b, ib.StateInit, 0}, {a, ib.StateRTR, dest}, {b, ib.StateRTR, a.qpn}, {a, ib.StateRTS, 0}, {b, ib.StateRTS, 0}} {
		if e := r.modify(m.ep, m.to, m.dest, r.cfg); e != 0 {
			return e
		}
	}
	return 0
}

// modify brings a queue pair to a state with all attributes that its transport needs.
func (r *runner) modify(ep *endpoint, to ib.QPState, dest ib.QPN, c settings) ib.Errno {
	at := QPAttr{State: to, PortNum: c.portNum, PKeyIndex: c.pkeyIndex, Access: c.accessA, QKey: qkey,
		AV: AV{SGIDIndex: c.sgidIndex, PortNum: 1, IsGlobal: true}, PathMTU: c.mtu, DestQPN: dest, RQPSN: firstPSN, SQPSN: firstPSN,
		MaxDestRdAtomic: c.drd, MaxRdAtomic: c.rd, MinRNRTimer: c.rnrTimer, Timeout: c.timeout, RetryCnt: c.retry, RNRRetry: c.rnrRetry, EnSQDNotify: c.enSQD}
	if ep.name == "B" {
		at.Access = c.accessB
	}
	mask := ib.AttrState
	switch to {
	case ib.StateInit:
		mask |= ib.AttrPKeyIndex | ib.AttrPort
		if ep.typ == ib.QPTypeUD {
			mask |= ib.AttrQKey
		} else {
			mask |= ib.AttrAccessFlags
		}
	case ib.StateRTR:
		if ep.typ != ib.QPTypeUD {
			mask |= ib.AttrAV | ib.AttrPathMTU | ib.AttrDestQPN | ib.AttrRQPSN
		}
		if ep.typ == ib.QPTypeRC {
			mask |= ib.AttrMaxDestRdAtomic | ib.AttrMinRNRTimer
		}
	case ib.StateRTS:
		mask |= ib.AttrSQPSN
		if ep.typ == ib.QPTypeRC {
			mask |= ib.AttrTimeout | ib.AttrRetryCnt | ib.AttrRNRRetry | ib.AttrMaxQPRdAtomic
		}
	case ib.StateSQD:
		if c.enSQD {
			mask |= ib.AttrEnSQDAsyncNotify
		}
	}
	return r.dut.ModifyQP(ep.name, &at, mask)
}

var stateByName = map[string]ib.QPState{"RESET": ib.StateReset, "INIT": ib.StateInit, "RTR": ib.StateRTR, "RTS": ib.StateRTS, "SQD": ib.StateSQD, "SQE": ib.StateSQE, "ERR": ib.StateErr}

// doModify changes the state of a queue pair, with the attributes that its transport
// needs, or "bare", with the state alone.
func doModify(r *runner, a *args) result {
	ep := r.ep(a, a.name("queue pair"))
	name := a.name("state")
	to, ok := stateByName[name]
	if !ok {
		a.fail("no state %q", name)
	}
	c := r.cfg
	c.destQPN = 0
	c.attrs(r, a)
	if a.flag("bare") {
		return result{errno: r.dut.ModifyQP(ep.name, &QPAttr{State: to}, ib.AttrState)}
	}
	return result{errno: r.modify(ep, to, c.destQPN, c)}
}

func doDestroyQP(r *runner, a *args) result {
	ep := r.ep(a, a.name("queue pair"))
	e := r.dut.DestroyQP(ep.name)
	if e == 0 {
		ep.live = false
	}
	return result{errno: e}
}

func doPD(r *runner, a *args) result { return result{errno: r.dut.AllocPD(a.name("name")), made: true} }
func doDeallocPD(r *runner, a *args) result {
	return result{errno: r.dut.DeallocPD(a.name("name"))}
}

func doMR(r *runner, a *args) result {
	name, pd := a.name("name"), a.str("pd", "pd")
	at := r.addr(a, a.str("at", "buf"))
	n := a.num("len", memBytes)
	acc := parseAccess(a, a.str("access", "all"))
	if a.err != nil {
		return result{}
	}
	k, e := r.dut.RegMR(name, pd, at, uint64(n), acc)
	if e == 0 {
		r.mrs[name] = k
	}
	return result{errno: e, made: true}
}

func doDeregMR(r *runner, a *args) result { return result{errno: r.dut.DeregMR(a.name("name"))} }

func doMW(r *runner, a *args) result {
	name, pd := a.name("name"), a.str("pd", "pd")
	k, e := r.dut.AllocMW(name, pd, ib.MWType(a.int("type", 2)))
	r.keys[name] = k
	return result{errno: e, made: true}
}

func doDeallocMW(r *runner, a *args) result { return result{errno: r.dut.DeallocMW(a.name("name"))} }

func doCreateCQ(r *runner, a *args) result {
	name := a.name("name")
	_, e := r.dut.CreateCQ(name, a.int("cqe", 64))
	return result{errno: e, made: true}
}

func doDestroyCQ(r *runner, a *args) result {
	name := a.name("name")
	e := r.dut.DestroyCQ(name)
	if e == 0 {
		delete(r.cqe, name)
	}
	return result{errno: e}
}

func doResizeCQ(r *runner, a *args) result {
	name := a.name("name")
	n, e := r.dut.ResizeCQ(name, a.int("cqe", 0))
	if e == 0 {
		r.cqe[name] = n
	}
	return result{errno: e}
}

func doSRQ(r *runner, a *args) result {
	name := a.name("name")
	return result{errno: r.dut.CreateSRQ(name, a.str("pd", "pd"), SRQAttr{a.int("max_wr", 8), a.int("max_sge", 1), a.int("limit", 0)}), made: true}
}

func doModifySRQ(r *runner, a *args) result {
	name := a.name("name")
	return result{errno: r.dut.ModifySRQ(name, a.int("max_wr", -1), a.int("limit", -1))}
}

func doQuerySRQ(r *runner, a *args) result {
	at, e := r.dut.QuerySRQ(a.name("name"))
	r.srq = at
	return result{errno: e}
}

func doDestroySRQ(r *runner, a *args) result { return result{errno: r.dut.DestroySRQ(a.name("name"))} }

func doCreateAH(r *runner, a *args) result {
	name := a.name("name")
	av := AV{SGIDIndex: a.int("sgid_index", 0), PortNum: a.int("port_num", 1), IsGlobal: a.int("is_global", 1) != 0}
	return result{errno: r.dut.CreateAH(name, "pd", av), made: true}
}

// maxWait bounds a single wait: a queue pair that retries for ever makes each one cost.
const maxWait = time.Minute

// wait reads a time from ms= and us=.
func (a *args) wait(def time.Duration) time.Duration {
	ms, us := a.num("ms", -1), a.num("us", -1)
	switch {
	case ms < 0 && us < 0:
		return def
	case ms > int64(maxWait/time.Millisecond) || us > int64(maxWait/time.Microsecond):
		a.fail("%s: longer than a minute", a.step.Verb)
		return 0
	}
	return time.Duration(max(ms, 0))*time.Millisecond + time.Duration(max(us, 0))*time.Microsecond
}
