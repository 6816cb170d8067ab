package spec

import "fmt"

// doWire sets how the wire behaves from now on, or, without arguments, prints what is
// on it.
func (in *Interp) doWire(a *args) error {
	show := len(a.list) == 0
	latency := a.dur("latency", in.wire.latency)
	batch := a.count("batch", in.wire.batch, maxSteps)
	if err := a.done(); err != nil {
		return err
	}
	if batch < 1 || latency > maxLatency {
		return fmt.Errorf("batch is at least 1, latency at most %s", maxLatency)
	}
	in.wire.latency, in.wire.batch = latency, batch
	if !show {
		in.result(nil)
		return nil
	}
	for _, f := range in.wire.flights {
		in.printf("%10s %s>%s %s\n", clock(f.at), f.from.name, f.to.name, f.text)
	}
	if len(in.wire.flights) == 0 {
		in.printf("(nothing)\n")
	}
	return nil
}
