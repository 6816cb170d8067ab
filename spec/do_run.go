package spec

import (
	"time"

	"github.com/rvtsim/rvtsim/vtime"
)

// doRun lets everything happen that is going to, until nothing is on the wire, no
// timer runs and no device has anything to send; or, with for=, for that long. The
// last line says when that was.
func (in *Interp) doRun(a *args) error {
	limited := a.has("for")
	d := a.dur("for", time.Duration(0))
	if err := a.done(); err != nil {
		return err
	}
	end := vtime.Never
	if limited {
		end = in.now.Add(d)
	}
	quiet, err := in.runUntil(end)
	if err != nil {
		return err
	}
	if !quiet {
		in.now = max(in.now, end)
		in.printf("%10s not at rest\n", clock(in.now))
		return nil
	}
	in.printf("%10s at rest\n", clock(in.now))
	return nil
}
