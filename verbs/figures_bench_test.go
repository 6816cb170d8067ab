//go:build linux

package verbs

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/loopback"
)

// BenchmarkBare compares two devices with the bare loop, in turns: RDMA WRITEs with its
// stream, SENDs of 64 bytes with its exchange, by UDP and through memory. The peer is another
// goroutine or another process. Reported are the medians of the rounds; the worst of a ratio is beside it.
func BenchmarkBare(b *testing.B) {
	for _, where := range []string{"one-process", "two-processes"} {
		for _, wire := range []string{"udp", "memory"} {
			apart := where == "two-processes"
			for _, size := range []int{64 << 10, 1 << 20} {
				b.Run(fmt.Sprintf("write-%dKiB/%s/%s", size>>10, wire, where), func(b *testing.B) { benchWrites(b, size, wire, apart) })
			}
			b.Run("pingpong-64/"+wire+"/"+where, func(b *testing.B) { benchTurns(b, wire, apart) })
		}
	}
}

const (
	benchRounds = 5
	benchBytes  = 256 << 20 // of a stream
	benchTurned = 10000     // messages of an exchange
)

func benchWrites(b *testing.B, size int, wire string, apart bool) {
	const chunk = bareChunk * bareSegments * barePayload
	mem := make([]byte, 1<<20)
	rounds(b, wire, apart, "bare-sink", "sink", "GB/s", slices.Min[[]float64], func(s *bareSocket) float64 {
		var l laps
		require.NoError(b, s.bareStream(benchBytes/chunk, mem, &l))
		return chunk / l.middle()
	}, func(r *rcSide) float64 {
		var l laps
		r.write(benchBytes/size, size, &l)
		return (1 << 20) / l.middle()
	})
}

func benchTurns(b *testing.B, wire string, apart bool) {
	mem := make([]byte, 64)
	rounds(b, wire, apart, "bare-echo", "echo", "ns/half-rtt", slices.Max[[]float64], func(s *bareSocket) float64 {
		var l laps
		require.NoError(b, s.barePingPong(benchTurned, mem, &l))
		return l.middle() / (2 * lapTurns)
	}, func(r *rcSide) float64 {
		var l laps
		r.pingPong(benchTurned, &l)
		return l.middle() / (2 * lapTurns)
	})
}

// laps are the times of equal parts of a measurement. Their median is what is typical: other
// programs of the machine interrupt some of them.
type laps struct {
	last time.Time
	ns   []float64
}

func (l *laps) lap() {
	now := time.Now()
	if !l.last.IsZero() {
		l.ns = append(l.ns, float64(now.Sub(l.last).Nanoseconds()))
	}
	l.last = now
}

func (l *laps) middle() float64 { return middle(l.ns) }

// lapTurns is how many turns of an exchange are a lap.
const lapTurns = 8

// rounds measures both in turns. The peer of one is gone when it is the other's turn: it
// polls, and wants a processor.
func rounds(b *testing.B, wire string, apart bool, bareRole, role, unit string, worst func([]float64) float64, bare func(*bareSocket) float64, ours func(*rcSide) float64) {
	var x, y, ratio []float64
	for range b.N * benchRounds {
		s, end := bareClient(b, bareRole, apart)
		x = append(x, bare(s))
		end()
		r, end := rcClient(b, role, wire, apart)
		y = append(y, ours(r))
		end()
		ratio = append(ratio, y[len(y)-1]/x[len(x)-1])
	}
	b.ReportMetric(middle(x), "bare-"+unit)
	b.ReportMetric(middle(y), unit)
	b.ReportMetric(middle(ratio), "of-bare")
	b.ReportMetric(worst(ratio), "worst")
	b.ReportMetric(0, "ns/op")
}

func middle(v []float64) float64 {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2]
}

// ---- the side that starts ----

func bareClient(b *testing.B, role string, apart bool) (*bareSocket, func()) {
	s, err := openBare(loopback.Address(2), loopback.Address(3))
	require.NoError(b, err)
	p := startPeer(b, role, loopback.Address(3), loopback.Address(2), apart)
	p.hear(b, &struct{}{})
	return s, func() { p.stop(b); s.close() }
}

// rcSide is a device with a connected QP, as each of both sides has it.
type rcSide struct {
	t    testing.TB
	d    *Device
	cq   *CQ
	qp   *QP
	mr   *MR
	far  rcPlace
	wc   []WC
	send []SendWR
	recv []RecvWR
}

// rcPlace is what one side tells the other.
type rcPlace struct {
	GID  GID
	QPN  ib.QPN
	RKey ib.RKey
	Addr uint64
}

func openRC(t testing.TB, local netip.Addr, wire string) *rcSide {
	d, err := Open(Config{Address: netip.AddrPortFrom(local, testPort).String(), Memory: wire == "memory"})
	require.NoError(t, err)
	h := newHost(t, d)
	return &rcSide{t: t, d: d, cq: h.cq, qp: h.qp(ib.QPTypeRC, nil), mr: h.mr, wc: make([]WC, 64),
		send: []SendWR{{Opcode: ib.WRSend, SGL: []SGE{h.mr.SGE(4096, 64)}}}, recv: []RecvWR{{SGL: []SGE{h.mr.SGE(0, 64)}}}}
}

func (r *rcSide) place(local netip.Addr) rcPlace {
	return rcPlace{ib.GID(local.As16()), r.qp.QPN(), r.mr.RKey(), r.mr.Addr(0)}
}

func (r *rcSide) connect(to rcPlace) {
	r.far = to
	p := DefaultConnParams(to.GID, to.QPN)
	p.PathMTU = ib.MTU4096
	require.NoError(r.t, r.qp.ToInit(p))
	require.NoError(r.t, r.qp.ToRTR(p))
	require.NoError(r.t, r.qp.ToRTS(p))
	for range 16 {
		require.NoError(r.t, r.qp.PostRecv(r.recv...))
	}
}

func rcClient(b testing.TB, role, wire string, apart bool) (*rcSide, func()) {
	r := openRC(b, loopback.Address(0), wire)
	p := startPeer(b, role+"-"+wire, loopback.Address(1), loopback.Address(0), apart)
	var far rcPlace
	p.hear(b, &far)
	p.tell(b, r.place(loopback.Address(0)))
	r.connect(far)
	p.hear(b, &struct{}{})
	return r, func() { p.stop(b); require.NoError(b, r.d.Shutdown()) }
}

// poll returns how many receives have completed, and all completions.
func (r *rcSide) poll() (received, all int) {
	n, err := r.cq.Poll(r.wc)
	if err != nil {
		r.t.Fatalf("%v", err)
	}
	for i := range r.wc[:n] {
		if r.wc[i].Status != ib.WCSuccess {
			r.t.Fatalf("%v: %v", r.wc[i].Status, r.wc[i].VendorErr)
		}
		if r.wc[i].Opcode == ib.WCRecv {
			received++
		}
	}
	return received, n
}

// write writes count messages; a lap is 1 MiB.
func (r *rcSide) write(count, size int, l *laps) {
	w := []SendWR{{Opcode: ib.WRRDMAWrite, SGL: []SGE{{}}, RKey: r.far.RKey}}
	for sent, completed, lapped := 0, 0, 0; completed < count; {
		for sent < count && sent-completed < 16 {
			off := sent * size % (1 << 20)
			w[0].SGL[0], w[0].RemoteAddr = r.mr.SGE(off, size), r.far.Addr+uint64(off)
			require.NoError(r.t, r.qp.PostSend(w...))
			sent++
		}
		_, n := r.poll()
		for completed += n; (completed-lapped)*size >= 1<<20; lapped += 1 << 20 / size {
			l.lap()
		}
	}
}

func (r *rcSide) pingPong(turns int, l *laps) {
	for i := range turns {
		if i%lapTurns == 0 {
			l.lap()
		}
		if r.qp.PostSend(r.send...) != nil {
			r.t.FailNow()
		}
		n := 0
		for ; n == 0; n, _ = r.poll() {
		}
		if r.qp.PostRecv(r.recv...) != nil {
			r.t.FailNow()
		}
	}
}

// ---- the other side ----

// peerVariable tells a process that it is the other side of a benchmark, and what it does.
const peerVariable = "RVTSIM_BENCH_PEER"

func TestMain(m *testing.M) {
	meetFor = time.Minute
	if what := strings.Fields(os.Getenv(peerVariable)); len(what) == 3 {
		serve(panicky{}, what[0], netip.MustParseAddr(what[1]), netip.MustParseAddr(what[2]), os.Stdin, os.Stdout)
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// panicky is the testing.TB of a process that runs no test.
type panicky struct{ testing.TB }

func (panicky) Helper()                      {}
func (panicky) Cleanup(func())               {}
func (panicky) Errorf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (panicky) Fatalf(f string, args ...any) { panic(fmt.Sprintf(f, args...)) }
func (panicky) FailNow()                     { panic("the other side has failed") }

// peer is the other side as the first one sees it.
type peer struct {
	in    io.WriteCloser // ends it when closed
	out   *json.Decoder
	ended func() error
}

func startPeer(b testing.TB, role string, local, far netip.Addr, apart bool) *peer {
	if apart {
		_, p := startProcess(b, role, local, far)
		return p
	}
	toPeer, in := io.Pipe()
	out, fromPeer := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		serve(b, role, local, far, toPeer, fromPeer)
	}()
	return &peer{in, json.NewDecoder(out), func() error { <-done; return nil }}
}

// startProcess starts another process as the other side.
func startProcess(t testing.TB, role string, local, far netip.Addr) (*exec.Cmd, *peer) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%s %v %v", peerVariable, role, local, far))
	c.Stderr = os.Stderr
	in, err := c.StdinPipe()
	require.NoError(t, err)
	out, err := c.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, c.Start())
	return c, &peer{in, json.NewDecoder(out), c.Wait}
}

func (p *peer) hear(b testing.TB, v any) { require.NoError(b, p.out.Decode(v)) }
func (p *peer) tell(b testing.TB, v any) { require.NoError(b, json.NewEncoder(p.in).Encode(v)) }

func (p *peer) stop(b testing.TB) {
	require.NoError(b, p.in.Close())
	require.NoError(b, p.ended())
}

// serve does what role says until in ends.
func serve(t testing.TB, role string, local, far netip.Addr, in io.Reader, out io.Writer) {
	var over atomic.Bool
	tell, hear := json.NewEncoder(out), json.NewDecoder(in)
	ready := func() {
		require.NoError(t, tell.Encode(struct{}{}))
		go func() {
			_, _ = io.Copy(io.Discard, in)
			over.Store(true)
		}()
	}
	if strings.HasPrefix(role, "bare-") {
		s, err := openBare(local, far)
		require.NoError(t, err)
		defer s.close()
		ready()
		run := s.bareSink
		if role == "bare-echo" {
			run = s.bareEcho
		}
		require.NoError(t, run(make([]byte, 1<<20), over.Load))
		return
	}
	_, wire, _ := strings.Cut(role, "-")
	r := openRC(t, local, wire)
	require.NoError(t, tell.Encode(r.place(local)))
	var to rcPlace
	require.NoError(t, hear.Decode(&to))
	r.connect(to)
	ready()
	for !over.Load() {
		n, _ := r.poll()
		for range n {
			require.NoError(t, r.qp.PostSend(r.send...))
			require.NoError(t, r.qp.PostRecv(r.recv...))
		}
	}
	require.NoError(t, r.d.Shutdown())
}
