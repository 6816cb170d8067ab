package lab

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
)

// Session is a verbs program in the machine, driven from here. The objects that it makes
// live until it is closed. It is for one goroutine.
type Session struct {
	conn net.Conn
	r    *bufio.Reader
}

// callTimeout bounds one command beyond the time that the command itself takes.
const callTimeout = 20 * time.Second

// Dial starts a verbs program.
func (g *Guest) Dial(ctx context.Context) (*Session, error) {
	c, err := g.dial(ctx, "verbs")
	if err != nil {
		return nil, err
	}
	return &Session{conn: c, r: bufio.NewReaderSize(c, 1<<16)}, nil
}

// DialClient starts the client of the conformance suite.
func (g *Guest) DialClient(ctx context.Context) (net.Conn, error) { return g.dial(ctx, "client") }

// Close ends the program, and with it all of its objects.
func (s *Session) Close() error { return s.conn.Close() }

// Reply is what a command answered, by key. Keys that come several times keep their order.
type Reply map[string][]string

// Num returns a number of the reply, 0 if there is none.
func (r Reply) Num(key string) uint64 {
	if len(r[key]) == 0 {
		return 0
	}
	n, _ := strconv.ParseUint(r[key][0], 0, 64)
	return n
}

// Text returns a value of the reply as it is.
func (r Reply) Text(key string) string {
	if len(r[key]) == 0 {
		return ""
	}
	return r[key][0]
}

// Do sends a command and returns the reply. A verbs call that fails gives an
// *ib.VerbError with the errno.
func (s *Session) Do(format string, args ...any) (Reply, error) {
	return s.do(callTimeout, format, args...)
}

func (s *Session) do(d time.Duration, format string, args ...any) (Reply, error) {
	line := fmt.Sprintf(format, args...)
	name, _, _ := strings.Cut(line, " ")
	_ = s.conn.SetDeadline(time.Now().Add(d))
	if _, err := s.conn.Write([]byte(line + "\n")); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	answer, err := s.r.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("%s: the program in the machine ended: %w", name, err)
	}
	fields := strings.Fields(answer)
	if len(fields) >= 2 && fields[0] == "error" {
		n, _ := strconv.Atoi(fields[1])
		return nil, ib.NewVerbError(ib.Errno(n), name, "rxe0", strings.Join(fields[2:], " "))
	}
	if len(fields) == 0 || fields[0] != "ok" {
		return nil, fmt.Errorf("%s: answer %q", name, answer)
	}
	r := Reply{}
	for _, f := range fields[1:] {
		k, v, _ := strings.Cut(f, "=")
		r[k] = append(r[k], v)
	}
	return r, nil
}

// Queues of a session, for Poll and the notification commands.
const (
	SendCQ = 0
	RecvCQ = 1
)

// Poll waits until max completions came to a queue, at most d, and returns those that did.
func (s *Session) Poll(queue, max int, d time.Duration) ([]cq.WC, error) {
	r, err := s.do(d+callTimeout, "poll cq=%d max=%d ms=%d", queue, max, d.Milliseconds())
	if err != nil {
		return nil, err
	}
	var wcs []cq.WC
	for _, text := range r["wc"] {
		var n [8]uint64
		for i, f := range strings.SplitN(text, ",", len(n)) {
			if n[i], err = strconv.ParseUint(f, 10, 64); err != nil {
				return nil, fmt.Errorf("poll: completion %q: %w", text, err)
			}
		}
		wcs = append(wcs, cq.WC{
			WRID: n[0], Status: ib.WCStatus(n[1]), Opcode: ib.WCOpcode(n[2]), ByteLen: uint32(n[3]),
			Flags: ib.WCFlags(n[4]), Imm: uint32(n[5]), QPN: ib.QPN(n[6]), SrcQP: ib.QPN(n[7]),
		})
	}
	return wcs, nil
}
