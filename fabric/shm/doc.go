// Package shm carries RoCE v2 packets between programs of one machine through memory that
// they share, in place of UDP sockets: the same packets, ICRC included, without a system
// call and with one copy less.
//
// Each program has an [Inbox], a file in memory with a lane for each program that may write
// to it. A lane is a ring of bytes with one writer, who has a [Lane], and one reader. [Port]
// puts an inbox beside a port with sockets: what is for a program that there is a lane to
// goes there, everything else to the sockets. Who may reach whom is decided by somebody
// else, the daemon, who hands the files out. It knows nothing of queue pairs but that the
// high byte of a QPN says whose it is.
//
// # Trust
//
// Whoever has a lane can write anything into it at any time, as anybody can send anything
// to a UDP port. The reader believes no index, length or address, looks at each once, and
// checks the ICRC. A packet that changes after the check is one that its writer might have
// sent in the first place. A lane whose indices make no sense is passed over for good.
//
// # A full lane
//
// A writer that finds a lane full is told to try again, so that a reader that is merely
// slow loses nothing. If the reader takes nothing for some time it is taken to be stopped
// or dead, and what is for it is lost, as by a socket whose buffer is full, until it goes on.
//
// READ responses, which no window bounds, wait a little earlier, as long as the reader takes
// some now and then: what is under way stays in the caches.
//
// # Payload elsewhere
//
// Payload that is still in the program's memory is copied into the ring while its ICRC is
// computed. If some of it is gone the record is taken back before the reader can see it.
//
// # Sleeping
//
// A reader that is about to sleep says so in its inbox and then looks at its lanes once
// more. A writer publishes and then looks whether the reader sleeps; if so it writes to the
// reader's event descriptor, which ends the Wait of its sockets.
package shm
