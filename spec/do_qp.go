package spec

import (
	"fmt"
	"strings"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
)

var qpTypes = []struct {
	name string
	typ  ib.QPType
}{{"rc", ib.QPTypeRC}, {"uc", ib.QPTypeUC}, {"ud", ib.QPTypeUD}, {"gsi", ib.QPTypeGSI}, {"smi", ib.QPTypeSMI}}

// doQP creates a queue pair.
func (in *Interp) doQP(a *args) error {
	name := a.word("qp name")
	n, err := in.device(a)
	if err != nil {
		return err
	}
	init, err := in.initAttr(a)
	if err != nil {
		return err
	}
	pd, err := in.pdOf(n, a.str("pd", ""))
	if err != nil {
		return err
	}
	if err := a.done(); err != nil {
		return err
	}
	if _, err := in.qp(name); err == nil || len(in.qps) >= maxObjects {
		return fmt.Errorf("qp %q exists already, or there are too many", name)
	}
	q, err := n.dev.CreateQP(pd, init)
	if err == nil {
		in.qps = append(in.qps, &qpObj{name: name, node: n, qp: q})
	}
	in.result(err)
	return nil
}

func (in *Interp) initAttr(a *args) (*qp.InitAttr, error) {
	i := &qp.InitAttr{SQSigAll: a.flag("sig_all")}
	typ := strings.ToLower(a.str("type", "rc"))
	t, ok := find(qpTypes, func(t struct {
		name string
		typ  ib.QPType
	}) string {
		return t.name
	}, typ)
	if !ok {
		return nil, fmt.Errorf("no qp type %q", typ)
	}
	i.Type = t.typ
	cq := a.str("cq", "")
	for _, v := range []struct {
		key string
		set func(c *cqObj)
	}{{"send_cq", func(c *cqObj) { i.SendCQ = c.cq }}, {"recv_cq", func(c *cqObj) { i.RecvCQ = c.cq }}} {
		s := a.str(v.key, cq)
		if s == "" {
			continue // the verb is to complain
		}
		c, err := in.cq(s)
		if err != nil {
			return nil, err
		}
		v.set(c)
	}
	if s := a.str("srq", ""); s != "" {
		o, err := in.srq(s)
		if err != nil {
			return nil, err
		}
		i.SRQ = o.srq
	}
	i.Cap = qp.Cap{MaxSendWR: a.count("send_wr", 16, 1<<16), MaxRecvWR: a.count("recv_wr", 16, 1<<16), MaxSendSGE: a.count("send_sge", 4, 1<<16),
		MaxRecvSGE: a.count("recv_sge", 4, 1<<16), MaxInlineData: a.count("inline", 64, 1<<16)}
	return i, nil
}
