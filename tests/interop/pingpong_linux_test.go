package interop

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/tests/interop/lab"
)

// pingpong is one run of ibv_rc_pingpong, ibv_uc_pingpong or ibv_ud_pingpong in the
// machine against us.
type pingpong struct {
	kind        string // rc, uc, ud
	family      family
	guestServes bool // the kernel's program is the server
	size, count int
	mtu         ib.MTU
	events      bool // -e
	check       bool // -c
}

func (p *pingpong) String() string {
	s := fmt.Sprintf("ibv_%s_pingpong -s %d -m %d", p.kind, p.size, p.mtu.Bytes())
	if p.events {
		s += " -e"
	}
	if p.check {
		s += " -c"
	}
	return s
}

func (p *pingpong) direction() string {
	if p.guestServes {
		return "kernel serves"
	}
	return "rvtsim serves"
}

func (p *pingpong) qpType() ib.QPType {
	return map[string]ib.QPType{"rc": ib.QPTypeRC, "uc": ib.QPTypeUC, "ud": ib.QPTypeUD}[p.kind]
}

// pingpongPort is where the program listens unless it is told otherwise.
const pingpongPort = "18515"

// greeting is what the programs exchange over TCP: LID, QPN, PSN and GID in hexadecimal
// digits, with a terminating zero byte.
const greetingBytes = len("0000:000000:000000:") + 32 + 1

type greeting struct {
	qpn ib.QPN
	psn ib.PSN
	gid ib.GID
}

func (g greeting) String() string {
	return fmt.Sprintf("0000:%06x:%06x:%x\x00", uint32(g.qpn), uint32(g.psn), g.gid[:])
}

func readGreeting(r io.Reader) (g greeting, err error) {
	b := make([]byte, greetingBytes)
	if _, err = io.ReadFull(r, b); err != nil {
		return g, err
	}
	var lid int
	var gid string
	text := strings.ReplaceAll(strings.TrimRight(string(b), "\x00"), ":", " ")
	if _, err = fmt.Sscanf(text, "%x %x %x %s", &lid, &g.qpn, &g.psn, &gid); err != nil {
		return g, fmt.Errorf("greeting %q: %w", b, err)
	}
	raw, err := hex.DecodeString(gid)
	if err != nil || len(raw) != len(g.gid) {
		return g, fmt.Errorf("greeting %q: bad GID", b)
	}
	copy(g.gid[:], raw)
	return g, nil
}

// run runs the program in the machine and its peer here.
func (p *pingpong) run(t *testing.T, o options) {
	record(t, p.String(), p.direction(), p.family.name)
	ctx := timeout(t, 30*time.Second)
	index := openTheirs(t, p.family).index
	command := fmt.Sprintf("ibv_%s_pingpong -d rxe0 -g %d -s %d -n %d", p.kind, index, p.size, p.count)
	if p.kind != "ud" {
		command += fmt.Sprintf(" -m %d", p.mtu.Bytes())
	}
	if p.events {
		command += " -e"
	}
	if p.check {
		command += " -c"
	}
	peer := newPingpongPeer(t, p, o)
	var conn net.Conn
	var program *lab.Process
	if p.guestServes {
		program = start(ctx, t, command)
		conn = dialUntil(ctx, t, net.JoinHostPort(lab.GuestIP4, pingpongPort), program)
		peer.greetAsClient(conn)
	} else {
		l, err := net.Listen("tcp", net.JoinHostPort(lab.HostIP4, pingpongPort))
		require.NoError(t, err)
		defer l.Close()
		program = start(ctx, t, command+" "+lab.HostIP4)
		conn = accept(ctx, t, l, program)
		peer.greetAsServer(conn)
	}
	defer conn.Close()
	peer.exchange(ctx)
	output, err := program.Wait()
	require.NoError(t, err)
	require.Contains(t, output, fmt.Sprintf("%d iters in", p.count), output)
	require.NotContains(t, output, "invalid data", output)
	if d := peer.h.details(); o.faults.IsZero() {
		require.Zero(t, d.TxUnreachable+d.TxTooLong+d.TxMalformed+d.TxOther, "datagrams refused by the system: %+v", d)
		require.Zero(t, peer.h.dev.Counters().Port.RxBadICRC, "ICRC of packets from the kernel")
	}
}

// start starts a program in the machine, and shows what it said if the test fails.
func start(ctx context.Context, t *testing.T, command string) *lab.Process {
	ctx, cancel := context.WithCancel(ctx)
	program, err := guest(t).Start(ctx, command)
	require.NoError(t, err)
	t.Cleanup(func() {
		cancel()
		if out, err := program.Wait(); t.Failed() {
			t.Logf("in the machine: %v\n%s", err, out)
		}
	})
	return program
}

// dialUntil connects as soon as the program listens.
func dialUntil(ctx context.Context, t *testing.T, addr string, program *lab.Process) net.Conn {
	for {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		if err == nil {
			return c
		}
		select {
		case <-program.Ended():
			out, err := program.Wait()
			require.FailNow(t, "the program ended before it listened", "%v %s", err, out)
		case <-ctx.Done():
			require.NoError(t, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// accept waits for the program's connection.
func accept(ctx context.Context, t *testing.T, l net.Listener, program *lab.Process) net.Conn {
	stop := context.AfterFunc(ctx, func() { l.Close() })
	defer stop()
	go func() {
		<-program.Ended()
		l.Close()
	}()
	c, err := l.Accept()
	if err != nil {
		out, failure := program.Wait()
		require.FailNow(t, "the program did not connect", "%v %v %s", err, failure, out)
	}
	return c
}

// pingpongPeer is our half.
type pingpongPeer struct {
	t      *testing.T
	p      *pingpong
	h      *ours
	qpn    ib.QPN
	m      mem
	grh    int
	posted int // receives
	peer   greeting
}

const (
	pingpongSlots = 16 // receives that are posted
	pingpongPSN   = ib.PSN(0xfffff0)
)

// newPingpongPeer makes the QP with all its receives.
func newPingpongPeer(t *testing.T, p *pingpong, o options) *pingpongPeer {
	pp := &pingpongPeer{t: t, p: p, h: openOurs(t, p.family, o)}
	if p.kind == "ud" {
		pp.grh = ib.GRHBytes
	}
	pp.qpn = pp.h.createQP(0, p.qpType(), 2*pingpongSlots, -1)
	pp.m = pp.h.reg(0, (p.size+pp.grh)*(pingpongSlots+1), ib.AccessLocalWrite)
	pp.h.toInit(0, pp.params())
	for range min(pingpongSlots, p.count) {
		pp.postRecv()
	}
	return pp
}

func (pp *pingpongPeer) params() params {
	return params{qkey: testQKey, peer: pp.peer.gid, peerQPN: pp.peer.qpn, mtu: pp.p.mtu,
		psn: pingpongPSN, peerPSN: pp.peer.psn, rd: 1, rnrTimer: 12, timeout: patient, retry: 7, rnr: 7}
}

// slot returns where a message lies: slot pingpongSlots is the one that is sent.
func (pp *pingpongPeer) slot(n int) int { return n * (pp.p.size + pp.grh) }

func (pp *pingpongPeer) postRecv() {
	pp.h.recv(0, recv{wr: uint64(pp.posted), m: pp.m, off: pp.slot(pp.posted % pingpongSlots), n: pp.p.size + pp.grh})
	pp.posted++
}

func (pp *pingpongPeer) connect() {
	pp.h.toRTR(0, pp.params())
	pp.h.toRTS(0, pp.params())
	if pp.p.kind == "ud" {
		pp.h.createAH(0, pp.peer.gid)
	}
}

func (pp *pingpongPeer) own() greeting {
	return greeting{qpn: pp.qpn, psn: pingpongPSN, gid: pp.h.gid()}
}

// greetAsClient is pp_client_exch_dest of the programs.
func (pp *pingpongPeer) greetAsClient(c net.Conn) {
	_, err := io.WriteString(c, pp.own().String())
	require.NoError(pp.t, err)
	pp.peer, err = readGreeting(c)
	require.NoError(pp.t, err)
	pp.connect()
	_, err = io.WriteString(c, "done\x00")
	require.NoError(pp.t, err)
}

// greetAsServer is pp_server_exch_dest.
func (pp *pingpongPeer) greetAsServer(c net.Conn) {
	var err error
	pp.peer, err = readGreeting(c)
	require.NoError(pp.t, err)
	pp.connect()
	_, err = io.WriteString(c, pp.own().String())
	require.NoError(pp.t, err)
	_, err = io.ReadFull(c, make([]byte, len("done\x00")))
	require.NoError(pp.t, err)
}

// message is the content of our i-th message. The programs test the first byte of each
// page when -c is given: it must be zero. (The expression in the source is
// "page % sizeof(char)", so a wrong page cannot be told from a right one.)
func (pp *pingpongPeer) message(i int) []byte {
	b := make([]byte, pp.p.size)
	for j := range b {
		b[j] = byte(j*7 + j>>8 + i*13 + 1)
		if j%4096 == 0 {
			b[j] = 0
		}
	}
	return b
}

func (pp *pingpongPeer) sendMessage(i int) {
	at := pp.slot(pingpongSlots)
	pp.h.put(pp.m, at, pp.message(i))
	require.NoError(pp.t, pp.h.send(0, send{wr: uint64(i), op: ib.WRSend, m: pp.m, off: at, n: pp.p.size, qpn: pp.peer.qpn, qkey: testQKey}))
}

// wait returns when a queue has a completion.
func (pp *pingpongPeer) wait(ctx context.Context, queue int) {
	wcs := pp.h.poll(queue, 1, 0)
	for len(wcs) == 0 {
		if pp.p.events {
			pp.h.arm(queue, false)
			if wcs = pp.h.poll(queue, 1, 0); len(wcs) > 0 {
				break
			}
			pp.h.event(5 * time.Second)
		}
		require.NoError(pp.t, ctx.Err(), "no completion in queue %d; counters %+v", queue, pp.h.dev.Counters())
		wcs = pp.h.poll(queue, 1, time.Second)
	}
	require.Equal(pp.t, ib.WCSuccess, wcs[0].Status, "%v", wcs[0].VendorErr)
	if queue == lab.RecvCQ {
		require.EqualValues(pp.t, pp.p.size+pp.grh, wcs[0].ByteLen)
	}
}

// exchange plays. The program has one buffer for both directions, so each message that
// it sends is the one that it received before: an echo that checks the data both ways.
func (pp *pingpongPeer) exchange(ctx context.Context) {
	pp.check0()
	if pp.p.guestServes {
		pp.sendMessage(0)
	}
	for i := range pp.p.count {
		pp.wait(ctx, lab.RecvCQ)
		got := pp.h.get(pp.m, pp.slot(i%pingpongSlots)+pp.grh, pp.p.size)
		switch {
		case pp.p.guestServes:
			pp.same(i, pp.message(i), got)
		case i > 0:
			pp.same(i, pp.message(i-1), got)
		}
		if pp.posted < pp.p.count {
			pp.postRecv()
		}
		if pp.p.guestServes {
			pp.wait(ctx, lab.SendCQ)
		}
		if next := i + 1; !pp.p.guestServes {
			pp.sendMessage(i)
			pp.wait(ctx, lab.SendCQ)
		} else if next < pp.p.count {
			pp.sendMessage(next)
		}
	}
}

// check0 makes sure that messages differ, or the echo would prove little.
func (pp *pingpongPeer) check0() {
	if pp.p.size > 1 {
		require.False(pp.t, bytes.Equal(pp.message(0), pp.message(1)))
	}
}

func (pp *pingpongPeer) same(i int, want, got []byte) {
	if !bytes.Equal(want, got) {
		at := 0
		for want[at] == got[at] {
			at++
		}
		require.FailNow(pp.t, "wrong data", "message %d differs from byte %d of %d on: want %#x, got %#x", i, at, len(want), want[at], got[at])
	}
}

// pingpongs are the runs on a wire with the given IB MTU.
func pingpongs(largest ib.MTU) (runs []pingpong) {
	for _, f := range families {
		for _, serves := range []bool{true, false} {
			add := func(p pingpong) {
				p.family, p.guestServes = f, serves
				runs = append(runs, p)
			}
			if !*full {
				add(pingpong{kind: "rc", size: 16 << 10, count: 20, mtu: largest, check: true})
				add(pingpong{kind: "uc", size: 4096, count: 20, mtu: largest})
				add(pingpong{kind: "ud", size: 1000, count: 20, mtu: largest, events: true})
				continue
			}
			for _, kind := range []string{"rc", "uc"} {
				for mtu := ib.MTU256; mtu <= largest; mtu++ {
					for _, size := range []int{1, mtu.Bytes(), mtu.Bytes() + 1, 4096, 64 << 10} {
						add(pingpong{kind: kind, size: size, count: 20, mtu: mtu})
					}
				}
				add(pingpong{kind: kind, size: 8192, count: 50, mtu: largest, events: true})
				add(pingpong{kind: kind, size: 3*4096 + 5, count: 50, mtu: largest, check: true})
			}
			for _, size := range []int{1, 2, 3, 64, largest.Bytes()} {
				add(pingpong{kind: "ud", size: size, count: 20, mtu: largest})
			}
			add(pingpong{kind: "ud", size: 512, count: 50, mtu: largest, events: true})
			add(pingpong{kind: "ud", size: 512, count: 50, mtu: largest, check: true})
		}
	}
	return runs
}

func runPingpongs(t *testing.T, runs []pingpong, o options) {
	for _, p := range runs {
		t.Run(p.String()+"/"+p.direction()+"/"+p.family.name, func(t *testing.T) { p.run(t, o) })
	}
}

// TestPingpong plays with the programs of libibverbs on an Ethernet of 1500 bytes.
func TestPingpong(t *testing.T) {
	guest(t)
	runPingpongs(t, pingpongs(ib.MTU1024), options{})
}

// TestPingpongJumbo plays on an Ethernet whose MTU is large enough for the largest path MTU.
func TestPingpongJumbo(t *testing.T) {
	if !*full {
		return
	}
	g := guest(t)
	require.NoError(t, g.SetMTU(timeout(t, 30*time.Second), 4300))
	t.Cleanup(func() { require.NoError(t, g.SetMTU(context.Background(), 1500)) })
	t.Run("both ports have 4096", func(t *testing.T) {
		require.Equal(t, ib.MTU4096, openTheirs(t, families[0]).mtu())
		require.Equal(t, ib.MTU4096, openOurs(t, families[0], options{}).mtu())
	})
	var large []pingpong
	for _, p := range pingpongs(ib.MTU4096) {
		if p.mtu > ib.MTU1024 {
			large = append(large, p)
		}
	}
	runPingpongs(t, large, options{})
}
