package qp

import "github.com/rvtsim/rvtsim/ib"

// InjectPostErrors makes the next n work requests that are posted fail with ENOMEM, as
// if the send queue had no room.
func (q *QP) InjectPostErrors(n int) { q.failPosts = max(n, 0) }

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
