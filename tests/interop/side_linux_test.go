package interop

import (
	"encoding/hex"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/tests/interop/lab"
)

// side is an adapter with a program: ours, or the kernel's. Objects are named by small
// numbers. Whatever a method cannot do fails the test, but for those that return an error.
type side interface {
	name() string
	gid() ib.GID
	mtu() ib.MTU

	reg(n, bytes int, access ib.Access) mem
	put(m mem, off int, b []byte)
	get(m mem, off, bytes int) []byte
	dereg(m mem)

	createSRQ(n, entries int)
	createQP(n int, typ ib.QPType, entries, srq int) ib.QPN // srq < 0: none
	toInit(n int, p params)
	toRTR(n int, p params)
	toRTS(n int, p params)
	setState(n int, s ib.QPState)
	state(n int) ib.QPState
	destroyQP(n int)

	createAH(n int, dgid ib.GID)
	attach(n int, group ib.GID)
	allocMW(n int) ib.RKey
	bind(qp, mw int, m mem, off, bytes int, access ib.Access, rkey ib.RKey, wr uint64)

	recv(qp int, r recv)
	recvSRQ(srq int, r recv)
	send(qp int, s send) error

	// poll waits for completions of one queue, max at most, and returns what came.
	poll(queue, max int, d time.Duration) []cq.WC
	arm(queue int, solicitedOnly bool)
	// event returns the queue that had an event, -1 if none had within d.
	event(d time.Duration) int
}

// mem is registered memory of one side.
type mem struct {
	n     int
	addr  uint64
	rkey  ib.RKey
	bytes int
}

// recv is a receive. Without length it has no entry.
type recv struct {
	wr     uint64
	m      mem
	off, n int
	badKey bool
}

// send is a send work request. Without length it has no entry.
type send struct {
	wr     uint64
	op     ib.WROpcode
	flags  ib.SendFlags // SendSignaled is added
	m      mem
	off, n int
	badKey bool
	imm    uint32
	inv    ib.RKey

	raddr     uint64
	rkey      ib.RKey
	add, swap uint64

	ah   int
	qpn  ib.QPN
	qkey ib.QKey
}

// params connect a QP.
type params struct {
	access   ib.Access
	qkey     ib.QKey
	peer     ib.GID
	peerQPN  ib.QPN
	mtu      ib.MTU
	psn      ib.PSN // of what this side sends
	peerPSN  ib.PSN
	rd       int // both max_rd_atomic and max_dest_rd_atomic
	rnrTimer int
	timeout  int
	retry    int
	rnr      int
}

const (
	allAccess = ib.AccessLocalWrite | ib.AccessRemoteMask
	testQKey  = ib.QKey(0x11111111)
)

// theirs is a verbs program in the machine, on the kernel's adapter.
type theirs struct {
	t       *testing.T
	s       *lab.Session
	address ib.GID
	index   int
	portMTU ib.MTU
}

func openTheirs(t *testing.T, f family) *theirs {
	t.Helper()
	s, err := guest(t).Dial(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { s.Close() })
	k := &theirs{t: t, s: s}
	r := k.do("open family=%d", f.number)
	raw, err := hex.DecodeString(r.Text("gid"))
	require.NoError(t, err)
	require.Len(t, raw, len(k.address))
	copy(k.address[:], raw)
	k.index, k.portMTU = int(r.Num("index")), ib.MTU(r.Num("mtu"))
	return k
}

func (k *theirs) do(format string, args ...any) lab.Reply {
	k.t.Helper()
	r, err := k.s.Do(format, args...)
	require.NoError(k.t, err)
	return r
}

func (k *theirs) name() string { return "kernel" }
func (k *theirs) gid() ib.GID  { return k.address }
func (k *theirs) mtu() ib.MTU  { return k.portMTU }

func (k *theirs) reg(n, bytes int, access ib.Access) mem {
	r := k.do("mr n=%d len=%d access=%d", n, bytes, access)
	return mem{n: n, addr: r.Num("addr"), rkey: ib.RKey(r.Num("rkey")), bytes: bytes}
}

func (k *theirs) put(m mem, off int, b []byte) { k.do("put n=%d off=%d data=%x", m.n, off, b) }

func (k *theirs) get(m mem, off, bytes int) []byte {
	b, err := hex.DecodeString(k.do("get n=%d off=%d len=%d", m.n, off, bytes).Text("data"))
	require.NoError(k.t, err)
	return b
}

func (k *theirs) dereg(m mem)              { k.do("dereg n=%d", m.n) }
func (k *theirs) createSRQ(n, entries int) { k.do("srq n=%d wr=%d", n, entries) }

func (k *theirs) createQP(n int, typ ib.QPType, entries, srq int) ib.QPN {
	if srq >= 0 {
		return ib.QPN(k.do("qp n=%d type=%d wr=%d srq=%d", n, typ, entries, srq).Num("qpn"))
	}
	return ib.QPN(k.do("qp n=%d type=%d wr=%d", n, typ, entries).Num("qpn"))
}

func (k *theirs) toInit(n int, p params) { k.do("init n=%d access=%d qkey=%d", n, p.access, p.qkey) }

func (k *theirs) toRTR(n int, p params) {
	k.do("rtr n=%d dgid=%x qpn=%d psn=%d mtu=%d rd=%d rnr=%d", n, p.peer[:], p.peerQPN, p.peerPSN, p.mtu, p.rd, p.rnrTimer)
}

func (k *theirs) toRTS(n int, p params) {
	k.do("rts n=%d psn=%d timeout=%d retry=%d rnr=%d rd=%d", n, p.psn, p.timeout, p.retry, p.rnr, p.rd)
}

func (k *theirs) setState(n int, s ib.QPState) { k.do("set n=%d state=%d", n, s) }
func (k *theirs) state(n int) ib.QPState       { return ib.QPState(k.do("state n=%d", n).Num("state")) }
func (k *theirs) destroyQP(n int)              { k.do("destroy n=%d", n) }
func (k *theirs) createAH(n int, dgid ib.GID)  { k.do("ah n=%d dgid=%x", n, dgid[:]) }
func (k *theirs) attach(n int, group ib.GID)   { k.do("attach n=%d gid=%x", n, group[:]) }
func (k *theirs) allocMW(n int) ib.RKey        { return ib.RKey(k.do("mw n=%d", n).Num("rkey")) }

func (k *theirs) bind(qp, mw int, m mem, off, bytes int, access ib.Access, rkey ib.RKey, wr uint64) {
	k.do("bind n=%d mw=%d mr=%d off=%d len=%d access=%d rkey=%d wr=%d", qp, mw, m.n, off, bytes, access, rkey, wr)
}

func badKey(bad bool) int {
	if bad {
		return 0x5500 // added to the key: another index
	}
	return 0
}

func (k *theirs) recv(qp int, r recv)     { k.postRecv("n", qp, r) }
func (k *theirs) recvSRQ(srq int, r recv) { k.postRecv("srq", srq, r) }

func (k *theirs) postRecv(queue string, n int, r recv) {
	if r.n == 0 {
		k.do("recv %s=%d wr=%d", queue, n, r.wr)
		return
	}
	k.do("recv %s=%d wr=%d mr=%d off=%d len=%d badkey=%d", queue, n, r.wr, r.m.n, r.off, r.n, badKey(r.badKey))
}

func (k *theirs) send(qp int, s send) error {
	entry := ""
	if s.n > 0 {
		entry = " len=" + itoa(s.n)
	}
	_, err := k.s.Do("send n=%d wr=%d op=%d flags=%d mr=%d off=%d badkey=%d imm=%d inv=%d raddr=%d rkey=%d add=%d swap=%d ah=%d qpn=%d qkey=%d%s",
		qp, s.wr, s.op, s.flags|ib.SendSignaled, s.m.n, s.off, badKey(s.badKey), s.imm, s.inv, s.raddr, s.rkey, s.add, s.swap, s.ah, s.qpn, s.qkey, entry)
	return err
}

func (k *theirs) poll(queue, max int, d time.Duration) []cq.WC {
	wcs, err := k.s.Poll(queue, max, d)
	require.NoError(k.t, err)
	for i := range wcs {
		// rxe shows programs its own bits: its "with invalidate" is what libibverbs
		// calls IBV_WC_IP_CSUM_OK.
		if wcs[i].Flags&ib.WCFlagIPCsumOK != 0 {
			wcs[i].Flags ^= ib.WCFlagIPCsumOK | ib.WCFlagWithInv
		}
	}
	return wcs
}

func (k *theirs) arm(queue int, solicitedOnly bool) {
	n := 0
	if solicitedOnly {
		n = 1
	}
	k.do("arm cq=%d solicited=%d", queue, n)
}

func (k *theirs) event(d time.Duration) int {
	n := int(k.do("event ms=%d", d.Milliseconds()).Num("cq"))
	if n > lab.RecvCQ {
		return -1
	}
	return n
}
