package interop

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/tests/interop/lab"
	"github.com/rvtsim/rvtsim/vtime"
)

// allOfIt is too much for soft-RoCE of Linux 6.12 as requester, in about every second run:
// it completes READs without all their data, or fails the QP. The captures show an ACK, late
// or out of order, between the packets of a READ's repeated response. It copes with each
// fault alone, and 6.1 with all of them.
const allOfIt = "all of it"

// wires are what happens to packets on their way. Faults of what we send are made by
// fabric.Impaired, of what the kernel sends by ignoring packets as they come in.
var wires = []struct {
	name   string
	out    fabric.ImpairmentConfig
	inLoss float64
	long   bool
}{
	{name: "5 % of ours lost", out: fabric.ImpairmentConfig{Loss: 0.05}, long: true},
	{name: "5 % of theirs lost", inLoss: 0.05, long: true},
	{name: "duplicates", out: fabric.ImpairmentConfig{Duplicate: 0.2}, long: true},
	{name: "reordering", out: fabric.ImpairmentConfig{Reorder: 0.05, ReorderDelay: time.Millisecond, ReorderPackets: 3}, long: true},
	{name: "damaged ICRC", out: fabric.ImpairmentConfig{Corrupt: 0.05}, long: true},
	{name: allOfIt, out: fabric.ImpairmentConfig{Loss: 0.05, Duplicate: 0.05, Reorder: 0.05, ReorderDelay: time.Millisecond, ReorderPackets: 3, Corrupt: 0.02}, inLoss: 0.03},
}

// TestFaults checks that all data arrives once and right, and all work completes, however
// bad the wire.
func TestFaults(t *testing.T) {
	guest(t)
	for _, p := range profiles() {
		for _, w := range wires {
			if w.long && !*full {
				continue
			}
			forEach(t, scenario{name: "mixture, " + w.name, typ: ib.QPTypeRC,
				edit: func(req, resp *params) { req.rnrTimer, resp.rnrTimer = 10, 10 },
				run: func(t *testing.T, req, resp *end) {
					if w.name == allOfIt && req.name() == "kernel" && !oldKernel(t) {
						t.Skip("the requester of this kernel cannot do it: see allOfIt")
					}
					mixture(t, req, resp)
				},
			}, options{profile: p, faults: w.out, inLoss: w.inLoss, seed: 20})
		}
	}
}

// mixture keeps a window of random requests open and checks each result.
func mixture(t *testing.T, req, resp *end) {
	count := 50
	if *full {
		count = 300
	}
	m := newMixture(t, req, resp)
	posted := 0
	for done := 0; done < count; done++ {
		for ; posted < count && posted-done < mixtureWindow; posted++ {
			m.post(posted)
		}
		m.complete(done)
	}
	resp.quiet(lab.RecvCQ)
	require.Equal(t, m.sum, resp.word(mixtureCounter), "every FETCH_ADD took effect once")
	for _, e := range []*end{req, resp} {
		e.stays(ib.StateRTS)
	}
	if us, ok := req.side.(*ours); ok {
		t.Log(summary(us))
	} else {
		t.Log(summary(resp.side.(*ours)))
	}
}

func summary(us *ours) string {
	c := us.dev.Counters()
	return fmt.Sprintf("sent %d, again %d, timeouts %d, NAKs received %d, sent %d; duplicates received %d, out of order %d, bad ICRC %d",
		c.Device.SentPackets, c.Device.RetransPackets, c.Device.RetryTimeout, c.Device.RcvdSeqNAK, c.Device.SentNAK,
		c.Device.DuplicateRequest, c.Device.OutOfSeqRequest, c.Port.RxBadICRC)
}

const (
	mixtureWindow  = 8
	mixtureSlot    = 10000 // bytes of memory per request of the window, on each side
	mixtureLongest = 9000
	mixtureCounter = endBytes - 8
)

// mixer makes the requests and knows what each should do.
type mixer struct {
	t         *testing.T
	req, resp *end
	rng       *rand.Rand
	open      [mixtureWindow]request
	sum       uint64
}

type request struct {
	op   ib.WROpcode
	data []byte
	was  uint64 // of an atomic: the value before
}

func newMixture(t *testing.T, req, resp *end) *mixer {
	resp.setWord(mixtureCounter, 0)
	return &mixer{t: t, req: req, resp: resp, rng: rand.New(rand.NewPCG(7, 11))}
}

// post posts the i-th request. Its slot is free: the one before it there is complete.
func (m *mixer) post(i int) {
	at := i % mixtureWindow * mixtureSlot
	ops := []ib.WROpcode{ib.WRSend, ib.WRRDMAWrite, ib.WRRDMARead, ib.WRAtomicFetchAndAdd}
	r := request{op: ops[m.rng.IntN(len(ops))], data: random(i, 1+m.rng.IntN(mixtureLongest))}
	s := send{wr: uint64(i), op: r.op, m: m.req.m, off: at, n: len(r.data), raddr: m.resp.m.addr + uint64(at), rkey: m.resp.m.rkey}
	switch r.op {
	case ib.WRSend:
		m.resp.recv(m.resp.qp, recv{wr: uint64(i), m: m.resp.m, off: at, n: len(r.data)})
		m.req.put(m.req.m, at, r.data)
	case ib.WRRDMAWrite:
		m.req.put(m.req.m, at, r.data)
	case ib.WRRDMARead:
		m.resp.put(m.resp.m, at, r.data)
	case ib.WRAtomicFetchAndAdd:
		r.was, r.data = m.sum, nil
		s.add, s.n, s.raddr = uint64(i+1), 8, m.resp.m.addr+mixtureCounter
		m.sum += s.add
	}
	m.open[i%mixtureWindow] = r
	m.req.post(s)
}

// complete waits for the i-th request and looks at what it did.
func (m *mixer) complete(i int) {
	at, r := i%mixtureWindow*mixtureSlot, m.open[i%mixtureWindow]
	done := map[ib.WROpcode]ib.WCOpcode{ib.WRSend: ib.WCSend, ib.WRRDMAWrite: ib.WCRDMAWrite, ib.WRRDMARead: ib.WCRDMARead, ib.WRAtomicFetchAndAdd: ib.WCFetchAdd}
	m.req.sent(uint64(i), done[r.op])
	switch r.op {
	case ib.WRSend:
		m.resp.got(uint64(i), len(r.data))
		m.resp.holds(at, r.data)
	case ib.WRRDMAWrite:
		m.resp.holds(at, r.data)
	case ib.WRRDMARead:
		m.req.holds(at, r.data)
	case ib.WRAtomicFetchAndAdd:
		require.Equal(m.t, r.was, m.req.word(at), "FETCH_ADD %d", i)
	}
}

// TestLostAnswers loses the ACK of a SEND and the answer of the READ or atomic behind it.
// Both requests are repeated, and the ACK of the first must not be taken for the answer
// of the second: rxe's requester does that with an ACK that carries its PSN.
func TestLostAnswers(t *testing.T) {
	guest(t)
	for _, p := range profiles() {
		for _, second := range []struct {
			name   string
			op     ib.WROpcode
			done   ib.WCOpcode
			answer ib.Opcode
		}{
			{"READ", ib.WRRDMARead, ib.WCRDMARead, ib.OpReadRespOnly},
			{"FETCH_ADD", ib.WRAtomicFetchAndAdd, ib.WCFetchAdd, ib.OpAtomicAck},
		} {
			lost := []ib.Opcode{ib.OpAcknowledge, second.answer}
			o := options{profile: p, inDrop: lost}
			for _, op := range lost {
				o.faults.Rules = append(o.faults.Rules, fabric.DropFirst(1, fabric.Match{Opcodes: []ib.Opcode{op}}))
			}
			forEach(t, scenario{name: "answers of SEND and " + second.name + " lost", typ: ib.QPTypeRC, run: func(t *testing.T, req, resp *end) {
				resp.setWord(dstOff, 0x1122334455667788)
				resp.recv(resp.qp, recv{wr: 1, m: resp.m, off: srcOff, n: 8})
				req.post(send{wr: 1, op: ib.WRSend, m: req.m, off: srcOff, n: 8})
				req.post(send{wr: 2, op: second.op, m: req.m, off: dstOff, n: 8, raddr: resp.m.addr + dstOff, rkey: resp.m.rkey, add: 1})
				req.expect(lab.SendCQ, want{wr: 1, op: ib.WCSend}, want{wr: 2, op: second.done})
				require.Equal(t, uint64(0x1122334455667788), req.word(dstOff))
			}}, o)
		}
	}
}

// deaf is a port that does not hear some of the packets.
type deaf struct {
	fabric.Port
	fabric.Waiter
	loss  float64
	rng   *rand.Rand
	first []ib.Opcode // of each of them the first is not heard
}

func (d *deaf) hears(p *fabric.Datagram) bool {
	if i := slices.Index(d.first, ib.Opcode(p.Buf[0])); i >= 0 {
		d.first = slices.Delete(d.first, i, i+1)
		return false
	}
	return d.rng.Float64() >= d.loss
}

func (d *deaf) ReadBatch(dst []fabric.Datagram) (int, error) {
	n, err := d.Port.ReadBatch(dst)
	kept := 0
	for i := range dst[:n] {
		if d.hears(&dst[i]) {
			dst[kept] = dst[i]
			kept++
		}
	}
	return kept, err
}

// Deadline is that of the port below, which may hold packets back.
func (d *deaf) Deadline() vtime.Time { return fabric.DeadlineOf(d.Port) }

// TestFaultsUC sends over a bad wire without retransmission: what arrives must be right,
// and the QPs must live.
func TestFaultsUC(t *testing.T) {
	guest(t)
	forEach(t, scenario{name: "SENDs, 5 % lost", typ: ib.QPTypeUC, long: true, run: func(t *testing.T, req, resp *end) {
		const count, bytes = 100, 3000
		b := req.fill(1, srcOff, bytes)
		arrived := 0
		for i := range count {
			if i-arrived < 32 { // enough receives, also for what was lost
				resp.recv(resp.qp, recv{wr: uint64(i), m: resp.m, off: dstOff, n: bytes})
			}
			req.post(send{wr: uint64(i), op: ib.WRSend, m: req.m, n: bytes})
			req.sent(uint64(i), ib.WCSend)
			for _, w := range resp.poll(lab.RecvCQ, 1, 20*time.Millisecond) {
				require.Equal(t, ib.WCSuccess, w.Status)
				require.EqualValues(t, bytes, w.ByteLen)
				resp.holds(dstOff, b)
				resp.put(resp.m, dstOff, make([]byte, bytes))
				arrived++
			}
		}
		t.Logf("%d of %d arrived", arrived, count)
		require.Greater(t, arrived, count/2)
		require.Less(t, arrived, count)
		resp.stays(ib.StateRTS)
	}}, options{profile: qp.ProfileIBTA, faults: fabric.ImpairmentConfig{Loss: 0.05}, inLoss: 0.05, seed: 3})
}
