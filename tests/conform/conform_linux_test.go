package conform

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	suite "github.com/rvtsim/rvtsim/conform"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/internal/testdaemon"
	"github.com/rvtsim/rvtsim/qp"
)

// need makes sure that everything is there.
func need(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("cc"); err != nil {
		testdaemon.Missing(t, "cc")
	}
	if _, err := os.Stat("/usr/include/infiniband/verbs.h"); err != nil {
		testdaemon.Missing(t, "libibverbs-dev")
	}
}

var lastAddress atomic.Uint32

// newAddress returns an address of the loopback network that no other test uses.
func newAddress() string {
	n := uint32(os.Getpid())<<3 + lastAddress.Add(1)
	return fmt.Sprintf("127.%d.%d.%d", 101+byte(n>>16)%100, byte(n>>8), byte(n))
}

// up starts a daemon whose device has the limits of the reference device.
func up(t *testing.T, rvtsim, abi, profile string) *testdaemon.Daemon {
	t.Helper()
	d := testdaemon.New(t, rvtsim)
	file := filepath.Join(d.Dir, "node.yaml")
	text := fmt.Sprintf("version: 1\nnodes:\n  - {name: n1, address: %s, profile: %s, mtu: 1024, limits: {max_cqe: 32767, max_inline: 480}}\n", newAddress(), profile)
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	d.Up(t, "--abi", abi, file)
	return d
}

// TestOverLibibverbs carries the suite out with a C program on devices of our own, in each
// personality: every answer is that of the suite in Go,
// except where expect/ says that the ABI or the provider library decides.
func TestOverLibibverbs(t *testing.T) {
	if invariants.Race {
		t.Skip("the plain pass runs it; the race detector has seen its code in tests/front")
	}
	need(t)
	dir := t.TempDir()
	client, err := Compile(dir)
	require.NoError(t, err)
	rvtsim := testdaemon.Build(t, dir)
	out, err := exec.Command(rvtsim, "shim", dir).CombinedOutput()
	require.NoError(t, err, "%s", out)
	testdaemon.BuildEngine(t, rvtsim)
	for _, c := range []struct {
		abi, profile, engine string
		args                 []string
	}{{"rxe", "rxe", "program", nil}, {"rxe", "ibta", "daemon", nil}, {"rvt", "rdmavt", "program", []string{"-s"}}} {
		t.Run(c.abi+"/"+c.profile+"/"+c.engine, func(t *testing.T) {
			t.Parallel() // most of the time it waits
			n := up(t, rvtsim, c.abi, c.profile)
			n.Engine = c.engine
			cl, err := suite.StartClient(n.Command(t.Context(), append([]string{"exec", "--engine", n.Engine, "--", client}, c.args...)...))
			require.NoError(t, err)
			s, err := suite.Load(c.profile)
			require.NoError(t, err)
			text, err := os.ReadFile(filepath.Join("expect", c.profile+".txt"))
			require.NoError(t, err)
			require.NoError(t, s.Expect(c.profile+".txt", string(text)))
			s.Repeat = 3
			rep, err := s.Run(cl.Fresh, nil)
			require.NoError(t, err)
			require.NoError(t, cl.Close())
			compare(t, rep, c.profile, s.Expected())
		})
	}
}

// cause is the vendor_err of a completion. Whether a request is flushed, or posted to a
// queue pair that has failed already, is a race in real time; the suite checks that each
// is a documented one.
var cause = regexp.MustCompile(` verr=\d+`)

func plain(cells map[suite.Cell]string) map[suite.Cell]string {
	for k, v := range cells {
		cells[k] = cause.ReplaceAllString(v, "")
	}
	return cells
}

// compare holds a report against the suite's in Go. differ are the cases that have
// expectations of their own.
func compare(t *testing.T, rep *suite.Report, profile string, differ []string) {
	prof, ok := qp.ProfileByName(profile)
	require.True(t, ok)
	inGo, err := suite.RunProfile(prof, nil)
	require.NoError(t, err)
	require.Len(t, rep.Results, len(inGo.Results))
	same := 0
	for i, c := range rep.Results {
		switch {
		case c.Verdict == suite.Skip:
			require.Contains(t, c.Reason, "offers no", "%s", c.Case)
		case c.Verdict == suite.Fail:
			for _, l := range c.Explain(false) {
				t.Errorf("%s: %s", c.Case, l)
			}
		case !slices.Contains(differ, c.Case):
			same++
			require.Equal(t, plain(inGo.Results[i].Record.Cells()), plain(c.Record.Cells()), "%s", c.Case)
		}
	}
	require.Equal(t, 7, rep.Count(suite.Skip), "cases that need a hand on the wire")
	require.Greater(t, same, 85)
}
