// Package notify runs programs on a node without anything preloaded into them: static
// binaries, and programs in Go that open the device themselves. The kernel hands the
// few system calls that matter to a supervisor (seccomp user notification), which
// answers them in the program's place and speaks the daemon's protocol on its behalf.
//
// # Processes
//
//	launcher      the process that called Run: passes signals and the exit status on
//	 └ supervisor answers the program's calls; this binary, run again
//	    └ program  and whatever it starts, all under one filter
//
// The supervisor is an ancestor of the program, so it may reach into its memory even
// where that is restricted to ancestors (Yama). Launcher and supervisor watch each other:
// when either is killed the other one ends the program with all its children, for nobody
// would answer their calls any more (they would get ENOSYS).
//
// # What is answered
//
//   - A path under /sys/class/infiniband*, /sys/class/misc/rdma_cm* or /dev/infiniband
//     leads into the node's view. Filters cannot see paths, so every open and stat of the
//     program makes the detour; all but these are passed on to the kernel untouched.
//   - Opening a device file puts a memfd of the daemon's into the program, at one of a few
//     high numbers. The filter catches write, writev, ioctl, fstat and the dup family for
//     these numbers only. Which context a number means is looked up by inode with each
//     call, so close, fork, exec and reuse need no bookkeeping.
//   - A context ends when the last descriptor and the last mapping of its memfd are gone
//     in every process, however that came about: inotify tells.
//   - Netlink sockets for RDMA do not exist (EPROTONOSUPPORT), so that libraries look at
//     the files.
//
// # Races
//
// What a call points to is read once and acted upon as read. After each read the
// supervisor asks the kernel whether the call is still pending, so a process number that
// was used again cannot mislead it. A command, once received, is not withdrawn by signals
// (WAIT_KILLABLE_RECV): it is carried out exactly once. A signal whose handler does not
// restart calls may interrupt one before that, with EINTR.
//
// # Limits
//
// The program and its children run with no_new_privs: setuid programs gain nothing. A
// second listener is not possible below the first, so launchers do not nest. 32-bit
// programs are not served. chdir into the view, dup2 of a device to a number of the
// program's choice, and use of a device descriptor that was passed through a socket do
// not work. It is not a security boundary.
package notify
