package explain

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
)

// Attempt is what is known of an id of the connection manager that did not get what it
// wanted.
type Attempt struct {
	Event         cm.EventType
	Status        int
	Space         cm.PortSpace
	Local, Remote cm.Addr
	Private       []byte // what came with a REJ, without the zeros at its end
	Unanswered    cm.Unanswered
}

// AttemptOf takes down what an event tells. The owner of the manager calls it.
func AttemptOf(e *cm.Event) Attempt {
	private := e.Conn.Private
	for len(private) > 0 && private[len(private)-1] == 0 {
		private = private[:len(private)-1]
	}
	return Attempt{Event: e.Type, Status: e.Status, Space: e.ID.Space(), Local: e.ID.Local(), Remote: e.ID.Remote(), Private: slices.Clone(private), Unanswered: e.Unanswered}
}

// Station is what is known of the other end of an attempt.
type Station struct {
	// Name is the node, and Listeners are the addresses and port spaces at which its
	// programs listen.
	Name      string
	Listeners []string
}

// Connection tells why an attempt failed and what to do. The text has several lines and ends
// without a newline. peer may be nil.
func Connection(a *Attempt, peer *Station) string {
	w := &writer{}
	w.line(0, "%s: %s", a.what(), a.told())
	switch {
	case a.Unanswered.Attr != 0:
		u := &a.Unanswered
		w.line(1, "It sent %v %s, %v apart, and got no answer: it gave up after %v.", u.Attr, plural(u.Sent, "time"), round(u.Every), round(u.Every*vtimes(u.Sent)))
	case len(a.Private) > 0:
		w.line(1, "With it came private data: %s.", excerpt(a.Private))
	}
	w.station(a, peer)
	if advice := a.advice(); len(advice) > 0 {
		w.line(0, "What to look at:")
		w.list(advice)
	}
	return w.String()
}

// what names the attempt.
func (a *Attempt) what() string {
	kind := "connection"
	if a.Space == cm.PSUDP || a.Space == cm.PSIPoIB {
		kind = "datagram service"
	}
	switch a.Event {
	case cm.EventAddrError, cm.EventRouteError:
		return fmt.Sprintf("address %s from %s", host(a.Remote), host(a.Local))
	case cm.EventMulticastError:
		return "multicast group joined from " + host(a.Local)
	case cm.EventDisconnected:
		return fmt.Sprintf("end of the %s from %s to %s", kind, a.Local, a.Remote)
	}
	return fmt.Sprintf("%s from %s to %s (port space %v)", kind, a.Local, a.Remote, a.Space)
}

// told is what the program was told.
func (a *Attempt) told() string {
	s := a.Event.String()
	switch {
	case a.Event == cm.EventRejected:
		s += fmt.Sprintf(", reason %d (%v): %s", a.Status, cm.Reason(a.Status), reasonText(cm.Reason(a.Status)))
	case a.Status < 0:
		s += fmt.Sprintf(", status %d (%v): %s", a.Status, ib.Errno(-a.Status), a.because())
	case a.Event == cm.EventUnreachable:
		s += fmt.Sprintf(", status %d of the SIDR_REP: %s", a.Status, sidrText(cm.SIDRStatus(a.Status)))
	}
	return s + "."
}

// because says what a negative status means for this event.
func (a *Attempt) because() string {
	switch errno := ib.Errno(-a.Status); {
	case a.Event == cm.EventAddrError && errno == ib.ETIMEDOUT:
		return "nobody has the address, or whoever has it did not answer within the program's timeout"
	case a.Event == cm.EventAddrError && errno == ib.ENODEV:
		return "no port of the device leads there: it has no address of that family"
	case a.Event == cm.EventAddrError && errno == ib.EINVAL:
		return "the port space does not work on Ethernet, or the peer's Q_Key is another one"
	case a.Event == cm.EventUnreachable:
		return "the machine is there, or was; its connection manager did not answer"
	case a.Event == cm.EventDisconnected:
		return "the peer did not agree to the end; the connection is over all the same"
	}
	return "the connection manager gave up"
}

// station tells what the other end could be called by.
func (w *writer) station(a *Attempt, peer *Station) {
	if peer == nil || a.Event == cm.EventDisconnected {
		return
	}
	if len(peer.Listeners) == 0 {
		w.line(0, "The peer, %s, runs here as well: nobody listens there.", peer.Name)
		return
	}
	w.line(0, "The peer, %s, runs here as well. There listens:", peer.Name)
	w.list(peer.Listeners)
}

// advice is what to look at.
func (a *Attempt) advice() []string {
	switch {
	case a.Event == cm.EventRejected:
		return reasons[cm.Reason(a.Status)].advice
	case a.Event == cm.EventUnreachable && a.Status > 0:
		return sidrStatuses[cm.SIDRStatus(a.Status)].advice
	case a.Event == cm.EventUnreachable && a.Unanswered.Attr == cm.AttrREP:
		return []string{
			"This is the side that has accepted: the other one did not confirm. Its program may have died, or does not fetch its events: librdmacm confirms inside rdma_get_cm_event.",
		}
	case a.Event == cm.EventUnreachable:
		return connEvents[cm.EventUnreachable].advice
	}
	return connEvents[a.Event].advice
}

// excerpt shows bytes: as text if they are, else the first of them.
func excerpt(b []byte) string {
	const most = 32
	text := strings.IndexFunc(string(b), func(r rune) bool { return r < ' ' || r > '~' }) < 0
	cut, dots := b[:min(len(b), most)], ""
	if len(b) > most {
		dots = " ..."
	}
	if text {
		return fmt.Sprintf("%s, %s%s", bytes(uint64(len(b))), strconv.Quote(string(cut)), dots)
	}
	return fmt.Sprintf("%s, %x%s", bytes(uint64(len(b))), cut, dots)
}

// host is an address without its port.
func host(a cm.Addr) string {
	if a.Family == cm.FamilyNone {
		return "no address"
	}
	return address(a.IP)
}

// Reason says what a reason of a REJ means and what to look at.
func Reason(r cm.Reason) string {
	w := &writer{}
	w.line(0, "REJECTED, reason %d (%v): %s.", uint16(r), r, reasonText(r))
	w.list(reasons[r].advice)
	return w.String()
}

// ConnEvent says what an event of a connection means and what to look at.
func ConnEvent(e cm.EventType) string {
	w := &writer{}
	w.line(0, "%v (%d): %s", e, uint8(e), connEvents[e].meaning)
	w.list(connEvents[e].advice)
	return w.String()
}

// connText finds an event of a connection in what a program printed, and its status:
// "RDMA_CM_EVENT_REJECTED, error 8".
func connText(text string) (string, bool) {
	words := strings.FieldsFunc(strings.ToUpper(text), func(r rune) bool { return strings.ContainsRune(" :;,.()=", r) })
	for i, word := range words {
		word = strings.TrimPrefix(word, "RDMA_CM_EVENT_")
		for e := range cm.EventTimeWaitExit + 1 {
			if e.String() != word {
				continue
			}
			for _, n := range words[i+1:] {
				if status, err := strconv.Atoi(n); err == nil {
					return connStatus(e, status), true
				}
			}
			return ConnEvent(e), true
		}
	}
	return "", false
}

// connStatus explains an event with its status.
func connStatus(e cm.EventType, status int) string {
	a := Attempt{Event: e, Status: status}
	if e == cm.EventRejected {
		return Reason(cm.Reason(status))
	}
	w := &writer{}
	w.line(0, "%s", a.told())
	w.list(a.advice())
	return w.String()
}
