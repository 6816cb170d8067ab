package conform

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

var places = map[string]uint64{"SRC": srcOff, "DST": dstOff, "RCV": rcvOff, "buf": 0, "end": memBytes}

// offset reads a place in the program's memory, as in "DST+64" or "end-8".
func offset(s string) (uint64, error) {
	name, rest := s, ""
	if i := strings.IndexAny(s, "+-"); i >= 0 {
		name, rest = s[:i], s[i:]
	}
	o, ok := places[name]
	if !ok {
		return 0, fmt.Errorf("no place %q", name)
	}
	if rest == "" {
		return o, nil
	}
	n, err := strconv.ParseInt(rest, 0, 64)
	if err != nil || int64(o)+n < 0 || int64(o)+n > memBytes {
		return 0, fmt.Errorf("%q is not a place in the memory", s)
	}
	return o + uint64(n), nil
}

// addr reads a place, or an absolute address.
func (r *runner) addr(a *args, s string) uint64 {
	if n, err := strconv.ParseUint(s, 0, 64); err == nil {
		return n
	}
	o, err := offset(s)
	if err != nil {
		a.fail("%v", err)
	}
	return r.base + o
}

// lkey reads a local key: a region's name, name^mask, or a number.
func (r *runner) lkey(a *args, s string) ib.LKey {
	name, mask, _ := strings.Cut(s, "^")
	m, err := strconv.ParseUint(mask, 0, 32)
	if mask != "" && err != nil {
		a.fail("bad key %q", s)
	}
	if k, ok := r.mrs[name]; ok {
		return k.LKey ^ ib.LKey(m)
	}
	n, err := strconv.ParseUint(name, 0, 32)
	if err != nil {
		a.fail("no key %q", s)
	}
	return ib.LKey(n)
}

// rkey reads a remote key, of a region or a window.
func (r *runner) rkey(a *args, s string) ib.RKey {
	name, mask, _ := strings.Cut(s, "^")
	m, err := strconv.ParseUint(mask, 0, 32)
	if mask != "" && err != nil {
		a.fail("bad key %q", s)
	}
	if k, ok := r.mrs[name]; ok {
		return k.RKey ^ ib.RKey(m)
	}
	if k, ok := r.keys[name]; ok {
		return k ^ ib.RKey(m)
	}
	n, err := strconv.ParseUint(name, 0, 32)
	if err != nil {
		a.fail("no key %q", s)
	}
	return ib.RKey(n)
}

func parseOp(a *args, s string) ib.WROpcode {
	for o := ib.WROpcode(0); o < ib.NumWROpcodes; o++ {
		if o.String() == s {
			return o
		}
	}
	n, err := strconv.ParseUint(s, 0, 8)
	if err != nil {
		a.fail("no operation %q", s)
	}
	return ib.WROpcode(n)
}

var sendFlags = []struct {
	word string
	flag ib.SendFlags
}{{"signaled", ib.SendSignaled}, {"solicited", ib.SendSolicited}, {"inline", ib.SendInline}, {"fence", ib.SendFence}}

// times are the modifiers that repeat a post.
type times struct {
	n, pauseEvery int
	until         bool
	pause         time.Duration
}

func readTimes(a *args) times {
	t := times{n: a.int("times", 1), pauseEvery: a.int("pause_every", 0), pause: time.Duration(a.num("pause_ms", 0)) * time.Millisecond}
	if t.n < 1 || t.n > 1000 || t.pause < 0 || t.pause > time.Second {
		a.fail("times= must be 1 to 1000, pause_ms= at most 1000")
	}
	switch s := a.str("until", ""); s {
	case "", "refused":
		t.until = s != ""
	default:
		a.fail("until=%s: only refused is known", s)
	}
	return t
}

// repeat calls post until it has been called often enough, or is refused.
func (r *runner) repeat(t times, post func(i int) ib.Errno) (accepted int, e ib.Errno) {
	for i := range t.n {
		if e = post(i); e != 0 {
			if t.until {
				return accepted, 0
			}
			continue
		}
		accepted++
		if t.pauseEvery > 0 && (i+1)%t.pauseEvery == 0 {
			r.wait(t.pause)
		}
	}
	return accepted, e
}

// doPostSend posts one send, or several with rising wr_id.
func doPostSend(r *runner, a *args) result {
	ep := r.ep(a, a.name("queue pair"))
	id, err := strconv.ParseUint(a.name("wr_id"), 0, 64)
	if err != nil {
		a.fail("post_send: bad wr_id")
	}
	op := parseOp(a, a.name("operation"))
	wr := SendWR{ID: id, Op: op}
	for _, f := range sendFlags {
		if a.flag(f.word) {
			wr.Flags |= f.flag
		}
	}
	quiet, raw := a.flag("quiet"), a.flag("raw")
	step := uint64(a.num("at_step", 0))
	r.sgl(a, ep, &wr)
	r.operation(a, ep, &wr)
	t := readTimes(a)
	if a.err != nil {
		return result{}
	}
	n, e := r.repeat(t, func(i int) ib.Errno {
		w := wr
		w.ID += uint64(i)
		if len(wr.SGL) > 0 {
			w.SGL = append([]SGE(nil), wr.SGL...)
			w.SGL[0].Addr += uint64(i) * step
		}
		e := r.dut.PostSend(ep.name, &w)
		if !raw && (e != 0 || !quiet) {
			list(&r.rec.Calls, "%s.post_send(%d)=%s", ep.name, w.ID, errnoName(e))
		}
		r.remember(ep.name+".s", &w)
		return e
	})
	r.vars["accepted"] = strconv.Itoa(n)
	return result{errno: e, said: !raw}
}

// sgl reads the gather list.
func (r *runner) sgl(a *args, ep *endpoint, wr *SendWR) {
	sge := SGE{Addr: r.addr(a, a.str("at", "SRC")), Length: uint32(a.num("len", 0)), LKey: r.lkey(a, a.str("lkey", "mr"))}
	n := 1
	switch s := a.str("sge", "1"); s {
	case "none":
		n = 0
	case "over":
		n = ep.cap.MaxSendSGE + 1
	default:
		k, err := strconv.Atoi(s)
		if err != nil || k < 0 || k > 64 {
			a.fail("bad sge=%s", s)
		}
		n = k
	}
	r.vars["sges"] = strconv.Itoa(n)
	for range n {
		wr.SGL = append(wr.SGL, sge)
	}
	if n == 1 && a.flag("max_inline+1") {
		wr.SGL[0].Length = uint32(ep.cap.MaxInline + 1)
	}
}

// operation reads what the operation and the transport ask for besides.
func (r *runner) operation(a *args, ep *endpoint, wr *SendWR) {
	switch wr.Op {
	case ib.WRSendWithImm, ib.WRRDMAWriteWithImm:
		wr.Imm = immValue
	case ib.WRSendWithInv, ib.WRLocalInv:
		wr.InvRKey = r.rkey(a, a.str("inv", "0"))
	case ib.WRAtomicCmpAndSwp, ib.WRAtomicFetchAndAdd:
		wr.CompareAdd, wr.Swap = uint64(a.num("compare_add", 5)), uint64(a.num("swap", 9))
	}
	if ep.typ == ib.QPTypeUD {
		wr.AH = "ah"
		wr.RemoteQPN = ib.QPN(a.num("remote_qpn", 0))
		if wr.RemoteQPN == 0 {
			if b := r.eps["B"]; b != nil {
				wr.RemoteQPN = b.qpn
			}
		}
		wr.RemoteQKey = ib.QKey(a.num("remote_qkey", qkey))
		return
	}
	wr.RemoteAddr = r.addr(a, a.str("remote", "DST"))
	wr.RKey = r.rkey(a, a.str("rkey", "mr"))
}

// remember notes operation and length of a send for error completions that repeat them.
func (r *runner) remember(queue string, w *SendWR) {
	n := uint32(0)
	for _, e := range w.SGL {
		n += e.Length
	}
	op := ib.WCSend
	switch w.Op {
	case ib.WRRDMAWrite, ib.WRRDMAWriteWithImm:
		op = ib.WCRDMAWrite
	case ib.WRRDMARead:
		op = ib.WCRDMARead
	case ib.WRAtomicCmpAndSwp:
		op = ib.WCCompSwap
	case ib.WRAtomicFetchAndAdd:
		op = ib.WCFetchAdd
	case ib.WRLocalInv:
		op, n = ib.WCLocalInv, 0
	case ib.WRBindMW:
		op, n = ib.WCBindMW, 0
	}
	r.sent[queue+" id="+strconv.FormatUint(w.ID, 10)] = wrInfo{op.String(), "len=" + strconv.Itoa(int(n))}
}

// doBindMW posts a BIND_MW. The window's next key has the name that key= gives.
func doBindMW(r *runner, a *args) result {
	ep := r.ep(a, a.name("queue pair"))
	id, err := strconv.ParseUint(a.name("wr_id"), 0, 64)
	if err != nil {
		a.fail("bind_mw: bad wr_id")
	}
	wr := SendWR{ID: id, Op: ib.WRBindMW}
	if a.flag("signaled") {
		wr.Flags = ib.SendSignaled
	}
	mw := a.str("mw", "mw")
	next := r.keys[mw]&^0xff | (r.keys[mw]+1)&0xff // ibv_inc_rkey(3)
	r.keys[a.str("key", "k")] = next
	wr.Bind = Bind{MW: mw, MR: a.str("mr", "mr"), RKey: next, Addr: r.addr(a, a.str("at", "DST")), Length: uint64(a.num("len", 4096)), Access: parseAccess(a, a.str("access", "REMOTE_WRITE"))}
	if a.err != nil {
		return result{}
	}
	r.remember(ep.name+".s", &wr)
	return result{errno: r.dut.PostSend(ep.name, &wr)}
}

// doPostRecv posts receives to a queue pair, or to a shared queue with srq=.
func doPostRecv(r *runner, a *args) result {
	ep := r.ep(a, a.name("queue pair"))
	id, err := strconv.ParseUint(a.name("wr_id"), 0, 64)
	if err != nil {
		a.fail("post_recv: bad wr_id")
	}
	sge := SGE{Addr: r.addr(a, a.str("at", "RCV")), Length: uint32(a.num("len", 64)), LKey: r.lkey(a, a.str("lkey", "mr"))}
	n := 1
	switch s := a.str("sge", "1"); s {
	case "none":
		n = 0
	case "over":
		n = ep.cap.MaxRecvSGE + 1
	case "1":
	default:
		a.fail("bad sge=%s", s)
	}
	r.vars["sges"] = strconv.Itoa(n)
	raw := a.flag("raw")
	srq := a.str("srq", "")
	t := readTimes(a)
	if a.err != nil {
		return result{}
	}
	wr := RecvWR{ID: id}
	for range n {
		wr.SGL = append(wr.SGL, sge)
	}
	k, e := r.repeat(t, func(i int) ib.Errno {
		w := wr
		w.ID += uint64(i)
		var e ib.Errno
		if srq != "" {
			e = r.dut.PostSRQRecv(srq, &w)
		} else {
			e = r.dut.PostRecv(ep.name, &w)
		}
		if e != 0 && !raw {
			list(&r.rec.Calls, "%s.post_recv(%d)=%s", ep.name, w.ID, errnoName(e))
		}
		return e
	})
	r.vars["accepted"] = strconv.Itoa(k)
	return result{errno: e, said: !raw}
}
