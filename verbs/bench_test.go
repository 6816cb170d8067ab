package verbs

import (
	"sync/atomic"
	"testing"

	"github.com/rvtsim/rvtsim/ib"
)

// The benchmarks run two devices of one process over UDP loopback, each polled by its
// own goroutine, as two programs on two processors would. Compare figures of one run
// only.

// poll1 spins until completions come and returns how many; 0 if one failed.
func (h *host) poll1(b *testing.B, wc []WC) int {
	for {
		n, err := h.cq.Poll(wc)
		if err != nil {
			b.Error(err)
			return 0
		}
		for i := range wc[:n] {
			if wc[i].Status != ib.WCSuccess {
				b.Errorf("%v: %v", wc[i].Status, wc[i].VendorErr)
				return 0
			}
		}
		if n > 0 {
			return n
		}
	}
}

// BenchmarkPingPong64 reports half the round trip of a 64-byte SEND.
func BenchmarkPingPong64(b *testing.B) {
	x, y, qx, qy := pair(b, networks[1], ib.QPTypeRC)
	done := make(chan struct{})
	side := func(h *host, q *QP, first bool) {
		wc := make([]WC, 2)
		for i := range 16 {
			if err := q.PostRecv(RecvWR{SGL: []SGE{h.mr.SGE(i*64, 64)}}); err != nil {
				b.Error(err)
			}
		}
		for i := 0; i < b.N; {
			if first {
				if err := q.PostSend(SendWR{Opcode: ib.WRSend, SGL: []SGE{h.mr.SGE(4096, 64)}}); err != nil {
					b.Error(err)
					return
				}
				i++
			}
			first = true
			for received := false; !received; {
				n := h.poll1(b, wc)
				if n == 0 {
					return
				}
				for _, c := range wc[:n] {
					if c.Opcode == ib.WCRecv {
						received = true
						_ = q.PostRecv(RecvWR{SGL: []SGE{h.mr.SGE(0, 64)}})
					}
				}
			}
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		defer close(done)
		side(y, qy, false)
	}()
	side(x, qx, true)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/half-rtt")
	b.StopTimer()
	// The other side has sent its last message and waits for one more.
	_ = qx.PostSend(SendWR{Opcode: ib.WRSend, SGL: []SGE{x.mr.SGE(4096, 64)}})
	<-done
	report(b, x, y)
}

// stream posts b.N work requests, at most depth at a time, while the peer polls.
func stream(b *testing.B, x, y *host, depth int, post func(n int) error, repost func(n int) error) {
	var stop atomic.Bool
	done := make(chan struct{})
	b.ReportAllocs()
	b.ResetTimer()
	go func() {
		defer close(done)
		wc := make([]WC, 64)
		for !stop.Load() {
			n, err := y.cq.Poll(wc)
			if err != nil {
				b.Error(err)
				return
			}
			if n > 0 {
				_ = repost(n)
			}
		}
	}()
	wc := make([]WC, 64)
	for sent, completed := 0, 0; completed < b.N; {
		for sent < b.N && sent-completed < depth {
			if err := post(sent); err != nil {
				b.Fatal(err)
			}
			sent++
		}
		n := x.poll1(b, wc)
		if n == 0 {
			break
		}
		completed += n
	}
	b.StopTimer()
	stop.Store(true)
	<-done
	report(b, x, y)
}

func report(b *testing.B, x, y *host) {
	if c := x.d.Counters(); c.Device.RetransPackets > 0 {
		b.ReportMetric(float64(c.Device.RetransPackets)/float64(b.N), "resent/op")
	}
	calls := uint64(0)
	for _, h := range []*host{x, y} {
		c := h.d.Counters().Port
		calls += c.TxSyscalls + c.RxSyscalls
	}
	b.ReportMetric(float64(calls)/float64(b.N), "syscalls/op")
}

// BenchmarkWriteBW64K streams RDMA WRITEs of 64 KiB.
func BenchmarkWriteBW64K(b *testing.B) {
	x, y, qx, _ := pair(b, networks[1], ib.QPTypeRC)
	b.SetBytes(64 << 10)
	stream(b, x, y, 16, func(i int) error {
		off := i % 8 * (64 << 10)
		return qx.PostSend(SendWR{Opcode: ib.WRRDMAWrite, SGL: []SGE{x.mr.SGE(off, 64<<10)}, RemoteAddr: y.mr.Addr(off), RKey: y.mr.RKey()})
	}, func(int) error { return nil })
}

// BenchmarkSend8Rate sends messages of 8 bytes, one post each, 128 under way.
func BenchmarkSend8Rate(b *testing.B) {
	for _, n := range networks[1:] {
		b.Run(n.name, func(b *testing.B) { sendEights(b, n) })
	}
}

func sendEights(b *testing.B, n network) {
	x, y, qx, qy := pair(b, n, ib.QPTypeRC)
	wrs := make([]RecvWR, 256)
	for i := range wrs {
		wrs[i] = RecvWR{SGL: []SGE{y.mr.SGE(i*8, 8)}}
	}
	if err := qy.PostRecv(wrs...); err != nil {
		b.Fatal(err)
	}
	stream(b, x, y, 128, func(int) error {
		return qx.PostSend(SendWR{Opcode: ib.WRSend, SGL: []SGE{x.mr.SGE(0, 8)}})
	}, func(n int) error { return qy.PostRecv(wrs[:n]...) })
}

// BenchmarkWakeup64 is the ping-pong of a program that sleeps in its channel.
func BenchmarkWakeup64(b *testing.B) {
	x, y, qx, qy := pair(b, networks[1], ib.QPTypeRC)
	ctx := within(b)
	step := func(h *host, q *QP, send, wait bool) bool {
		if send {
			if err := q.PostSend(SendWR{Opcode: ib.WRSend, SGL: []SGE{h.mr.SGE(4096, 64)}}); err != nil {
				b.Error(err)
				return false
			}
		}
		wc := make([]WC, 4)
		for received := !wait; !received; {
			_ = h.cq.ReqNotify(false)
			n, err := h.cq.Poll(wc)
			for _, c := range wc[:n] {
				received = received || c.Opcode == ib.WCRecv
			}
			if n > 0 || err != nil {
				continue
			}
			if _, err := h.ch.Get(ctx); err != nil {
				b.Error(err)
				return false
			}
			_ = h.cq.AckEvents(1)
		}
		return !wait || q.PostRecv(RecvWR{SGL: []SGE{h.mr.SGE(0, 64)}}) == nil
	}
	for range 4 {
		_ = qx.PostRecv(RecvWR{SGL: []SGE{x.mr.SGE(0, 64)}})
		_ = qy.PostRecv(RecvWR{SGL: []SGE{y.mr.SGE(0, 64)}})
	}
	b.ResetTimer()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; i < b.N && step(y, qy, false, true) && step(y, qy, true, false); i++ {
		}
	}()
	for i := 0; i < b.N && step(x, qx, true, true); i++ {
	}
	<-done
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(2*b.N), "ns/half-rtt")
}
