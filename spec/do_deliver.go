package spec

import "slices"

// doDeliver lets the next n= packets on the wire arrive, one by one, and time go on to
// then. The receiver answers after each, unless "hold" keeps the send engines still.
func (in *Interp) doDeliver(a *args) error {
	n, hold := a.count("n", 1, maxSteps), a.flag("hold")
	if err := a.done(); err != nil {
		return err
	}
	for range n {
		if len(in.wire.flights) == 0 {
			in.printf("%10s nothing on the wire\n", clock(in.now))
			return nil
		}
		f := in.wire.flights[0]
		in.now = max(in.now, f.at)
		in.wire.flights = slices.Delete(in.wire.flights, 0, 1)
		in.receive(f)
		in.commit(f.to)
		in.steps++
		if !hold {
			in.emitAll()
		}
	}
	return nil
}
