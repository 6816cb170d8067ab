//go:build invariants || race

package invariants

// Enabled reports whether assertions are compiled in.
const Enabled = true
