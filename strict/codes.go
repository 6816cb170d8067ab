package strict

import "strings"

// Code is a kind of report. Its ID never changes its meaning.
type Code struct {
	ID    string
	Title string   // a phrase
	Why   string   // what goes wrong on other adapters, or on another day
	Fix   []string // what to do
}

// The kinds of reports.
var (
	SQNeverFrees = Code{"STRICT-SQ-01", "the send queue holds no signaled work request and can never make progress",
		"Slots of unsignaled work requests come back when the completion of a later signaled one is polled. If the queue is full of unsignaled ones there is none, and none can be posted any more.",
		[]string{"Signal at least one work request per queue length: every max_send_wr/2-th is usual.", "Poll its completion before the queue is full."}}
	SQNotPolled = Code{"STRICT-SQ-02", "the send queue is full of work that is done, but whose completions were not polled",
		"Adapters free a slot when a completion at or behind it is polled, not when the peer acknowledges. A program that counts the peer's answers instead posts one too many.",
		[]string{"Poll the send completion queue before posting more.", "Count slots by polled completions."}}
	BufferChanged = Code{"STRICT-BUF-01", "a send buffer changed between post and completion",
		"The adapter reads the buffer whenever it likes, and again for each retransmission. The peer may have received the old bytes, the new ones, or a mixture.",
		[]string{"Do not write the buffer until the completion of its work request was polled; the peer's answer is not enough.", "Use IBV_SEND_INLINE for small messages: the buffer is free when the post returns."}}
	RecvOverlap = Code{"STRICT-RECV-01", "two posted receives share memory",
		"The second message overwrites the first, perhaps before the program has read it.",
		[]string{"Give each posted receive memory of its own until its completion was handled."}}
	RecvEmpty = Code{"STRICT-RECV-02", "a message met an empty receive queue",
		"On RC the sender has to wait and try again (RNR), which costs throughput and fails once rnr_retry is used up; on UC and UD the message is lost.",
		[]string{"Post receives before the queue pair goes to RTR.", "Post new ones before they run out; keep the sender within a number of messages that the receiver announced."}}
	LostWakeup = Code{"STRICT-EV-01", "the program waits for an event although completions were there before it armed the queue",
		"An event comes only for completions that are added after ibv_req_notify_cq. Those that were there already raise none, so the program can sleep for ever.",
		[]string{"Arm, then poll until the queue is empty, and only then wait."}}
	UnackedEvents = Code{"STRICT-EV-02", "an object is being destroyed while events of it are not acknowledged",
		"ibv_destroy_cq and its like wait until every event that was delivered has been acknowledged. If nobody does, they wait for ever.",
		[]string{"Call ibv_ack_cq_events (ibv_ack_async_event) for each event, also for each of several queues of one channel.", "Acknowledge on error paths too."}}
	ArmWithoutChannel = Code{"STRICT-EV-03", "a completion queue without a channel is armed",
		"There is nowhere to send the event to. The call does nothing, or crashes, depending on the library.",
		[]string{"Create the queue with a channel, or do not arm it."}}
	NeverArmed = Code{"STRICT-EV-04", "the program waits for an event of a completion queue that was never armed",
		"A completion queue sends nothing by itself: one event for each ibv_req_notify_cq, for the first completion after it. Without that call the program sleeps for ever, though its work is done.",
		[]string{"Arm the queue before the first work is posted (ibv_req_notify_cq), and again after each event, then poll until it is empty, and only then wait.", "A program that only polls needs no channel: create the queue without one."}}
	CQTooSmall = Code{"STRICT-CQ-01", "more work is posted than its completion queue can hold completions",
		"If all of it completes before the program polls, the queue overflows: completions are lost and its queue pairs fail.",
		[]string{"Make the queue at least as large as all work that can be posted to its queue pairs, receives included."}}
	NoGRH = Code{"STRICT-CONN-01", "a queue pair on Ethernet was to be connected without a GRH",
		"RoCE has no LIDs: the address of a peer is its GID, which travels in the GRH. Programs that were written for InfiniBand alone leave is_global 0; every RoCE adapter refuses that.",
		[]string{"Set ah_attr.is_global = 1 and fill grh.dgid, grh.sgid_index and grh.hop_limit.", "Look at link_layer in ibv_query_port, or fill the GRH always."}}
	WaitsForHours = Code{"STRICT-CONN-02", "timeout and retry_cnt make a dead peer go unnoticed for very long",
		"A work request to a peer that is gone fails only after timeout times (retry_cnt + 1); with timeout 0 never.",
		[]string{"timeout 14 (67 ms) and retry_cnt 7 are usual: half a second. Each step of timeout doubles it."}}
	LongestRNR = Code{"STRICT-CONN-03", "min_rnr_timer 0 is the longest wait, not the shortest",
		"Code 0 means 655.36 ms after each RNR NAK; 1 means 0.01 ms, 12 means 0.64 ms.",
		[]string{"Set min_rnr_timer to 12 or so."}}
	FreedMR = Code{"STRICT-MEM-02", "a memory region was deregistered while posted work still names it",
		"The work fails when its turn comes, or takes the queue pair with it; on some adapters it reads or writes memory that is somebody else's by then.",
		[]string{"Deregister when the completions of all work that names the region were polled."}}
	LKeyAsRKey = Code{"STRICT-MEM-03", "the peer used an lkey as rkey",
		"On many adapters both have the same value, so the mistake shows on others only.",
		[]string{"Send mr.rkey to the peer, not mr.lkey."}}
	DeadQP = Code{"STRICT-QP-01", "a completion of a queue pair that was destroyed was polled",
		"Adapters may drop such completions or deliver them late. A program that looks up its own objects by qp_num or wr_id finds freed ones.",
		[]string{"Move the queue pair to ERR, poll until all its work has come back, and destroy it then.", "When a batch of completions is handled, look up each by a key that stays valid."}}
)

// codes in the order of docs/strict.md.
var codes = []*Code{&SQNeverFrees, &SQNotPolled, &BufferChanged, &RecvOverlap, &RecvEmpty, &LostWakeup, &UnackedEvents, &ArmWithoutChannel, &NeverArmed, &CQTooSmall, &NoGRH, &WaitsForHours, &LongestRNR, &FreedMR, &LKeyAsRKey, &DeadQP}

// Codes returns all kinds of reports.
func Codes() []*Code { return codes }

// Lookup finds a code by its ID.
func Lookup(id string) (*Code, bool) {
	for _, c := range codes {
		if c.ID == id {
			return c, true
		}
	}
	return nil, false
}

// Describe is what a person needs to know about the code.
func (c *Code) Describe() string {
	var b strings.Builder
	b.WriteString(c.ID + ": " + c.Title + ".\n" + c.Why)
	for _, f := range c.Fix {
		b.WriteString("\n  - " + f)
	}
	return b.String()
}
