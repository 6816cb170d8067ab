package spec

import (
	"fmt"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// doDevice creates a device. The n-th device has the address 10.0.0.n and hands out
// QPNs from n times 0x10 plus 1 on, so that packets of different devices look
// different.
func (in *Interp) doDevice(a *args) error {
	n, err := in.newDevice(a, a.word("device name"))
	if err == nil && n != nil {
		in.result(nil)
	}
	return err
}

// newDevice creates a device from the arguments that belong to devices. If the device
// refuses its configuration, it prints that and returns nil.
func (in *Interp) newDevice(a *args, name string) (*node, error) {
	cfg, err := in.deviceConfig(a)
	if err != nil {
		return nil, err
	}
	if err := a.done(); err != nil {
		return nil, err
	}
	return in.addDevice(cfg, name)
}

func (in *Interp) addDevice(cfg rvt.Config, name string) (*node, error) {
	if _, err := in.node(name); err == nil {
		return nil, fmt.Errorf("device %q exists already", name)
	}
	if len(in.nodes) >= 64 {
		return nil, fmt.Errorf("more than 64 devices")
	}
	i := len(in.nodes) + 1
	if len(cfg.GIDs) == 0 {
		cfg.GIDs = []ib.GID{ib.GIDFromIPv4(10, 0, 0, byte(i))}
	}
	if cfg.FirstQPN == 0 {
		cfg.FirstQPN = ib.QPN(16*i + 1)
	}
	if cfg.Seed == 0 {
		cfg.Seed = uint64(16 * i)
	}
	cfg.Name = name
	n := &node{name: name, gid: cfg.GIDs[0]}
	cfg.Judge = func(_ vtime.Time, p qp.Plea) qp.Verdict { return in.judge(n, p) }
	dev, err := rvt.New(cfg)
	if err != nil {
		in.result(err)
		return nil, nil
	}
	n.dev = dev
	if n.pd, err = dev.AllocPD(); err != nil {
		return nil, err
	}
	in.nodes = append(in.nodes, n)
	return n, nil
}

// deviceConfig reads the arguments that describe a device.
func (in *Interp) deviceConfig(a *args) (rvt.Config, error) {
	cfg := rvt.DefaultConfig("")
	name := a.str("profile", "ibta")
	p, ok := qp.ProfileByName(name)
	if !ok {
		return cfg, fmt.Errorf("no profile %q: there are ibta, rdmavt and rxe", name)
	}
	cfg.Profile = p
	cfg.MTU = a.mtu("mtu", ib.MTU4096)
	cfg.Seed = a.num("seed", 0, 1<<32)
	cfg.FirstQPN = ib.QPN(a.num("first_qpn", 0, uint64(ib.QPNMask)))
	cfg.LastQPN = ib.QPN(a.num("last_qpn", 0, uint64(ib.QPNMask)))
	cfg.DistinctKeys = a.flag("distinct_keys")
	for _, s := range a.vals("gid") {
		g, err := ib.ParseGID(s)
		if err != nil {
			return cfg, err
		}
		cfg.GIDs = append(cfg.GIDs, g)
	}
	l := &cfg.Limits
	for _, v := range []struct {
		key string
		n   *int
	}{
		{"max_qp", &l.MaxQP}, {"max_cq", &l.MaxCQ}, {"max_mr", &l.MaxMR}, {"max_pd", &l.MaxPD}, {"max_srq", &l.MaxSRQ},
		{"max_qp_wr", &l.MaxQPWR}, {"max_sge", &l.MaxSGE}, {"max_cqe", &l.MaxCQE}, {"max_srq_wr", &l.MaxSRQWR},
		{"max_inline", &l.MaxInline}, {"max_qp_rd_atom", &l.MaxQPRdAtom}, {"max_qp_init_rd_atom", &l.MaxQPInitRdAtom}, {"max_res_rd_atom", &l.MaxResRdAtom},
		{"max_mcast_groups", &l.MaxMcastGroups}, {"max_mcast_qps", &l.MaxMcastQPs}, {"window_packets", &l.WindowPackets},
	} {
		*v.n = a.count(v.key, *v.n, 1<<24)
	}
	l.MaxMsgBytes = a.num("max_msg_sz", l.MaxMsgBytes, 1<<32)
	return cfg, nil
}

// mtu reads an MTU in bytes.
func (a *args) mtu(key string, def ib.MTU) ib.MTU {
	s := a.num(key, 0, 1<<20)
	if s == 0 {
		return def
	}
	m, ok := ib.MTUFromBytes(int(s))
	if !ok {
		m = 7 // any value that no MTU has: the device is to judge it
	}
	return m
}
