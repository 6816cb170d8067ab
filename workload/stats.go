package workload

import (
	"strconv"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
)

// Stats counts what an endpoint saw.
type Stats struct {
	Posted     uint64 // send work requests
	PostErrors uint64 // posts that were refused and made again (see FailPosts)
	Completed  uint64 // of these, retired with success, reported or not
	Bytes      uint64 // payload of these
	Ops        [ib.NumWROpcodes]uint64
	// Statuses and RecvStatuses count completions, by status.
	Statuses      [ib.NumWCStatuses]uint64
	RecvPosted    uint64
	RecvStatuses  [ib.NumWCStatuses]uint64
	Received      uint64 // messages received, by completions
	ReceivedBytes uint64
	Missed        uint64 // UC and UD: messages known to be lost because a later one came
	Aborted       uint64 // receives that failed with their message alone: UC and UD with an SRQ
	Disordered    uint64 // UC and UD: messages that came late or again (see Spec.Disorder)
	Events        [ib.EventWQFatal + 1]uint64
	Notifications uint64
	// LastCompletion is when the last send completion was polled.
	LastCompletion vtime.Time
	// LastReceived is when the last message was received, as far as completions tell.
	LastReceived vtime.Time
	// FirstFailure is the first completion that was no success, FirstFailureAt when it
	// was polled.
	FirstFailure   cq.WC
	FirstFailureAt vtime.Time
}

// violations collects texts and drops what is beyond maxViolations.
type violations struct {
	list  []string
	total int
}

const maxViolations = 32

func (v *violations) add(text string) {
	v.total++
	if len(v.list) < maxViolations {
		v.list = append(v.list, text)
	}
}

func hex(v uint64) string { return "0x" + strconv.FormatUint(v, 16) }
