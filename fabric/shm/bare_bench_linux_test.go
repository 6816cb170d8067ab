package shm

import (
	"encoding/binary"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/wire"
)

const (
	laps        = 9
	lapPackets  = 16 << 10 // 64 MiB
	lapBatch    = 32
	barePayload = 4096
	barePacket  = 12 + barePayload + 4
	bareBuffer  = 1 << 20 // of the program
)

// lap is one way to carry packets between two processors. write gathers and sends what fits,
// read takes what is there, checks it and copies it to where it belongs; both return how many
// packets that was.
type lap struct{ write, read func() int }

// run carries lapPackets, and returns how many bytes of payload that were in a nanosecond.
func (l *lap) run() float64 {
	done := make(chan struct{})
	start := time.Now()
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for n := 0; n < lapPackets; {
			n += l.write()
		}
		close(done)
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for n := 0; n < lapPackets; {
		n += l.read()
	}
	d := time.Since(start)
	<-done
	return lapPackets * barePayload / float64(d.Nanoseconds())
}

// BenchmarkBareMemory compares lanes with a bare ring between two processors, which gathers a
// payload of 4 KiB, copies it into the ring with its CRC, checks that and copies it out, and
// does nothing else: the limit of whatever carries packets by memory. Both go in turns, and
// the figures are those of the median and the best lap.
func BenchmarkBareMemory(b *testing.B) {
	if runtime.GOMAXPROCS(0) < 2 {
		b.Skip("both sides work at the same time")
	}
	ways := []struct {
		name string
		lap  *lap
	}{{"bare", bareLap(b)}, {"lane", laneLap(b)}}
	figures := make([][]float64, len(ways))
	for b.Loop() {
		for range laps {
			for i, w := range ways {
				figures[i] = append(figures[i], w.lap.run())
			}
		}
	}
	for i, w := range ways {
		slices.Sort(figures[i])
		b.ReportMetric(figures[i][len(figures[i])/2], w.name+"-GB/s")
		b.ReportMetric(figures[i][len(figures[i])-1], w.name+"-best-GB/s")
	}
	b.ReportMetric(0, "ns/op")
}

// bareLap is a ring with fixed places.
func bareLap(b *testing.B) *lap {
	const places, show, stride = 64, 16, 4224
	mem, err := unix.Mmap(-1, 0, places*stride, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANON)
	require.NoError(b, err)
	b.Cleanup(func() { _ = unix.Munmap(mem) })
	var tail, head struct {
		atomic.Uint64
		_ [120]byte
	}
	src, dst, arena := make([]byte, bareBuffer), make([]byte, bareBuffer), make([]byte, lapBatch*barePacket)
	icrc := wire.NewICRCPrefix(&wire.Path{}, 12+barePayload)
	at := func(i uint64) []byte { return mem[i%places*stride:][:stride] }
	var wrote, got uint64
	write := func() (n int) {
		for n < show && wrote-head.Load() < places {
			a := arena[wrote%lapBatch*barePacket:][:12+barePayload]
			copy(a[12:], src[wrote*barePayload%bareBuffer:])
			b := at(wrote)
			binary.LittleEndian.PutUint32(b, icrc.CopyICRC(0, b[recordHead:], a))
			wrote++
			n++
		}
		tail.Store(wrote)
		return n
	}
	read := func() (n int) {
		for end := tail.Load(); got < end; got++ {
			p := at(got)[recordHead:][:12+barePayload]
			if icrc.ICRC(0, p) != binary.LittleEndian.Uint32(at(got)) {
				b.Error("a packet is damaged")
			}
			copy(dst[got*barePayload%bareBuffer:], p[12:])
			n++
		}
		head.Store(got)
		return n
	}
	return &lap{write, read}
}

// laneLap is two ports.
func laneLap(b *testing.B) *lap {
	from, to := newEnd(b, 1), newEnd(b, 2)
	from.connect(b, to, 1, 0)
	src, dst, arena := make([]byte, bareBuffer), make([]byte, bareBuffer), make([]byte, lapBatch*barePacket)
	tx, rx := make([]fabric.Datagram, lapBatch), make([]fabric.Datagram, lapBatch)
	for i := range tx {
		tx[i] = packet(to, 1<<16, barePayload, 0)
		buf := arena[i*barePacket:][:barePacket]
		copy(buf, tx[i].Buf)
		tx[i].Buf = buf
	}
	var wrote, got int
	left := tx[:0]
	write := func() int {
		if len(left) == 0 {
			for i := range tx {
				copy(tx[i].Buf[12:12+barePayload], src[(wrote+i)*barePayload%bareBuffer:])
			}
			left = tx
		}
		n, _ := from.WriteBatch(left)
		left = left[n:]
		wrote += n
		return n
	}
	read := func() int {
		n, _ := to.ReadBatch(rx)
		for i := range rx[:n] {
			copy(dst[(got+i)*barePayload%bareBuffer:], rx[i].Buf[12:12+barePayload])
		}
		got += n
		return n
	}
	return &lap{write, read}
}
