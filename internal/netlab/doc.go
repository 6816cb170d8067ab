// Package netlab makes networks of this machine's own: a network namespace for each node,
// joined by a switch, apart from the machine's network and from every other such network.
//
// The namespaces have no names. They are held by descriptors of the process that made
// them, and by the programs that run in them, so when the process ends, however it ends,
// and the programs with it, the kernel removes namespaces, devices and addresses. The
// switch is a bridge in a namespace of its own: nothing appears in the machine's network.
//
// Whoever may not make network namespaces can make a user namespace first ([Contain]), in
// which he may.
package netlab
