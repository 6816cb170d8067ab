// Package rdmacm is librdmacm for Go programs: it connects queue pairs by IP addresses,
// over the connection manager of package cm.
//
// # From C to Go
//
// Names follow the C API: rdma_create_id is [CreateID], rdma_get_cm_event is
// [EventChannel.Get], rdma_get_recv_comp is [ID.GetRecvComp]. The differences:
//
//   - Errors are Go errors with the errno of the C call: errors.Is(err, ib.EADDRINUSE).
//     A refusal by the peer is a [*RejectedError] with its reason and private data.
//   - An id is made on a device, because a Go program opens its devices itself. C finds
//     the device when the address is bound or resolved.
//   - What blocks takes a context, whose end is the only addition to the contract.
//   - Buffers are parts of a [verbs.MR].
//
// # Concurrency
//
// Every method is safe for concurrent use, except that of a synchronous id only one
// goroutine may connect, accept, disconnect, resolve or migrate at a time. Events of an
// id come out in order, each to one goroutine.
//
// # Device
//
// The first id on a device starts its connection manager, which lives as long as the
// device: it owns QP1 and answers peers even when no id exists; see [Start]. Its objects do not keep
// the device from being closed. See [Configure] for what can be chosen.
package rdmacm
