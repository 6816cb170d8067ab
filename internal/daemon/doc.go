// Package daemon hosts devices for the programs of other processes: nodes on real
// sockets, a control socket, and a sysfs view for each node. Programs reach it through
// the preload library of package shim; what their commands mean is the business of
// package uverbs.
//
// # Who runs
//
//   - Each connection has a goroutine that blocks in recvmsg, serves one command after
//     the other, and ends with the program.
//   - One thread drives all nodes (one for each four processors, if there are as many
//     nodes): it waits for doorbells, packets and timers with one epoll_pwait2, and works
//     until nothing is left. The runtime's poller is not involved. See loop_linux.go.
//   - In a program that hosts itself the program's own threads drive the node, see
//     [Engine]; a goroutine listens to the doorbells of its children.
//
// All of them enter the device through node.Node, one at a time.
//
// # Doorbells
//
// A doorbell is a 32-bit word in memory that program and daemon share, and an eventfd.
// The program exchanges the word with 1 after it has filled its ring, and writes to the
// eventfd only if it was 0. The daemon sets it to 0 before its last look at the rings, so
// whatever is posted after the look rings again. While it works, and while it expects a
// stream to go on, it leaves the word set and looks at the rings by itself.
//
// # When the daemon dies
//
// A program that polls makes no system call, so it would not notice. The daemon therefore
// starts a second process, its heir, and tells it of every ring and every file of events.
// When the daemon's end of their socket closes, the heir completes with errors what is
// outstanding and sends DEVICE_FATAL. See heir_linux.go.
//
// # When a program is stopped
//
// A program that hosts itself stands still then, and cannot acknowledge. Its peers, in other
// programs or in the daemon, ask the daemon before they give up; see peers_linux.go.
//
// # Trust
//
// A program can spoil its own objects only; a program that does not read its answers,
// or stops in the middle of a command, holds up nobody else. In the other direction, a
// program that attaches gives the daemon a descriptor of its memory, so the daemon can
// do to it what a debugger could. Hence only programs of the daemon's own user may
// attach unless Config.Allow says otherwise.
package daemon
