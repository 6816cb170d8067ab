package udp

import (
	"sync"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/neigh"
)

var (
	_ fabric.Neighbours = (*Port)(nil)
	_ fabric.Neighbours = (*Multi)(nil)
)

// neighbours is the kernel's knowledge of a port's network, opened with the first question.
type neighbours struct {
	once   sync.Once
	table  *neigh.Table
	inside func(func() error) error // runs a function in the port's network namespace; nil: here
}

// ask returns 0 where the kernel does not let itself be asked.
func (n *neighbours) ask(q neigh.Question) ib.Errno {
	n.once.Do(func() {
		open := func() (err error) {
			n.table, err = neigh.Open()
			return err
		}
		if n.inside != nil {
			_ = n.inside(open)
		} else {
			_ = open()
		}
	})
	if n.table == nil {
		return 0
	}
	return ib.Errno(n.table.Ask(q))
}

// release closes the table; nobody asks any more.
func (n *neighbours) release() {
	n.once.Do(func() {})
	if n.table != nil {
		n.table.Close()
	}
}

// Neighbour implements [fabric.Neighbours].
func (p *Port) Neighbour(src, dst ib.GID) ib.Errno {
	if !p.life.enter() {
		return ib.ENODEV
	}
	defer p.life.leave()
	return p.neighbours.ask(p.question(src, dst))
}

func (p *Port) question(src, dst ib.GID) neigh.Question {
	return neigh.Question{Src: AddrFromGID(src), Dst: AddrFromGID(dst), Ifindex: p.dev.index, Port: p.local.Port()}
}

// Neighbour implements [fabric.Neighbours].
func (m *Multi) Neighbour(src, dst ib.GID) ib.Errno {
	if !m.life.enter() {
		return ib.ENODEV
	}
	defer m.life.leave()
	p := portOf(*m.ports.Load(), src)
	if p == nil {
		return ib.EADDRNOTAVAIL
	}
	return m.neighbours.ask(p.question(src, dst))
}
