package loopback

import (
	"bufio"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

func listen(t *testing.T) (port string) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
}

// TestListens tells the server that one has started from somebody else on its port: "there
// is a listener" would send the client to the wrong one.
func TestListens(t *testing.T) {
	port := listen(t)
	own, other := Listens(os.Getpid(), port)
	require.True(t, own, "this process listens")
	require.False(t, other)

	cat := exec.Command("cat") // a process that does not listen
	in, err := cat.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cat.Start())
	own, other = Listens(cat.Process.Pid, port)
	require.False(t, own)
	require.True(t, other, "somebody else's port")
	require.NoError(t, in.Close())
	require.NoError(t, cat.Wait())

	free, err := Port()
	require.NoError(t, err)
	own, other = Listens(os.Getpid(), free)
	require.False(t, own || other)
	own, other = Listens(os.Getpid(), "no port")
	require.False(t, own || other)
}

// TestDescendantListens: rvtsim exec runs the server as a child, or a launcher does.
func TestDescendantListens(t *testing.T) {
	const key = "RVTSIM_TEST_LISTENER"
	if os.Getenv(key) != "" {
		l, err := net.Listen("tcp", ":0")
		require.NoError(t, err)
		_, _ = os.Stdout.WriteString(strconv.Itoa(l.Addr().(*net.TCPAddr).Port) + "\n")
		_, _ = os.Stdin.Read(make([]byte, 1)) // until the parent ends
		return
	}
	sh := exec.Command("sh", "-c", `"$0" -test.run '^TestDescendantListens$'; true`, os.Args[0])
	sh.Env = append(os.Environ(), key+"=1")
	in, err := sh.StdinPipe()
	require.NoError(t, err)
	out, err := sh.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, sh.Start())
	line := bufio.NewScanner(out)
	require.True(t, line.Scan())
	own, other := Listens(sh.Process.Pid, line.Text())
	require.True(t, own)
	require.False(t, other)
	require.NoError(t, in.Close())
	require.NoError(t, sh.Wait())
}
