package shm

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/crcfold"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// sockets stands for a port with sockets: it keeps what it is given, and brings what it is
// told to.
type sockets struct {
	gid      ib.GID
	event    int
	sent     []fabric.Datagram
	bring    []fabric.Datagram
	looks    int
	counters fabric.PortCounters
}

func newSockets(t testing.TB, gid ib.GID) *sockets {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	return &sockets{gid: gid, event: fd}
}

func (s *sockets) ReadBatch(dst []fabric.Datagram) (int, error) {
	s.looks++
	n := copy(dst, s.bring)
	s.bring = s.bring[n:]
	return n, nil
}

func (s *sockets) WriteBatch(src []fabric.Datagram) (int, error) {
	s.sent = append(s.sent, src...)
	return len(src), nil
}
func (s *sockets) BatchSize() int                 { return 64 }
func (s *sockets) MTU() ib.MTU                    { return ib.MTU4096 }
func (s *sockets) LocalGID() ib.GID               { return s.gid }
func (s *sockets) Counters() *fabric.PortCounters { return &s.counters }
func (s *sockets) Close() error                   { return nil }
func (s *sockets) Nap(time.Duration) error        { return nil }
func (s *sockets) EventFD() int                   { return s.event }

// Wait waits for the event, as that of package udp does.
func (s *sockets) Wait(d time.Duration) error {
	fds := []unix.PollFd{{Fd: int32(s.event), Events: unix.POLLIN}}
	_, err := unix.Poll(fds, int(d.Milliseconds()))
	var b [8]byte
	_, _ = unix.Read(s.event, b[:])
	if err == unix.EINTR { // by the runtime's own signals; a Wait may end early
		return nil
	}
	return err
}

func (s *sockets) Wake() {
	_, _ = unix.Write(s.event, binary.NativeEndian.AppendUint64(nil, 1))
}

// end is a port of a test, with a clock that the test moves.
type end struct {
	*Port
	sockets *sockets
	now     vtime.Time
}

func newEnd(t testing.TB, last byte) *end { return newPacedEnd(t, last, 1) }

func newPacedEnd(t testing.TB, last byte, pace int) *end {
	in, err := NewInbox()
	require.NoError(t, err)
	t.Cleanup(in.close)
	e := &end{sockets: newSockets(t, ib.GIDFromIPv4(127, 0, 0, last)), now: 1}
	e.Port = New(e.sockets, in, wire.UDPPort, func() vtime.Time { return e.now }, pace)
	return e
}

// connect makes lane k from e to a peer.
func (e *end) connect(t testing.TB, to *end, seat uint8, k int) *Lane {
	bell, err := unix.FcntlInt(uintptr(to.EventFD()), unix.F_DUPFD_CLOEXEC, 0)
	require.NoError(t, err)
	l, err := OpenLane(to.inbox.FD(), bell, k)
	require.NoError(t, err)
	e.Join(Peer{to.LocalGID(), seat}, l)
	t.Cleanup(l.Close)
	return l
}

// packet is one for a QPN, with n bytes after the BTH.
func packet(to *end, qpn uint32, n int, fill byte) fabric.Datagram {
	b := make([]byte, 12+n+wire.ICRCBytes)
	for i := range b {
		b[i] = fill + byte(i)
	}
	b[0] = byte(ib.OpSendOnly) // lanes treat READ responses in another way
	binary.BigEndian.PutUint32(b[4:], qpn)
	return fabric.Datagram{Path: wire.Path{Dst: to.LocalGID(), TClass: fill}, Buf: b}
}

func (e *end) read(t testing.TB, n int) []fabric.Datagram {
	dst := make([]fabric.Datagram, n)
	k, err := e.ReadBatch(dst)
	require.NoError(t, err)
	return dst[:k]
}

// TestWhoGetsALane: a packet goes by the lane of the program that owns its QPN, and by the
// sockets if there is none; both arrive as they were sent.
func TestWhoGetsALane(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	a.connect(t, b, 3, 0)
	src := []fabric.Datagram{packet(b, 3<<16|17, 100, 7), packet(b, 4<<16|17, 100, 8), packet(b, 3<<16|18, 0, 9), packet(a, 3<<16|17, 4, 1)}
	n, err := a.WriteBatch(src)
	require.NoError(t, err)
	require.Equal(t, 4, n)
	require.Len(t, a.sockets.sent, 2)
	require.Equal(t, src[1].Buf, a.sockets.sent[0].Buf)

	got := b.read(t, 8)
	require.Len(t, got, 2)
	for i, want := range []fabric.Datagram{src[0], src[2]} {
		require.Equal(t, want.Buf, got[i].Buf)
		require.Equal(t, a.LocalGID(), got[i].Path.Src)
		require.Equal(t, want.Path, got[i].Path, "WriteBatch has completed it")
		require.Equal(t, b.now, got[i].At)
	}
	require.EqualValues(t, 2, a.Counters().TxPackets)
	require.EqualValues(t, 2, b.Counters().RxPackets)
	require.Empty(t, b.read(t, 8))
}

// TestReaderKnowsTheTime: a caller who has just looked at the clock spares the port that.
func TestReaderKnowsTheTime(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	a.connect(t, b, 3, 0)
	at := vtime.Time(12345)
	b.ReadsAt(&at)
	for range 2 {
		at++
		_, err := a.WriteBatch([]fabric.Datagram{packet(b, 3<<16|17, 100, 7)})
		require.NoError(t, err)
		got := b.read(t, 4)
		require.Len(t, got, 1)
		require.Equal(t, at, got[0].At)
	}
}

// TestDamagedPacketsAreDropped: the ICRC is checked, by lanes too.
func TestDamagedPacketsAreDropped(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	a.connect(t, b, 1, 5)
	bad := packet(b, 1<<16, 64, 1)
	bad.BadICRC = true
	_, err := a.WriteBatch([]fabric.Datagram{bad, packet(b, 1<<16, 64, 2)})
	require.NoError(t, err)
	got := b.read(t, 8)
	require.Len(t, got, 1)
	require.EqualValues(t, 2, got[0].Path.TClass)
	require.EqualValues(t, 1, b.Counters().RxBadICRC)
}

// TestLanesKeepOrder: whatever is written and read when, each lane brings its packets in
// order, once, unchanged, and loses none as long as its reader reads.
func TestLanesKeepOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		to := newEnd(t, 9)
		from := []*end{newEnd(t, 1), newEnd(t, 2), newEnd(t, 3)}
		queued, next := make([][]fabric.Datagram, len(from)), make([]int, len(from))
		for i, f := range from {
			f.connect(t, to, 1, i*200)
		}
		drain := func(n int) {
			for _, d := range to.read(t, n) {
				i := int(d.Path.Src[15]) - 1
				require.Equal(rt, queued[i][next[i]].Buf, d.Buf)
				next[i]++
			}
		}
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			i := rapid.IntRange(0, len(from)-1).Draw(rt, "from")
			var src []fabric.Datagram
			for range rapid.IntRange(0, 64).Draw(rt, "packets") {
				src = append(src, packet(to, 1<<16, rapid.IntRange(0, 4200).Draw(rt, "bytes"), byte(len(queued[i])+len(src))))
			}
			n, err := from[i].WriteBatch(src)
			require.NoError(rt, err)
			queued[i] = append(queued[i], src[:n]...)
			drain(rapid.IntRange(1, 100).Draw(rt, "read"))
		}
		for i := range from {
			for next[i] < len(queued[i]) {
				drain(64)
			}
		}
	})
}

// TestFullLane: a writer is held up while its reader is slow, and loses packets only once
// the reader has taken nothing for a while.
func TestFullLane(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	a.connect(t, b, 1, 0)
	batch := make([]fabric.Datagram, 800)
	for i := range batch {
		batch[i] = packet(b, 1<<16, 4096, byte(i))
	}
	n, err := a.WriteBatch(batch)
	require.NoError(t, err)
	require.Less(t, n, 512)
	require.EqualValues(t, 1, a.Counters().TxBackpressure)
	require.Equal(t, n, len(b.read(t, 800)))

	// What is lent is not written over.
	k, err := a.WriteBatch(batch[n:])
	require.NoError(t, err)
	require.Zero(t, k)
	require.Empty(t, b.read(t, 800))
	k, err = a.WriteBatch(batch[n:])
	require.NoError(t, err)
	require.Equal(t, len(batch)-n, k)

	for fill := 0; fill < 2; fill++ {
		k, err = a.WriteBatch(batch)
		require.NoError(t, err)
	}
	require.Zero(t, k)
	a.now = a.now.Add(patience + 1)
	k, err = a.WriteBatch(batch)
	require.NoError(t, err)
	require.Equal(t, len(batch), k, "the reader is taken for dead")
	for len(b.read(t, 800)) > 0 {
	}
	k, err = a.WriteBatch(batch[:50])
	require.NoError(t, err)
	require.Equal(t, 50, k)
	require.Len(t, b.read(t, 800), 50, "the reader goes on")
}

// TestStanding: a port tells whether a peer looks at what it gets.
func TestStanding(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	to := Peer{b.LocalGID(), 1}
	require.Zero(t, a.Standing(to), "no lane")
	a.connect(t, b, 1, 0)
	require.Zero(t, a.Standing(to), "nothing sent")
	two := []fabric.Datagram{packet(b, 1<<16, 4096, 1), packet(b, 1<<16, 4096, 2)}
	after := func(d time.Duration) time.Duration { a.now = a.now.Add(d); return a.Standing(to) }
	write := func() {
		n, err := a.WriteBatch(two)
		require.NoError(t, err)
		require.Equal(t, len(two), n)
	}
	write()
	require.EqualValues(t, 1, a.Standing(to))
	require.Equal(t, time.Second, after(time.Second))
	write()
	require.Equal(t, 2*time.Second, after(time.Second), "more to take is no reason")
	b.read(t, 1)
	b.read(t, 1) // gives the first one back
	require.EqualValues(t, 1, after(time.Second), "it has taken something")
	require.Equal(t, time.Second, after(time.Second))
	b.read(t, 8)
	require.Empty(t, b.read(t, 8))
	require.Zero(t, after(time.Second), "it has taken everything")
	write()
	require.EqualValues(t, 1, after(time.Second))
	MarkGone(b.inbox.FD())
	require.Zero(t, after(time.Second), "nobody will take it")
}

// TestQuietLanesStayShort: a writer whose reader keeps up uses the beginning of the ring only.
func TestQuietLanesStayShort(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	l := a.connect(t, b, 1, 0)
	batch := []fabric.Datagram{packet(b, 1<<16, 4096, 1), packet(b, 1<<16, 4096, 2), packet(b, 1<<16, 4096, 3)}
	most := uint64(0)
	for range 2 * laneBytes / 4096 / len(batch) {
		n, err := a.WriteBatch(batch)
		require.NoError(t, err)
		require.Equal(t, len(batch), n)
		most = max(most, l.tail%laneBytes)
		require.Len(t, b.read(t, 8), len(batch))
		require.Empty(t, b.read(t, 8), "gives the room back")
	}
	require.Less(t, most, uint64(rewindBytes+4*8192))
	require.Greater(t, l.tail, uint64(4*laneBytes), "again and again")
}

// TestReaderThatHasEnded: what is for it goes to the sockets, and whoever has its seat may get
// a lane.
func TestReaderThatHasEnded(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	a.connect(t, b, 1, 0)
	to := Peer{b.LocalGID(), 1}
	require.True(t, a.Reaches(to))
	MarkGone(b.inbox.FD())
	require.False(t, a.Reaches(to))
	batch := make([]fabric.Datagram, 800)
	for i := range batch {
		batch[i] = packet(b, 1<<16, 4096, byte(i))
	}
	n, err := a.WriteBatch(batch)
	require.NoError(t, err)
	require.Equal(t, len(batch), n)
	require.Len(t, a.sockets.sent, len(batch), "who sits there now is reached as before")
	require.Equal(t, to, <-a.Unknown(), "and may be asked for its inbox")

	c := newEnd(t, 2)
	a.connect(t, c, 1, 0)
	_, err = a.WriteBatch(batch[:3])
	require.NoError(t, err)
	require.Len(t, c.read(t, 8), 3)
}

// TestWriterThatDiesInAPacket: who gets its lane afterwards begins where it had published.
func TestWriterThatDiesInAPacket(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	l := a.connect(t, b, 1, 0)
	_, err := a.WriteBatch([]fabric.Datagram{packet(b, 1<<16, 10, 1)})
	require.NoError(t, err)
	clear(l.reserve(100)) // and dies
	a.connect(t, b, 1, 0)
	_, err = a.WriteBatch([]fabric.Datagram{packet(b, 1<<16, 10, 2)})
	require.NoError(t, err)
	got := b.read(t, 8)
	require.Len(t, got, 2)
	require.EqualValues(t, 2, got[1].Path.TClass)
}

// TestSleeperIsWoken: a packet that comes before a reader sleeps keeps it awake, one that
// comes later wakes it, whoever writes first.
func TestSleeperIsWoken(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	const rounds = 2000
	done := make(chan error)
	go func() {
		for k := range rounds {
			if k == 0 {
				a.connect(t, b, 1, 0) // the first packet of all may find it asleep, too
			}
			if _, err := a.WriteBatch([]fabric.Datagram{packet(b, 1<<16, 10, byte(k))}); err != nil {
				done <- err
				return
			}
			<-done
		}
		close(done)
	}()
	for range rounds {
		got := b.read(t, 1)
		for start := time.Now(); len(got) == 0; got = b.read(t, 1) {
			require.NoError(t, b.Wait(20*time.Second))
			require.Less(t, time.Since(start), 10*time.Second, "it slept through a packet")
		}
		done <- nil
	}
	require.NoError(t, <-done)
}

// TestLaneBeginsAfterTheSockets: what a writer sent by the sockets before it got its lane
// is received first.
func TestLaneBeginsAfterTheSockets(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	for k := range 6 {
		b.sockets.bring = append(b.sockets.bring, packet(b, 1<<16, 10, byte(k)))
	}
	a.connect(t, b, 1, 0)
	_, err := a.WriteBatch([]fabric.Datagram{packet(b, 1<<16, 10, 6)})
	require.NoError(t, err)
	for k := 0; k < 7; {
		for _, d := range b.read(t, 4) {
			require.EqualValues(t, k, d.Path.TClass)
			k++
		}
	}
}

// TestUnknownPeers: each that has no lane is told of once.
func TestUnknownPeers(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	for range 3 {
		_, err := a.WriteBatch([]fabric.Datagram{packet(b, 1<<16, 10, 1), packet(b, 2<<16, 10, 1)})
		require.NoError(t, err)
	}
	require.Len(t, a.Unknown(), 2)
	require.Equal(t, Peer{b.LocalGID(), 1}, <-a.Unknown())
	for seat := range 100 { // nobody takes them from the channel
		_, err := a.WriteBatch([]fabric.Datagram{packet(b, uint32(seat+3)<<16, 10, 1)})
		require.NoError(t, err)
	}
	require.Len(t, a.sockets.sent, 106)
}

// TestSocketsAreNotForgotten: they are looked at now and then while lanes are busy, each time
// while they have something, and always before the port says that it has nothing for long.
func TestSocketsAreNotForgotten(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	require.Empty(t, b.read(t, 4))
	require.Empty(t, b.read(t, 4))
	require.Equal(t, 2, b.sockets.looks, "without lanes there is nothing else")
	a.connect(t, b, 1, 0)
	for range 10 {
		require.Empty(t, b.read(t, 4))
	}
	require.Equal(t, 3, b.sockets.looks, "once, before the lane is read")
	b.now = b.now.Add(lookEvery)
	b.sockets.bring = []fabric.Datagram{packet(b, 1<<16, 10, 1)}
	got := 0
	for range clockEvery {
		got += len(b.read(t, 4))
	}
	require.Equal(t, 1, got)
	looks := b.sockets.looks
	for range 10 {
		require.Empty(t, b.read(t, 4))
	}
	require.Equal(t, looks+10, b.sockets.looks, "they may have more")
	looks = b.sockets.looks
	for range 100 {
		b.now++
		_, err := a.WriteBatch([]fabric.Datagram{packet(b, 1<<16, 10, 1)})
		require.NoError(t, err)
		b.read(t, 4)
	}
	require.Equal(t, looks, b.sockets.looks, "packets come by the lane")
	b.now = b.now.Add(lookEvery)
	for range clockEvery {
		b.read(t, 4)
	}
	require.Greater(t, b.sockets.looks, looks)
}

// TestSlowProcessLooksLessOften: what a look at the sockets costs is a part of the same size.
func TestSlowProcessLooksLessOften(t *testing.T) {
	const pace = 5
	a, b := newEnd(t, 1), newPacedEnd(t, 2, pace)
	a.connect(t, b, 1, 0)
	b.read(t, 4)
	for range pace - 1 {
		looks := b.sockets.looks
		b.now = b.now.Add(lookEvery)
		for range 2 * clockEvery {
			b.read(t, 4)
		}
		require.Equal(t, looks, b.sockets.looks)
	}
	looks := b.sockets.looks
	b.now = b.now.Add(lookEvery)
	for range 2 * clockEvery {
		b.read(t, 4)
	}
	require.Equal(t, looks+1, b.sockets.looks)
}

// TestWrongInboxes: a file that could shrink under its writer, or is none of ours, is refused.
func TestWrongInboxes(t *testing.T) {
	in, err := NewInbox()
	require.NoError(t, err)
	defer in.close()
	open, err := unix.MemfdCreate("x", unix.MFD_ALLOW_SEALING)
	require.NoError(t, err)
	defer unix.Close(open)
	require.NoError(t, unix.Ftruncate(open, fileBytes))
	_, err = OpenLane(open, -1, 0)
	require.ErrorIs(t, err, ErrInbox)
	_, err = unix.FcntlInt(uintptr(open), unix.F_ADD_SEALS, seals)
	require.NoError(t, err)
	_, err = OpenLane(open, -1, 0)
	require.ErrorContains(t, err, "its mark is 0x0")
	for _, k := range []int{-1, Lanes} {
		_, err = OpenLane(in.FD(), -1, k)
		require.ErrorContains(t, err, "of 512")
	}
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer f.Close()
	_, err = OpenLane(int(f.Fd()), -1, 0)
	require.ErrorIs(t, err, ErrInbox)
}

// TestLanesDoNotAllocate guards the hot path.
func TestLanesDoNotAllocate(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	a.connect(t, b, 1, 0)
	src, dst := []fabric.Datagram{packet(b, 1<<16, 4096, 1), packet(b, 1<<16, 10, 2)}, make([]fabric.Datagram, 8)
	b.read(t, 1)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, _ = a.WriteBatch(src)
		_, _ = b.ReadBatch(dst)
	}))
}

// FuzzHostileLane: whatever stands in a lane, and changes in it, the reader neither reads
// beyond it nor delivers what does not fit, and goes on with its other lanes.
func FuzzHostileLane(f *testing.F) {
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint64(64), uint64(0))
	f.Add([]byte{20, 0, 0, 0}, uint64(64), uint64(0))
	f.Add([]byte{0, 1, 0, 0}, uint64(laneBytes), uint64(1<<63))
	f.Add([]byte{16, 0, 0, 0}, uint64(laneBytes+64), uint64(laneBytes-64))
	f.Fuzz(func(t *testing.T, ring []byte, tail, head uint64) {
		a, b, c := newEnd(t, 1), newEnd(t, 2), newEnd(t, 3)
		l := a.connect(t, b, 1, 0)
		c.connect(t, b, 1, 1)
		l.head.head.Store(head)
		for at := int(head % laneBytes); at < laneBytes; at += recordAlign {
			copy(l.ring[at:], ring)
		}
		b.read(t, 16)
		l.head.tail.Store(tail)
		for range 8 {
			for _, d := range b.read(t, 16) {
				require.GreaterOrEqual(t, len(d.Buf), fabric.MinDatagramBytes)
				require.LessOrEqual(t, len(d.Buf), maxPacket)
			}
		}
		_, err := c.WriteBatch([]fabric.Datagram{packet(b, 1<<16, 10, 1)})
		require.NoError(t, err)
		for got := 0; got == 0; {
			for _, d := range b.read(t, 64) {
				if d.Path.Src == c.LocalGID() {
					got++
				}
			}
		}
		// The writer in turn does not believe its reader.
		l.head.head.Store(tail ^ head)
		_, err = a.WriteBatch([]fabric.Datagram{packet(b, 1<<16, 4096, 1)})
		require.NoError(t, err)
	})
}

// TestPayloadElsewhere: a port with lanes fetches payload from where it lies, for lanes and
// sockets, and what arrives is the same.
func TestPayloadElsewhere(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	require.False(t, a.Fetches(), "without a lane nothing is gained")
	l := a.connect(t, b, 3, 0)
	if !crcfold.Loads() {
		require.False(t, a.Fetches())
		t.Log("this processor cannot; only that is tested")
		return
	}
	require.True(t, a.Fetches())
	var src, want []fabric.Datagram
	for i, seat := range []uint32{3, 4, 3} {
		d := packet(b, seat<<16|17, 1024, byte(i))
		want = append(want, fabric.Datagram{Path: d.Path, Buf: bytes.Clone(d.Buf)})
		far := bytes.Clone(d.Buf[12 : 12+1024])
		t.Cleanup(func() { runtime.KeepAlive(far) })
		clear(d.Buf[12:])
		d.Far, d.FarLen = uint64(uintptr(unsafe.Pointer(&far[0]))), len(far)
		src = append(src, d)
	}
	n, err := a.WriteBatch(src)
	require.NoError(t, err)
	require.Equal(t, 3, n)
	body := 12 + 1024
	require.Len(t, a.sockets.sent, 1)
	require.Equal(t, want[1].Buf[:body], a.sockets.sent[0].Buf[:body])
	got := b.read(t, 8)
	require.Len(t, got, 2)
	require.Equal(t, want[0].Buf[:body], got[0].Buf[:body])
	require.Equal(t, want[2].Buf[:body], got[1].Buf[:body])

	before := *l
	require.NotNil(t, l.reserve(100))
	l.giveBack(100)
	require.Equal(t, before.tail, l.tail)
}

// TestAhead: what is asked for ahead is what was written and not delivered, each byte once,
// and whatever the indices say it is in the ring.
func TestAhead(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	require.Nil(t, b.Ahead(100))
	a.connect(t, b, 1, 0)
	b.read(t, 1)
	require.Nil(t, b.Ahead(100), "nothing was written")
	var src []fabric.Datagram
	for i := range 10 {
		src = append(src, packet(b, 1<<16, 1000, byte(i)))
	}
	_, err := a.WriteBatch(src)
	require.NoError(t, err)
	require.Len(t, b.read(t, 1), 1)
	l := b.inbox.last
	begin := l.asked
	n := 0
	for p := b.Ahead(100); p != nil; p = b.Ahead(100) {
		require.Equal(t, &l.ring[begin+uint64(n)], &p[0])
		n += len(p)
	}
	require.Equal(t, l.tail, begin+uint64(n))

	for _, tail := range []uint64{0, 1, l.at + laneBytes, 1 << 40, ^uint64(0)} {
		l.head.tail.Store(tail)
		for range 1000 {
			b.Ahead(5000)
		}
	}
}

// readResponses are packets of a READ's response.
func readResponses(to *end) []fabric.Datagram {
	batch := make([]fabric.Datagram, 200)
	for i := range batch {
		batch[i] = packet(to, 1<<16, 4096, byte(i))
		batch[i].Buf[0] = byte(ib.OpReadRespMiddle)
	}
	return batch
}

func (e *end) write(t testing.TB, src []fabric.Datagram) int {
	n, err := e.WriteBatch(src)
	require.NoError(t, err)
	return n
}

// TestReadResponsesStayShort: READ responses use no more of the ring than fits into the caches as
// long as their reader takes some now and then.
func TestReadResponsesStayShort(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	l := a.connect(t, b, 1, 0)
	batch := readResponses(b)
	for range 30 {
		n := a.write(t, batch)
		require.Equal(t, readBytes/recordBytes(len(batch[0].Buf)), n)
		require.LessOrEqual(t, l.unread(), uint64(readBytes))
		a.now = a.now.Add(spillAfter)
		require.Zero(t, a.write(t, batch[n:]), "the reader has its time")
		require.Len(t, b.read(t, 200), n)
		require.Empty(t, b.read(t, 8), "gives the room back")
	}
}

// TestReadResponsesSpill: a reader that does not run gets READ responses as long as there is
// room, and other packets at once.
func TestReadResponsesSpill(t *testing.T) {
	a, b := newEnd(t, 1), newEnd(t, 2)
	l := a.connect(t, b, 1, 0)
	batch := readResponses(b)
	n := a.write(t, batch)
	require.Less(t, n, len(batch))
	require.Equal(t, 1, a.write(t, []fabric.Datagram{packet(b, 1<<16, 4096, 1)}))
	require.Zero(t, a.write(t, batch[n:]))
	a.now = a.now.Add(spillAfter + 1)
	require.Equal(t, len(batch)-n, a.write(t, batch[n:]))
	for a.write(t, batch) > 0 { // until it is full
	}
	require.Greater(t, l.tail-l.taken, uint64(laneBytes-2*4200))
	require.LessOrEqual(t, l.tail-l.taken, uint64(laneBytes))
	require.NotEmpty(t, b.read(t, 1000))
	require.Empty(t, b.read(t, 1), "gives the room back")
	require.NotZero(t, a.write(t, batch[:1]))
}
