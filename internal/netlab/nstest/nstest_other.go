//go:build !linux

package nstest

import (
	"os"
	"testing"
)

// Main runs the tests: there are no namespaces on this system.
func Main(m *testing.M) { os.Exit(m.Run()) }
