// Package dcqcn is the congestion control of RoCE v2 adapters: data center quantized
// congestion notification (Zhu et al., "Congestion Control for Large-Scale RDMA
// Deployments", SIGCOMM 2015), with the congestion notification packets of IBTA annex
// A17.
//
// Three parties take part. The congestion point is a queue in the network that marks
// packets (package fabric/mem, or a real switch). The notification point, at the
// receiver, answers marked packets with CNPs, but not with more than one for each
// queue pair and [Params.CNPInterval]. The reaction point, at the sender, cuts the
// rate of the queue pair that a CNP names and lets it recover by time and by bytes.
//
// A [Flow] holds both points of one queue pair. It is a value without goroutine, lock
// or clock: time is an argument. All arithmetic is on integers, so that a run is the
// same on every machine. Not safe for concurrent use; the owner of the queue pair owns
// the Flow.
package dcqcn
