package conform

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

func doNotify(r *runner, a *args) result {
	cq := a.name("queue")
	switch w := a.name("any or solicited"); w {
	case "any":
		return result{errno: r.dut.ReqNotify(cq, false)}
	case "solicited":
		return result{errno: r.dut.ReqNotify(cq, true)}
	default:
		a.fail("notify %s: want any or solicited", w)
	}
	return result{}
}

// doCompEvents collects completion events until none came for ms.
func doCompEvents(r *runner, a *args) result {
	cq, d := a.name("queue"), a.wait(60*time.Millisecond)
	if a.err != nil {
		return result{}
	}
	n := 0
	for end := r.now + d; ; {
		if k := r.dut.CQEvents(cq); k > 0 {
			n += k
			end = r.now + d
		}
		if r.now >= end {
			break
		}
		r.now += r.dut.Wait(end - r.now)
	}
	r.vars["comp_events"] = strconv.Itoa(n)
	return result{}
}

func doEvents(r *runner, a *args) result {
	r.asyncEvents(a.wait(endEvents))
	return result{}
}

func doDrain(r *runner, a *args) result {
	r.vars["polled"] = strconv.Itoa(r.drain(a.int("want", 0), a.wait(time.Second)))
	return result{}
}

func doSleep(r *runner, a *args) result {
	r.wait(a.wait(0))
	return result{}
}

func doState(r *runner, a *args) result {
	for n := a.next(); n != ""; n = a.next() {
		r.states(n)
	}
	return result{}
}

// region checks that n bytes at a place are in the program's memory.
func region(place string, n int) (off uint64, err error) {
	o, err := offset(place)
	if err == nil && (n < 0 || o+uint64(n) > memBytes) {
		err = fmt.Errorf("%d bytes at %s leave the memory", n, place)
	}
	return o, err
}

// read returns n bytes of the program's memory.
func (r *runner) read(place string, n int) ([]byte, error) {
	o, err := region(place, n)
	if err != nil {
		return nil, err
	}
	return r.dut.Peek(o, n), nil
}

// doFill sets bytes of the program's memory.
func doFill(r *runner, a *args) result {
	n := a.int("len", 0)
	o, err := region(a.name("place"), n)
	if err != nil {
		a.fail("%v", err)
		return result{}
	}
	r.dut.Poke(o, bytes.Repeat([]byte{byte(a.num("byte", 0))}, n))
	return result{}
}

// doStore64 writes a number in the byte order of the host.
func doStore64(r *runner, a *args) result {
	o, err := region(a.name("place"), 8)
	if err != nil {
		a.fail("%v", err)
		return result{}
	}
	r.dut.Poke(o, binary.LittleEndian.AppendUint64(nil, uint64(a.num("value", 0))))
	return result{}
}

// doForget takes what was recorded of the completions so far out of the record.
func doForget(r *runner, a *args) result {
	if w := a.name("what"); w != "completions" {
		a.fail("forget %s: only completions can be", w)
	}
	r.rec.Completions = ""
	return result{}
}

func doNote(r *runner, a *args) result {
	text, err := r.expand(a.next())
	if err != nil {
		a.fail("%v", err)
	}
	list(&r.rec.Obs, "%s", text)
	return result{}
}

// expand replaces each {expression} in a text.
func (r *runner) expand(s string) (string, error) {
	var b strings.Builder
	for {
		before, rest, ok := strings.Cut(s, "{")
		b.WriteString(before)
		if !ok {
			return b.String(), nil
		}
		expr, after, ok := strings.Cut(rest, "}")
		if !ok {
			return "", fmt.Errorf("%q is not closed", "{"+rest)
		}
		v, err := r.eval(strings.Fields(expr))
		if err != nil {
			return "", err
		}
		b.WriteString(v)
		s = after
	}
}

// exprs are the expressions of notes with the number of their arguments.
var exprs = map[string]struct {
	args int
	f    func(r *runner, w []string) (string, error)
}{
	"equal": {5, exprEqual}, "u64": {1, exprU64}, "char": {1, exprChar}, "hex": {3, exprHex}, "cap": {2, exprCap},
	"took": {0, exprTook}, "keys_equal": {1, exprKeysEqual}, "sq_draining": {1, exprSQDraining},
	"cqe":       {1, func(r *runner, w []string) (string, error) { return strconv.Itoa(r.cqe[w[0]]), nil }},
	"async":     {0, func(r *runner, _ []string) (string, error) { return r.rec.Async, nil }},
	"srq_limit": {0, func(r *runner, _ []string) (string, error) { return strconv.Itoa(r.srq.Limit), nil }},
	"srq_wr":    {0, func(r *runner, _ []string) (string, error) { return strconv.Itoa(r.srq.MaxWR), nil }},
}

// eval computes an expression: one of exprs, or a variable that a step has set.
func (r *runner) eval(w []string) (string, error) {
	if len(w) == 0 {
		return "", fmt.Errorf("{} is empty")
	}
	if e, ok := exprs[w[0]]; ok {
		if len(w)-1 != e.args {
			return "", fmt.Errorf("{%s}: want %d arguments", strings.Join(w, " "), e.args)
		}
		return e.f(r, w[1:])
	}
	if v, ok := r.vars[w[0]]; ok && len(w) == 1 {
		return v, nil
	}
	return "", fmt.Errorf("{%s} means nothing", strings.Join(w, " "))
}

// exprEqual is {equal PLACE PLACE BYTES IF-EQUAL ELSE}.
func exprEqual(r *runner, w []string) (string, error) {
	n, err := strconv.Atoi(w[2])
	if err != nil {
		return "", err
	}
	a, err := r.read(w[0], n)
	if err != nil {
		return "", err
	}
	b, err := r.read(w[1], n)
	if err != nil {
		return "", err
	}
	if bytes.Equal(a, b) {
		return w[3], nil
	}
	return w[4], nil
}

func exprU64(r *runner, w []string) (string, error) {
	b, err := r.read(w[0], 8)
	if err != nil {
		return "", err
	}
	return strconv.FormatUint(binary.LittleEndian.Uint64(b), 10), nil
}

func exprChar(r *runner, w []string) (string, error) {
	b, err := r.read(w[0], 1)
	if err != nil {
		return "", err
	}
	return string(rune(b[0])), nil
}

// exprHex is {hex PLACE BYTES I,J,...}: the bytes, those at I, J, ... as xx.
func exprHex(r *runner, w []string) (string, error) {
	n, err := strconv.Atoi(w[1])
	if err != nil {
		return "", err
	}
	b, err := r.read(w[0], n)
	if err != nil {
		return "", err
	}
	masked := "," + w[2] + ","
	var s strings.Builder
	for i, v := range b {
		if strings.Contains(masked, ","+strconv.Itoa(i)+",") {
			s.WriteString("xx")
		} else {
			fmt.Fprintf(&s, "%02x", v)
		}
	}
	// The address of the reference device stands for that of any.
	return strings.ReplaceAll(s.String(), ipv4(r.dut.Address()), ipv4(referenceGID)), nil
}

// referenceGID is the address of the device that gave the reference records.
var referenceGID = ib.GIDFromIPv4(10, 77, 0, 1)

// ipv4 is the IPv4 address of a GID as hexadecimal digits.
func ipv4(g ib.GID) string { return hex.EncodeToString(g[12:]) }

func exprCap(r *runner, w []string) (string, error) {
	ep := r.eps[w[0]]
	if ep == nil {
		return "", fmt.Errorf("no queue pair %q", w[0])
	}
	c := ep.cap
	v, ok := map[string]int{"max_send_wr": c.MaxSendWR, "max_recv_wr": c.MaxRecvWR, "max_send_sge": c.MaxSendSGE, "max_recv_sge": c.MaxRecvSGE, "max_inline": c.MaxInline}[w[1]]
	if !ok {
		return "", fmt.Errorf("no capacity %q", w[1])
	}
	return strconv.Itoa(v), nil
}

// exprTook puts the time of the last drain into one of three classes.
func exprTook(r *runner, _ []string) (string, error) {
	switch {
	case r.took < 150*time.Millisecond:
		return "<0.15s", nil
	case r.took < 600*time.Millisecond:
		return "0.15..0.6s", nil
	}
	return ">0.6s", nil
}

func exprKeysEqual(r *runner, w []string) (string, error) {
	k, ok := r.mrs[w[0]]
	if !ok {
		return "", fmt.Errorf("no region %q", w[0])
	}
	if uint32(k.LKey) == uint32(k.RKey) {
		return "1", nil
	}
	return "0", nil
}

func exprSQDraining(r *runner, w []string) (string, error) {
	v, e := r.dut.QueryQP(w[0])
	if e != 0 {
		return errnoName(e), nil
	}
	if v.SQDraining {
		return "1", nil
	}
	return "0", nil
}

// doInject lets a packet arrive as if the peer had sent it.
func doInject(r *runner, a *args) result {
	ep := r.ep(a, a.name("queue pair"))
	name := a.name("opcode")
	p := RawPacket{PSN: ib.PSN(a.num("psn", firstPSN)), AckReq: a.flag("ack_req"), Syndrome: ib.Syndrome(a.num("syndrome", 0x1f)), MSN: ib.MSN(a.num("msn", 1)),
		DMALen: uint32(a.num("dma_len", 0)), Payload: a.int("len", 0)}
	if p.Payload < 0 || p.Payload > ib.MTU4096.Bytes() {
		a.fail("inject: bad len")
	}
	p.VA, p.RKey = r.addr(a, a.str("remote", "DST")), r.rkey(a, a.str("rkey", "mr"))
	found := false
	for o := range 256 {
		if i := wire.Info(ib.Opcode(o)); i != nil && i.Name == name {
			p.Opcode, found = ib.Opcode(o), true
		}
	}
	if !found {
		a.fail("no packet %q", name)
	}
	n, ok := r.dut.(Network)
	if !ok {
		a.fail("the device cannot inject packets")
	}
	if a.err == nil {
		n.Inject(ep.name, &p)
	}
	return result{}
}

// doPort takes the port down or up.
func doPort(r *runner, a *args) result {
	w := a.name("up or down")
	n, ok := r.dut.(Network)
	if w != "up" && w != "down" || !ok {
		a.fail("port: want up or down, and a device that can")
		return result{}
	}
	n.SetPort(w == "up")
	return result{}
}
