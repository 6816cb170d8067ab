package rvt

import (
	"slices"
	"strconv"
	"strings"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
)

func busy(verb, object, why string) error { return ib.NewVerbError(ib.EBUSY, verb, object, why) }

// usedBy says what keeps an object in use.
func usedBy(names []string) string { return "in use by " + list(names) }

// list joins names: a program that forgot something wants to know what, but not a thousand
// times.
func list(names []string) string {
	const most = 4
	if more := len(names) - most; more > 1 {
		names = append(names[:most:most], strconv.Itoa(more)+" more")
	}
	return strings.Join(names, ", ")
}

// qpsThat names the QPs for which f holds, in the order of their numbers.
func (d *Device) qpsThat(f func(*qp.QP) bool) []string {
	var names []string
	for _, q := range d.sortedQPs() {
		if f(q) {
			names = append(names, q.String())
		}
	}
	return names
}

// groupsOf names the multicast groups that a QP is attached to.
func (d *Device) groupsOf(q *qp.QP) []string {
	var names []string
	for gid, members := range d.mcast { //arch:sorted sorted below
		if slices.Contains(members, q) {
			names = append(names, gid.String())
		}
	}
	slices.Sort(names)
	return names
}

// usersOfPD names what belongs to a domain. Shared receive queues and address handles have
// no name that a program knows.
func (d *Device) usersOfPD(p *PD) []string {
	var names []string
	counted := func(n int, what string) {
		if n > 1 {
			what += "s"
		}
		if n > 0 {
			names = append(names, strconv.Itoa(n)+" "+what)
		}
	}
	// They come first, or a long list of the others would hide them.
	counted(p.srqs, "shared receive queue")
	counted(p.ahs, "address handle")
	names = append(names, d.qpsThat(func(q *qp.QP) bool { return q.PD == p.ID })...)
	for _, w := range d.env.Keys.WindowsThat(func(w *mr.Window) bool { return w.PD == p.ID }) {
		names = append(names, w.String())
	}
	for _, m := range d.mrs {
		if m.pd == p {
			names = append(names, "mr "+m.LKey.String())
		}
	}
	return names
}
