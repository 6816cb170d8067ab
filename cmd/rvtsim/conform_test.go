package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/conform"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/qp"
)

func TestConformProfiles(t *testing.T) {
	profiles := conform.Profiles
	if invariants.Race {
		profiles = profiles[:1] // virtual time has no second goroutine to race with
	}
	for _, p := range profiles {
		r := rvtsim(t, "conform", "--profile", p)
		require.Equal(t, exitOK, r.code, r.out+r.errout)
		require.Contains(t, r.out, " 0 fail, 0 skipped\n")
	}
}

func TestConformFiles(t *testing.T) {
	dir := t.TempDir()
	js, junit := filepath.Join(dir, "c.json"), filepath.Join(dir, "c.xml")
	r := rvtsim(t, "conform", "--profile", "rxe", "--run", "^send_", "--json", js, "--junit", junit)
	require.Equal(t, exitOK, r.code, r.errout)
	b, err := os.ReadFile(js)
	require.NoError(t, err)
	var got struct {
		Profile string
		Cases   []struct{ Case, Verdict string }
	}
	require.NoError(t, json.Unmarshal(b, &got))
	require.Equal(t, "rxe", got.Profile)
	require.Len(t, got.Cases, 3)
	require.Equal(t, "pass", got.Cases[0].Verdict)
	b, err = os.ReadFile(junit)
	require.NoError(t, err)
	require.Regexp(t, `<testcase classname="conform\.rxe" name="send_basic" time="\d+\.\d+">`, string(b))

	r = rvtsim(t, "conform", "--run", "^send_basic$", "--json", "-")
	require.True(t, json.Valid([]byte(r.out)), r.out)
}

func TestConformUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--profile", "iwarp"}, exitUsage, `unknown profile "iwarp"`},
		{[]string{"--run", "("}, exitUsage, "missing closing"},
		{[]string{"--run", "nothing like it"}, exitUsage, "no case matches"},
		{[]string{"surplus"}, exitUsage, "surplus"},
		{[]string{"--run", "send_basic", "--json", "/no/such/dir/x"}, exitEnv, "no such file"},
	} {
		r := rvtsim(t, append([]string{"conform"}, c.args...)...)
		require.Equal(t, c.code, r.code, "%v: %s", c.args, r.errout)
		require.Contains(t, r.errout, c.want)
	}
}

// A failure is printed with what was wanted, without -v.
func TestConformPrintsFailures(t *testing.T) {
	p := qp.ProfileRXE
	p.RecvGRHFlag = false
	rep, err := conform.RunProfile(p, func(name string) bool { return name == "send_basic" })
	require.NoError(t, err)
	var b strings.Builder
	printConform(&b, rep, false)
	require.Contains(t, b.String(), "FAIL send_basic: RC send 100 into 200\n")
	require.Contains(t, b.String(), "    wanted: id=1 SUCCESS RECV len=100 flags=0x1 verr=0 src_qp=0\n")
	require.Contains(t, b.String(), "1 cases: 0 pass, 0 explained, 1 fail, 0 skipped\n")
}
