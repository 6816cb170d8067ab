//go:build race

package invariants

// Race reports whether this build runs under the race detector. Tests that count
// allocations or measure time skip themselves when it does.
const Race = true
