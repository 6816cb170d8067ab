// Package mr owns registered memory: regions, windows, their keys, the checks that
// guard every local and remote access, and the batched copies that carry them out.
//
// Memory itself is behind the [Memory] interface. Nothing above this package may
// assume that it can hold a slice of it: today it is a Go slice, tomorrow it is the
// memory of another process, where each access is a system call. So the protocol
// describes payload as segments ([Seg]) and collects copies in a [Batch], which is
// executed for a whole burst of packets at once.
//
// Nothing here is safe for concurrent use; the owner of the device serialises.
package mr
