// Package ib is the vocabulary of InfiniBand verbs: numbers, enumerations and the
// small tables that go with them. It owns no state and no logic beyond arithmetic
// on its own types, so every other package may import it.
//
// Names follow the standard and the Linux kernel headers; values are those of the
// verbs user ABI (include/uapi/rdma/ib_user_verbs.h), so that they can be handed to
// a C program unchanged.
package ib
