package spec

// doAdvance lets a span of time pass with everything that happens in it.
func (in *Interp) doAdvance(a *args) error {
	d := a.parseDur(a.word("duration"), 0)
	if err := a.done(); err != nil {
		return err
	}
	end := in.now.Add(d)
	_, err := in.runUntil(end)
	in.now = max(in.now, end)
	return err
}
