package qp

import "github.com/rvtsim/rvtsim/ib"

// InjectPostErrors makes the next n work requests that are posted fail with ENOMEM, as
// if the send queue had no room.
func (q *QP) InjectPostErrors(n int) { q.failPosts = max(n, 0) }

// PostErrors returns how many posts InjectPostErrors has yet to refuse.
func (q *QP) PostErrors() int { return q.failPosts }

// InjectNoReceives makes messages find no receive, whatever the program has posted, until
// it is called with false.
func (q *QP) InjectNoReceives(on bool) { q.noReceives = on }

// InjectNextStatus is [QP.InjectStatus] for the work request that is posted next; SUCCESS
// takes it back.
func (q *QP) InjectNextStatus(status ib.WCStatus) { q.nextStatus = status }

// TakeNextStatus returns what InjectNextStatus has set, and forgets it.
func (q *QP) TakeNextStatus() ib.WCStatus {
	s := q.nextStatus
	q.nextStatus = ib.WCSuccess
	return s
}

// InjectStatus completes the oldest send work request with a status that is not
// SUCCESS, as if the adapter had come to that result, with everything that follows
// from an error. It reports whether there was one to complete.
func (q *QP) InjectStatus(status ib.WCStatus) bool {
	if status == ib.WCSuccess || q.SLast == q.SHead || !q.can(ProcessSendOK) {
		return false
	}
	q.failSend(status, ib.CauseInjected)
	return true
}
