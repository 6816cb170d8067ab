package spec

// doEvents prints the events of a device, or of all, since they were last asked for:
// asynchronous events, and COMP for a completion queue that was armed.
func (in *Interp) doEvents(a *args) error {
	nodes := in.nodes
	if name := a.optWord(); name != "" {
		n, err := in.node(name)
		if err != nil {
			return err
		}
		nodes = []*node{n}
	}
	if err := a.done(); err != nil {
		return err
	}
	none := true
	for _, n := range nodes {
		in.collectQuietly(n)
		for _, e := range n.events {
			in.printf("%s %s\n", n.name, e)
			none = false
		}
		n.events = nil
	}
	if none {
		in.printf("(none)\n")
	}
	return nil
}

func (in *Interp) collectQuietly(n *node) {
	was := in.trace
	in.trace = false
	in.collect(n)
	in.trace = was
}
