// Package conform is a conformance suite for verbs devices: cases as data, a runner, and
// what devices of three kinds are expected to answer.
//
// A case (cases/*.txt, format in README.md) names only concepts of the verbs API:
// objects, calls, attributes, polls, waits, events, bytes of memory. The runner carries
// it out on a [DUT] and writes down a [Record]: what the calls returned, the completions
// of each queue in order, the states, the asynchronous events, and notes. The record has
// the form of the answers of a real Linux soft-RoCE device in tests/golden/oracle, which
// is the reference of every case that it has.
//
// A device of profile rxe is to give the kernel's record. Each difference of any profile
// is written down in expect/*.txt with the rule that decides it; one that is not, or that
// no longer occurs, fails the case.
package conform
