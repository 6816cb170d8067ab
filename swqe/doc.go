// Package swqe owns work requests and the queues they wait in: the send WQE and its
// ring, the receive WQE, the receive queue, the shared receive queue, and the table
// that says which operation may be posted on which transport.
//
// It knows no protocol: what becomes of a WQE is the business of package qp. Nothing
// here is safe for concurrent use.
package swqe
