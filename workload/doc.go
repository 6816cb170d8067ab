// Package workload makes traffic: streams of work requests between two devices, with
// everything that came of them checked.
//
// A [Spec] describes a flow. Two [Endpoint]s carry it out, each bound to one
// [rvt.Device]: the client posts, the server answers, and a bidirectional flow has
// both do both. They find each other by exchanging an [Info], which fits in a JSON
// message, so the two may live in one virtual world or in two processes.
//
// An Endpoint is as passive as the device below it. Its host owns the device and
// calls [Endpoint.Step] while it does; the endpoint polls its completion queues,
// checks what arrived, posts what comes next, and returns. It reads no clock and
// starts nothing, so the same code runs in virtual time and on sockets.
//
// What is checked, while it runs and at the end:
//
//   - Every posted work request completes exactly once, in the order of posting per
//     QP; no success follows a failure.
//   - Every message arrives once, in order, with the bytes that were posted. On UC
//     and UD it may be missing. See [Spec.Disorder].
//   - READs return what is there, atomics the value before them, each executed once.
//   - Memory that no work request names stays as it was.
//
// [VerifyPair] compares both ends after the traffic.
package workload
