package conform

import (
	"bufio"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// Client is a verbs program over libibverbs that carries out one call at a time, on
// whatever device it finds: tests/conform/client/client.c, which describes the lines that it is
// driven by. One goroutine uses it.
type Client struct {
	rw   io.ReadWriter
	in   *bufio.Reader
	base uint64
	size int
	gid  ib.GID
	wire bool // it has the other end of the device's wire
	qpns map[string]ib.QPN
	last time.Time // until when the runner knows that time has passed
	err  error
}

// clientDUT is a [DUT] in a Client, for one case.
type clientDUT struct{ c *Client }

var _ DUT = clientDUT{}

// NewClient waits until the program at the other end of rw is ready. Reading should fail
// after a while if the program hangs: a deadline on a connection, the death of a process.
func NewClient(rw io.ReadWriter) (*Client, error) {
	c := &Client{rw: rw, in: bufio.NewReaderSize(rw, 1<<16)}
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("conform: the client is not ready: %w", err)
	}
	version, gid, more := 0, "", ""
	n, _ := fmt.Sscanf(line, "rvtsim-conform %d %d %d %s %s", &version, &c.base, &c.size, &gid, &more)
	c.wire = more == "wire"
	if k, err := hex.Decode(c.gid[:], []byte(gid)); n < 4 || version != 1 || err != nil || k != len(c.gid) {
		return nil, fmt.Errorf("conform: the client says %q", line)
	}
	return c, nil
}

// StartClient starts a program that is a client, and drives it by its standard input and
// output. Close ends it.
func StartClient(cmd *exec.Cmd) (*Process, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("conform: %w", err)
	}
	p := &Process{cmd: cmd, stdin: stdin}
	p.Client, err = NewClient(&pipes{stdin, stdout})
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		return nil, err
	}
	return p, nil
}

// Process is a client that runs as a child.
type Process struct {
	*Client
	cmd   *exec.Cmd
	stdin io.Closer
}

// Close ends the program.
func (p *Process) Close() error {
	_ = p.stdin.Close()
	timer := time.AfterFunc(patience, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	return p.cmd.Wait()
}

// patience is how long a client may take for an answer.
const patience = 30 * time.Second

// pipes are both ends of a child's standard input and output.
type pipes struct {
	io.Writer
	out io.Reader
}

// Read fails when nothing comes for long.
func (p *pipes) Read(b []byte) (int, error) {
	if f, ok := p.out.(interface{ SetReadDeadline(time.Time) error }); ok {
		_ = f.SetReadDeadline(time.Now().Add(patience))
	}
	return p.out.Read(b)
}

// Fresh destroys everything that the program has made and opens the device anew.
func (c *Client) Fresh() (DUT, error) {
	if e := c.call(nil, "reset"); e != 0 && c.err == nil {
		c.err = fmt.Errorf("conform: the client cannot open its device again: %w", e)
	}
	c.last = time.Now()
	c.qpns = map[string]ib.QPN{}
	if c.wire {
		return wiredDUT{clientDUT{c}}, c.err
	}
	return clientDUT{c}, c.err
}

// call sends a command and returns the errno of the answer. What else it says goes to
// answer, as far as that reaches.
func (c *Client) call(answer []uint64, command string, args ...any) ib.Errno {
	words := c.say(command, args...)
	if c.err != nil {
		return ib.ENODEV
	}
	for i := range answer {
		if i+1 < len(words) {
			answer[i], c.err = strconv.ParseUint(words[i+1], 10, 64)
		}
	}
	e, err := strconv.Atoi(words[0])
	if err != nil || e < 0 {
		c.err = fmt.Errorf("conform: client: %s: answer %q", command, words)
	}
	return ib.Errno(e)
}

// say sends a command and returns the words of the answer, at least one unless it fails.
func (c *Client) say(command string, args ...any) []string {
	if c.err != nil {
		return nil
	}
	var b strings.Builder
	b.WriteString(command)
	for _, a := range args {
		fmt.Fprintf(&b, " %v", a)
	}
	b.WriteByte('\n')
	_, err := io.WriteString(c.rw, b.String())
	line := ""
	if err == nil {
		line, err = c.in.ReadString('\n')
	}
	words := strings.Fields(line)
	if err == nil && len(words) == 0 {
		err = errors.New("an empty answer")
	}
	if err != nil {
		c.err = fmt.Errorf("conform: client: %s: %w", command, err)
		return nil
	}
	return words
}

// name is an object's name on a line.
func name(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func flag(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Close leaves everything to the next Fresh.
func (d clientDUT) Close() {}

func (d clientDUT) Address() ib.GID { return d.c.gid }

func (d clientDUT) Err() error { return d.c.err }

func (d clientDUT) AllocPD(n string) ib.Errno   { return d.c.call(nil, "alloc_pd", n) }
func (d clientDUT) DeallocPD(n string) ib.Errno { return d.c.call(nil, "dealloc_pd", n) }

func (d clientDUT) RegMR(n, pd string, addr, length uint64, access ib.Access) (MRKeys, ib.Errno) {
	var a [2]uint64
	e := d.c.call(a[:], "reg_mr", n, pd, addr, length, uint32(access))
	return MRKeys{ib.LKey(a[0]), ib.RKey(a[1])}, e
}

func (d clientDUT) DeregMR(n string) ib.Errno { return d.c.call(nil, "dereg_mr", n) }

func (d clientDUT) AllocMW(n, pd string, typ ib.MWType) (ib.RKey, ib.Errno) {
	var a [1]uint64
	e := d.c.call(a[:], "alloc_mw", n, pd, int(typ))
	return ib.RKey(a[0]), e
}

func (d clientDUT) DeallocMW(n string) ib.Errno { return d.c.call(nil, "dealloc_mw", n) }

func (d clientDUT) CreateCQ(n string, cqe int) (int, ib.Errno) {
	var a [1]uint64
	e := d.c.call(a[:], "create_cq", n, cqe)
	return int(a[0]), e
}

func (d clientDUT) ResizeCQ(n string, cqe int) (int, ib.Errno) {
	var a [1]uint64
	e := d.c.call(a[:], "resize_cq", n, cqe)
	return int(a[0]), e
}

func (d clientDUT) DestroyCQ(n string) ib.Errno { return d.c.call(nil, "destroy_cq", n) }

func (d clientDUT) CreateSRQ(n, pd string, a SRQAttr) ib.Errno {
	return d.c.call(nil, "create_srq", n, pd, a.MaxWR, a.MaxSGE, a.Limit)
}

func (d clientDUT) ModifySRQ(n string, maxWR, limit int) ib.Errno {
	return d.c.call(nil, "modify_srq", n, maxWR, limit)
}

func (d clientDUT) QuerySRQ(n string) (SRQAttr, ib.Errno) {
	var a [3]uint64
	e := d.c.call(a[:], "query_srq", n)
	return SRQAttr{int(a[0]), int(a[1]), int(a[2])}, e
}

func (d clientDUT) DestroySRQ(n string) ib.Errno { return d.c.call(nil, "destroy_srq", n) }

func (d clientDUT) CreateAH(n, pd string, av AV) ib.Errno {
	return d.c.call(nil, "create_ah", n, pd, av.SGIDIndex, av.PortNum, flag(av.IsGlobal))
}

func (d clientDUT) DestroyAH(n string) ib.Errno { return d.c.call(nil, "destroy_ah", n) }

func (d clientDUT) CreateQP(n string, i QPInit) (QPCap, ib.QPN, ib.Errno) {
	var a [6]uint64
	e := d.c.call(a[:], "create_qp", n, i.PD, i.SendCQ, i.RecvCQ, name(i.SRQ), int(i.Type), flag(i.SQSigAll),
		i.Cap.MaxSendWR, i.Cap.MaxRecvWR, i.Cap.MaxSendSGE, i.Cap.MaxRecvSGE, i.Cap.MaxInline)
	if e == 0 {
		d.c.qpns[n] = ib.QPN(a[0])
	}
	return QPCap{int(a[1]), int(a[2]), int(a[3]), int(a[4]), int(a[5])}, ib.QPN(a[0]), e
}

func (d clientDUT) ModifyQP(n string, a *QPAttr, mask ib.AttrMask) ib.Errno {
	return d.c.call(nil, "modify_qp", n, uint32(mask), int(a.State), a.PortNum, a.PKeyIndex, uint32(a.Access), uint32(a.QKey), int(a.PathMTU), uint32(a.DestQPN),
		uint32(a.RQPSN), uint32(a.SQPSN), a.MaxDestRdAtomic, a.MaxRdAtomic, a.MinRNRTimer, a.Timeout, a.RetryCnt, a.RNRRetry, flag(a.EnSQDNotify),
		a.AV.SGIDIndex, a.AV.PortNum, flag(a.AV.IsGlobal))
}

func (d clientDUT) QueryQP(n string) (QPView, ib.Errno) {
	var a [3]uint64
	e := d.c.call(a[:], "query_qp", n)
	return QPView{ib.QPState(a[0]), ib.QPState(a[1]), a[2] != 0}, e
}

func (d clientDUT) DestroyQP(n string) ib.Errno { return d.c.call(nil, "destroy_qp", n) }

// sgl appends a scatter/gather list to the arguments of a post.
func sgl(args []any, l []SGE) []any {
	args = append(args, len(l))
	for _, s := range l {
		args = append(args, s.Addr, s.Length, uint32(s.LKey))
	}
	return args
}

func (d clientDUT) PostSend(n string, w *SendWR) ib.Errno {
	if w.Op == ib.WRBindMW {
		b := &w.Bind
		return d.c.call(nil, "bind_mw", n, w.ID, uint32(w.Flags), b.MW, b.MR, uint32(b.RKey), b.Addr, b.Length, uint32(b.Access))
	}
	return d.c.call(nil, "post_send", sgl([]any{n, w.ID, int(w.Op), uint32(w.Flags), w.Imm, uint32(w.InvRKey), w.RemoteAddr, uint32(w.RKey),
		w.CompareAdd, w.Swap, name(w.AH), uint32(w.RemoteQPN), uint32(w.RemoteQKey)}, w.SGL)...)
}

func (d clientDUT) PostRecv(n string, w *RecvWR) ib.Errno {
	return d.c.call(nil, "post_recv", sgl([]any{n, w.ID}, w.SGL)...)
}

func (d clientDUT) PostSRQRecv(n string, w *RecvWR) ib.Errno {
	return d.c.call(nil, "post_srq_recv", sgl([]any{n, w.ID}, w.SGL)...)
}

func (d clientDUT) Poll(n string) (WC, bool) {
	var a [10]uint64
	if d.c.call(a[:], "poll_cq", n) != 0 || a[0] == 0 {
		return WC{}, false
	}
	return WC{ID: a[1], Status: ib.WCStatus(a[2]), Opcode: ib.WCOpcode(a[3]), VendorErr: uint32(a[4]), ByteLen: uint32(a[5]), Imm: uint32(a[6]),
		QPN: ib.QPN(a[7]), SrcQP: ib.QPN(a[8]), Flags: ib.WCFlags(a[9])}, true
}

func (d clientDUT) ReqNotify(n string, solicitedOnly bool) ib.Errno {
	return d.c.call(nil, "req_notify_cq", n, flag(solicitedOnly))
}

func (d clientDUT) CQEvents(n string) int {
	var a [1]uint64
	d.c.call(a[:], "comp_events", n)
	return int(a[0])
}

func (d clientDUT) AsyncEvent() (Event, bool) {
	w := d.c.say("async_event")
	if len(w) != 3 {
		return Event{}, false
	}
	t, err := strconv.Atoi(w[1])
	if err != nil {
		d.c.err = fmt.Errorf("conform: client: async_event: answer %q", w)
	}
	e := Event{Type: ib.EventType(t), Object: w[2]}
	if e.Object == "-" {
		e.Object = ""
	}
	return e, true
}

// nap is how long a device in real time waits between two looks.
const nap = 200 * time.Microsecond

// Wait lets the program sleep. The time that calls took since the last Wait counts too.
func (d clientDUT) Wait(limit time.Duration) time.Duration {
	d.c.call(nil, "nap", min(limit, nap).Microseconds())
	start := d.c.last
	d.c.last = time.Now()
	return max(d.c.last.Sub(start), time.Nanosecond)
}

func (d clientDUT) Memory() (uint64, int) { return d.c.base, d.c.size }

func (d clientDUT) Peek(off uint64, n int) []byte {
	b := make([]byte, n)
	if n == 0 {
		return b
	}
	w := d.c.say("peek", off, n)
	if d.c.err == nil && (len(w) != 2 || len(w[1]) != 2*n) {
		d.c.err = errors.New("conform: client: peek: a short answer")
	}
	if d.c.err == nil {
		_, d.c.err = hex.Decode(b, []byte(w[1]))
	}
	return b
}

func (d clientDUT) Poke(off uint64, b []byte) {
	if len(b) > 0 {
		d.c.call(nil, "poke", off, hex.EncodeToString(b))
	}
}
