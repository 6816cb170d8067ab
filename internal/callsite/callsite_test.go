//go:build linux

package callsite

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// header stands for infiniband/verbs.h: programs post through functions in it.
const header = `extern void write_doorbell(void);
static inline int ibv_post_send(int n) {
	write_doorbell();
	return n;
}
`

// The program prints where the call came from that its doorbell saw.
const program = `#include "verbs.h"
#include <stdio.h>
extern char __executable_start;
int pie; volatile int sum;
void __attribute__((noinline)) write_doorbell(void) {
	char *from = (char *)__builtin_return_address(0) - 1;
	printf("%lx\\n", (unsigned long)(pie ? from - &__executable_start : from - (char *)0));
}
static void __attribute__((noinline)) send_all(int n) {
	for (int i = 0; i < n; i++)
		sum += ibv_post_send(i); /* line 11 */
}
int main(int argc, char **argv) {
	(void)argv;
	pie = argc > 1;
	send_all(1);
	return 0;
}
`

// build compiles the program and returns its path and the addresses of its functions.
func build(t *testing.T, flags ...string) (path string, at map[string]uint64) {
	if _, err := exec.LookPath("cc"); err != nil {
		t.Skip("missing tool: cc")
	}
	dir := t.TempDir()
	src := filepath.Join(dir, "prog.c")
	path = filepath.Join(dir, "prog")
	require.NoError(t, os.WriteFile(src, []byte(program), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "verbs.h"), []byte(header), 0o600))
	out, err := exec.Command("cc", append(flags, "-o", path, src)...).CombinedOutput()
	require.NoError(t, err, string(out))
	at = map[string]uint64{}
	e, err := elf.Open(path)
	require.NoError(t, err)
	defer e.Close()
	if syms, err := e.Symbols(); err == nil {
		for _, s := range syms {
			at[s.Name] = s.Value
		}
	}
	return path, at
}

// doorbell runs a program and returns where it was called from.
func doorbell(t *testing.T, path string, args ...string) uint64 {
	out, err := exec.Command(path, args...).Output()
	require.NoError(t, err)
	var addr uint64
	_, err = fmt.Sscanf(string(out), "%x", &addr)
	require.NoError(t, err)
	return addr
}

func TestDescribe(t *testing.T) {
	var fs Files
	for _, flags := range [][]string{{"-g", "-O1", "-pie", "-fPIE"}, {"-g", "-O2", "-no-pie"}} {
		path, at := build(t, flags...)
		var args []string
		if flags[2] == "-pie" {
			args = []string{"pie"}
		}
		call := doorbell(t, path, args...)
		site := fmt.Sprintf("%x %s\n%x %s\n%x %s\n", call, path, at["main"], path, at["_start"]+1, path)
		require.Equal(t, "send_all (prog.c:11), called from main (prog.c:13)", fs.Describe(site), "%v", flags)
	}
	path, at := build(t, "-g", "-O0", "-no-pie")
	call := doorbell(t, path)
	require.Empty(t, fs.Describe(fmt.Sprintf("%x %s\n", call, path)), "the header's function is not the program's")
	require.Equal(t, "send_all (prog.c:9)", fs.Describe(fmt.Sprintf("%x %s\n%x %s\n", call, path, at["send_all"], path)))

	path, at = build(t, "-O1")
	require.Equal(t, fmt.Sprintf("main (prog+%#x)", at["main"]+2), fs.Describe(fmt.Sprintf("%x %s\n", at["main"]+2, path)), "without debug information")
	path, _ = build(t, "-s")
	require.Equal(t, "prog+0x1234", fs.Describe("1234 "+path+"\n"), "without symbols")
}

// TestDescribeAnything: the text comes from a program.
func TestDescribeAnything(t *testing.T) {
	var fs Files
	for site, want := range map[string]string{
		"": "", "\n": "", "zz /bin/sh\n": "", "12": "", "12 relative\n": "",
		"12 /nowhere/x\n":                "x+0x12",
		"12 /dev/zero\n":                 "zero+0x12",
		"12 /proc/self/mem\n":            "mem+0x12",
		"ffffffffffffffff /etc/passwd\n": "passwd+0xffffffffffffffff",
		"12 /etc\nbad":                   "etc+0x12",
	} {
		require.Equal(t, want, fs.Describe(site), "%q", site)
	}
	for i := range 2*maxFiles + 1 {
		fs.Describe(fmt.Sprintf("1 /nowhere/%d\n", i))
	}
	require.LessOrEqual(t, len(fs.open), maxFiles)
}
