package spec

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// cmWorld is two connection managers, A and B, and the messages between them. It shares
// the clock and the latency of the devices, and nothing else.
type cmWorld struct {
	nodes    [2]*cmNode
	ids      map[string]*cm.ID // by the script's name
	requests int               // that have come: r1, r2, ...
	fly      []cmFlight
	lose     map[cm.Attr]int // so many of the next ones
}

type cmNode struct {
	name string
	gid  ib.GID
	m    *cm.Manager
	port *cm.Port
}

type cmFlight struct {
	at vtime.Time
	to *cmNode
	p  cm.Packet
}

func newCMWorld() (*cmWorld, error) {
	w := &cmWorld{ids: map[string]*cm.ID{}, lose: map[cm.Attr]int{}}
	for i, name := range []string{"A", "B"} {
		cfg := cm.DefaultConfig()
		cfg.Seed = uint64(i + 1)
		m, err := cm.New(cfg)
		if err != nil {
			return nil, err
		}
		n := &cmNode{name: name, gid: ib.GIDFromIPv4(10, 77, 0, byte(i+1)), m: m}
		n.port, err = m.AddPort(cm.PortConfig{Name: name, GUID: uint64(i + 1), GIDs: []ib.GID{n.gid}, MTU: ib.MTU1024, AckDelay: 15})
		if err != nil {
			return nil, err
		}
		w.nodes[i] = n
	}
	return w, nil
}

// doCM is the connection managers' directive; the first word says what happens.
func (in *Interp) doCM(a *args) (err error) {
	if in.cm == nil {
		if in.cm, err = newCMWorld(); err != nil {
			return err
		}
	}
	switch verb := a.word("what to do"); verb {
	case "listen":
		return in.cmListen(a)
	case "connect":
		return in.cmConnect(a)
	case "lose":
		return in.cmLose(a)
	case "pass":
		d := a.parseDur(a.word("duration"), 0)
		if err := a.done(); err != nil {
			return err
		}
		return in.cmPass(in.now.Add(d))
	default:
		return in.cmVerb(a, verb)
	}
}

// cmNodeOf is the node that an argument names.
func (in *Interp) cmNodeOf(a *args, key string) (*cmNode, error) {
	switch name := a.str(key, ""); name {
	case "A":
		return in.cm.nodes[0], nil
	case "B":
		return in.cm.nodes[1], nil
	default:
		return nil, fmt.Errorf("%s=A or %s=B, not %q", key, key, name)
	}
}

// cmNew makes an id with a name that nobody has.
func (in *Interp) cmNew(n *cmNode, name string) (*cm.ID, error) {
	if in.cm.ids[name] != nil || len(in.cm.ids) >= maxObjects {
		return nil, fmt.Errorf("%q exists, or there are too many", name)
	}
	id, err := n.m.CreateID(cm.PSTCP, ib.QPTypeRC)
	if err == nil {
		in.cm.ids[name], id.Context = id, name
	}
	return id, err
}

func (in *Interp) cmListen(a *args) error {
	name, port, backlog := a.word("name"), a.num("port", 0, 65535), a.count("backlog", 0, 1024)
	n, err := in.cmNodeOf(a, "on")
	if err == nil {
		err = a.done()
	}
	if err != nil {
		return err
	}
	id, err := in.cmNew(n, name)
	if err != nil {
		return err
	}
	if err = id.Bind(cm.AddrOf(n.gid, uint16(port))); err == nil {
		err = id.Listen(backlog)
	}
	in.result(err)
	return nil
}

// cmConnect takes an id from its creation to its REQ. The address is resolved and the
// route is made at once.
func (in *Interp) cmConnect(a *args) error {
	name, port := a.word("name"), a.num("port", 0, 65535)
	p := cmParam(a)
	n, err := in.cmNodeOf(a, "on")
	if err != nil {
		return err
	}
	to, err := in.cmNodeOf(a, "to")
	if err == nil {
		err = a.done()
	}
	if err != nil {
		return err
	}
	id, err := in.cmNew(n, name)
	if err != nil {
		return err
	}
	if err = id.ResolveAddr(in.now, cm.Addr{}, cm.AddrOf(to.gid, uint16(port)), 1); err == nil {
		err = id.ResolveRoute(in.now, 1)
	}
	if err == nil {
		err = id.Connect(in.now, p)
	}
	in.result(err)
	return in.cmFlush()
}

// cmParam reads qpn=, private= (so many bytes: 1, 2, 3...), rr= and depth=.
func cmParam(a *args) cm.ConnParam {
	p := cm.ConnParam{QPN: ib.QPN(a.num("qpn", 0x11, uint64(ib.QPNMask))), Private: make([]byte, a.count("private", 0, 255)),
		ResponderResources: uint8(a.num("rr", 1, 255)), InitiatorDepth: uint8(a.num("depth", 1, 255)), RetryCount: 7, RNRRetryCount: 7}
	for i := range p.Private {
		p.Private[i] = byte(i + 1)
	}
	return p
}

// cmVerb is a call on an id.
func (in *Interp) cmVerb(a *args, verb string) error {
	name := a.word("name")
	id := in.cm.ids[name]
	if id == nil {
		return fmt.Errorf("there is no id %q", name)
	}
	p := cmParam(a)
	if err := a.done(); err != nil {
		return err
	}
	var err error
	switch verb {
	case "accept":
		err = id.Accept(in.now, p)
	case "confirm":
		err = id.Establish(in.now)
	case "reject":
		err = id.Reject(in.now, 0, p.Private)
	case "disconnect":
		err = id.Disconnect(in.now)
	case "notify":
		err = id.Notify(in.now, ib.EventCommEst)
	case "destroy":
		id.Destroy(in.now)
		delete(in.cm.ids, name)
	default:
		return fmt.Errorf("cm %q is nothing to do", verb)
	}
	in.result(err)
	return in.cmFlush()
}

func (in *Interp) cmLose(a *args) error {
	what, n := a.word("message"), a.count("n", 1, maxObjects)
	if err := a.done(); err != nil {
		return err
	}
	for attr := cm.AttrREQ; attr <= cm.AttrAPR; attr++ {
		if attr.String() == what {
			in.cm.lose[attr] += n
			in.result(nil)
			return nil
		}
	}
	return fmt.Errorf("no message %q", what)
}

// cmFlush sends what the managers have to send and prints what they tell.
func (in *Interp) cmFlush() error {
	w := in.cm
	for i, n := range w.nodes {
		var evs [8]cm.Event
		for k := n.m.PollEvents(evs[:]); k > 0; k = n.m.PollEvents(evs[:]) {
			for j := range evs[:k] {
				in.cmEvent(n, &evs[j])
			}
		}
		var out [8]cm.Packet
		for k := n.m.Emit(out[:]); k > 0; k = n.m.Emit(out[:]) {
			for _, p := range out[:k] {
				attr, fate := cm.DecodeHeader(p.MAD[:]).Attr, ""
				to := w.nodes[1-i]
				if p.AV.DGID == n.gid {
					to = n
				}
				if w.lose[attr] > 0 {
					w.lose[attr]--
					fate = " lost"
				} else {
					w.fly = append(w.fly, cmFlight{in.now.Add(in.wire.latency), to, p})
				}
				in.printf("%10s %s>%s %v%s\n", clock(in.now), n.name, to.name, attr, fate)
			}
		}
	}
	if in.steps++; in.steps > maxSteps {
		return errSteps
	}
	return nil
}

func (in *Interp) cmEvent(n *cmNode, e *cm.Event) {
	if e.Type == cm.EventConnectRequest {
		in.cm.requests++
		name := "r" + strconv.Itoa(in.cm.requests)
		in.cm.ids[name], e.ID.Context = e.ID, name
		e.ID.Fetched()
	}
	text := fmt.Sprintf("%10s %s: %v %v", clock(in.now), n.name, e.ID.Context, e.Type)
	if e.Status != 0 {
		text += " status=" + strconv.Itoa(e.Status)
	}
	if len(e.Conn.Private) > 0 {
		used := len(e.Conn.Private)
		for used > 0 && e.Conn.Private[used-1] == 0 {
			used--
		}
		text += fmt.Sprintf(" private=%d of %d", used, len(e.Conn.Private))
	}
	if e.Type == cm.EventConnectRequest || e.Type == cm.EventConnectResponse {
		text += fmt.Sprintf(" rr=%d depth=%d", e.Conn.ResponderResources, e.Conn.InitiatorDepth)
	}
	in.printf("%s\n", text)
}

// cmPass lets time pass until end: messages arrive and timers run.
func (in *Interp) cmPass(end vtime.Time) error {
	w := in.cm
	for {
		next := vtime.Min(w.nodes[0].m.Deadline(), w.nodes[1].m.Deadline())
		at := slices.IndexFunc(w.fly, func(f cmFlight) bool { return f.at <= next })
		for i := range w.fly {
			if at >= 0 && w.fly[i].at < w.fly[at].at {
				at = i
			}
		}
		if at >= 0 {
			next = w.fly[at].at
		}
		if next > end {
			in.now = max(in.now, end)
			return nil
		}
		in.now = max(in.now, next)
		if at >= 0 {
			f := w.fly[at]
			w.fly = slices.Delete(w.fly, at, at+1)
			from := f.p.Port.GIDs[f.p.AV.SGIDIndex]
			f.to.m.Receive(in.now, f.to.port, &wire.Path{Src: from, Dst: f.to.gid, HopLimit: 64}, f.p.MAD[:])
		} else {
			for _, n := range w.nodes {
				n.m.Expire(in.now)
			}
		}
		if err := in.cmFlush(); err != nil {
			return err
		}
	}
}
