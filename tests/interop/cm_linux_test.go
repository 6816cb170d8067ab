package interop

import "testing"

// TestConnectionManager is the place of rping, ucmatose and udaddy.
func TestConnectionManager(t *testing.T) {
	if !*full {
		return // one skip after the other would only hide others
	}
	for _, program := range []string{"rping", "ucmatose", "udaddy"} {
		for _, d := range directions {
			t.Run(program+"/"+d.name, func(t *testing.T) {
				record(t, program, d.name, "")
				t.Skip("there is no connection manager yet: nothing of ours answers on QP 1")
			})
		}
	}
}
