// Package lab boots a stock Linux kernel with its software RDMA adapter (rdma_rxe) in a
// virtual machine, on a wire to the calling process, so that tests can talk to an
// implementation that is not ours.
//
// Nothing is installed and nothing outlives the test. The kernel is a package of the
// distribution, downloaded once into a cache and unpacked there; the programs in the
// machine are copies of this host's own; the wire is a tap device in a network namespace
// without a name, which the kernel removes with its last process ([Isolate]).
//
// In the machine runs guest/agent.c. Each TCP connection to it is a session of its own:
// a shell command, or a verbs program that is driven line by line ([Guest.Dial]).
package lab
