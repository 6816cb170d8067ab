package netdev

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/gidtable"
	"github.com/rvtsim/rvtsim/internal/netlab/nstest"
)

func TestMain(m *testing.M) { nstest.Main(m) }

// batch has the program ip carry out many lines at once.
func batch(t *testing.T, lines []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "batch")
	require.NoError(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
	out, err := exec.Command("ip", "-batch", path).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// burst are lines that add or delete n addresses.
func burst(what, dev string, n int) (lines []string) {
	for i := range n {
		lines = append(lines, fmt.Sprintf("addr %s 10.9.%d.%d/32 dev %s", what, i>>8, i&255, dev))
	}
	return lines
}

const patience = 20 * time.Second

// await waits until the device is as want says. Only what was announced is a reason to look.
func await(t *testing.T, w *Watcher, want func(s State) bool) {
	t.Helper()
	end := time.After(patience)
	for {
		select {
		case <-w.Changed():
		case <-end:
			t.Fatal("nobody said that the device has changed")
		}
		s, err := w.State()
		require.NoError(t, err)
		if want(s) {
			return
		}
	}
}

func (w *Watcher) losses() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lost
}

// TestMessagesAreLost: a subscription whose buffer has overflown is begun anew, everything
// is looked at once more, and later changes are heard of.
func TestMessagesAreLost(t *testing.T) {
	nstest.Need(t)
	runtime.LockOSThread() // State subscribes in the namespace of its thread
	defer runtime.UnlockOSThread()
	nstest.IP(t, "link add ov0 type veth peer name ov1")
	t.Cleanup(func() { nstest.IP(t, "link del ov0") })
	nstest.IP(t, "link set ov0 up")
	w, err := openSized("ov0", 1) // the kernel makes it the least it allows
	require.NoError(t, err)
	defer w.Close()
	const n = 400
	for end := time.Now().Add(patience); w.losses() == 0; {
		require.True(t, time.Now().Before(end), "the buffer never overflows")
		batch(t, append(burst("add", "ov0", n), burst("del", "ov0", n)...))
	}
	batch(t, burst("add", "ov0", n))
	v4 := func(s State) (count int) {
		for _, a := range s.Addrs {
			if a.GID.IsIPv4() {
				count++
			}
		}
		return count
	}
	await(t, w, func(s State) bool { return v4(s) == n })
	for range 3 { // the new subscription may overflow, too, before it is quiet
		select {
		case <-w.Changed():
			_, err := w.State()
			require.NoError(t, err)
		default:
		}
	}
	nstest.IP(t, "addr add 10.8.0.1/24 dev ov0")
	last := netip.MustParseAddr("::ffff:10.8.0.1").As16()
	await(t, w, func(s State) bool {
		return s.Local[gidtable.Entry{GID: last, Ifindex: s.Index}]
	})
}

// TestRenamedAndMadeAnew: a device is known by its number. One that is removed is gone, and
// another of the same name is another device.
func TestRenamedAndMadeAnew(t *testing.T) {
	nstest.Need(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	nstest.IP(t, "link add rn0 type veth peer name rn1")
	nstest.IP(t, "link set rn0 up")
	w, err := Open("rn0")
	require.NoError(t, err)
	defer w.Close()
	nstest.IP(t, "link set rn0 name rn9")
	await(t, w, func(s State) bool { return s.Name == "rn9" && s.Names[s.Index] == "rn9" })
	nstest.IP(t, "link del rn9")
	nstest.IP(t, "link add rn0 type veth peer name rn1")
	t.Cleanup(func() { nstest.IP(t, "link del rn0") })
	end := time.After(patience)
	for {
		if _, err := w.State(); err != nil {
			require.ErrorIs(t, err, ErrGone)
			break
		}
		select {
		case <-w.Changed():
		case <-end:
			t.Fatal("nobody said that the device is gone")
		}
	}
	again, err := Open("rn0")
	require.NoError(t, err)
	defer again.Close()
	s, err := again.State()
	require.NoError(t, err)
	require.NotEqual(t, w.index, s.Index)
}
