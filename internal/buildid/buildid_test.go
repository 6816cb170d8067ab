package buildid

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOf(t *testing.T) {
	if _, err := os.Stat("/proc/self/exe"); err != nil {
		t.Skip("SKIP there is no /proc/self/exe")
	}
	exe, err := os.Executable()
	require.NoError(t, err)
	want, err := exec.Command("go", "tool", "buildid", exe).Output()
	require.NoError(t, err)
	own, err := Own()
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(want)), own)

	plain := filepath.Join(t.TempDir(), "plain")
	require.NoError(t, os.WriteFile(plain, []byte("#!/bin/sh\n"), 0o755))
	id, err := Of(plain)
	require.NoError(t, err)
	require.Equal(t, "a8076d3d28d21e02012b20eaf7dbf75409a6277134439025f282e368e3305abf", id)
	_, err = Of(plain + ".not")
	require.ErrorContains(t, err, "no such file")
}
