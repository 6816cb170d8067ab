// Package sim runs many devices against a virtual-time network: a [World]. It decides
// what happens next and nothing else does, so a run is replayed by its seed.
//
// An event is a packet's arrival, a device's timer, or a call that was scheduled with
// [World.At]. Events happen in the order of their instants. At one instant scheduled
// calls come first, in the order of scheduling; then all packets that arrive, those of
// one node as one burst; then timers, by node.
//
// For each event of a node its device takes the packets or runs its timers, commits
// memory and completions, the node's applications run, and what the device wants to
// send goes into the network. Nothing takes time but the network, so a latency of 0
// makes a world that never leaves its instant as long as packets go to and fro.
//
// A World belongs to one goroutine. Worlds share nothing, so seeds run in parallel.
package sim
