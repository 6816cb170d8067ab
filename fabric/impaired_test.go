package fabric

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// fakePort records what is written. room limits what it takes per call; failAt makes
// the datagram of that ordinal fail once.
type fakePort struct {
	wrote  []Datagram
	room   int // -1: no limit
	failAt int // -1: never
	calls  int
	arrive []Datagram
	waited []time.Duration
	woken  int
	count  PortCounters
	closed bool
}

func newFakePort() *fakePort { return &fakePort{room: -1, failAt: -1} }

var errFake = errors.New("fake port: refused")

func (f *fakePort) WriteBatch(src []Datagram) (int, error) {
	f.calls++
	for i := range src {
		if f.room >= 0 && i >= f.room {
			return i, nil
		}
		if len(f.wrote) == f.failAt {
			f.failAt = -1
			return i, errFake
		}
		d := &src[i]
		d.Path.IPID = uint16(i)
		body := d.Buf[:len(d.Buf)-wire.ICRCBytes]
		crc := wire.ICRC(&d.Path, body)
		if d.BadICRC {
			crc = ^crc
		}
		wire.PutICRC(d.Buf[len(body):], crc)
		c := *d
		c.Buf = append([]byte(nil), d.Buf...)
		f.wrote = append(f.wrote, c)
	}
	return len(src), nil
}

func (f *fakePort) ReadBatch(dst []Datagram) (int, error) {
	n := copy(dst, f.arrive)
	f.arrive = f.arrive[n:]
	return n, nil
}
func (f *fakePort) BatchSize() int             { return 4 }
func (f *fakePort) MTU() ib.MTU                { return ib.MTU1024 }
func (f *fakePort) LocalGID() ib.GID           { return gidA }
func (f *fakePort) Counters() *PortCounters    { return &f.count }
func (f *fakePort) Close() error               { f.closed = true; return nil }
func (f *fakePort) Wait(d time.Duration) error { f.waited = append(f.waited, d); return nil }
func (f *fakePort) Wake()                      { f.woken++ }

// psns are the PSNs written, in order; each datagram's ICRC is checked against its
// BadICRC flag on the way.
func (f *fakePort) psns(t require.TestingT) []int {
	out := []int{}
	for i := range f.wrote {
		d := &f.wrote[i]
		info, ok := PeekInfo(d.Buf)
		require.True(t, ok)
		body := d.Buf[:len(d.Buf)-wire.ICRCBytes]
		good := wire.ICRC(&d.Path, body) == binary.LittleEndian.Uint32(d.Buf[len(body):])
		require.Equal(t, !d.BadICRC, good)
		out = append(out, int(info.PSN))
	}
	return out
}

func datagrams(first, n int) []Datagram {
	out := make([]Datagram, n)
	for i := range out {
		p := wire.Packet{Opcode: ib.OpSendOnly, PSN: ib.PSN(first + i), Payload: []byte("abcdefgh")}
		out[i] = Datagram{Path: *ab, Buf: append(wire.AppendPacket(nil, &p), 0, 0, 0, 0)}
	}
	return out
}

type rig struct {
	port *fakePort
	im   *Impaired
	now  vtime.Time
}

func newRig(t testing.TB, cfg ImpairmentConfig) *rig {
	r := &rig{port: newFakePort()}
	r.im = NewImpaired(r.port, mustImpair(t, cfg, 1), func() vtime.Time { return r.now })
	return r
}

// write writes and then scribbles over the buffers, which are the caller's again.
func (r *rig) write(t require.TestingT, first, n int) {
	src := datagrams(first, n)
	got, err := r.im.WriteBatch(src)
	require.NoError(t, err)
	require.Equal(t, n, got)
	for _, d := range src {
		clear(d.Buf)
	}
}

func (r *rig) read(t require.TestingT, at vtime.Time) {
	r.now = at
	_, err := r.im.ReadBatch(nil)
	require.NoError(t, err)
}

func TestImpairedPassesThrough(t *testing.T) {
	r := newRig(t, ImpairmentConfig{})
	src := datagrams(0, 3)
	n, err := r.im.WriteBatch(src)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.Equal(t, []int{0, 1, 2}, r.port.psns(t))
	require.Equal(t, uint16(2), src[2].Path.IPID, "the port's IPID reaches the caller")
	require.Equal(t, 1, r.port.calls)
	require.Equal(t, ImpairedCounters{Offered: 3, Written: 3}, r.im.Stats())
	require.Equal(t, vtime.Never, r.im.Deadline())
	r.port.room = 1
	n, err = r.im.WriteBatch(src)
	require.NoError(t, err)
	require.Equal(t, 1, n, "back-pressure passes through too")
}

func TestImpairedDropsAndCorrupts(t *testing.T) {
	r := newRig(t, ImpairmentConfig{Rules: []Rule{
		{Match: Match{PSNs: []ib.PSN{1}}, Action: ActionDrop},
		{Match: Match{PSNs: []ib.PSN{2}}, Action: ActionCorrupt},
	}})
	src := datagrams(0, 4)
	_, err := r.im.WriteBatch(src)
	require.NoError(t, err)
	require.Equal(t, []int{0, 2, 3}, r.port.psns(t))
	require.True(t, r.port.wrote[1].BadICRC)
	require.False(t, src[2].BadICRC, "the caller's datagram is not changed")
	require.Equal(t, uint16(2), src[3].Path.IPID)
	s := r.im.Stats()
	require.EqualValues(t, 1, s.Lost[LossRule])
	require.EqualValues(t, 1, s.Corrupted)
}

func TestImpairedDuplicates(t *testing.T) {
	r := newRig(t, ImpairmentConfig{Duplicate: 1})
	r.write(t, 0, 3)
	require.Equal(t, []int{0, 1, 2, 0, 1, 2}, r.port.psns(t))
	require.EqualValues(t, 3, r.im.Stats().Duplicated)
	require.Zero(t, r.im.Held())
}

func TestImpairedDuplicateOvertakesReordered(t *testing.T) {
	r := newRig(t, ImpairmentConfig{Duplicate: 1, Corrupt: 1, Reorder: 1, ReorderDelay: 100})
	r.write(t, 0, 1)
	require.Equal(t, []int{0}, r.port.psns(t), "the duplicate goes out at once")
	require.False(t, r.port.wrote[0].BadICRC, "and is sound")
	r.read(t, 100)
	require.Equal(t, []int{0, 0}, r.port.psns(t))
	require.True(t, r.port.wrote[1].BadICRC)
}

func TestImpairedDelay(t *testing.T) {
	r := newRig(t, ImpairmentConfig{Delay: time.Microsecond})
	r.write(t, 0, 6) // more than one batch of the port
	require.Empty(t, r.port.wrote)
	require.Equal(t, 6, r.im.Held())
	require.Equal(t, vtime.Time(1000), r.im.Deadline())
	require.Equal(t, vtime.Time(1000), DeadlineOf(NewTap(r.im, nil, false, nil)))
	r.read(t, 999)
	require.Empty(t, r.port.wrote)
	r.read(t, 1000)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, r.port.psns(t))
	require.Equal(t, vtime.Never, r.im.Deadline())
}

func TestImpairedReorderByCount(t *testing.T) {
	r := newRig(t, ImpairmentConfig{Reorder: 1, ReorderDelay: time.Second, ReorderPackets: 2})
	r.write(t, 0, 1)
	r.im.Policy().cfg.Reorder = 0
	r.im.Policy().reorder.threshold = 0
	r.write(t, 1, 4)
	require.Equal(t, []int{1, 2, 0, 3, 4}, r.port.psns(t), "overtaken by exactly two")
	require.Zero(t, r.im.Held())
	require.Zero(t, r.im.counting)
}

func TestImpairedReorderByDelay(t *testing.T) {
	r := newRig(t, ImpairmentConfig{Rules: []Rule{{First: 1, Action: ActionDelay, Delay: 10}}})
	r.write(t, 0, 2)
	r.now = 10
	r.write(t, 2, 1)
	require.Equal(t, []int{1, 0, 2}, r.port.psns(t), "a write lets due ones out first")
}

func TestImpairedBackpressure(t *testing.T) {
	r := newRig(t, ImpairmentConfig{Rules: []Rule{{Match: Match{PSNs: []ib.PSN{99}}, Action: ActionDrop}}})
	r.port.room = 2
	r.write(t, 0, 5)
	require.Equal(t, []int{0, 1}, r.port.psns(t)[:2])
	require.Equal(t, r.now, r.im.Deadline(), "the rest is due now")
	r.port.room = 0
	n, err := r.im.WriteBatch(datagrams(5, 1))
	require.NoError(t, err)
	require.Zero(t, n, "nothing may overtake what waits")
	r.port.room = -1
	r.write(t, 5, 1)
	require.Equal(t, []int{0, 1, 2, 3, 4, 5}, r.port.psns(t))
}

func TestImpairedWriteError(t *testing.T) {
	r := newRig(t, ImpairmentConfig{Rules: []Rule{{Match: Match{PSNs: []ib.PSN{99}}, Action: ActionDrop}}})
	r.port.failAt = 1
	n, err := r.im.WriteBatch(datagrams(0, 4))
	require.ErrorIs(t, err, errFake)
	require.Equal(t, 4, n)
	r.read(t, 0)
	require.Equal(t, []int{0, 2, 3}, r.port.psns(t), "only the refused one is gone")
	require.EqualValues(t, 1, r.im.Stats().WriteErrors)
}

func TestImpairedQueueBound(t *testing.T) {
	r := newRig(t, ImpairmentConfig{Delay: time.Second})
	src := datagrams(0, 1)
	for range MaxHeld + 3 {
		_, err := r.im.WriteBatch(src)
		require.NoError(t, err)
	}
	require.Equal(t, MaxHeld, r.im.Held())
	require.EqualValues(t, 3, r.im.Stats().Lost[LossQueue])
}

func TestImpairedForwards(t *testing.T) {
	r := newRig(t, ImpairmentConfig{})
	tap := NewTap(r.im, nil, true, nil)
	require.Equal(t, ib.MTU1024, tap.MTU())
	require.Equal(t, gidA, tap.LocalGID())
	require.Equal(t, 4, tap.BatchSize())
	require.Same(t, &r.port.count, tap.Counters())
	require.NoError(t, tap.Wait(7))
	tap.Wake()
	require.Equal(t, []time.Duration{7}, r.port.waited)
	require.Equal(t, 1, r.port.woken)
	require.NoError(t, tap.Close())
	require.True(t, r.port.closed)
	bare := NewTap(struct{ Port }{r.port}, nil, false, nil)
	require.ErrorIs(t, bare.Wait(1), ErrNoWait)
	require.ErrorIs(t, bare.Nap(1), ErrNoWait)
	bare.Wake()
}

// TestImpairedConserves drives a port with random faults, back-pressure, errors and
// time, then lets everything drain: what was offered came out or was counted.
func TestImpairedConserves(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := newRig(t, drawConfig(rt))
		r.im.other.policy.cfg.ReorderPackets = rapid.IntRange(0, 4).Draw(rt, "reorder packets")
		if rapid.Bool().Draw(rt, "way") {
			r.im.SetWay(&fakeWay{hops: 3, each: 700_000, loseAt: rapid.IntRange(0, 50).Draw(rt, "lose at")})
		}
		psn := 0
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			r.now += vtime.Time(rapid.IntRange(0, 2000000).Draw(rt, "step"))
			r.port.room = rapid.SampledFrom([]int{-1, -1, 0, 1, 3}).Draw(rt, "room")
			r.port.failAt = -1
			if rapid.IntRange(0, 9).Draw(rt, "fail") == 0 {
				r.port.failAt = len(r.port.wrote)
			}
			src := datagrams(psn, rapid.IntRange(1, 9).Draw(rt, "n"))
			n, err := r.im.WriteBatch(src)
			if err != nil {
				require.ErrorIs(rt, err, errFake)
			}
			require.LessOrEqual(rt, n, len(src))
			psn += n
			checkConserved(rt, r, psn)
		}
		r.port.room, r.port.failAt = -1, -1
		r.read(rt, r.now.Add(time.Hour))
		require.Zero(rt, r.im.Held())
		require.Zero(rt, r.im.counting)
		checkConserved(rt, r, psn)
		require.EqualValues(rt, len(r.port.psns(rt)), r.im.Stats().Written)
	})
}

func checkConserved(t require.TestingT, r *rig, offered int) {
	s := r.im.Stats()
	out := s.Written + s.WriteErrors + uint64(r.im.Held())
	for _, n := range s.Lost {
		out += n
	}
	require.EqualValues(t, offered, s.Offered)
	require.Equal(t, s.Offered+s.Duplicated, out)
	require.LessOrEqual(t, len(r.im.out), 0)
}

// fakeWay takes a while from each stage to the next, and loses every n-th packet at the
// last.
type fakeWay struct {
	hops, steps, loseAt int
	each                time.Duration
	mtu                 int
	seen                []vtime.Time // when steps were asked for
}

func (w *fakeWay) Step(now vtime.Time, s Stage, _ PacketInfo, payload int, path *wire.Path) (Stage, vtime.Time, LossReason, bool) {
	w.seen = append(w.seen, now)
	w.steps++
	if w.mtu > 0 && payload > w.mtu {
		return Arrived, now, LossMTU, false
	}
	if w.loseAt > 0 && w.steps%w.loseAt == 0 {
		return Arrived, now, LossQueue, false
	}
	path.TClass |= 3
	s++
	if int(s) == w.hops-1 {
		return Arrived, now.Add(w.each), LossNone, true
	}
	return s, now.Add(w.each), LossNone, true
}

func TestImpairedWay(t *testing.T) {
	r := newRig(t, ImpairmentConfig{})
	w := &fakeWay{hops: 3, each: 100}
	r.im.SetWay(w)
	r.write(t, 0, 2)
	require.Empty(t, r.port.wrote)
	require.EqualValues(t, 100, r.im.Deadline())
	r.read(t, 99)
	require.EqualValues(t, 100, r.im.Deadline(), "nobody has come to a switch yet")
	r.read(t, 250)
	require.Equal(t, []vtime.Time{0, 0, 100, 100, 200, 200}, w.seen, "a late host does not make the way longer")
	require.EqualValues(t, 300, r.im.Deadline())
	r.im.SetWay(nil) // what is under way goes on
	r.read(t, 299)
	require.Empty(t, r.port.wrote)
	r.read(t, 300)
	require.Equal(t, []int{0, 1}, r.port.psns(t))
	require.EqualValues(t, 3, r.port.wrote[0].Path.TClass&3)
	r.write(t, 2, 1)
	require.Equal(t, []int{0, 1, 2}, r.port.psns(t))
}

// The way to one destination is in force beside the policy of that destination.
func TestImpairedWayToOneDestination(t *testing.T) {
	r := newRig(t, ImpairmentConfig{})
	w := &fakeWay{hops: 1, each: 100}
	r.im.SetWayFor(gidB, w)
	drop, err := NewImpairment(ImpairmentConfig{Loss: 1}, 1)
	require.NoError(t, err)
	r.im.SetPolicyFor(gidB, drop)
	r.write(t, 0, 1)
	require.Len(t, w.seen, 1, "a lost packet has taken its place in the queue")
	require.EqualValues(t, 1, r.im.Stats().Lost[LossRandom])
	r.im.SetPolicyFor(gidB, nil)
	r.write(t, 1, 1)
	require.Equal(t, 1, r.im.Held())
	r.im.SetWayFor(gidB, nil)
	require.True(t, r.im.idle())
	w.mtu = 1
	r.im.SetWayFor(gidB, w)
	r.write(t, 2, 1)
	require.EqualValues(t, 1, r.im.Stats().Lost[LossMTU])
}

func TestImpairedSteadyStateDoesNotAllocate(t *testing.T) {
	r := newRig(t, ImpairmentConfig{Loss: 0.1, Duplicate: 0.1, Delay: 5})
	w := &fakeWay{hops: 2, each: 7, seen: make([]vtime.Time, 0, 1<<20)}
	r.im.SetWay(w)
	quiet := &discardPort{fakePort: r.port}
	r.im.inner = quiet
	src := datagrams(0, 16)
	step := func() {
		r.now += 3
		if n, err := r.im.WriteBatch(src); n != 16 || err != nil {
			t.Fatal(n, err)
		}
	}
	for range 100 {
		step()
	}
	require.Zero(t, testing.AllocsPerRun(500, step))
}

type discardPort struct{ *fakePort }

func (*discardPort) WriteBatch(src []Datagram) (int, error) { return len(src), nil }

type sinkRecord struct {
	at  vtime.Time
	psn ib.PSN
	crc uint32
}

type recorder struct{ got []sinkRecord }

func (r *recorder) Capture(at vtime.Time, d *Datagram) {
	info, _ := PeekInfo(d.Buf)
	r.got = append(r.got, sinkRecord{at, info.PSN, binary.LittleEndian.Uint32(d.Buf[len(d.Buf)-4:])})
}

func TestTap(t *testing.T) {
	port := newFakePort()
	rec := &recorder{}
	tap := NewTap(port, rec, true, func() vtime.Time { return 42 })
	port.room = 2
	n, err := tap.WriteBatch(datagrams(0, 3))
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Len(t, rec.got, 2, "only what was taken")
	for i, g := range rec.got {
		require.Equal(t, vtime.Time(42), g.at)
		require.Equal(t, ib.PSN(i), g.psn)
		require.NotZero(t, g.crc, "the ICRC is in place")
	}
	port.arrive = datagrams(7, 1)
	port.arrive[0].At = 50
	dst := make([]Datagram, 4)
	n, err = tap.ReadBatch(dst)
	require.NoError(t, err)
	require.Equal(t, 1, n)
	require.Equal(t, vtime.Time(50), rec.got[2].at)
	require.Equal(t, ib.PSN(7), rec.got[2].psn)

	writeOnly := &recorder{}
	port.arrive = datagrams(8, 1)
	_, err = NewTap(port, writeOnly, false, nil).ReadBatch(dst)
	require.NoError(t, err)
	require.Empty(t, writeOnly.got)
	_, err = NewTap(port, nil, true, nil).WriteBatch(datagrams(0, 1))
	require.NoError(t, err, "a nil sink needs no clock")
}

// TestPolicyPerDestination: a destination with a policy of its own does not share the
// fate of the others.
func TestPolicyPerDestination(t *testing.T) {
	lossy, err := NewImpairment(ImpairmentConfig{Loss: 1}, 1)
	require.NoError(t, err)
	inner := &recordingPort{}
	im := NewImpaired(inner, nil, func() vtime.Time { return 0 })
	a, b := ib.GIDFromIPv4(10, 0, 0, 1), ib.GIDFromIPv4(10, 0, 0, 2)
	im.SetPolicyFor(b, lossy)
	batch := []Datagram{{Path: wire.Path{Dst: a}, Buf: make([]byte, 16)}, {Path: wire.Path{Dst: b}, Buf: make([]byte, 16)}}
	n, err := im.WriteBatch(batch)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	require.Equal(t, []ib.GID{a}, inner.dsts)
	im.SetPolicyFor(b, nil)
	_, err = im.WriteBatch(batch)
	require.NoError(t, err)
	require.Equal(t, []ib.GID{a, a, b}, inner.dsts)
}

// recordingPort notes where datagrams go.
type recordingPort struct {
	Port
	dsts []ib.GID
}

func (p *recordingPort) BatchSize() int { return 16 }

func (p *recordingPort) WriteBatch(src []Datagram) (int, error) {
	for i := range src {
		p.dsts = append(p.dsts, src[i].Path.Dst)
	}
	return len(src), nil
}
