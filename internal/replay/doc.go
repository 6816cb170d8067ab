// Package replay holds our protocol engine against packets that another adapter sent.
//
// A capture of a real conversation is taken apart into its two directions. Then each
// side is played once by a device of ours while the other side's packets come from the
// capture, at their times, in virtual time:
//
//   - the responder is set up as the real one was (QPN, PSNs, keys, memory, receives)
//     and is fed the requester's packets;
//   - the requester is given the same work requests and is fed the responder's packets.
//
// What our device sends is compared with what the real one sent, packet by packet and
// field by field, and so are the completions. A difference that the profile in use
// explains carries the explanation's name; any other is a failure.
//
// What the packets do not tell comes from a flows file: a JSON object with one entry
// per capture, named as the capture without its extension. See [Flow].
package replay
