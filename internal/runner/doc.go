// Package runner carries out a topology file: it builds the nodes, starts the flows,
// injects the faults, and collects what happened. The same file runs in virtual time
// ([RunVirtual]) or on UDP sockets ([RunUDP]); the devices, the traffic and the checks
// are the same code.
package runner
