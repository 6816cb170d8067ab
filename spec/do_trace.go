package spec

import "errors"

// doTrace turns the lines for packets and events on or off.
func (in *Interp) doTrace(a *args) error {
	w := a.word("on or off")
	if err := a.done(); err != nil {
		return err
	}
	if w != "on" && w != "off" {
		return errors.New("trace is on or off")
	}
	in.trace = w == "on"
	in.result(nil)
	return nil
}
