// Package invariants holds the assertions of the protocol core. They are compiled
// in under the build tag invariants, and under the race detector, which sets the
// build tag race. Otherwise [Enabled] is a false constant and everything that
// depends on it compiles to nothing.
//
// The package is a leaf that any package may import, the pure ones included. It is
// safe for concurrent use, so that single-owner code can be tested in parallel.
//
// An assertion is about this program. What a peer puts on the wire, or what a user
// passes to a verb, must never be able to trigger one: that is a counted drop or an
// error.
package invariants

// Violation is the value an assertion panics with. A test that drives seeded worlds
// recovers it to print the seed beside it.
type Violation string

// Error makes a recovered Violation usable as an error.
func (v Violation) Error() string { return "invariant violated: " + string(v) }

// Check panics with a [Violation] when cond is false and assertions are compiled in.
// One condition per call, and msg says what should have held. The arguments are
// evaluated in every build; put an expensive condition under "if Enabled".
func Check(cond bool, msg string) {
	if Enabled && !cond {
		panic(Violation(msg))
	}
}

// Unreachable panics with a [Violation] in every build. It stands where the types
// allow a path that the program's logic does not, such as the default of a switch
// over all values of an enumeration.
func Unreachable(msg string) {
	panic(Violation("unreachable: " + msg))
}

// mangleByte differs from the zero of fresh memory and from common test patterns.
const mangleByte = 0xdb

// Mangle overwrites b when assertions are compiled in. The owner of a buffer calls it
// when a borrower's time is up, so that a borrower who kept the slice reads garbage
// at once rather than on the day the buffer is reused.
func Mangle(b []byte) {
	if !Enabled {
		return
	}
	for i := range b {
		b[i] = mangleByte
	}
}
