// Package arch holds the architecture of this repository as data and the code that
// compares the source with it. It owns the table of packages: what each may import,
// and which of them are pure, meaning that the same inputs always give the same
// outputs. The checks run as tests of this package.
//
// Two checks exist. [CheckImports] compares the import graph with the table; a
// package the table does not list is an error, so adding a package starts with a
// line that says why it exists. [CheckPurity] type-checks the pure packages and
// rejects what would let a clock, a scheduler, an address or a map's order into a
// result.
//
// A line may excuse itself from two of the purity rules, and must say why:
//
//	for k := range m { //arch:sorted the keys are sorted below
//	panic(err)         //arch:panic a constant table failed to parse
//
// Such a comment may also stand alone on the line above. One that excuses nothing is
// an error itself.
package arch

import "fmt"

// Module is the module path that the table's package names are relative to.
const Module = "github.com/rvtsim/rvtsim"

// Problem is one disagreement between the source and the table.
type Problem struct {
	Where string // a package, or file:line:column
	Text  string // what is wrong, and what to do about it
}

func (p Problem) String() string { return fmt.Sprintf("%s: %s", p.Where, p.Text) }
