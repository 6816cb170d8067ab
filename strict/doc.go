// Package strict finds misuse of the verbs API in programs that happen to work: the
// sanitizer of package verbs. It follows work requests from post to poll and reports
// what the API does not allow, or what can only go well by luck.
//
// The tracker is told what the program does (posts, polls, arms, destroys) by the API
// that hosts it, and what becomes of the work by the device, as a [qp.Observer]. It
// computes only; locks, clocks and call sites belong to the host.
package strict
