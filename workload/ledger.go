package workload

import "github.com/rvtsim/rvtsim/ib"

// ledger follows the work requests of one send queue: each is posted, then retired,
// in the same order, and reported as its flags and fate demand.
type ledger struct {
	posted  uint64 // work requests posted so far: the index of the next
	retired uint64 // of these, known to be retired
	failed  bool   // a completion was not a success
}

// Ledger faults, as texts that say what is wrong.
const (
	faultNone       = ""
	faultTwice      = "completed twice, or after a later one"
	faultNotPosted  = "completed but never posted"
	faultSkipped    = "completed before one that must be reported first"
	faultUnsignaled = "succeeded and was reported although it was not signaled"
	faultAfterError = "succeeded after an earlier one had failed"
)

// complete takes the completion of work request i. It returns the range [from, i) of
// those before it that retired in silence, and the rule that was broken, if any. The
// ledger then carries on as if it had not been.
func (l *ledger) complete(i uint64, status ib.WCStatus, signaled func(uint64) bool) (from uint64, fault string) {
	from = l.retired
	switch {
	case i < l.retired:
		return i, faultTwice
	case i >= l.posted:
		return l.retired, faultNotPosted
	}
	ok := status == ib.WCSuccess
	switch {
	case ok && l.failed:
		fault = faultAfterError
	case ok && !signaled(i):
		fault = faultUnsignaled
	}
	for j := l.retired; j < i; j++ {
		if l.failed || signaled(j) {
			fault = faultSkipped
		}
	}
	l.failed = l.failed || !ok
	l.retired = i + 1
	return from, fault
}

// outstanding returns how many are posted and not known to be retired.
func (l *ledger) outstanding() uint64 { return l.posted - l.retired }
