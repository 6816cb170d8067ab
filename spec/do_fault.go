package spec

import (
	"fmt"
	"time"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// doFault arranges what happens to a packet that is to come: drop loses it, dup sends
// it twice, swap lets the next packet of its sender overtake it, delay holds it up
// by=, corrupt damages it. The packet is the n-th (default first) that is of op=, has
// psn= and comes from=; count= (default 1) packets are treated so.
func (in *Interp) doFault(action string, a *args) error {
	f := &fault{action: action, psn: -1}
	f.skip = a.count("n", 1, 1<<20) - 1
	if s := a.str("count", "1"); s == "all" {
		f.count = -1
	} else if c, err := parseNum(s); err != nil || c > 1<<20 {
		return fmt.Errorf("count=%s is neither a number nor all", s)
	} else {
		f.count = int(c)
	}
	if s := a.str("op", ""); s != "" {
		if _, ok := opByName(s); !ok {
			return fmt.Errorf("no packet opcode %q", s)
		}
		f.op = s
	}
	if a.has("psn") {
		f.psn = int64(a.num("psn", 0, ib.PSNMask))
	}
	if s := a.str("from", ""); s != "" {
		n, err := in.node(s)
		if err != nil {
			return err
		}
		f.from = n
	}
	if action == "delay" {
		f.by = a.dur("by", time.Millisecond)
	}
	off := a.flag("off")
	if err := a.done(); err != nil {
		return err
	}
	if off { // whatever was arranged before is forgotten
		in.wire.faults = nil
		in.result(nil)
		return nil
	}
	if f.skip < 0 {
		return fmt.Errorf("n counts from 1")
	}
	if len(in.wire.faults) >= maxObjects {
		return fmt.Errorf("too many faults")
	}
	in.wire.faults = append(in.wire.faults, f)
	in.result(nil)
	return nil
}

// opByName finds a packet opcode.
func opByName(name string) (ib.Opcode, bool) {
	for i := range 256 {
		if info := wire.Info(ib.Opcode(i)); info != nil && info.Name == name {
			return ib.Opcode(i), true
		}
	}
	return 0, false
}
