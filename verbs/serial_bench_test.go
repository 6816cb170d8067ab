package verbs

import (
	"testing"

	"github.com/rvtsim/rvtsim/ib"
)

// BenchmarkSerial64 is the ping-pong of two devices that one goroutine polls in turn: the
// work of a message on both sides, without what two processors do to each other.
func BenchmarkSerial64(b *testing.B) {
	x, y, qx, qy := pair(b, networks[1], ib.QPTypeRC)
	hosts, qps := [2]*host{x, y}, [2]*QP{qx, qy}
	for i := range qps {
		for range 4 {
			if err := qps[i].PostRecv(RecvWR{SGL: []SGE{hosts[i].mr.SGE(0, 64)}}); err != nil {
				b.Fatal(err)
			}
		}
	}
	wc := make([]WC, 2)
	recv := []RecvWR{{SGL: []SGE{{}}}}
	send := []SendWR{{Opcode: ib.WRSend, SGL: []SGE{{}}}}
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		from, to := hosts[i&1], hosts[1-i&1]
		send[0].SGL[0] = from.mr.SGE(4096, 64)
		if err := qps[i&1].PostSend(send...); err != nil {
			b.Fatal(err)
		}
		for received := false; !received; {
			n := to.poll1(b, wc)
			if n == 0 {
				return
			}
			for _, c := range wc[:n] {
				if c.Opcode == ib.WCRecv {
					received = true
					recv[0].SGL[0] = to.mr.SGE(0, 64)
					_ = qps[1-i&1].PostRecv(recv...)
				}
			}
		}
	}
	b.StopTimer()
	report(b, x, y)
}
