// Package interop tests the adapter against Linux soft-RoCE: a stock kernel in an
// emulated machine (package lab), on a wire of its own.
//
// The tests are symmetrical where that makes sense: a scenario is written once, in terms
// of requester and responder, and runs with ours in each of the two parts, over IPv4 and
// IPv6. Expected statuses are those that the profile "rxe" documents; a kernel that
// differs from the profile fails here, and so do we.
//
// "go test" runs a selection in well under a minute, "make interop" everything, and
// prints a table. Without QEMU, a C compiler, or the right to make a network namespace,
// everything is skipped and the reason says what is missing.
package interop
