package cm

import (
	"github.com/rvtsim/rvtsim/ib"
)

// Listen (kernel: rdma_listen) takes requests for the id's address. backlog bounds
// those that nobody has fetched; out of range it means the most that is allowed. An id
// without an address gets a port on the IPv4 wildcard.
func (id *ID) Listen(backlog int) error {
	const verb = "listen"
	if id.state == IDIdle && !id.destroyed {
		if err := id.Bind(Wildcard(FamilyIPv4, 0)); err != nil {
			return err
		}
	}
	if err := id.want(verb, IDAddrBound); err != nil {
		return err
	}
	// A listener is alone on its port, whatever REUSEADDR says.
	if errno := id.checkPort(false); errno != 0 {
		return id.err(errno, verb, "others use the port")
	}
	id.reuse = false
	if backlog <= 0 || backlog > id.m.cfg.MaxBacklog {
		backlog = id.m.cfg.MaxBacklog
	}
	id.backlogLeft = backlog
	id.state = IDListen
	return nil
}

// Fetched says that the program has the CONNECT_REQUEST of this id, which does not count
// against the listener's backlog any more.
func (id *ID) Fetched() {
	l := id.listener
	if l == nil {
		return
	}
	id.listener = nil
	l.backlogLeft++
	for i, r := range l.requests {
		if r == id {
			l.requests = append(l.requests[:i], l.requests[i+1:]...)
			return
		}
	}
}

// listening tells whether anybody on the port listens for a service ID. Which address
// the request is for is looked at later.
func (m *Manager) listening(p *Port, s ServiceID) bool {
	space, port, ok := s.Split()
	if !ok {
		return false
	}
	for _, id := range m.binds[bindKey{space, port}] {
		if id.state == IDListen && (id.port == nil || id.port == p) {
			return true
		}
	}
	return false
}

// match finds the listener of a REQ, nil if nobody wants it.
func (m *Manager) match(p *Port, req *REQ) (*ID, PrivateHeader) {
	typ := ib.QPTypeRC
	switch req.Transport {
	case TransportRC:
	case TransportUC:
		typ = ib.QPTypeUC
	default:
		return nil, PrivateHeader{}
	}
	return m.matchHeader(p, req.ServiceID, req.Private[:], typ)
}

// matchHeader (kernel: cma_ib_id_from_event) finds the listener that the header of the
// private data names.
func (m *Manager) matchHeader(p *Port, s ServiceID, private []byte, typ ib.QPType) (*ID, PrivateHeader) {
	hdr := DecodePrivateHeader(private)
	space, port, ok := s.Split()
	if !ok || hdr.Version != 0 || hdr.IPVersion != 4 && hdr.IPVersion != 6 {
		return nil, hdr
	}
	src, dst := AddrOf(hdr.Src, hdr.SrcPort), AddrOf(hdr.Dst, port)
	if _, own := p.gidIndex(hdr.Dst); !own || !m.plausible(src) {
		return nil, hdr
	}
	for _, id := range m.binds[bindKey{space, port}] {
		if id.state == IDListen && id.qpType == typ && (id.port == nil || id.port == p) && id.accepts(dst) {
			return id, hdr
		}
	}
	return nil, hdr
}

// plausible tells whether a peer can have an address.
func (m *Manager) plausible(a Addr) bool {
	return !a.IsAny() && !a.isBroadcast() && !a.IP.IsMulticast() && (!a.IsLoopback() || m.hasLoopback(a.Family))
}

// accepts (kernel: cma_match_private_data) tells whether a listener is meant by dst.
func (id *ID) accepts(dst Addr) bool {
	if id.src.IsAny() {
		return id.src.Family == dst.Family || !id.afOnly
	}
	return id.src.IP == dst.IP
}

// child (kernel: cma_ib_new_conn_id) makes the id of a request.
func (l *ID) child(c *conn, hdr *PrivateHeader) *ID {
	id := l.m.newID(l.space, l.qpType)
	id.src, id.dst = AddrOf(hdr.Dst, l.src.Port), AddrOf(hdr.Src, hdr.SrcPort)
	id.port = c.port
	id.sgidIndex, _ = c.port.gidIndex(hdr.Dst)
	id.state, id.conn, id.silent = IDConnect, c, true
	id.tos, id.listener = l.tos, l
	c.id = id
	l.backlogLeft--
	l.requests = append(l.requests, id)
	return id
}
