package front

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/internal/netlab"
)

var killSeed = flag.Uint64("front.killseed", 1, "first seed of TestNamespacesKilledAnyTime")

// TestNamespacesKilledAnyTime kills "netns up", its daemon or "netns down" at moments drawn
// from a seed. After one "netns down" that was let alone nothing is left, or soon nothing.
func TestNamespacesKilledAnyTime(t *testing.T) {
	need(t, "ip")
	for _, who := range []struct {
		name string
		cred *syscall.Credential
	}{{"as we are", nil}, {"user", unprivileged()}} {
		t.Run(who.name, func(t *testing.T) {
			s := newSite(t, who.cred)
			t.Cleanup(func() { s.kill(0) })
			began := time.Now()
			out, err := s.command(t.Context(), "netns", "up", "--nodes", "2").CombinedOutput()
			if strings.Contains(string(out), netlab.ErrNotPermitted.Error()) {
				t.Skip(string(out))
			}
			require.NoError(t, err, "%s", out)
			whole := time.Since(began)
			s.downAfter(t, "nothing was killed")
			runs := uint64(3)
			if *full {
				runs = 100
			}
			for seed := *killSeed; seed < *killSeed+runs; seed++ {
				s.killOne(t, rand.New(rand.NewPCG(seed, 0)), whole, fmt.Sprintf("seed %d", seed))
			}
		})
	}
}

// killOne starts a network and kills something. whole is about how long that takes.
func (s *site) killOne(t *testing.T, rng *rand.Rand, whole time.Duration, why string) {
	t.Helper()
	up := s.command(t.Context(), "netns", "up", "--nodes", "2")
	require.NoError(t, up.Start())
	moment := time.Duration(rng.Int64N(int64(whole) * 6 / 5))
	switch rng.IntN(4) {
	case 0:
		why += fmt.Sprintf(", up is killed after %v", moment)
		<-time.After(moment)
		_ = up.Process.Kill()
	case 1:
		why += fmt.Sprintf(", its daemon is killed after %v", moment)
		<-time.After(moment)
		s.kill(up.Process.Pid)
	case 2:
		why += fmt.Sprintf(", all are killed after %v", moment)
		<-time.After(moment)
		s.kill(0)
	case 3:
		why += fmt.Sprintf(", down is killed after %v", moment/4)
		require.NoError(t, up.Wait(), why)
		sleeper := s.command(t.Context(), "exec", "--node", "n1", "--", "sleep", "1000")
		require.NoError(t, sleeper.Start())
		defer func() { _ = sleeper.Wait() }()
		kept := s.kept()
		for end := time.Now().Add(longest); len(netlab.Programs(kept.Inodes, kept.ID)) == 0; <-time.After(10 * time.Millisecond) {
			require.True(t, time.Now().Before(end), "%s: the program does not start", why)
		}
		down := s.command(t.Context(), "netns", "down")
		require.NoError(t, down.Start())
		<-time.After(moment / 4)
		_ = down.Process.Kill()
		_ = down.Wait()
	}
	_ = up.Wait()
	s.downAfter(t, why)
}

// downAfter takes the network down and looks for what is left.
func (s *site) downAfter(t *testing.T, why string) {
	t.Helper()
	out, err := s.command(context.Background(), "netns", "down").CombinedOutput()
	if err != nil {
		require.Equal(t, "rvtsim: network \"default\": there is none\n", string(out), why)
	}
	left := func() []string {
		files, _ := filepath.Glob(filepath.Join(s.dir, "rvtsim", "*"))
		for _, pid := range s.processes() {
			comm, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
			files = append(files, fmt.Sprintf("process %d: %s", pid, bytes.ReplaceAll(comm, []byte{0}, []byte{' '})))
		}
		return files
	}
	log := filepath.Join(s.dir, "rvtsim", "default.log")
	for end := time.Now().Add(longest); ; <-time.After(10 * time.Millisecond) {
		l := left()
		if len(l) == 0 || len(l) == 1 && l[0] == log {
			return
		}
		require.True(t, time.Now().Before(end), "%s: down said %q, and this is left: %v", why, out, l)
	}
}

// processes are those that were started for the site and have not ended.
func (s *site) processes() (pids []int) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		pid, _ := strconv.Atoi(filepath.Base(dir))
		env, err := os.ReadFile(dir + "/environ")
		if err == nil && bytes.Contains(env, []byte("XDG_RUNTIME_DIR="+s.dir+"\x00")) && !zombie(pid) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// kill kills all of them but one.
func (s *site) kill(but int) {
	for _, pid := range s.processes() {
		if pid != but {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}
