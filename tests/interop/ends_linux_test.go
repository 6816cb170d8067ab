package interop

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/tests/interop/lab"
)

// end is one end of a connection: a side, a QP of it, and memory.
type end struct {
	side
	t   *testing.T
	qp  int
	qpn ib.QPN
	m   mem
	p   params
}

const (
	endBytes   = 256 << 10
	endEntries = 64 // of each queue
	// patient is the code of a timeout of 268 ms. On a busy host an emulated machine may
	// stand still for most of a second; seven retries must outlast that.
	patient = 16
	waitFor = 15 * time.Second
)

// direction says which part we play.
type direction struct {
	name     string
	weListen bool
}

var directions = []direction{{"rvtsim to kernel", false}, {"kernel to rvtsim", true}}

// scenario is what happens between a requester and a responder.
type scenario struct {
	name string
	typ  ib.QPType
	// edit changes the parameters of the ends before they are connected; may be nil.
	edit func(req, resp *params)
	run  func(t *testing.T, req, resp *end)
	long bool // left out of the short version
}

// forEach runs a scenario in both directions over both networks.
func forEach(t *testing.T, s scenario, o options) {
	if s.long && !*full {
		return
	}
	for _, f := range families {
		for _, d := range directions {
			what := s.typ.String() + " " + s.name
			t.Run(what+"/"+d.name+"/"+f.name, func(t *testing.T) {
				if o.profile.Name != "" {
					what += ", profile " + o.profile.Name
				}
				record(t, what, d.name, f.name)
				req, resp := connected(t, s.typ, f, d, o, s.edit)
				s.run(t, req, resp)
			})
		}
	}
}

// connected opens both sides and connects a QP of each.
func connected(t *testing.T, typ ib.QPType, f family, d direction, o options, edit func(req, resp *params)) (req, resp *end) {
	us, kernel := openOurs(t, f, o), openTheirs(t, f)
	req, resp = &end{side: us, t: t}, &end{side: kernel, t: t}
	if d.weListen {
		req, resp = resp, req
	}
	for _, e := range []*end{req, resp} {
		e.m = e.reg(0, endBytes, allAccess|ib.AccessMWBind)
		e.qpn = e.createQP(0, typ, endEntries, -1)
	}
	join(typ, req, resp, edit)
	return req, resp
}

// join connects two QPs that exist.
func join(typ ib.QPType, req, resp *end, edit func(req, resp *params)) {
	mtu := min(req.mtu(), resp.mtu())
	of := func(e, peer *end, psn, peerPSN ib.PSN) {
		e.p = params{access: allAccess, qkey: testQKey, peer: peer.gid(), peerQPN: peer.qpn, mtu: mtu, psn: psn, peerPSN: peerPSN,
			rd: 8, rnrTimer: 12, timeout: patient, retry: 7, rnr: 7}
	}
	of(req, resp, 0xfffffa, 0x123456)
	of(resp, req, 0x123456, 0xfffffa)
	if edit != nil {
		edit(&req.p, &resp.p)
	}
	for _, e := range []*end{req, resp} {
		e.toInit(e.qp, e.p)
		e.toRTR(e.qp, e.p)
		e.toRTS(e.qp, e.p)
		if typ == ib.QPTypeUD {
			e.createAH(0, e.p.peer)
		}
	}
}

// post posts a send and expects that to work.
func (e *end) post(s send) {
	e.t.Helper()
	require.NoError(e.t, e.send(e.qp, s), "post_send")
}

// want is an expected completion. Of a failed one only WRID and status count, and not
// the WRID either if that is 0.
type want struct {
	wr     uint64
	status ib.WCStatus
	op     ib.WCOpcode
	bytes  int
	flags  ib.WCFlags // WITH_IMM or WITH_INV of a receive
	imm    uint32
}

// expect waits for exactly these completions of a queue, in order.
func (e *end) expect(queue int, wants ...want) {
	e.t.Helper()
	got := e.poll(queue, len(wants), waitFor)
	kind := [...]string{"sends", "receives"}[queue]
	require.Len(e.t, got, len(wants), "completions of %s's %s: %+v, want %+v", e.name(), kind, got, wants)
	for i, w := range wants {
		g := got[i]
		require.Equal(e.t, w.status.String(), g.Status.String(), "%s's %s: completion %d: %+v (%v)", e.name(), kind, i, g, g.VendorErr)
		require.Equal(e.t, w.wr, g.WRID, "%s's %s: completion %d: %+v", e.name(), kind, i, g)
		if w.status != ib.WCSuccess {
			continue
		}
		require.Equal(e.t, w.op.String(), g.Opcode.String(), "%s's %s: completion %d: %+v", e.name(), kind, i, g)
		if queue == lab.RecvCQ {
			require.EqualValues(e.t, w.bytes, g.ByteLen, "%s's receive %d: byte_len", e.name(), i)
			require.Equal(e.t, w.flags, g.Flags&(ib.WCFlagWithImm|ib.WCFlagWithInv), "%s's receive %d: wc_flags", e.name(), i)
			if w.flags&ib.WCFlagWithImm != 0 {
				require.Equal(e.t, w.imm, g.Imm, "%s's receive %d: immediate", e.name(), i)
			}
		}
	}
}

// sent and got expect one completion.
func (e *end) sent(wr uint64, op ib.WCOpcode) {
	e.t.Helper()
	e.expect(lab.SendCQ, want{wr: wr, op: op})
}

func (e *end) got(wr uint64, n int) {
	e.t.Helper()
	e.expect(lab.RecvCQ, want{wr: wr, op: ib.WCRecv, bytes: n})
}

func (e *end) failed(queue int, wr uint64, s ib.WCStatus) {
	e.t.Helper()
	e.expect(queue, want{wr: wr, status: s})
}

// quiet expects no completion for a while.
func (e *end) quiet(queue int) {
	e.t.Helper()
	require.Empty(e.t, e.poll(queue, 1, 30*time.Millisecond), "completions of %s", e.name())
}

// inState waits until the QP is in a state.
func (e *end) inState(s ib.QPState) {
	e.t.Helper()
	require.Eventually(e.t, func() bool { return e.state(e.qp) == s }, waitFor, 5*time.Millisecond, "%s's QP is to be in %v, and is in %v", e.name(), s, e.state(e.qp))
}

// stays expects the QP in a state.
func (e *end) stays(s ib.QPState) {
	e.t.Helper()
	require.Equal(e.t, s.String(), e.state(e.qp).String(), "state of %s's QP", e.name())
}

// random returns bytes that depend on a number.
func random(seed, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), 0x42})
	_, _ = r.Read(b)
	return b
}

// fill writes random bytes into the end's memory and returns them.
func (e *end) fill(seed, off, n int) []byte {
	b := random(seed, n)
	if n > 0 {
		e.put(e.m, off, b)
	}
	return b
}

// holds expects bytes in the end's memory.
func (e *end) holds(off int, b []byte) {
	e.t.Helper()
	if got := e.get(e.m, off, len(b)); !bytes.Equal(got, b) {
		at := 0
		for got[at] == b[at] {
			at++
		}
		require.FailNow(e.t, "wrong data", "%s's memory differs from byte %d of %d on: want %#x, got %#x", e.name(), at, len(b), b[at], got[at])
	}
}

func word(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }

func (e *end) setWord(off int, v uint64) { e.put(e.m, off, word(v)) }
func (e *end) word(off int) uint64       { return binary.NativeEndian.Uint64(e.get(e.m, off, 8)) }

// profiles are those that our side is run with.
func profiles() []qp.Profile {
	if *full {
		return []qp.Profile{qp.ProfileIBTA, qp.ProfileRXE, qp.ProfileRDMAVT}
	}
	return []qp.Profile{qp.ProfileIBTA}
}
