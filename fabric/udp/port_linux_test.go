package udp

import (
	"errors"
	"math/rand/v2"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

func openTest(t testing.TB, cfg Config) *Port {
	t.Helper()
	p, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { _ = p.Close() })
	return p
}

// openPair opens a sender and a receiver of their own network.
func openPair(t testing.TB, change func(*Config)) (tx, rx *Port) {
	t.Helper()
	a, b := testConfig(), testConfig()
	if change != nil {
		change(&a)
		change(&b)
	}
	return openTest(t, a), openTest(t, b)
}

func requireGSO(t testing.TB, p *Port) {
	t.Helper()
	if err := p.Degraded(); err != nil {
		t.Skip(err)
	}
}

func TestOpenReports(t *testing.T) {
	p := openTest(t, testConfig())
	requireGSO(t, p)
	require.Equal(t, ib.MTU4096, p.MTU(), "loopback has an MTU of 65536 bytes")
	require.Equal(t, 128, p.BatchSize())
	require.EqualValues(t, testPort, p.LocalAddr().Port())
	d := p.Details()
	require.Equal(t, 65536, d.NetdevMTU)
	require.Contains(t, []int{64, 128}, d.GSOSegments)
	require.True(t, d.GRO)
	require.Positive(t, d.RecvBufferBytes)
	if unix.Geteuid() == 0 {
		require.Equal(t, 2*16<<20, d.RecvBufferBytes, "privileged: the kernel grants what is asked, doubled")
	}
}

// TestTrains sends what a requester sends and checks every byte, path and ICRC.
func TestTrains(t *testing.T) {
	mixed := append(append([]int{4128}, repeat(4112, 30)...), 1016, 20, 20, 20)
	for _, c := range []struct {
		name  string
		sizes []int
		sends int // system messages needed with GSO
	}{
		{"one ack", []int{20}, 1},
		{"128 small", repeat(80, 128), 1},
		{"15 large", repeat(4112, 15), 1},
		{"largest train", repeat(4090, 16), 1},
		{"31 large", repeat(4112, 31), 3},
		{"mixed", mixed, 4},
		{"16 bytes, the least", repeat(16, 64), 1},
	} {
		for _, verify := range []VerifyMode{VerifySolve, VerifyZeroID, VerifyOff} {
			t.Run(c.name+"/"+verify.String(), func(t *testing.T) {
				tx, rx := openPair(t, func(c *Config) { c.Verify = verify })
				requireGSO(t, tx)
				if tx.Details().GSOSegments < MaxSegments && len(c.sizes) > 64 {
					t.Skip("this kernel takes trains of 64")
				}
				sent := datagrams(rx.LocalGID(), c.sizes...)
				send(t, tx, sent)
				got := receive(t, rx, len(sent))
				if verify == VerifyOff {
					for i := range sent {
						sent[i].Path.IPID = 0 // nobody looked for it
					}
				}
				requireSame(t, sent, got)
				require.EqualValues(t, len(sent), tx.Counters().TxPackets)
				require.EqualValues(t, len(sent), rx.Counters().RxPackets)
				require.Equal(t, tx.Counters().TxBytes, rx.Counters().RxBytes)
				require.EqualValues(t, 1, tx.Counters().TxSyscalls, "one sendmmsg for all trains")
				require.Zero(t, rx.Details().RxSolvedID, "the guess is right for trains of such a port")
				require.Len(t, coalesce(nil, sent, true, tx.tx.limits), c.sends)
			})
		}
	}
}

func TestRandomTraffic(t *testing.T) {
	for _, change := range []func(*Config){
		nil,
		func(c *Config) { c.DisableGSO = true },
		func(c *Config) { c.GSOSegments = 2 },
	} {
		rng := rand.New(rand.NewPCG(3, 4))
		tx, rx := openPair(t, change)
		for range 40 {
			sent := randomDatagrams(rng, rx.LocalGID(), 1+rng.IntN(300))
			send(t, tx, sent)
			requireSame(t, sent, receive(t, rx, len(sent)))
		}
		require.Zero(t, rx.Counters().RxBadICRC)
		require.Zero(t, tx.Counters().TxErrors)
	}
}

// TestMixedPorts pairs a port with GSO and one without, both ways.
func TestMixedPorts(t *testing.T) {
	a, plain := testConfig(), testConfig()
	plain.DisableGSO = true
	p, q := openTest(t, a), openTest(t, plain)
	for _, way := range [][2]*Port{{p, q}, {q, p}} {
		sent := datagrams(way[1].LocalGID(), repeat(4112, 20)...)
		send(t, way[0], sent)
		requireSame(t, sent, receive(t, way[1], len(sent)))
	}
	require.EqualValues(t, 2, p.Details().TxTrains)
	require.Zero(t, q.Details().TxTrains)
}

// TestSmallReads reads a train through a batch smaller than it.
func TestSmallReads(t *testing.T) {
	tx, rx := openPair(t, nil)
	sent := datagrams(rx.LocalGID(), repeat(100, 50)...)
	send(t, tx, sent)
	require.NoError(t, rx.Wait(testTimeout))
	var got []fabric.Datagram
	batch := make([]fabric.Datagram, 7)
	for len(got) < len(sent) {
		n, err := rx.ReadBatch(batch)
		require.NoError(t, err)
		require.Positive(t, n)
		for _, d := range batch[:n] {
			d.Buf = append([]byte(nil), d.Buf...)
			got = append(got, d)
		}
		if len(got) < len(sent) { // what is left over makes Wait return, though the socket is empty
			start := time.Now()
			require.NoError(t, rx.Wait(testTimeout))
			require.Less(t, time.Since(start), testTimeout/2)
		}
	}
	requireSame(t, sent, got)
	n, err := rx.ReadBatch(nil)
	require.NoError(t, err)
	require.Zero(t, n)
}

func TestIPv6(t *testing.T) {
	for _, gso := range []bool{true, false} {
		cfg := DefaultConfig(gid6)
		cfg.Port, cfg.DisableGSO = testPort, !gso
		p, err := Open(cfg)
		if errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT) {
			t.Skip("no IPv6 loopback: ", err)
		}
		require.NoError(t, err)
		sent := append(datagrams(gid6, repeat(4112, 20)...), datagrams(gid6, 30, 30)...)
		sent[20].Path.TClass, sent[21].Path.HopLimit = 0xb8, 7
		sent[21].Path.FlowLabel = 5 // not sent
		send(t, p, sent)
		got := receive(t, p, len(sent))
		for i := range got {
			got[i].Path.FlowLabel = 0 // the kernel's own choice
		}
		requireSame(t, sent, got)
		require.Zero(t, got[21].Path.IPID)

		raw := rawSender(t, p)
		_, err = raw.Write(sent[0].Buf) // valid, but from another source port
		require.NoError(t, err)
		awaitCount(t, p, 1, func() uint64 { return p.Counters().RxBadICRC })
		require.NoError(t, p.Close())
	}
}

func TestTrafficClassAndHopLimit(t *testing.T) {
	tx, rx := openPair(t, nil)
	sent := datagrams(rx.LocalGID(), 64, 64, 64, 64, 64)
	sent[1].Path.TClass, sent[2].Path.TClass = 0x68, 0x69 // ECN bits included
	sent[3].Path.HopLimit = 1
	send(t, tx, sent)
	got := receive(t, rx, len(sent))
	requireSame(t, sent, got)
	require.EqualValues(t, 0x69, got[2].Path.TClass)
	require.EqualValues(t, 1, got[3].Path.HopLimit)
	require.EqualValues(t, 64, got[4].Path.HopLimit)
}

func TestBadICRC(t *testing.T) {
	tx, rx := openPair(t, nil)
	sent := datagrams(rx.LocalGID(), repeat(200, 10)...)
	sent[0].BadICRC, sent[6].BadICRC = true, true
	send(t, tx, sent)
	got := receive(t, rx, 8)
	sent = append(sent[1:6:6], sent[7:]...)
	requireSame(t, sent, got)
	require.EqualValues(t, 2, rx.Counters().RxBadICRC)
	require.EqualValues(t, 10, tx.Counters().TxPackets)
	require.Zero(t, rx.Details().RxSolvedID, "a damaged segment does not confuse the guess")
}

// TestCountingPeer receives from a socket that numbers its packets, as adapters do.
func TestCountingPeer(t *testing.T) {
	rx := openTest(t, testConfig())
	raw := rawSender(t, rx)
	from := raw.LocalAddr().(*net.UDPAddr).AddrPort()
	src := wire.Path{Src: GIDFromAddr(from.Addr()), Dst: rx.LocalGID(), SPort: from.Port()}
	for id := uint16(65530); id != 6; id++ {
		d := datagram(rx.LocalGID(), 120, byte(id))
		src.IPID = id
		wire.PutICRC(d.Buf[116:], icrcOf(t, &src, d.Buf[:116]))
		_, err := raw.Write(d.Buf)
		require.NoError(t, err)
		got := receive(t, rx, 1)
		require.Equal(t, d.Buf, got[0].Buf)
		require.Equal(t, id, got[0].Path.IPID)
		require.Equal(t, src.SPort, got[0].Path.SPort)
	}
	require.EqualValues(t, 11, rx.Details().RxSolvedID, "all but identification 0")
}

// TestGarbage throws every kind of datagram at a port; nothing may come out of it.
func TestGarbage(t *testing.T) {
	for _, gso := range []bool{true, false} {
		cfg := testConfig()
		cfg.DisableGSO = !gso
		rx := openTest(t, cfg)
		raw := rawSender(t, rx)
		rng := rand.New(rand.NewPCG(5, 6))
		sizes := []int{0, 1, 11, 12, 15, 16, 17, 64, 4112, 8191, 8192, 8193, 65506, 65507}
		for range 100 {
			sizes = append(sizes, rng.IntN(65508))
		}
		c := rx.Counters()
		for i, n := range sizes {
			buf := make([]byte, n)
			for i := range buf {
				buf[i] = byte(rng.Uint32())
			}
			_, err := raw.Write(buf)
			require.NoError(t, err)
			awaitCount(t, rx, uint64(i+1), func() uint64 { return c.RxBadICRC + c.RxTooShort })
		}
		require.Zero(t, c.RxPackets)
		require.EqualValues(t, countIf(sizes, func(n int) bool { return n < 16 || !gso && n > plainBuffer }), c.RxTooShort)
		tx := openTest(t, testConfig())
		sent := datagrams(rx.LocalGID(), 64)
		send(t, tx, sent)
		requireSame(t, sent, receive(t, rx, 1))
	}
}

func countIf(sizes []int, pred func(int) bool) (n int) {
	for _, s := range sizes {
		if pred(s) {
			n++
		}
	}
	return n
}

// TestGarbageTrains sends trains of hostile shape from a raw socket.
func TestGarbageTrains(t *testing.T) {
	tx, rx := openPair(t, nil)
	requireGSO(t, tx)
	for _, seg := range []int{1, 2, 15, 16, 500} {
		n := min(MaxDatagramBytes, seg*64)
		oob := make([]byte, unix.CmsgSpace(2))
		putControl(oob, unix.SOL_UDP, unix.UDP_SEGMENT, 2)
		oob[unix.CmsgLen(0)], oob[unix.CmsgLen(0)+1] = byte(seg), byte(seg>>8)
		to := &unix.SockaddrInet4{Port: testPort, Addr: rx.LocalGID().IPv4()}
		require.NoError(t, unix.Sendmsg(tx.sock.fd, make([]byte, n-1), oob, to, 0))
	}
	c := rx.Counters()
	awaitCount(t, rx, 63+64*4, func() uint64 { return c.RxBadICRC + c.RxTooShort })
}

func TestVerifyOffDelivers(t *testing.T) {
	cfg := testConfig()
	cfg.Verify = VerifyOff
	rx := openTest(t, cfg)
	raw := rawSender(t, rx)
	_, err := raw.Write(make([]byte, 16))
	require.NoError(t, err)
	require.Len(t, receive(t, rx, 1)[0].Buf, 16)
	_, err = raw.Write(make([]byte, 15))
	require.NoError(t, err)
	awaitCount(t, rx, 1, func() uint64 { return rx.Counters().RxTooShort })
}

func TestArrivalInstant(t *testing.T) {
	cfg := testConfig()
	now := vtime.Time(1000)
	cfg.Now = func() vtime.Time { now++; return now }
	rx, tx := openTest(t, cfg), openTest(t, testConfig())
	send(t, tx, datagrams(rx.LocalGID(), 64, 64))
	got := receive(t, rx, 2)
	require.EqualValues(t, 1001, got[0].At)
	require.EqualValues(t, 1001, got[1].At, "one train, one instant")
}

func TestOpenErrors(t *testing.T) {
	cfg := testConfig()
	openTest(t, cfg)
	for _, open := range []func(Config) error{
		func(c Config) error { _, err := Open(c); return err },
		func(c Config) error { _, err := OpenPortable(c); return err },
	} {
		err := open(cfg)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		require.ErrorContains(t, err, cfg.local().String())
		require.ErrorContains(t, err, "rvtsim daemon")

		far := cfg
		far.Local = ib.GIDFromIPv4(203, 0, 113, 9)
		err = open(far)
		require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
		require.ErrorContains(t, err, "203.0.113.9 is not an address of this machine")

		var oe *OpenError
		require.ErrorAs(t, err, &oe)
		require.Error(t, open(Config{}))
	}
	perm := &OpenError{Local: cfg.local(), Op: "bind", Err: syscall.EACCES}
	require.ErrorContains(t, perm, "no permission")
	require.ErrorContains(t, &OpenError{Local: cfg.local(), Op: "socket", Err: syscall.EMFILE}, "socket: too many open files")
}

// TestOverflowIsCounted overruns a small receive buffer and expects every missing
// datagram in RxOverflow.
func TestOverflowIsCounted(t *testing.T) {
	small := testConfig()
	small.RecvBufferBytes = 64 << 10
	small.DisableGSO = true
	rx, tx := openTest(t, small), openTest(t, testConfig())
	const n = 400
	for range n {
		send(t, tx, datagrams(rx.LocalGID(), 1040))
	}
	c := rx.Counters()
	batch := make([]fabric.Datagram, 128)
	drain := func() {
		for {
			got, err := rx.ReadBatch(batch)
			require.NoError(t, err)
			if got == 0 {
				return
			}
		}
	}
	require.NoError(t, rx.Wait(testTimeout))
	drain()
	require.Less(t, c.RxPackets, uint64(n))
	before := c.RxPackets
	send(t, tx, datagrams(rx.LocalGID(), 1040)) // carries the count
	require.NoError(t, rx.Wait(testTimeout))
	drain()
	require.Equal(t, before+1, c.RxPackets)
	require.EqualValues(t, n+1, c.RxPackets+c.RxOverflow)
}

func TestNoAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	tx, rx := openPair(t, nil)
	sent := append(datagrams(rx.LocalGID(), repeat(4112, 20)...), datagrams(rx.LocalGID(), repeat(80, 40)...)...)
	batch := make([]fabric.Datagram, 128)
	got := 0
	allocs := testing.AllocsPerRun(100, func() {
		n, err := tx.WriteBatch(sent)
		if n != len(sent) || err != nil {
			panic("short write on loopback")
		}
		if rx.Wait(testTimeout) != nil {
			panic("wait")
		}
		for {
			n, err := rx.ReadBatch(batch)
			if err != nil {
				panic(err)
			}
			if n == 0 {
				break
			}
			got += n
		}
	})
	require.Zero(t, allocs)
	require.Equal(t, 101*len(sent), got)
}
