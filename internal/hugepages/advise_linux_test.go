package hugepages

import (
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnonymousAreas(t *testing.T) {
	areas, err := anonymous(strings.NewReader(`00400000-00c00000 rw-p 00000000 fe:00 17 /bin/x
c000000000-c004000000 rw-p 00000000 00:00 0
c004000000-c008000000 ---p 00000000 00:00 0
c008100000-c008700000 rw-p 00000000 00:00 0 [anon: Go: heap]
7f0000100000-7f0000200000 rw-p 00000000 00:00 0
7ffc00000000-7ffc00400000 rw-p 00000000 00:00 0 [stack]
`))
	require.NoError(t, err)
	require.Equal(t, []area{{0xc000000000, 0xc004000000}, {0xc008200000, 0xc008600000}}, areas)
	_, err = anonymous(strings.NewReader("zz-1 rw-p 00000000 00:00 0\n"))
	require.ErrorContains(t, err, "zz-1")
}

func TestHeapLiesInHugePages(t *testing.T) {
	policy, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	if err != nil || strings.Contains(string(policy), "[never]") {
		t.Skip("the kernel gives no huge pages")
	}
	held := make([]byte, 64<<20)
	for i := 0; i < len(held); i += 4096 {
		held[i] = byte(i >> 12)
	}
	n, err := Advise()
	require.NoError(t, err)
	if n == 0 {
		t.Skip("the kernel has no MADV_COLLAPSE, or no huge page was to be had")
	}
	for i := 0; i < len(held); i += 4096 {
		require.Equal(t, byte(i>>12), held[i])
	}
	runtime.KeepAlive(held)
}
