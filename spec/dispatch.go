package spec

import (
	"errors"
	"strconv"
)

// Run runs one directive and returns what it prints. An error means that the script
// is wrong; it starts with the directive's position. What a verb answers, errors
// included, is output and not an error.
func (in *Interp) Run(c Command) (string, error) {
	in.print.Reset()
	in.steps, in.overflow = 0, false
	a := newArgs(c.Args)
	err := in.dispatch(c.Name, a, c.Input)
	switch {
	case err == nil && in.overflow:
		err = errors.New("it prints more than " + strconv.Itoa(maxTrace) + " bytes")
	case err == nil && in.steps > maxSteps:
		err = errSteps
	}
	if err != nil {
		return "", errors.New(c.Pos + ": " + c.Name + ": " + err.Error())
	}
	return in.print.String(), nil
}

// result prints the outcome of a verb.
func (in *Interp) result(err error) {
	if err != nil {
		in.printf("error: %s\n", err.Error())
		return
	}
	in.printf("ok\n")
}

// dispatch finds the handler of a directive. The comments are examples.
func (in *Interp) dispatch(name string, a *args, input string) error {
	switch name {
	case "setup": // setup type=rc profile=rdmavt send_wr=8 timeout=10
		return in.doSetup(a)
	case "device": // device A profile=rxe mtu=1024 max_qp_wr=64 seed=7
		return in.doDevice(a)
	case "cq": // cq c dev=A cqe=16
		return in.doCQ(a)
	case "srq": // srq s dev=B max_wr=8 limit=2
		return in.doSRQ(a)
	case "mr": // mr m dev=A len=4096 access=(LOCAL_WRITE, REMOTE_READ) fill=count
		return in.doMR(a)
	case "mw": // mw w dev=B type=2
		return in.doMW(a)
	case "ah": // ah h dev=A to=B
		return in.doAH(a)
	case "qp": // qp a dev=A type=rc cq=ca sig_all send_wr=8
		return in.doQP(a)
	case "connect": // connect a b timeout=14 a.retry_cnt=0
		return in.doConnect(a)
	case "modify": // modify a RTR path_mtu=1024 dest=b rq_psn=7
		return in.doModify(a)
	case "query": // query a
		return in.doQuery(a)
	case "post-send": // post-send a send id=1 sge=ma+0:64 solicited
		return in.doPostSend(a, input)
	case "post-recv": // post-recv b id=1 sge=mb+0:64
		return in.doPostRecv(a, input)
	case "post-srq-recv": // post-srq-recv s id=1 n=3 sge=mb:64
		return in.doPostSRQRecv(a, input)
	case "poll": // poll ca n=2 all
		return in.doPoll(a)
	case "arm": // arm ca solicited
		return in.doArm(a)
	case "events": // events B
		return in.doEvents(a)
	case "indices": // indices a
		return in.doIndices(a)
	case "state": // state a
		return in.doState(a)
	case "mem": // mem mb+0:16
		return in.doMem(a)
	case "counters": // counters A retry_timeout duplicate_request
		return in.doCounters(a)
	case "drop", "dup", "swap", "delay", "corrupt": // drop from=A op=SEND_ONLY n=2
		return in.doFault(name, a)
	case "inject": // inject a op=ACKNOWLEDGE psn=100 syn=0x62 msn=0
		return in.doInject(a)
	case "wire": // wire latency=1ms batch=1
		return in.doWire(a)
	case "emit": // emit A n=6
		return in.doEmit(a)
	case "deliver": // deliver n=2
		return in.doDeliver(a)
	case "advance": // advance 5ms
		return in.doAdvance(a)
	case "run", "stabilize": // run for=10ms
		return in.doRun(a)
	case "trace": // trace off
		return in.doTrace(a)
	case "resize-cq": // resize-cq ca cqe=8
		return in.doResizeCQ(a)
	case "modify-srq": // modify-srq s limit=2
		return in.doModifySRQ(a)
	case "mcast": // mcast attach b gid=239.1.2.3
		return in.doMcast(a)
	case "destroy": // destroy mr ma
		return in.doDestroy(a)
	case "cm": // cm connect c on=A to=B port=7471 qpn=0x11 private=56
		return in.doCM(a)
	case "judge": // judge A wait 10ms
		return in.doJudge(a)
	case "port": // port B down
		return in.doPort(a)
	}
	return errors.New("unknown directive " + strconv.Quote(name))
}
