package spec

import "errors"

// doPort sets a device's port up or down.
func (in *Interp) doPort(a *args) error {
	n, err := in.node(a.word("device name"))
	if err != nil {
		return err
	}
	w := a.word("up or down")
	if err := a.done(); err != nil {
		return err
	}
	if w != "up" && w != "down" {
		return errors.New("a port is up or down")
	}
	n.dev.SetPort(w == "up")
	in.result(nil)
	in.collect(n)
	return nil
}
