package spec

// doEmit runs the send engine of a device without letting time pass: n= packets at
// most, all that it has by default.
func (in *Interp) doEmit(a *args) error {
	n, err := in.node(a.word("device name"))
	if err != nil {
		return err
	}
	budget := a.count("n", 0, maxSteps)
	if err := a.done(); err != nil {
		return err
	}
	in.emit(n, budget)
	return nil
}
