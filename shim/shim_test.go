package shim

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func needCC(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("cc"); err == nil {
		return
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("cc is missing")
	}
	t.Skip("SKIP cc is missing")
}

func TestCompilesWithoutWarnings(t *testing.T) {
	needCC(t)
	dir := t.TempDir()
	units, err := filepath.Glob("src/*.c")
	require.NoError(t, err)
	require.NotEmpty(t, units)
	for _, opt := range []string{"-O0", "-O2", "-O3"} {
		args := append(append([]string{}, flags...), opt, "-Werror", "-o", filepath.Join(dir, "x.so"))
		out, err := exec.Command("cc", append(append(args, units...), "-ldl")...).CombinedOutput()
		require.NoError(t, err, "%s: %s", opt, out)
	}
}

func TestLibraryIsBuiltOnceAndFound(t *testing.T) {
	needCC(t)
	dir := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", dir)
	t.Setenv(Env, "")
	p, err := Library()
	require.NoError(t, err)
	require.Equal(t, filepath.Join(dir, "rvtsim", FileName()), p)
	before, err := os.Stat(p)
	require.NoError(t, err)
	t.Setenv("CC", "/nonexistent/cc") // a second call must not compile
	again, err := Library()
	require.NoError(t, err)
	require.Equal(t, p, again)
	after, err := os.Stat(p)
	require.NoError(t, err)
	require.True(t, os.SameFile(before, after))
	left, err := filepath.Glob(filepath.Join(dir, "rvtsim", "build-*"))
	require.NoError(t, err)
	require.Empty(t, left, "temporary files stay behind")
}

func TestLibrarySaysWhatIsMissing(t *testing.T) {
	t.Setenv(Env, "/nonexistent/shim.so")
	_, err := Library()
	require.ErrorContains(t, err, Env)
	t.Setenv(Env, "")
	t.Setenv("CC", "/nonexistent/cc")
	require.ErrorContains(t, Build(t.TempDir()), "C compiler")
}
