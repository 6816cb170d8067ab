package daemon

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// address returns an address of the loopback network that no other test uses.
func address() netip.Addr {
	n := uint32(os.Getpid())<<8 + uint32(lastAddress.Add(1))
	return netip.AddrFrom4([4]byte{127, 101 + byte(n>>16)%100, byte(n >> 8), byte(n)})
}

var lastAddress atomic.Uint32

// runtimeDir gives the test a directory for daemons whose path is short enough for a
// socket.
func runtimeDir(t *testing.T) {
	dir, err := os.MkdirTemp("/tmp", "rvt")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	t.Setenv("XDG_RUNTIME_DIR", dir)
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// start runs a daemon of one node n1.
func start(t *testing.T, change func(*Config)) (*Daemon, *syncBuffer) {
	t.Helper()
	runtimeDir(t)
	log := &syncBuffer{}
	c := Config{Name: "t", ABI: "rxe", Nodes: []NodeConfig{DefaultNode("n1", address())}, Log: slog.New(slog.NewTextHandler(log, nil))}
	if change != nil {
		change(&c)
	}
	d, err := Start(c)
	require.NoError(t, err)
	t.Cleanup(d.Close)
	return d, log
}

// client is a program as the daemon sees it.
type client struct {
	t    *testing.T
	sock *seqSocket
	buf  []byte
}

func connect(t *testing.T, d *Daemon) *client {
	s, err := dial(d.Socket())
	require.NoError(t, err)
	c := &client{t: t, sock: s, buf: make([]byte, maxReply)}
	t.Cleanup(s.close)
	return c
}

// ask sends a request and returns errno, the answer and the descriptors with it.
func (c *client) ask(r *request, files ...int) (uint32, []byte, []int) {
	c.t.Helper()
	require.NoError(c.t, c.sock.send(appendRequest(nil, r), files))
	n, got, err := c.sock.recv(c.buf)
	require.NoError(c.t, err)
	require.GreaterOrEqual(c.t, n, repLen)
	return replyErrno(c.buf), c.buf[:n], got
}

// open makes a context.
func (c *client) open() (token uint64, files []int) {
	c.t.Helper()
	mem, err := unix.Open("/proc/self/mem", unix.O_RDWR|unix.O_CLOEXEC, 0)
	require.NoError(c.t, err)
	defer unix.Close(mem)
	e, b, files := c.ask(&request{op: opOpen, kind: devUverbs, node: "n1"}, mem)
	require.Zero(c.t, e)
	require.Len(c.t, files, 2)
	c.t.Cleanup(func() { closeAll(files) })
	return binary.LittleEndian.Uint64(b[8:]), files
}

// getContext is GET_CONTEXT (write() command 0).
func getContext() []byte {
	b := make([]byte, 16)
	le := binary.LittleEndian
	le.PutUint16(b[4:], 4)
	le.PutUint16(b[6:], 2)
	le.PutUint64(b[8:], 0x1000)
	return b
}

func contexts(d *Daemon) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.contexts)
}

func descriptors(t *testing.T) int {
	all, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(all)
}

// eventually waits for what other goroutines bring about.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 10*time.Second, time.Millisecond, what)
}

func TestOpenCommandAttachClose(t *testing.T) {
	d, log := start(t, nil)
	a := connect(t, d)
	token, files := a.open()
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(files[0], &st))
	require.Greater(t, st.Size, int64(1<<24)-1)

	e, b, pipes := a.ask(&request{op: opWrite, data: getContext()})
	require.Zero(t, e)
	require.EqualValues(t, 0x1000, binary.LittleEndian.Uint64(b[24:]), "out_addr")
	require.EqualValues(t, 8, binary.LittleEndian.Uint32(b[32:]), "out_len")
	require.Len(t, pipes, 1, "the asynchronous event descriptor")
	defer closeAll(pipes)

	// A second process joins with the token; the context outlives the first.
	second := connect(t, d)
	e, _, _ = second.ask(&request{op: opAttach, token: token ^ 1})
	require.EqualValues(t, unix.ENODEV, e)
	third := connect(t, d)
	e, _, _ = third.ask(&request{op: opAttach, token: token})
	require.Zero(t, e)
	a.sock.shutdown()
	eventually(t, "first process gone", func() bool { return strings.Contains(log.String(), "msg=detach") })
	require.Equal(t, 1, contexts(d))
	third.sock.shutdown()
	eventually(t, "context gone", func() bool { return contexts(d) == 0 })
	require.Equal(t, 1, strings.Count(log.String(), "msg=attach "), log)
	require.Equal(t, 2, strings.Count(log.String(), "msg=detach "), log)
}

func TestContextsLeaveNothingBehind(t *testing.T) {
	d, _ := start(t, nil)
	var before int
	for i := range 1000 {
		s, err := dial(d.Socket())
		require.NoError(t, err)
		c := &client{t: t, sock: s, buf: make([]byte, maxReply)}
		e, _, files := c.ask(&request{op: opOpen, kind: devUverbs, node: "n1"})
		require.Zero(t, e)
		closeAll(files)
		e, _, files = c.ask(&request{op: opWrite, data: getContext()})
		require.Zero(t, e)
		closeAll(files)
		s.close()
		if i == 10 {
			eventually(t, "contexts closed", func() bool { return contexts(d) == 0 })
			before = descriptors(t)
		}
	}
	eventually(t, "contexts closed", func() bool { return contexts(d) == 0 })
	eventually(t, "descriptors closed", func() bool { return descriptors(t) <= before })
	require.Empty(t, d.Report().Nodes[0].Contexts)
}

func TestNonsenseEndsOnlyItsOwnConnection(t *testing.T) {
	d, _ := start(t, nil)
	good := connect(t, d)
	good.open()
	r := rand.New(rand.NewPCG(3, 4))
	valid := appendRequest(nil, &request{op: opOpen, kind: devUverbs, node: "n1"})
	for i := range 300 {
		c := connect(t, d)
		msg := append([]byte(nil), valid...)
		for range 1 + r.IntN(3) {
			msg[r.IntN(len(msg))] = byte(r.Uint32())
		}
		if i%3 == 0 {
			msg = msg[:1+r.IntN(len(msg)-1)]
		}
		if i%5 == 0 {
			c.open()
			msg = appendRequest(nil, &request{op: opWrite, data: msg})
		}
		require.NoError(t, c.sock.send(msg, nil))
		if n, files, err := c.sock.recv(c.buf); err == nil {
			require.GreaterOrEqual(t, n, repLen)
			closeAll(files)
		} else {
			require.ErrorIs(t, err, io.EOF)
		}
		c.sock.shutdown()
	}
	e, _, files := good.ask(&request{op: opWrite, data: getContext()})
	require.Zero(t, e)
	closeAll(files)
}

func TestRefusals(t *testing.T) {
	d, _ := start(t, nil)
	for _, c := range []struct {
		name string
		r    request
		want unix.Errno
	}{
		{"no such node", request{op: opOpen, kind: devUverbs, node: "n9"}, unix.ENODEV},
		{"no such device", request{op: opOpen, kind: devUverbs, node: "n1", index: 1}, unix.ENODEV},
		{"no second connection manager", request{op: opOpen, kind: devCM, node: "n1", index: 1}, unix.ENODEV},
		{"no such kind of device", request{op: opOpen, kind: 3, node: "n1"}, unix.ENODEV},
		{"command before open", request{op: opWrite, data: getContext()}, unix.EPROTO},
		{"unknown operation", request{op: 99}, unix.EPROTO},
	} {
		e, _, _ := connect(t, d).ask(&c.r)
		require.EqualValues(t, c.want, e, c.name)
	}
}

func TestStrangersMayNotAttach(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		uid  int
		want bool
	}{
		{Config{}, 1000, true}, {Config{}, 1001, false}, {Config{}, 0, false},
		{Config{AllowUIDs: []int{1001}}, 1001, true}, {Config{AllowUIDs: []int{1001}}, 1002, false}, {Config{AllowAny: true}, 1002, true},
	} {
		require.Equal(t, c.want, c.cfg.allows(c.uid, 1000), c)
	}
}

func TestNameAndPortAreTakenOnce(t *testing.T) {
	d, _ := start(t, nil)
	c := d.cfg
	_, err := Start(c)
	require.ErrorIs(t, err, ErrRunning)
	c.Name = "other"
	_, err = Start(c)
	require.ErrorIs(t, err, unix.EADDRINUSE)
	require.NoFileExists(t, SocketPath("other"))
	c.Nodes = []NodeConfig{DefaultNode("n1", address())}
	other, err := Start(c)
	require.NoError(t, err)
	other.Close()
}

func TestStopFreesEverything(t *testing.T) {
	d, _ := start(t, nil)
	c := connect(t, d)
	c.open()
	e, _, pipes := c.ask(&request{op: opWrite, data: getContext()})
	require.Zero(t, e)
	defer closeAll(pipes)
	go d.Wait(t.Context())
	require.NoError(t, Stop(d.Socket()))
	require.NoFileExists(t, d.Socket())
	require.NoDirExists(t, viewDir("t"))
	require.NoFileExists(t, lockPath("t"))
	_, err := Ask(d.Socket())
	require.ErrorIs(t, err, ErrNotRunning)

	// The program learns of it: an event first, then the end.
	ev := make([]byte, 64)
	n, err := unix.Read(pipes[0], ev)
	require.NoError(t, err)
	require.Equal(t, 16, n)
	require.EqualValues(t, ib.EventDeviceFatal, binary.LittleEndian.Uint32(ev[8:]))
	n, err = unix.Read(pipes[0], ev)
	require.NoError(t, err)
	require.Zero(t, n)
	_, _, err = c.sock.recv(c.buf)
	require.ErrorIs(t, err, io.EOF)

	again, err := Start(d.cfg)
	require.NoError(t, err)
	again.Close()
}

func TestView(t *testing.T) {
	d, _ := start(t, nil)
	root := ViewOf(d.Socket(), "n1")
	require.Equal(t, d.all()[0].root, root)
	read := func(p string) string {
		b, err := os.ReadFile(filepath.Join(root, p))
		require.NoError(t, err)
		return strings.TrimSpace(string(b))
	}
	require.Equal(t, "6", read("sys/class/infiniband_verbs/abi_version"))
	require.Equal(t, "rvt0", read("sys/class/infiniband_verbs/uverbs0/ibdev"))
	require.Equal(t, "RoCE v2", read("sys/class/infiniband/rvt0/ports/1/gid_attrs/types/0"))
	gid := read("sys/class/infiniband/rvt0/ports/1/gids/0")
	require.Equal(t, d.all()[0].node.Port().LocalGID().Sysfs(), gid)
	require.Equal(t, read("sys/class/infiniband/rvt0/node_guid"), read("sys/class/infiniband_verbs/uverbs0/device/infiniband/rvt0/node_guid"))
	require.FileExists(t, filepath.Join(root, "dev/infiniband/uverbs0"))
}

func TestDirectoryOfSomebodyElse(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("SKIP needs root to give a directory away")
	}
	runtimeDir(t)
	require.NoError(t, os.Mkdir(Dir(), 0o700))
	require.NoError(t, os.Chown(Dir(), 1, 1))
	_, err := Start(Config{ABI: "rxe", Nodes: []NodeConfig{DefaultNode("n1", address())}})
	require.ErrorContains(t, err, "not a directory of this user")
}

func TestConfigErrorsAreAllReported(t *testing.T) {
	a := netip.MustParseAddr("127.0.0.1")
	c := Config{Name: "a/b", ABI: "mlx5", Nodes: []NodeConfig{DefaultNode("x", a), DefaultNode("x", a), DefaultNode("..", address())}}
	err := c.Validate()
	for _, want := range []string{`name "a/b"`, `ABI "mlx5"`, `two nodes are called "x"`, "same address", `node name ".."`} {
		require.ErrorContains(t, err, want)
	}
	require.ErrorContains(t, (&Config{Name: "x", ABI: "rxe"}).Validate(), "no nodes")
}

func TestSocketPathTooLong(t *testing.T) {
	long := filepath.Join(t.TempDir(), strings.Repeat("x", 100))
	require.NoError(t, os.Mkdir(long, 0o700))
	t.Setenv("XDG_RUNTIME_DIR", long)
	_, err := Start(Config{ABI: "rxe", Nodes: []NodeConfig{DefaultNode("n1", address())}})
	require.ErrorContains(t, err, "XDG_RUNTIME_DIR")
}

func TestGUIDsDiffer(t *testing.T) {
	seen := map[uint64]bool{}
	for i := range 1000 {
		g := guidOf(netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, byte(i >> 8), byte(i)}), wire.UDPPort))
		require.False(t, seen[g])
		seen[g] = true
		require.EqualValues(t, 2, g>>56)
	}
}

// TestDoorbellsAreHeard rings from several contexts at once. A bell that is cleared
// after the look at the rings would lose some: the word stays 1 and nobody comes.
func TestDoorbellsAreHeard(t *testing.T) {
	d, _ := start(t, nil)
	var wg sync.WaitGroup
	for range 4 {
		c := connect(t, d)
		_, files := c.open()
		page, err := unix.Mmap(files[0], 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		require.NoError(t, err)
		defer unix.Munmap(page)
		bell := (&rings{page: page}).bell()
		wg.Add(1)
		go func() {
			defer wg.Done()
			one := []byte{1, 0, 0, 0, 0, 0, 0, 0}
			for range 500 {
				if bell.Swap(1) == 0 {
					if _, err := unix.Write(files[1], one); err != nil {
						t.Error(err)
						return
					}
				}
				deadline := time.Now().Add(10 * time.Second)
				for bell.Load() != 0 {
					if time.Now().After(deadline) {
						t.Error(errors.New("a doorbell was not heard"))
						return
					}
					unix.Select(0, nil, nil, nil, &unix.Timeval{Usec: 10})
				}
			}
		}()
	}
	wg.Wait()
}

func TestWhatWasKilledIsSweptAway(t *testing.T) {
	runtimeDir(t)
	require.NoError(t, makeDir(false))
	dead, alive := privatePrefix+"1", privatePrefix+"2"
	for _, n := range []string{dead, alive} {
		require.NoError(t, os.MkdirAll(viewDir(n), 0o700))
		require.NoError(t, os.WriteFile(SocketPath(n), nil, 0o600))
	}
	require.NoError(t, os.WriteFile(lockPath(dead), nil, 0o600))
	f, err := lockName(alive)
	require.NoError(t, err)
	sweep()
	require.NoFileExists(t, SocketPath(dead))
	require.NoDirExists(t, viewDir(dead))
	require.NoFileExists(t, lockPath(dead))
	require.FileExists(t, SocketPath(alive))
	unlockName(alive, f)
}

// TestLockIsHeldOnce lets many take and give up one name. The file is removed each time,
// and two must never believe that they have it.
func TestLockIsHeldOnce(t *testing.T) {
	runtimeDir(t)
	require.NoError(t, makeDir(false))
	var holders, taken atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for range 300 {
				f, err := lockName("x")
				if err != nil {
					continue
				}
				if holders.Add(1) != 1 {
					t.Error("two hold the name")
				}
				taken.Add(1)
				holders.Add(-1)
				unlockName("x", f)
			}
		}()
	}
	wg.Wait()
	require.NotZero(t, taken.Load())
}
