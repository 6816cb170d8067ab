package mem

import (
	"fmt"
	"slices"

	"github.com/rvtsim/rvtsim/fabric"
)

// Range is a run of nodes: First and the N-1 after it.
type Range struct {
	First NodeIndex
	N     int
}

func (r Range) has(i NodeIndex) bool { return i >= r.First && int(i-r.First) < r.N }

// cut is a partition between two ranges, one direction.
type cut struct{ from, to Range }

// Partition loses everything from a to b, that direction only, until HealPartition
// or Heal.
func (n *Network) Partition(a, b NodeIndex) { n.cut[pair{a, b}] = struct{}{} }

// HealPartition ends a partition from a to b.
func (n *Network) HealPartition(a, b NodeIndex) { delete(n.cut, pair{a, b}) }

// PartitionRange loses everything from nodes of a to nodes of b, that direction only,
// until HealRange with the same ranges, or Heal. It takes no memory for each pair.
func (n *Network) PartitionRange(a, b Range) {
	if !slices.Contains(n.cuts, cut{a, b}) {
		n.cuts = append(n.cuts, cut{a, b})
	}
}

// HealRange ends a PartitionRange of the same ranges.
func (n *Network) HealRange(a, b Range) {
	n.cuts = slices.DeleteFunc(n.cuts, func(c cut) bool { return c == cut{a, b} })
}

// HealPartitions ends all partitions and leaves everything else as it is.
func (n *Network) HealPartitions() {
	clear(n.cut)
	n.cuts = n.cuts[:0]
}

// isCut reports whether a partition lies between two nodes. One of ranges never lies
// between a node and itself.
func (n *Network) isCut(from, to NodeIndex) bool {
	if len(n.cut) > 0 {
		if _, ok := n.cut[pair{from, to}]; ok {
			return true
		}
	}
	for i := range n.cuts {
		if n.cuts[i].from.has(from) && n.cuts[i].to.has(to) && from != to {
			return true
		}
	}
	return false
}

// SetImpairment lets go wrong between a and b, that direction only, what im says, in
// place of what the link has. Queue and bandwidth stay those of the link.
func (n *Network) SetImpairment(a, b NodeIndex, im fabric.ImpairmentConfig) error {
	if err := n.checkPair(a, b); err != nil {
		return err
	}
	p, err := fabric.NewImpairment(im, fabric.Mix(fabric.Mix(n.cfg.Seed, seedPair), uint64(uint32(a))<<32|uint64(uint32(b))))
	if err != nil {
		return fmt.Errorf("link %d to %d: %w", a, b, err)
	}
	n.faulty[pair{a, b}] = p
	return nil
}

// SetImpairments does so between all nodes, for links that were set apart too.
func (n *Network) SetImpairments(im fabric.ImpairmentConfig) error {
	if err := im.Validate(); err != nil {
		return err
	}
	clear(n.faulty)
	n.cfg.Default.Impairment = im
	for i := range n.nodes {
		n.nodes[i].out.configure(&n.cfg.Default)
	}
	for _, e := range n.links {
		e.cfg.Impairment = im
		e.configure(e.cfg)
	}
	return nil
}

// policy is what goes wrong from one node to another; nil for nothing.
func (n *Network) policy(e *egress, from, to NodeIndex) *fabric.Impairment {
	if len(n.faulty) > 0 {
		if p, ok := n.faulty[pair{from, to}]; ok {
			return p
		}
	}
	return e.policy
}

// Heal ends all partitions and removes the impairment of every link, rules included.
// Latency, jitter, bandwidth and queues stay.
func (n *Network) Heal() {
	clear(n.cut)
	clear(n.faulty)
	n.cuts = n.cuts[:0]
	n.cfg.Default.Impairment = fabric.ImpairmentConfig{}
	for i := range n.nodes {
		n.nodes[i].out.policy = nil
	}
	for _, e := range n.links {
		e.cfg.Impairment = fabric.ImpairmentConfig{}
		e.policy = nil
	}
}
