// Package node is the real-time host of one [rvt.Device]: it gives the device a
// clock, a [fabric.Port], and an owner at every moment.
//
// # Who drives
//
// The device is a state machine that must be driven: packets have to be read, timers
// to be run, packets to be sent. One pass does all of that, and it is a plain call.
// Any goroutine may make it, one at a time:
//
//   - A program that polls its completion queue calls [Node.Progress] when the queue
//     is empty. It pays for system calls but never for a wake-up.
//   - A program that posts work to an idle queue pair sends it before the post
//     returns; what it posts to a busy one is sent with the next pass, so that it
//     travels in larger batches.
//   - A background goroutine drives when nobody else does: for one-sided traffic,
//     timers, and programs that sleep in a completion channel. It waits in the port,
//     without a deadline when no timer runs, so an idle node uses no processor time.
//
// The background goroutine must not compete with a program that polls: each packet
// would wake it for nothing. So it watches a counter of Progress calls. While that
// moves it stays away from the port and looks again after 50 us, later after 1 ms;
// when the counter has stood still for such a nap it takes over. A caller that is about to block says so
// with [Node.Park], and the background goroutine takes over at once.
//
// A host with many nodes has one thread for all of them instead: Manual nodes, a loop that
// waits for all ports at once, and [Node.Turn].
//
// # What waits, and for how long
//
// A send and a receive cost more than all the rest of a small message. If the program
// has answered messages promptly lately, an acknowledgement waits for the answer, at most
// [AckDelay], and travels in the same send; see hold. And if packets used to follow one
// another lately, the background goroutine looks for the next one for [Linger] before it
// sleeps in the port. Both are choices of the host (Config), and both stop by themselves
// when they are wrong.
//
// On a machine with more to do than processors it is the other way round: who looks again and
// again uses up his slice and is gone when the packet comes. There a poll in vain sleeps, if the
// host allows it ([Doze]); see crowd.
//
// # Locking
//
// One mutex makes its holder the owner of device and port. The system calls of a pass
// are made under it as well: a port belongs to one caller at a time anyway, packets
// leave in the order in which they were built, and nothing has to be copied to be sent
// after unlocking. A pass is bounded, so a caller waits for one pass at most: some
// hundred microseconds when the pass moves its limit of data. Progress never waits
// for it; it returns if somebody else is driving. Only the wait for the socket happens outside
// the mutex.
//
// # Memory
//
// Steady traffic does not allocate. Packets are built in one arena, back to back, so
// that a port can hand equal ones to the system as one piece; payload is gathered for
// a whole batch at once and completions are shown after that.
package node
