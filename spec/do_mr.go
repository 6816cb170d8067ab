package spec

import (
	"fmt"
	"strings"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
)

// mrSpacing keeps the addresses of a script's regions apart.
const mrSpacing = maxBytes

// allAccess is every right that a region can give.
const allAccess = ib.AccessLocalWrite | ib.AccessRemoteMask | ib.AccessMWBind

// doMR registers a region. It gets all rights unless access= says otherwise, and an
// address of its own unless iova= gives one.
func (in *Interp) doMR(a *args) error {
	name := a.word("mr name")
	n, err := in.device(a)
	if err != nil {
		return err
	}
	length := a.num("len", 1<<16, maxBytes)
	acc := a.access("access", allAccess)
	base := uint64(len(in.mrs)+1) * mrSpacing
	iova := a.num("iova", base, 1<<64-1)
	fill := a.str("fill", "0")
	pd, err := in.pdOf(n, a.str("pd", ""))
	if err != nil {
		return err
	}
	if err := a.done(); err != nil {
		return err
	}
	if _, err := in.mr(name); err == nil || len(in.mrs) >= maxObjects {
		return fmt.Errorf("mr %q exists already, or there are too many", name)
	}
	buf := make([]byte, length)
	if err := fillBytes(buf, fill); err != nil {
		return err
	}
	m, err := n.dev.RegMR(pd, mr.NewSlice(base, buf), base, length, iova, acc)
	if err == nil {
		in.mrs = append(in.mrs, &mrObj{name, n, m, buf, base})
	}
	in.result(err)
	return nil
}

// fillBytes fills buf with one value, or with the numbers 1, 2, 3 ... for "count".
func fillBytes(buf []byte, how string) error {
	if how == "count" {
		for i := range buf {
			buf[i] = byte(i + 1)
		}
		return nil
	}
	v, err := parseNum(how)
	if err != nil || v > 0xff {
		return fmt.Errorf("fill=%s is neither a byte nor count", how)
	}
	for i := range buf {
		buf[i] = byte(v)
	}
	return nil
}

var accessNames = []struct {
	name string
	bit  ib.Access
}{
	{"LOCAL_WRITE", ib.AccessLocalWrite}, {"REMOTE_WRITE", ib.AccessRemoteWrite}, {"REMOTE_READ", ib.AccessRemoteRead},
	{"REMOTE_ATOMIC", ib.AccessRemoteAtomic}, {"MW_BIND", ib.AccessMWBind}, {"ZERO_BASED", ib.AccessZeroBased},
	{"FLUSH_GLOBAL", ib.AccessFlushGlobal}, {"FLUSH_PERSISTENT", ib.AccessFlushPersistent},
	{"ON_DEMAND", ib.AccessOnDemand}, {"RELAXED_ORDERING", ib.AccessRelaxedOrdering}, {"NONE", 0},
}

// access reads a list of rights.
func (a *args) access(key string, def ib.Access) ib.Access {
	vals := a.vals(key)
	if vals == nil {
		return def
	}
	var acc ib.Access
next:
	for _, v := range vals {
		for _, n := range accessNames {
			if n.name == strings.TrimSpace(v) {
				acc |= n.bit
				continue next
			}
		}
		a.fail(key + ": no right is called " + v)
	}
	return acc
}
