package daemon

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/vtime"
)

// asker is an engine whose questions are counted, and answered by the test.
type asker struct {
	*peers
	t     *testing.T
	now   vtime.Time
	asked []peer
}

func newAsker(t *testing.T) *asker {
	a := &asker{t: t, now: vtime.Time(time.Hour)}
	a.peers = &peers{ask: func(p peer) { a.asked = append(a.asked, p) }, self: there(3)}
	return a
}

var farSide = ib.GIDFromIPv4(10, 0, 0, 9)

func there(seat uint8) peer { return peer{GID: farSide, Seat: seat} }

func plea(seat int) qp.Plea {
	return qp.Plea{Peer: farSide, QPN: ib.QPN(seat*udp.ShareQPNs + 5), Last: true}
}

// says expects a verdict, and lets the time pass that it asks for.
func (a *asker) says(seat int, want qp.Verdict) {
	a.t.Helper()
	require.Equal(a.t, want, a.judge(a.now, plea(seat)))
	a.now = a.now.Add(want.Wait)
}

func wait(d time.Duration) qp.Verdict { return qp.Verdict{Wait: d} }

var (
	fail  = qp.Verdict{}
	again = qp.Verdict{Again: true}
)

func TestPeerThatIsStopped(t *testing.T) {
	a := newAsker(t)
	a.says(2, wait(answerIn))
	a.tell(a.now, there(2), peerStopped)
	for range 300 { // 30 s
		a.says(2, wait(lookAgain-answerIn))
		a.says(2, wait(answerIn))
		a.tell(a.now, there(2), peerStopped)
	}
	require.Len(t, a.asked, 301, "it is asked ten times a second")
	a.says(2, wait(lookAgain-answerIn))
	a.says(2, wait(answerIn))
	a.tell(a.now, there(2), peerRuns)
	a.says(2, again)
	a.now = a.now.Add(amnesty - time.Nanosecond - answerIn)
	a.says(2, wait(answerIn)) // what was heard is old
	a.tell(a.now, there(2), peerRuns)
	a.now--
	a.says(2, again)
	a.now = a.now.Add(2)
	a.says(2, wait(rouse-1))
	a.says(2, fail)
}

func TestPeerThatIsKilledWhileItIsStopped(t *testing.T) {
	a := newAsker(t)
	a.says(2, wait(answerIn))
	a.tell(a.now, there(2), peerStopped)
	a.says(2, wait(lookAgain-answerIn))
	a.says(2, wait(answerIn))
	a.tell(a.now, there(2), peerGone)
	a.says(2, fail)
}

func TestPeerThatRunsOrIsGone(t *testing.T) {
	a := newAsker(t)
	a.says(2, wait(answerIn))
	a.tell(a.now, there(2), peerRuns)
	a.says(2, wait(rouse)) // it may have been woken just now
	a.says(2, fail)
	a.says(1, wait(answerIn))
	a.tell(a.now, there(1), peerGone)
	for range 1000 { // queue pairs
		a.says(1, fail)
	}
	require.Len(t, a.asked, 2, "one question for all of them")
	a.now = a.now.Add(holds + 1)
	a.says(1, wait(answerIn))
	require.Len(t, a.asked, 3)
}

// TestDaemonThatDoesNotAnswer: a queue pair waits a bounded time for an answer.
func TestDaemonThatDoesNotAnswer(t *testing.T) {
	a := newAsker(t)
	for begin := a.now; a.now < begin.Add(answerBy); {
		a.says(2, wait(answerIn))
	}
	a.says(2, fail)
	a.says(2, fail)
	require.Len(t, a.asked, 1)
	a.tell(a.now, there(7), peerStopped) // nobody has asked
	a.says(7, wait(answerIn))
	// One that is known to be stopped is asked about again.
	a.tell(a.now, there(7), peerStopped)
	a.says(7, wait(lookAgain-answerIn))
	for begin := a.now; a.now <= begin.Add(answerBy); {
		a.says(7, wait(answerIn))
	}
	require.Len(t, a.asked, 4)
}

func TestNotAskedAbout(t *testing.T) {
	a := newAsker(t)
	a.says(0, fail)               // the daemon's own device, or no device of ours
	a.says(3, fail)               // itself
	a.says(udp.MaxShares+1, fail) // no program has that place, and the daemon refuses the question
	l := plea(0)
	l.Late = overslept
	require.Equal(t, again, a.judge(a.now, l), "it was stopped itself")
	l.Spared = mostSpared
	require.Equal(t, wait(overslept), a.judge(a.now, l), "too often")
	l.Waited = overslept
	require.Equal(t, fail, a.judge(a.now, l))
	require.Empty(t, a.asked)
	for i := range 200 {
		a.now = a.now.Add(time.Second)
		_ = a.judge(a.now, plea(4+i))
	}
	require.LessOrEqual(t, len(a.of), 12, "old ones are forgotten")
}

// TestPeerThatHasNotLooked: no retry is used up while a peer has not had its turn, unless that
// takes too long, or it has had it since.
func TestPeerThatHasNotLooked(t *testing.T) {
	a := newAsker(t)
	stands := time.Duration(0)
	a.standing = func(p peer) time.Duration { require.Equal(t, there(2), p); return stands }
	l := plea(2)
	for _, l.Last = range []bool{false, true} {
		for _, c := range []struct {
			stands, waited time.Duration
			want           bool
		}{
			{1, 0, true},
			{glance, glance, true},
			{glance - 1, glance, false}, // it has taken something meanwhile
			{stuck - 1, stuck - glance, true},
			{stuck, 0, false},
			{0, 0, false},
		} {
			stands, l.Waited = c.stands, c.waited
			require.Equal(t, c.want, a.judge(a.now, l) == wait(glance), "%+v", c)
		}
		stands, l.Waited = suspicion, 0
		require.Equal(t, wait(glance), a.judge(a.now, l))
		require.Len(t, a.asked, 1, "it may be stopped")
	}
	stands, l.Last, l.Late = 0, false, overslept
	require.Equal(t, wait(overslept), a.judge(a.now, l), "its own timer was late")
}

// TestPlightOf stops a process as a shell does, as a debugger does, and kills it.
func TestPlightOf(t *testing.T) {
	require.Equal(t, peerRuns, plightOf(os.Getpid()))
	require.Equal(t, peerGone, plightOf(0))
	c := exec.Command("sleep", "1000")
	require.NoError(t, c.Start())
	pid := c.Process.Pid
	becomes := func(s plight) {
		t.Helper()
		require.Eventually(t, func() bool { return plightOf(pid) == s }, 10*time.Second, time.Millisecond)
	}
	becomes(peerRuns)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	becomes(peerStopped)
	require.NoError(t, syscall.Kill(pid, syscall.SIGCONT))
	becomes(peerRuns)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	require.NoError(t, syscall.PtraceAttach(pid))
	becomes(peerStopped)
	require.NoError(t, syscall.PtraceDetach(pid))
	becomes(peerRuns)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	becomes(peerGone) // nobody has waited for it yet
	require.Error(t, c.Wait())
	require.Equal(t, peerGone, plightOf(pid))
}

// TestFrozen has the files of control groups of both versions in a directory of its own.
func TestFrozen(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o755))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
	}
	require.False(t, frozen(dir, dir), "no such process")
	for _, c := range []struct{ groups, file, runs, frozen string }{
		{"0::/a/b:c\n", "a/b:c/cgroup.events", "populated 1\nfrozen 0\n", "populated 1\nfrozen 1\n"},
		{"9:name=systemd:/\n0::/x\n", "unified/x/cgroup.events", "populated 1\nfrozen 0\n", "populated 1\nfrozen 1\n"},
		{"8:pids:/y\n6:freezer:/y\nrubbish\n0::/\n", "freezer/y/freezer.state", "THAWED\n", "FROZEN\n"},
	} {
		file("cgroup", c.groups)
		require.False(t, frozen(dir, dir), "no such group")
		file(c.file, c.runs)
		require.False(t, frozen(dir, dir), c.file)
		file(c.file, c.frozen)
		require.True(t, frozen(dir, dir), c.file)
	}
}

// TestMarkStopped: reports are made at the same time, of what a program has reported once.
func TestMarkStopped(t *testing.T) {
	kept := []ProcessReport{{PID: os.Getpid()}, {PID: 0}}
	var wg sync.WaitGroup
	for range 8 {
		r := Report{Nodes: []NodeReport{{Contexts: []ContextReport{{Processes: kept}}}}}
		wg.Go(r.markStopped)
	}
	wg.Wait()
	require.False(t, kept[0].Stopped)
}
