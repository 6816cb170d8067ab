// Package fabric is the seam between the protocol core and whatever carries its
// packets. It owns the [Datagram], the batch-first [Port] interface, the seeded
// [Impairment] policy, and two decorators that wrap a Port and add one behaviour
// each: [Impaired] loses, duplicates, reorders and corrupts, [Tap] shows datagrams
// to a [Sink].
//
// The package is pure: it reads no clock, starts no goroutine, and draws random
// numbers only from generators that its caller seeded. Ports live elsewhere:
// fabric/mem is the virtual-time network, fabric/udp the Linux socket. Nothing here
// knows what a queue pair is.
package fabric
