// Package rpma is librpma for Go programs: remote access to memory, persistent or not,
// over connections of package rdmacm.
//
// # From C to Go
//
// Names follow the C API without its prefix: rpma_conn_req_new is [NewConnReq],
// rpma_cq_get_wc is [CQ.GetWC]. Errors are an [*OpError] with the code of the C call:
// errors.Is(err, rpma.ErrNoCompletion); its cause is the error of the provider, that is
// of package verbs or rdmacm.
//
// NULL pointers for results do not exist in Go, so that part of RPMA_E_INVAL cannot
// happen. Where C gives up an object by setting a pointer to NULL, a later call on the
// object gives ErrInval here. Calls that wait take a context; when it ends they fail as
// the C call does on a descriptor that does not block, with the context's error as the
// cause.
//
// # A connection
//
//	client                               server
//	NewPeer                              NewPeer
//	                                     Listen
//	NewConnReq
//	ConnReq.Connect ------------------>  Endpoint.NextConnReq
//	                                     ConnReq.Connect
//	Conn.NextEvent: ConnEstablished      Conn.NextEvent: ConnEstablished
//	Read, Write, Send, Flush             Recv
//	CQ.Wait, CQ.GetWC                    CQ.Wait, CQ.GetWC
//	Conn.Disconnect                      Conn.NextEvent: ConnClosed
//	Conn.NextEvent: ConnClosed           Conn.Disconnect
//	Conn.Delete                          Conn.Delete
//
// # Left out
//
// Shared receive queues (rpma_srq), and the utilities for on-demand paging and logging.
//
// All methods are safe for concurrent use, but Delete only when no other call runs.
package rpma
