package cm

import (
	"slices"

	"github.com/rvtsim/rvtsim/ib"
)

// bindKey is a port number of a port space.
type bindKey struct {
	space PortSpace
	port  uint16
}

// Bind (kernel: rdma_bind_addr) gives an id its own address. Port 0 chooses a free one.
// A wildcard binds to no device yet. When Bind fails the id is as before.
func (id *ID) Bind(a Addr) error {
	const verb = "bind_addr"
	if err := id.want(verb, IDIdle); err != nil {
		return err
	}
	if !a.valid() {
		return id.err(ib.EAFNOSUPPORT, verb, "not an IP address")
	}
	port, index, ok := id.m.owner(a)
	if !ok {
		return id.err(ib.EADDRNOTAVAIL, verb, a.String()+" is not an address of this node")
	}
	before := *id
	id.src = a
	switch {
	case a.Family == FamilyIPv4:
		id.afOnly = true
	case !id.afOnlySet:
		id.afOnly = id.m.cfg.V6Only
	}
	if err := id.takePort(verb); err != nil {
		id.src, id.afOnly = before.src, before.afOnly
		return err
	}
	id.port, id.sgidIndex = port, index
	id.state = IDAddrBound
	return nil
}

// owner returns the port that has an address; none for wildcards and the loopback
// interface, which are good without. Where ports have loopback addresses themselves, they
// are addresses like others.
func (m *Manager) owner(a Addr) (p *Port, index uint8, ok bool) {
	for _, p := range m.ports {
		if i, ok := p.gidIndex(a.IP); ok {
			return p, i, true
		}
	}
	return nil, 0, a.IsAny() || a.IsLoopback() && !m.hasLoopback(a.Family)
}

// takePort (kernel: cma_get_port) reserves the port of id.src.
func (id *ID) takePort(verb string) error {
	m := id.m
	if id.src.Port == 0 {
		n := int(m.cfg.PortHigh) - int(m.cfg.PortLow) + 1
		from := m.rng.IntN(n)
		for i := range n {
			port := m.cfg.PortLow + uint16((from+i)%n)
			if port == m.last[id.space] && n > 1 || len(m.binds[bindKey{id.space, port}]) > 0 {
				continue
			}
			m.last[id.space] = port
			id.src.Port = port
			m.own(id)
			return nil
		}
		return id.err(ib.EADDRNOTAVAIL, verb, "no port is free")
	}
	if errno := id.checkPort(id.reuse); errno != 0 {
		return id.err(errno, verb, id.src.String()+" is in use")
	}
	m.own(id)
	return nil
}

func (m *Manager) own(id *ID) {
	id.bindKey, id.isBound = bindKey{id.space, id.src.Port}, true
	m.binds[id.bindKey] = append(m.binds[id.bindKey], id)
}

// checkPort (kernel: cma_check_port) tells whether others keep the id from its port.
// That a wildcard gives EADDRNOTAVAIL is the kernel's way.
func (id *ID) checkPort(reuse bool) ib.Errno {
	for _, o := range id.m.binds[bindKey{id.space, id.src.Port}] {
		switch {
		case o == id, reuse && o.reuse:
		case id.afOnly && o.afOnly && id.src.Family != o.src.Family:
		case id.src.IsAny() || o.src.IsAny():
			return ib.EADDRNOTAVAIL
		case id.src.IP == o.src.IP:
			return ib.EADDRINUSE
		}
	}
	return 0
}

// releasePort gives the port back.
func (id *ID) releasePort() {
	if !id.isBound {
		return
	}
	id.isBound = false
	owners := id.m.binds[id.bindKey]
	i := slices.Index(owners, id)
	if owners = slices.Delete(owners, i, i+1); len(owners) == 0 {
		delete(id.m.binds, id.bindKey)
	} else {
		id.m.binds[id.bindKey] = owners
	}
}
