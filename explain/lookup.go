package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/strict"
)

// Lookup explains a name as people meet it: a status (RETRY_EXC_ERR, with or without
// IBV_WC_, or its number), a vendor_err (0x304), an event, an errno (ENOMEM), a verb and
// an errno (post_send ENOMEM), the text of an error, a code of strict mode, or an event of a
// connection with its status (RDMA_CM_EVENT_REJECTED, error 8).
func Lookup(text string) (string, bool) {
	text = strings.TrimSpace(text)
	name := strings.ToUpper(text)
	for _, prefix := range []string{"IBV_WC_", "IB_WC_", "IBV_EVENT_", "IB_EVENT_"} {
		name = strings.TrimPrefix(name, prefix)
	}
	if s, ok := ib.ParseWCStatus(name); ok {
		return Status(s), true
	}
	if e, ok := eventByName(name); ok {
		return Event(e), true
	}
	if c, ok := strict.Lookup(name); ok {
		return c.Describe(), true
	}
	if n, err := strconv.ParseUint(strings.ToLower(name), 0, 32); err == nil {
		return number(uint32(n))
	}
	if s, ok := errorText(text); ok {
		return s, true
	}
	return connText(text)
}

// number explains a status by its number, or a vendor_err.
func number(n uint32) (string, bool) {
	if n < ib.NumWCStatuses {
		return Status(ib.WCStatus(n)), true
	}
	if _, ok := causes[ib.Cause(n)]; ok {
		return Cause(ib.Cause(n)), true
	}
	return "", false
}

func eventByName(name string) (ib.EventType, bool) {
	for e := range ib.EventWQFatal + 1 {
		if e.String() == name {
			return e, true
		}
	}
	return 0, false
}

// errorText finds an errno, and a verb if there is one, in what a program printed.
func errorText(text string) (string, bool) {
	words := strings.FieldsFunc(text, func(r rune) bool { return strings.ContainsRune(" :;,()=", r) })
	verb := ""
	for _, word := range words {
		word = strings.TrimPrefix(strings.TrimPrefix(strings.ToLower(word), "ibv_"), "rdma_")
		if isVerb(word) && verb == "" {
			verb = word
		}
	}
	for _, e := range Errnos() {
		if slices.ContainsFunc(words, func(w string) bool { return strings.EqualFold(w, e.Error()) }) {
			v := &ib.VerbError{Verb: verb, Errno: e, Reason: text}
			w := &writer{}
			if verb == "" {
				w.line(0, "%v:", e)
			} else {
				w.line(0, "%s fails with %v:", verb, e)
			}
			w.list(adviceFor(v))
			return w.String(), true
		}
	}
	return "", false
}

// verbs are those that calls may name.
var verbNames = []string{"post_send", "post_recv", "post_srq_recv", "wr_complete", "modify_qp", "create_qp", "destroy_qp", "query_qp", "create_cq", "destroy_cq", "resize_cq", "req_notify_cq", "get_cq_event", "ack_cq_events", "poll_cq", "reg_mr", "dereg_mr", "alloc_pd", "dealloc_pd", "create_srq", "modify_srq", "destroy_srq", "create_ah", "destroy_ah", "alloc_mw", "bind_mw", "dealloc_mw", "attach_mcast", "detach_mcast", "open_device", "close_device"}

func isVerb(w string) bool {
	if slices.Contains(verbNames, w) || connVerbs[w] != "" {
		return true
	}
	_, ok := connCalls[w]
	return ok
}

// Errnos returns those that verbs calls give.
func Errnos() []ib.Errno {
	return []ib.Errno{ib.EPERM, ib.ENOENT, ib.EINTR, ib.ENXIO, ib.EAGAIN, ib.ENOMEM, ib.EACCES, ib.EFAULT, ib.EBUSY, ib.ENODEV, ib.EINVAL, ib.ENOSPC, ib.ENODATA, ib.EOPNOTSUPP,
		ib.EADDRINUSE, ib.EADDRNOTAVAIL, ib.ENETUNREACH}
}

// Status says what a status means, which causes lead to it, and what to look at.
func Status(s ib.WCStatus) string {
	if int(s) >= len(statuses) {
		return s.String() + ": no such status"
	}
	info := &statuses[s]
	w := &writer{}
	w.line(0, "%v (%d): %s", s, uint8(s), info.meaning)
	if s != ib.WCSuccess && len(info.causes) > 0 {
		w.line(0, "Only wr_id, status, qp_num and vendor_err of such a completion mean anything. vendor_err:")
	}
	for _, c := range info.causes {
		w.line(1, "0x%x: %v.", uint32(c), c)
		for _, l := range causes[c] {
			w.line(2, "- %s", l)
		}
	}
	return w.String()
}

// Cause says what a vendor_err means and what to look at.
func Cause(c ib.Cause) string {
	w := &writer{}
	w.line(0, "vendor_err 0x%x: %v.", uint32(c), c)
	w.list(causes[c])
	return w.String()
}

// Event says what an asynchronous event means.
func Event(e ib.EventType) string { return fmt.Sprintf("%v (%d): %s", e, uint8(e), events[e]) }

// Index lists every name that Lookup knows, by kind.
func Index() string {
	w := &writer{}
	w.line(0, "Statuses:")
	for s := range ib.WCStatus(ib.NumWCStatuses) {
		w.line(1, "%2d  %v", uint8(s), s)
	}
	w.line(0, "Causes (vendor_err):")
	cs := make([]ib.Cause, 0, len(causes))
	for c := range causes { //arch:sorted sorted below
		cs = append(cs, c)
	}
	slices.Sort(cs)
	for _, c := range cs {
		w.line(1, "0x%x  %v", uint32(c), c)
	}
	w.line(0, "Events:")
	for e := range ib.EventWQFatal + 1 {
		w.line(1, "%2d  %v", uint8(e), e)
	}
	w.line(0, "Events of connections, alone or with a status (REJECTED 8, RDMA_CM_EVENT_UNREACHABLE, error -110):")
	for e := range cm.EventTimeWaitExit + 1 {
		w.line(1, "%2d  %v", uint8(e), e)
	}
	w.line(0, "Reasons of REJECTED:")
	for r := range cm.Reason(36) {
		if _, ok := reasons[r]; ok {
			w.line(1, "%2d  %v", uint16(r), r)
		}
	}
	w.line(0, "Errnos, alone or behind a verb (post_send ENOMEM):")
	for _, e := range Errnos() {
		w.line(1, "%2d  %v", int(e), e)
	}
	w.line(0, "Strict mode:")
	for _, c := range strict.Codes() {
		w.line(1, "%s  %s", c.ID, c.Title)
	}
	return w.String()
}
