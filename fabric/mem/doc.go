// Package mem is a network in virtual time: packets put in with [Network.Send] come
// out of [Network.Pop] when their time has come, delayed, lost, duplicated, reordered
// or damaged as its links say. It owns the packets in flight and nothing else; it
// reads no clock and runs no goroutine. The same seed and the same calls give the
// same packets at the same instants.
//
// A [Network] belongs to one goroutine. In steady state, once as many packets have
// been in flight as ever will be, sending and receiving do not allocate.
//
// # The way of a packet
//
// A packet to an address that nobody has, one too long for the link and one that has
// no encoding are dropped at once. The others are serialised at the sender's egress
// (bandwidth, bounded queue), travel (latency, jitter) and then meet the link's
// impairment. A packet that is lost there has used the bandwidth all the same.
//
// A sender has one egress for all links that were not set apart by
// [Network.SetLink], so memory grows with the number of nodes and of such
// exceptions, never with the number of pairs.
package mem
