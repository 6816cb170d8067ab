// Package netdev follows a network device of Linux by netlink: its link, its MTU, its MAC
// address, and the addresses that make the GID table of a port on it.
//
// What the kernel announces is only a reason to look again: a message may be late, be
// repeated or, if the socket's buffer overflows, be lost. [Watcher.State] lists everything
// anew. Only the states of the link are taken from the messages too, because a link that
// goes down and up again must not go unnoticed.
package netdev
