package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/runner"
	"github.com/rvtsim/rvtsim/internal/topology"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// faults is what goes wrong in the network of a daemon: what its topology file says of
// the links, what was changed since, and what is yet to come. Its lock is taken before
// those of the nodes.
type faults struct {
	d *Daemon

	mu      mutex
	file    *topology.File
	seed    uint64
	set     map[[2]int]*topology.Impairment // of a direction, in place of the file's
	cut     map[[2]int]bool                 // partitioned directions
	applied map[[2]int][]ib.GID             // destinations that the direction's policy is set for
	ways    *runner.Ways                    // what takes time and room between the nodes
	changed []topology.Fault                // what SetLink has made of that
	plan    *schedule                       // what is yet to come, or was; nil without
}

func newFaults(d *Daemon) (*faults, error) {
	f := &faults{d: d, mu: make(mutex, 1), file: d.cfg.Topology, set: map[[2]int]*topology.Impairment{}, cut: map[[2]int]bool{}, applied: map[[2]int][]ib.GID{}}
	if f.file == nil {
		var names []string
		for _, n := range d.cfg.Nodes {
			names = append(names, "{name: "+n.Name+"}")
		}
		var err error
		if f.file, err = topology.Parse("nodes", []byte("version: 1\nnodes: ["+strings.Join(names, ", ")+"]\n")); err != nil {
			return nil, err
		}
	}
	f.seed = f.file.Seed
	var err error
	f.ways, err = runner.NewWays(f.file, f.seed)
	return f, err
}

// outside stands for every destination that is no node of the daemon.
const outside = -1

// link is what packets of a direction suffer.
func (f *faults) link(i, j int) topology.Link {
	k := [2]int{i, j}
	l := f.file.Network
	if j != outside {
		l = f.file.LinkBetween(i, j)
	}
	if im := f.set[k]; im != nil {
		l.Impairment = *im
	}
	if f.cut[k] {
		l.Impairment = topology.Impairment{Loss: 1}
	}
	return l
}

// way is what lies between nodes.
func (f *faults) way(i, j int) fabric.Way {
	if j == outside {
		j = len(f.file.Nodes)
	}
	return f.ways.Between(i, j)
}

// install gives node i its policies towards the nodes that pick says, and the programs on
// it that host themselves.
func (f *faults) install(i int, pick func(j int) bool) error {
	h := f.d.all()[i]
	var links []linkOrder
	for j := outside; j < len(f.file.Nodes); j++ {
		if j == i || !pick(j) {
			continue
		}
		l := f.link(i, j)
		p, err := runner.PolicyOf(&l, f.seed, i, j+1)
		if err != nil {
			return err
		}
		k, w := [2]int{i, j}, f.way(i, j)
		told := linkOrder{Impairment: l.Impairment, Seed: f.seed, From: i, Peer: j + 1}
		if j == outside {
			h.Do(func(*rvt.Device, vtime.Time) {
				h.impaired.SetPolicy(p)
				h.impaired.SetWay(w)
			})
			links = append(links, told)
			continue
		}
		now := f.d.all()[j].gids()
		for _, g := range now {
			told.To = g
			links = append(links, told)
		}
		h.Do(func(*rvt.Device, vtime.Time) {
			for _, g := range f.applied[k] {
				if !slices.Contains(now, g) {
					h.impaired.Forget(g)
				}
			}
			for _, g := range now {
				h.impaired.SetPolicyFor(g, p)
				h.impaired.SetWayFor(g, w)
			}
		})
		f.applied[k] = now
	}
	o := order{Links: links}
	if len(f.changed) > 0 { // before, no program had an engine unless all took no time
		o.Net = &netOrder{Nodes: len(f.file.Nodes), Network: f.file.Network, Links: f.file.Links, Switches: f.file.Switches, Changed: f.changed, Seed: f.seed}
	}
	_, _, err := f.d.order(h, o)
	return err
}

// imperfect reports whether packets of a node suffer anything. What they suffer is one
// sequence for all programs on a node, so the daemon has to see all of them then. The lock
// is held.
func (f *faults) imperfect(h *hosted) bool {
	i := slices.Index(f.d.all(), h)
	for j := outside; j < len(f.file.Nodes); j++ {
		l := f.link(i, j)
		if p, err := runner.PolicyOf(&l, f.seed, i, j+1); j != i && (err != nil || p != nil || f.way(i, j) != nil) {
			return true
		}
	}
	return false
}

// mutex is a lock whose waiting can be given up; it has room for 1.
type mutex chan struct{}

func (m mutex) Lock()   { m <- struct{}{} }
func (m mutex) Unlock() { <-m }

// lockUnless is Lock; false if stop is closed before.
func (m mutex) lockUnless(stop <-chan struct{}) bool {
	select {
	case m <- struct{}{}:
		return true
	case <-stop:
		return false
	}
}

// moved follows a change of the addresses of a node: the others have to know it by the
// new ones. Who ends the node may hold the lock and wait for the caller, and closes stop.
func (f *faults) moved(h *hosted, stop <-chan struct{}) {
	if !f.mu.lockUnless(stop) {
		return
	}
	defer f.mu.Unlock()
	at := slices.Index(f.d.all(), h)
	if at < 0 || len(f.d.all()) < len(f.file.Nodes) {
		return // it is being opened, or another one is: start sees to all
	}
	for i := range f.file.Nodes {
		_ = f.install(i, func(j int) bool {
			return j == at && (f.set[[2]int{i, j}] != nil || f.cut[[2]int{i, j}] || len(f.applied[[2]int{i, j}]) > 0)
		})
	}
}

// start puts in force what the file says.
func (f *faults) start() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.installAll()
}

// inject carries out a fault, and says what it has done.
func (f *faults) inject(text string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x, err := topology.ParseFault(f.file, text)
	if err != nil {
		return "", plain(err)
	}
	return f.apply(x)
}

// apply carries out a fault. The lock is held.
func (f *faults) apply(x *topology.LiveFault) (string, error) {
	switch x.Action {
	case topology.Partition, topology.Heal, topology.SetImpairment:
		return f.network(x)
	case topology.SetLink:
		if err := f.change(&x.Fault); err != nil {
			return "", err
		}
		if n := x.Switches.N; n > 0 {
			return plural(n, "switch"), f.installAll()
		}
		return f.network(x)
	case topology.KillNode, topology.RestartNode:
		return f.eachNode(x, func(i int) error {
			if x.Action == topology.KillNode {
				return f.d.kill(i)
			}
			return f.restart(i)
		})
	case topology.PortDown, topology.PortUp:
		return f.eachNode(x, func(i int) error { return f.setPort(f.d.all()[i], x.Action == topology.PortUp) })
	}
	return f.verbs(x)
}

// plain leaves out of problems where in the text they are: it is one line.
func plain(err error) error {
	var ps topology.Problems
	if !errors.As(err, &ps) {
		return err
	}
	var lines []string
	for _, p := range ps {
		line := p.Message
		if p.Path != "" {
			line = p.Path + ": " + line
		}
		lines = append(lines, line)
	}
	return errors.New(strings.Join(lines, "\n"))
}

// network changes links.
func (f *faults) network(x *topology.LiveFault) (string, error) {
	links := 0
	for i := range f.file.Nodes {
		covered := func(j int) bool {
			if j == outside {
				return x.Pair.All
			}
			return x.Pair.Covers(i, j)
		}
		for j := outside; j < len(f.file.Nodes); j++ {
			if j == i || !covered(j) {
				continue
			}
			if j != outside {
				links++
			}
			switch k := [2]int{i, j}; x.Action {
			case topology.Partition:
				f.cut[k] = true
			case topology.Heal:
				delete(f.cut, k)
			case topology.SetImpairment:
				im := x.Impairment
				f.set[k] = &im
			}
		}
		if err := f.install(i, covered); err != nil {
			return "", err
		}
	}
	return plural(links, "link"), nil
}

// change carries out a SetLink, and remembers it instead of an earlier one of the same.
func (f *faults) change(x *topology.Fault) error {
	if err := f.ways.Change(x); err != nil {
		return err
	}
	same := func(y topology.Fault) bool {
		return x.Pair.All && x.Switches.N == 0 && y.Switches.N == 0 || x.Pair == y.Pair && x.Switches == y.Switches
	}
	f.changed = append(slices.DeleteFunc(f.changed, same), *x)
	return nil
}

// installAll gives every node its policies and ways anew.
func (f *faults) installAll() error {
	for i := range f.file.Nodes {
		if err := f.install(i, func(int) bool { return true }); err != nil {
			return err
		}
	}
	return nil
}

func plural(n int, what string) string {
	switch {
	case n == 1:
		return "1 " + what
	case strings.HasSuffix(what, "ch"):
		what += "e"
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// setPort is the state of a cable: of the node's device and of its parts in programs.
func (f *faults) setPort(h *hosted, up bool) error {
	if err := h.node.Do(func(d *rvt.Device, _ vtime.Time) { d.SetPort(up) }); err != nil {
		return err
	}
	_, _, err := f.d.order(h, order{PortUp: &up})
	return err
}

func (f *faults) eachNode(x *topology.LiveFault, do func(i int) error) (string, error) {
	for k := range x.Nodes.N {
		i := x.Nodes.First + k
		if err := do(i); err != nil {
			return "", fmt.Errorf("node %s: %w", f.file.Nodes[i].Name, err)
		}
	}
	return plural(x.Nodes.N, "node"), nil
}

// restart brings a node back that was killed.
func (f *faults) restart(i int) error {
	if err := f.d.revive(i); err != nil {
		return err
	}
	if err := f.install(i, func(int) bool { return true }); err != nil {
		return err
	}
	for j := range f.file.Nodes {
		if err := f.install(j, func(k int) bool { return k == i }); err != nil {
			return err
		}
	}
	return nil
}

// verbs carries out a fault at the objects of programs.
func (f *faults) verbs(x *topology.LiveFault) (string, error) {
	n, what := 0, "queue pair"
	var silent []string
	if x.Action == topology.RevokeKey {
		what = "memory region"
	}
	portEvent := x.Action == topology.SpuriousEvent && !x.Notify && ofPort(x.Event)
	if portEvent {
		what = "node"
	}
	for k := range x.Nodes.N {
		h := f.d.all()[x.Nodes.First+k]
		here, err := f.d.verbFaults(h, x, func(int) {})
		if err != nil {
			return "", fmt.Errorf("node %s: %w", h.cfg.Name, err)
		}
		there, late, err := f.d.order(h, order{Fault: x})
		if err != nil {
			return "", fmt.Errorf("node %s: %w", h.cfg.Name, err)
		}
		if n += here; !portEvent { // of a node that has parts in programs there is one
			n += there
		}
		silent = append(silent, late...)
	}
	if err := unreached(silent); err != nil && n == 0 {
		return "", err
	}
	if n == 0 {
		return "", fmt.Errorf("no program on the node has such a %s; ls shows what there is", what)
	}
	return plural(n, what), nil
}

// verbFaults carries a fault out at the objects of a node that this process has, and
// counts them. The owner calls done with their number, before programs see what comes of it.
func (d *Daemon) verbFaults(h *hosted, x *topology.LiveFault, done func(n int)) (n int, err error) {
	contexts, _ := d.contextsOf(h)
	err = h.node.Do(func(dev *rvt.Device, now vtime.Time) {
		if x.Action == topology.SpuriousEvent && !x.Notify && ofPort(x.Event) {
			dev.InjectEvent(rvt.Event{Type: x.Event})
			n = 1
			done(n)
			return
		}
		n = verbFaults(dev, now, h, contexts, x, done)
	})
	return n, err
}

// ofPort reports whether an event concerns the port or the device as a whole.
func ofPort(t ib.EventType) bool {
	switch t {
	case ib.EventCQErr, ib.EventQPFatal, ib.EventQPReqErr, ib.EventQPAccessErr, ib.EventCommEst, ib.EventSQDrained,
		ib.EventPathMig, ib.EventPathMigErr, ib.EventSRQErr, ib.EventSRQLimitReached, ib.EventQPLastWQEReached:
		return false
	}
	return true
}

// owned is a queue pair and the context that it belongs to.
type owned struct {
	*qp.QP
	by *attached
}

// verbFaults does it to the contexts of a node, and counts the objects. The owner calls it.
func verbFaults(d *rvt.Device, now vtime.Time, h *hosted, contexts []*attached, x *topology.LiveFault, done func(n int)) (n int) {
	var all []owned
	for _, a := range contexts {
		switch {
		case !a.open:
		case x.Action == topology.RevokeKey:
			n += a.ctx.Revoke(d, x.Key, !x.HasKey)
		default:
			a.ctx.EachQP(func(q *qp.QP) { all = append(all, owned{q, a}) })
		}
	}
	slices.SortFunc(all, func(a, b owned) int { return int(a.QPN) - int(b.QPN) })
	i := -1
	all = slices.DeleteFunc(all, func(q owned) bool {
		i++
		return x.QPN != 0 && x.QPN != q.QPN || x.QP >= 0 && x.QP != i
	})
	n += len(all)
	done(n) // some faults show completions at once
	for _, q := range all {
		verbFault(d, now, h, q, x)
	}
	return n
}

// verbFault does it to one queue pair.
func verbFault(d *rvt.Device, now vtime.Time, h *hosted, o owned, x *topology.LiveFault) {
	q := o.QP
	switch x.Action {
	case topology.ModifyQPError:
		_ = d.ModifyQP(now, q, &qp.Attr{State: ib.StateErr}, ib.AttrState) // not out of RESET
	case topology.PauseReceiver, topology.ResumeReceiver:
		q.InjectNoReceives(x.Action == topology.PauseReceiver)
	case topology.CQOverflow:
		q.SendCQ.LoseNext()
	case topology.FailPost:
		o.by.ctx.FailPosts(d, q.QPN, x.Count)
	case topology.CompleteWith:
		if !d.InjectStatus(now, q, x.Status) {
			q.InjectNextStatus(x.Status)
		}
	case topology.DelayCompletions:
		h.delay(d, q.SendCQ, x.Delay)
		h.delay(d, q.RecvCQ, x.Delay)
	case topology.SpuriousEvent:
		spurious(d, q, x)
	}
}

// delay holds the completions of a queue back for a while.
func (h *hosted) delay(d *rvt.Device, c *cq.CQ, by time.Duration) {
	d.HoldCompletions(c, true)
	time.AfterFunc(by, func() {
		h.Do(func(d *rvt.Device, _ vtime.Time) { d.HoldCompletions(c, false) })
	})
}

// spurious raises an event of a queue pair or of one of its queues.
func spurious(d *rvt.Device, q *qp.QP, x *topology.LiveFault) {
	ev := rvt.Event{Type: x.Event}
	switch {
	case x.Notify:
		ev = rvt.Event{Comp: true, CQ: q.SendCQ}
	case x.Event == ib.EventCQErr:
		ev.CQ = q.SendCQ
	case x.Event == ib.EventSRQErr || x.Event == ib.EventSRQLimitReached:
		if q.SRQ == nil {
			return
		}
		ev.SRQ = q.SRQ
	default:
		ev.QP = q
	}
	d.InjectEvent(ev)
}

// inForce lists the changes of the network that are in force.
func (f *faults) inForce() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := []string{}
	for i := range f.changed {
		if f.cfgIsPlain() && f.changed[i].Link.Summary() == "" {
			continue // as it was at first
		}
		out = append(out, f.changedLink(&f.changed[i]))
	}
	for i := range f.file.Nodes {
		for j := range f.file.Nodes {
			k := [2]int{i, j}
			if i == j {
				continue
			}
			l := f.link(i, j)
			what := l.Impairment.Summary()
			if f.cut[k] {
				what = "partition"
			}
			if what != "" {
				out = append(out, f.file.Nodes[i].Name+" to "+f.file.Nodes[j].Name+": "+what)
			}
		}
	}
	return out
}

// cfgIsPlain reports whether the file says nothing of what links take.
func (f *faults) cfgIsPlain() bool {
	plain := len(f.file.Switches) == 0 && f.file.Network.Summary() == ""
	for i := range f.file.Links {
		plain = plain && f.file.Links[i].Summary() == ""
	}
	return plain
}

// changedLink says what a SetLink has done.
func (f *faults) changedLink(x *topology.Fault) string {
	what := x.Link.Summary()
	if what == "" {
		what = "takes no time, has no limits"
	}
	node := func(s topology.Span) string { return f.file.NameOf(s) }
	switch {
	case x.Switches.N > 0:
		first := f.file.Switches[x.Switches.First].Name
		if x.Switches.N > 1 {
			first += " and " + fmt.Sprint(x.Switches.N-1) + " more"
		}
		return "switch " + first + ": " + what
	case x.Pair.All:
		return "all links: " + what
	case x.Pair.Both:
		return "between " + node(x.Pair.From) + " and " + node(x.Pair.To) + ": " + what
	}
	return node(x.Pair.From) + " to " + node(x.Pair.To) + ": " + what
}
