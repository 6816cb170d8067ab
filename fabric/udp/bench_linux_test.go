package udp

import (
	"fmt"
	"testing"

	"github.com/rvtsim/rvtsim/fabric"
)

// BenchmarkLoopback sends batches from one port to another, in one goroutine, and
// reads them back. It reports bytes of whole datagrams, and system calls per packet of
// both sides.
func BenchmarkLoopback(b *testing.B) {
	for _, c := range []struct {
		name        string
		size, count int
		change      func(*Config)
	}{
		{"64Bx128", 64, 128, nil},
		{"64Bx1", 64, 1, nil},
		{"4096Bx15", 4096 + 16, 15, nil},
		{"4096Bx120", 4096 + 16, 120, nil},
		{"64Bx128/verify=off", 64, 128, func(c *Config) { c.Verify = VerifyOff }},
		{"4096Bx15/verify=off", 4096 + 16, 15, func(c *Config) { c.Verify = VerifyOff }},
		{"64Bx128/gso=off", 64, 128, func(c *Config) { c.DisableGSO = true }},
		{"4096Bx15/gso=off", 4096 + 16, 15, func(c *Config) { c.DisableGSO = true }},
	} {
		b.Run(c.name, func(b *testing.B) {
			tx, rx := openPair(b, c.change)
			src := datagrams(rx.LocalGID(), repeat(c.size, c.count)...)
			batch := make([]fabric.Datagram, 128)
			b.SetBytes(int64(c.size * c.count))
			b.ReportAllocs()
			for b.Loop() {
				if n, err := tx.WriteBatch(src); n != len(src) || err != nil {
					b.Fatalf("WriteBatch: %d, %v", n, err)
				}
				for got := 0; got < len(src); {
					n, err := rx.ReadBatch(batch)
					if err != nil {
						b.Fatal(err)
					}
					got += n
				}
			}
			packets := float64(tx.Counters().TxPackets)
			b.ReportMetric(float64(tx.Counters().TxSyscalls+rx.Counters().RxSyscalls)/packets, "syscalls/packet")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/packets, "ns/packet")
		})
	}
}

// BenchmarkEmptyRead is the cost of a look at a socket with nothing in it.
func BenchmarkEmptyRead(b *testing.B) {
	for _, groups := range []int{0, 1, 8} {
		b.Run(fmt.Sprintf("groups=%d", groups), func(b *testing.B) {
			p := openTest(b, testConfig())
			for i := range groups {
				g := p.LocalGID()
				g[12], g[13], g[15] = 239, 79, byte(i)
				if err := p.JoinGroup(g); err != nil {
					b.Skip(err)
				}
			}
			batch := make([]fabric.Datagram, 128)
			for b.Loop() {
				if n, err := p.ReadBatch(batch); n != 0 || err != nil {
					b.Fatalf("ReadBatch: %d, %v", n, err)
				}
			}
		})
	}
}
