package conform

import (
	"fmt"
	"strings"

	"github.com/rvtsim/rvtsim/ib"
)

// Record is what a device answered in a case. Each field is a list joined by "; ".
type Record struct {
	N           int    `json:"n"`
	Scenario    string `json:"scenario"`
	What        string `json:"what"`
	Calls       string `json:"calls"`       // return values, in order
	Completions string `json:"completions"` // in the order polled; across queues it is a race
	States      string `json:"states"`      // queried/cached
	Async       string `json:"async"`
	Obs         string `json:"obs"` // notes
}

// Cell is a part of a record that is compared by itself: a field, or the completions of
// one queue.
type Cell string

// The cells of a record. The order of completions counts within a queue, not across.
const (
	CellCalls  Cell = "calls"
	CellStates Cell = "states"
	CellAsync  Cell = "async"
	CellObs    Cell = "obs"
)

// queueNames are the completion queues of a case, in the order they are polled.
var queueNames = []string{"A.s", "A.r", "B.s", "B.r"}

// cellOrder is the order in which cells are compared and printed.
var cellOrder = []Cell{CellCalls, "A.s", "A.r", "B.s", "B.r", CellStates, CellAsync, CellObs}

// Cells takes a record apart, for comparisons.
func (r *Record) Cells() map[Cell]string {
	m := map[Cell]string{CellCalls: r.Calls, CellStates: r.States, CellAsync: r.Async, CellObs: r.Obs}
	byQueue := map[Cell][]string{}
	if r.Completions != "" {
		for _, c := range strings.Split(r.Completions, "; ") {
			q, rest, _ := strings.Cut(c, " ")
			byQueue[Cell(q)] = append(byQueue[Cell(q)], rest)
		}
	}
	for _, q := range queueNames {
		m[Cell(q)] = strings.Join(byQueue[Cell(q)], "; ")
	}
	return m
}

// list appends to one of the lists of a record.
func list(s *string, format string, v ...any) {
	if *s != "" {
		*s += "; "
	}
	*s += fmt.Sprintf(format, v...)
}

// errnoName prints an errno as the reference program does: by name if it knows one.
func errnoName(e ib.Errno) string {
	switch e {
	case 0:
		return "0"
	case ib.EINVAL, ib.ENOMEM, ib.EBUSY, ib.EOPNOTSUPP, ib.EPERM, ib.EFAULT, ib.ENOSPC, ib.EAGAIN:
		return e.Error()
	}
	return fmt.Sprintf("E%d", int(e))
}

// opcodeName prints an opcode of a completion.
func opcodeName(o ib.WCOpcode) string {
	switch o {
	case ib.WCSend, ib.WCRDMAWrite, ib.WCRDMARead, ib.WCCompSwap, ib.WCFetchAdd, ib.WCBindMW, ib.WCLocalInv, ib.WCRecv, ib.WCRecvRDMAWithImm:
		return o.String()
	}
	return fmt.Sprintf("op%d", int(o))
}

// eventNames are the texts of ibv_event_type_str(3).
var eventNames = map[ib.EventType]string{
	ib.EventCQErr: "CQ error", ib.EventQPFatal: "local work queue catastrophic error", ib.EventQPReqErr: "invalid request local work queue error",
	ib.EventQPAccessErr: "local access violation work queue error", ib.EventCommEst: "communication established", ib.EventSQDrained: "send queue drained",
	ib.EventPathMig: "path migrated", ib.EventPathMigErr: "path migration request error", ib.EventDeviceFatal: "local catastrophic error",
	ib.EventPortActive: "port active", ib.EventPortErr: "port error", ib.EventLIDChange: "LID changed", ib.EventPKeyChange: "P_Key changed",
	ib.EventSMChange: "SM changed", ib.EventSRQErr: "SRQ catastrophic error", ib.EventSRQLimitReached: "SRQ limit reached",
	ib.EventQPLastWQEReached: "last WQE reached", ib.EventClientReregister: "client reregistration", ib.EventGIDChange: "GID table change",
	ib.EventWQFatal: "WQ fatal",
}

// completion is a completion in a record.
type completion struct {
	ID     string
	Status string
	Op     string
	Len    string
	Flags  uint32
	Verr   string
	Rest   []string // imm=, src_qp=, anything else
}

func parseCompletion(s string) (c completion, ok bool) {
	f := strings.Fields(s)
	if len(f) < 6 {
		return c, false
	}
	c = completion{ID: f[0], Status: f[1], Op: f[2], Len: f[3], Verr: f[5], Rest: f[6:]}
	_, err := fmt.Sscanf(f[4], "flags=0x%x", &c.Flags)
	return c, err == nil
}

func (c *completion) String() string {
	s := fmt.Sprintf("%s %s %s %s flags=0x%x %s", c.ID, c.Status, c.Op, c.Len, c.Flags, c.Verr)
	if len(c.Rest) > 0 {
		s += " " + strings.Join(c.Rest, " ")
	}
	return s
}

// drop removes the remaining field that starts with prefix.
func (c *completion) drop(prefix string) {
	kept := c.Rest[:0:0]
	for _, r := range c.Rest {
		if !strings.HasPrefix(r, prefix) {
			kept = append(kept, r)
		}
	}
	c.Rest = kept
}

// mapCompletions applies f to each completion of a cell.
func mapCompletions(cell string, f func(*completion)) string {
	if cell == "" {
		return ""
	}
	parts := strings.Split(cell, "; ")
	for i, p := range parts {
		if c, ok := parseCompletion(p); ok {
			f(&c)
			parts[i] = c.String()
		}
	}
	return strings.Join(parts, "; ")
}

// EventText returns how records name an event: the text of ibv_event_type_str(3).
func EventText(e ib.EventType) string { return eventNames[e] }
