// Package daemon hosts devices for the programs of other processes: nodes on real
// sockets, a control socket, and a sysfs view for each node. Programs reach it through
// the preload library of package shim; what their commands mean is the business of
// package uverbs.
//
// # Who runs
//
//   - Each connection has a goroutine that blocks in recvmsg, serves one command after
//     the other, and ends with the program.
//   - Each node has one goroutine for doorbells. It blocks in epoll_wait on the event
//     descriptors of the node's contexts; the runtime's poller is not involved.
//   - Each [node.Node] has its own background goroutine, which waits for packets and
//     timers.
//
// All of them enter the device through node.Node, one at a time.
//
// # Doorbells
//
// A doorbell is a 32-bit word in memory that program and daemon share, and an eventfd.
// The program exchanges the word with 1 after it has filled its ring, and writes to the
// eventfd only if it was 0. The daemon sets it to 0 and then looks at the rings, so
// whatever is posted after the look rings again.
//
// # When the daemon dies
//
// A program that polls makes no system call, so it would not notice. The daemon therefore
// starts a second process, its heir, and tells it of every ring and every file of events.
// When the daemon's end of their socket closes, the heir completes with errors what is
// outstanding and sends DEVICE_FATAL. See heir_linux.go.
//
// # Trust
//
// A program can spoil its own objects only; a program that does not read its answers,
// or stops in the middle of a command, holds up nobody else. In the other direction, a
// program that attaches gives the daemon a descriptor of its memory, so the daemon can
// do to it what a debugger could. Hence only programs of the daemon's own user may
// attach unless Config.Allow says otherwise.
package daemon
