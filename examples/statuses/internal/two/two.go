// Package two is what the programs in examples/statuses share: two devices A and B in
// one process, one queue pair on each, and words for what each side sees.
package two

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt/node"
	"github.com/rvtsim/rvtsim/verbs"
)

var (
	// Addresses are those of A and B. The test uses others than people do.
	Addresses = [2]string{"127.0.0.1:4791", "127.0.0.2:4791"}
	// Out is where everything is printed.
	Out io.Writer = os.Stdout
	// Explain prints an explanation after each failed completion.
	Explain bool

	opened []*Side
)

// Side is one device with one of everything.
type Side struct {
	Name string
	Dev  *verbs.Device
	PD   *verbs.PD
	CQ   *verbs.CQ
	MR   *verbs.MR // 8192 bytes with every right
	QP   *verbs.QP // set by NewQP
}

// Options say how a side differs from the others.
type Options struct {
	verbs.Config
	CQE int // 0: 64
}

// OpenSide opens device i, 0 for A and 1 for B, without a queue pair.
func OpenSide(i int, o Options) *Side {
	s := &Side{Name: string(rune('A' + i))}
	if o.Address == "" && o.Port == nil {
		o.Address = Addresses[i]
	}
	if o.CQE == 0 {
		o.CQE = 64
	}
	o.Name = s.Name
	s.Dev = Must(verbs.Open(o.Config))
	opened = append(opened, s)
	s.PD = Must(s.Dev.AllocPD())
	s.CQ = Must(s.Dev.CreateCQ(o.CQE, nil))
	s.MR = Must(s.PD.RegMR(make([]byte, 8192), ib.AccessLocalWrite|ib.AccessRemoteMask|ib.AccessMWBind))
	return s
}

// OpenLossy opens device i on a network that loses the first packet with an opcode that the
// device sends.
func OpenLossy(i int, lost ib.Opcode) *Side {
	gid, port := parse(Addresses[i])
	cfg := udp.DefaultConfig(gid)
	cfg.Port = port
	rule := fabric.DropFirst(1, fabric.Match{Opcodes: []ib.Opcode{lost}})
	policy := Must(fabric.NewImpairment(fabric.ImpairmentConfig{Rules: []fabric.Rule{rule}}, 1))
	return OpenSide(i, Options{Config: verbs.Config{Port: fabric.NewImpaired(Must(udp.Open(cfg)), policy, node.Now)}})
}

// NewQP gives the side an RC queue pair in RESET.
func (s *Side) NewQP(srq *verbs.SRQ) { s.NewQPOf(ib.QPTypeRC, srq) }

// NewQPOf gives the side a queue pair of a type, in RESET.
func (s *Side) NewQPOf(t ib.QPType, srq *verbs.SRQ) {
	s.QP = Must(s.PD.CreateQP(verbs.QPInitAttr{Type: t, SendCQ: s.CQ, RecvCQ: s.CQ, SRQ: srq, SQSigAll: true,
		Cap: verbs.QPCap{MaxSendWR: 8, MaxRecvWR: 8, MaxSendSGE: 1, MaxRecvSGE: 1}}))
}

// Open opens both sides, each with an RC queue pair that is not connected.
func Open() (a, b *Side) {
	a, b = OpenSide(0, Options{}), OpenSide(1, Options{})
	a.NewQP(nil)
	b.NewQP(nil)
	return a, b
}

// Pair opens both sides and connects them.
func Pair() (a, b *Side) {
	a, b = Open()
	Connect(a, b, nil)
	return a, b
}

// Connect takes both queue pairs to RTS. change may be nil; it is called for each side's
// own parameters.
func Connect(a, b *Side, change func(s *Side, p *verbs.ConnParams)) {
	a.connect(b, change)
	b.connect(a, change)
}

func (s *Side) connect(peer *Side, change func(s *Side, p *verbs.ConnParams)) {
	p := verbs.DefaultConnParams(peer.Dev.GID(), peer.QP.QPN())
	if change != nil {
		change(s, &p)
	}
	Check(s.QP.ToInit(p))
	Check(s.QP.ToRTR(p))
	Check(s.QP.ToRTS(p))
}

// SGL is a list of one entry: n bytes of the side's memory from off on.
func (s *Side) SGL(off, n int) []verbs.SGE { return []verbs.SGE{s.MR.SGE(off, n)} }

// Send posts sends.
func (s *Side) Send(wrs ...verbs.SendWR) { Check(s.QP.PostSend(wrs...)) }

// Recv posts a receive of n bytes.
func (s *Side) Recv(wrID uint64, n int) {
	Check(s.QP.PostRecv(verbs.RecvWR{WRID: wrID, SGL: s.SGL(4096, n)}))
}

// patience is how long Completions and Event wait before they give up.
const patience = 20 * time.Second

// Completions waits for n completions and prints them. Of a failed one it looks at
// nothing but wr_id, status, vendor_err and qp_num: the rest is undefined.
func (s *Side) Completions(n int) {
	end := time.Now().Add(patience)
	for wc := make([]verbs.WC, 1); n > 0; {
		if Must(s.CQ.Poll(wc)) == 0 {
			if time.Now().After(end) {
				Check(fmt.Errorf("%s: %d completions are missing", s.Name, n))
			}
			continue
		}
		n--
		s.print(wc[0])
	}
}

func (s *Side) print(wc verbs.WC) {
	if wc.Status == ib.WCSuccess {
		fmt.Fprintf(Out, "%s: wr %d: SUCCESS, %v of %d bytes\n", s.Name, wc.WRID, wc.Opcode, wc.ByteLen)
		return
	}
	qp := "its QP"
	if s.QP == nil || wc.QPN != s.QP.QPN() {
		qp = wc.QPN.String()
	}
	fmt.Fprintf(Out, "%s: wr %d: %v, vendor_err 0x%x (%v), qp_num of %s\n", s.Name, wc.WRID, wc.Status, uint32(wc.VendorErr), wc.VendorErr, qp)
	if Explain && s.QP != nil {
		fmt.Fprintf(Out, "%s\n", s.QP.Explain(wc))
	}
}

// Event waits for an asynchronous event and prints it.
func (s *Side) Event() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	e := Must(s.Dev.AsyncEvent(ctx))
	about := "the device"
	switch {
	case e.QP != nil:
		about = "its QP"
	case e.CQ != nil:
		about = "its CQ"
	case e.SRQ != nil:
		about = "its SRQ"
	case e.Type == ib.EventPortErr || e.Type == ib.EventPortActive || e.Type == ib.EventGIDChange:
		about = fmt.Sprintf("port %d", e.PortNum)
	}
	fmt.Fprintf(Out, "%s: event %v of %s\n", s.Name, e.Type, about)
	e.Ack()
}

// State prints the queue pair's state.
func (s *Side) State() {
	fmt.Fprintf(Out, "%s: the QP is in %v\n", s.Name, Must(s.QP.Query()).State)
}

// Say prints a remark.
func Say(format string, args ...any) { fmt.Fprintln(Out, fmt.Sprintf(format, args...)) }

// CloseAll shuts every device down that was opened.
func CloseAll() {
	for _, s := range opened {
		_ = s.Dev.Shutdown() // nothing is left to be saved
	}
	opened = nil
}

// Must returns v, or panics: whatever is not provoked on purpose must work.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Check panics if there is an error.
func Check(err error) {
	if err != nil {
		panic(err)
	}
}
