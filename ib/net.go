package ib

// Further Linux error numbers, which calls about addresses and connections give.
const (
	ENXIO         Errno = 6
	ENOSYS        Errno = 38
	EAFNOSUPPORT  Errno = 97
	EADDRINUSE    Errno = 98
	EADDRNOTAVAIL Errno = 99
	ENETUNREACH   Errno = 101
	ECONNABORTED  Errno = 103
	ECONNRESET    Errno = 104
	EISCONN       Errno = 106
	ETIMEDOUT     Errno = 110
	ECONNREFUSED  Errno = 111
	ENOTSUPP      Errno = 524 // not meant for programs, but the kernel lets it out
)

func init() {
	for _, n := range []struct {
		e    Errno
		name string
	}{
		{ENXIO, "ENXIO"}, {ENOSYS, "ENOSYS"}, {EAFNOSUPPORT, "EAFNOSUPPORT"}, {EADDRINUSE, "EADDRINUSE"},
		{EADDRNOTAVAIL, "EADDRNOTAVAIL"}, {ENETUNREACH, "ENETUNREACH"}, {ECONNABORTED, "ECONNABORTED"},
		{ECONNRESET, "ECONNRESET"}, {EISCONN, "EISCONN"}, {ETIMEDOUT, "ETIMEDOUT"}, {ECONNREFUSED, "ECONNREFUSED"},
		{ENOTSUPP, "ENOTSUPP"},
	} {
		errnoNames[n.e] = n.name
	}
}
