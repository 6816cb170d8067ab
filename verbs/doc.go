// Package verbs is the RDMA verbs API for Go programs: devices, protection domains,
// memory regions, completion queues, queue pairs, and what goes with them, as
// libibverbs has them, over a software adapter that speaks RoCE v2.
//
// # From C to Go
//
// Names follow the C API: ibv_alloc_pd is [Device.AllocPD], ibv_post_send is
// [QP.PostSend], ibv_get_cq_event is [CompChannel.Get]. The differences:
//
//   - Errors are Go errors. A refused call returns a [*VerbError] with the errno that
//     the C call would give: errors.Is(err, ib.EBUSY). Posting returns a [*BadWR],
//     which wraps it and says which work request was bad.
//   - Work requests are slices, not linked lists.
//   - What blocks takes a context.
//   - Memory is a []byte that is registered as it is; its address is that of its first
//     element. [MR.SGE] makes the usual scatter/gather entry.
//
// Transport failures are never errors of a call. They are the status of a work
// completion, and its VendorErr says in words what happened.
//
// # Concurrency
//
// Every method of every type is safe for concurrent use, unless its comment says
// otherwise. Destroying an object makes later calls on it fail with EINVAL; it does not
// disturb calls that are under way. Completion queues may be polled by several
// goroutines: each completion goes to exactly one of them.
//
// # Progress
//
// There is no thread per queue. [CQ.Poll] on an empty queue drives the adapter, so a
// program that polls pays for no wake-up; a program that sleeps in [CompChannel.Get] is
// woken by a background goroutine, which also serves peers and timers while the program
// does other things. See package rvt/node.
//
// # What carries packets
//
// UDP does, where tcpdump sees it and other machines are reached. With [Config.Memory] two
// devices of one machine exchange the same packets through memory that they share, which
// needs no system calls: half a round trip of 64 bytes takes a third of the time. Both must
// ask for it, and both programs must run as the same user.
//
// # Memory that peers write
//
// The adapter reads and writes registered memory while the program runs. Until a
// completion tells that a buffer is the program's again, the program must not touch it.
// The exception is polling for data that a peer writes: see [PD.RegMR].
package verbs
