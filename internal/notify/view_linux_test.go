//go:build amd64 || arm64

package notify

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestLocate(t *testing.T) {
	v := view{root: "/run/rvtsim/n1"}
	for _, c := range []struct {
		path, base string
		want       string // "": not ours
	}{
		{"/sys/class/infiniband", "", "/sys/class/infiniband"},
		{"/sys/class/infiniband_verbs/uverbs0/dev", "", "/sys/class/infiniband_verbs/uverbs0/dev"},
		{"/sys/class/misc/rdma_cm/abi_version", "", "/sys/class/misc/rdma_cm/abi_version"},
		{"/sys//class/./infiniband/", "", "/sys/class/infiniband/"},
		{"/dev/infiniband", "", "/dev/infiniband"},
		{"/dev/infiniband/uverbs0", "", "/dev/infiniband/uverbs0"},
		{"/dev/shm/../infiniband/uverbs0", "", "/dev/infiniband/uverbs0"},
		{"/dev/infiniband2", "", ""},
		{"/dev/null", "", ""},
		{"/home/me/infiniband/uverbs0", "", ""},
		{"/sys/class/infiniband/../../../etc/infiniband", "", ""},
		{"/sys/class/infiniband/rvt0/device/infiniband/rvt0/../x", "", "/sys/class/infiniband/rvt0/device/infiniband/rvt0/../x"},
		{"/run/rvtsim/n1/dev/infiniband/uverbs0", "", "/dev/infiniband/uverbs0"},
		{"uverbs0", "/run/rvtsim/n1/dev/infiniband", "/dev/infiniband/uverbs0"},
		{"uverbs0", "/tmp", ""},
		{"infiniband/rvt0", "/sys/class", "/sys/class/infiniband/rvt0"},
		{"infiniband/uverbs0", "", ""}, // its directory cannot be found out
		{"", "/dev/infiniband", ""},
	} {
		got, ours := v.locate(c.path, func() (string, bool) { return c.base, c.base != "" })
		require.Equal(t, c.want != "", ours, c.path)
		require.Equal(t, c.want, got, c.path)
	}
}

func TestDeviceAt(t *testing.T) {
	for path, want := range map[string]int{
		"/dev/infiniband/uverbs0": 0, "/dev/infiniband/uverbs12": 12, "/dev/infiniband/./uverbs3": 3,
		"/dev/infiniband/uverbs": -1, "/dev/infiniband/uverbs00": -1, "/dev/infiniband/uverbs-1": -1,
		"/dev/infiniband/uverbs12345": -1, "/dev/infiniband/rdma_cm": int(cmDevice), "/dev/infiniband/rdma_cm0": -1, "/sys/class/infiniband": -1,
	} {
		n, ok := deviceAt(path)
		require.Equal(t, want >= 0, ok, path)
		if ok {
			require.Equal(t, uint32(want), n, path)
		}
	}
}

// TestViewHasNoWayOut follows dots and links to where they would lead outside.
func TestViewHasNoWayOut(t *testing.T) {
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	require.NoError(t, os.MkdirAll(filepath.Join(root, "sys"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("x"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(root, "inside"), []byte("x"), 0o600))
	require.NoError(t, os.Symlink("../../secret", filepath.Join(root, "sys", "up")))
	require.NoError(t, os.Symlink("/inside", filepath.Join(root, "sys", "in")))
	v, err := openView(root)
	require.NoError(t, err)
	defer unix.Close(v.fd)
	for path, want := range map[string]unix.Errno{
		"/../secret": unix.ENOENT, "/sys/../../secret": unix.ENOENT, "/sys/up": unix.ENOENT, "/sys/in": 0, "/inside": 0, "/sys/../inside": 0,
	} {
		fd, e := v.open(path, unix.O_RDONLY)
		require.Equal(t, want, e, path)
		if e == 0 {
			require.NoError(t, unix.Close(fd))
		}
	}
	_, err = openView(filepath.Join(dir, "nothing"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestErrorsTravel(t *testing.T) {
	err := decodeError(encodeError(classUnavailable, "no filter", unix.EBUSY))
	var u *UnavailableError
	require.ErrorAs(t, err, &u)
	require.ErrorIs(t, err, unix.EBUSY)
	require.Contains(t, err.Error(), "no filter")
	err = decodeError(encodeError(classOther, "/bin/x", unix.ENOEXEC))
	require.ErrorIs(t, err, unix.ENOEXEC)
	require.Contains(t, err.Error(), "/bin/x")
	require.EqualError(t, decodeError(encodeError(classOther, "it went wrong", 0)), "it went wrong")
	require.Error(t, decodeError(""))
}

func TestLinks(t *testing.T) {
	a, b, err := newLinks()
	require.NoError(t, err)
	f, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer f.Close()
	require.NoError(t, a.send(msgListener, "text", int(f.Fd())))
	require.NoError(t, a.send(msgStatus, ""))
	a.close()
	kind, text, file, err := b.recv()
	require.NoError(t, err)
	require.Equal(t, []any{byte(msgListener), "text"}, []any{kind, text})
	require.GreaterOrEqual(t, file, 0)
	require.NoError(t, unix.Close(file))
	kind, _, file, err = b.recv()
	require.NoError(t, err)
	require.Equal(t, []any{byte(msgStatus), -1}, []any{kind, file})
	_, _, _, err = b.recv()
	require.ErrorIs(t, err, io.EOF)
	require.True(t, errors.Is(b.send(msgGo, ""), unix.EPIPE))
	b.close()
}
