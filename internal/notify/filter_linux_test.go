//go:build amd64 || arm64

package notify

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// interpret runs a filter over a call, as the kernel does for the few instructions that
// we use.
func interpret(t *testing.T, code []unix.SockFilter, arch, nr uint32, args [6]uint64) uint32 {
	t.Helper()
	var data [64]byte
	binary.LittleEndian.PutUint32(data[dataNr:], nr)
	binary.LittleEndian.PutUint32(data[dataArch:], arch)
	for i, a := range args {
		binary.LittleEndian.PutUint64(data[dataArgs+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(code); pc++ {
		in := code[pc]
		taken := false
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			acc = binary.LittleEndian.Uint32(data[in.K:])
			continue
		case unix.BPF_RET | unix.BPF_K:
			return in.K
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			taken = acc == in.K
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			taken = acc >= in.K
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			taken = acc&in.K != 0
		default:
			t.Fatalf("instruction %d has code %#x", pc, in.Code)
		}
		if taken {
			pc += int(in.Jt)
		} else {
			pc += int(in.Jf)
		}
	}
	t.Fatal("the filter has no end")
	return 0
}

func TestFilter(t *testing.T) {
	const allow, notify = unix.SECCOMP_RET_ALLOW, unix.SECCOMP_RET_USER_NOTIF
	r := fdRange{960, 64}
	code, err := buildFilter(r)
	require.NoError(t, err)
	require.LessOrEqual(t, len(code), 80, "each instruction costs every call that the filter mentions")
	type args = [6]uint64
	cwd := uint64(1<<64 - 100) // AT_FDCWD
	cases := []struct {
		nr   uint32
		args args
		want uint32
	}{
		{unix.SYS_READ, args{1000}, allow},
		{unix.SYS_CLOSE, args{1000}, allow},
		{unix.SYS_MMAP, args{0, 4096, 3, 1, 1000}, allow},
		{unix.SYS_PPOLL, args{}, allow},
		{unix.SYS_OPENAT, args{cwd, 1}, notify},
		{unix.SYS_EXECVE, args{1}, notify},
		{unix.SYS_READLINKAT, args{cwd, 1}, notify},
		{unix.SYS_STATX, args{cwd, 1, 0}, notify},
		{unix.SYS_STATX, args{5, 1, unix.AT_EMPTY_PATH}, allow},
		{unix.SYS_STATX, args{960, 1, unix.AT_EMPTY_PATH}, notify},
		{sysFstatat, args{cwd, 1, 2, unix.AT_SYMLINK_NOFOLLOW}, notify},
		{sysFstatat, args{5, 1, 2, unix.AT_EMPTY_PATH}, allow},
		{sysFstatat, args{1023, 1, 2, unix.AT_EMPTY_PATH | unix.AT_NO_AUTOMOUNT}, notify},
		{unix.SYS_FCNTL, args{1000, unix.F_GETFL}, allow},
		{unix.SYS_FCNTL, args{1000, unix.F_DUPFD}, notify},
		{unix.SYS_FCNTL, args{10, unix.F_DUPFD}, allow},
		{unix.SYS_FCNTL, args{1000, unix.F_DUPFD_CLOEXEC}, notify},
		{unix.SYS_IOCTL, args{1000, unix.TIOCGWINSZ}, allow},
		{unix.SYS_IOCTL, args{1000, verbsIoctl}, notify},
		{unix.SYS_IOCTL, args{10, verbsIoctl}, allow},
		{unix.SYS_SOCKET, args{unix.AF_INET, unix.SOCK_STREAM, netlinkRDMA}, allow},
		{unix.SYS_SOCKET, args{unix.AF_NETLINK, unix.SOCK_RAW, 0}, allow},
		{unix.SYS_SOCKET, args{unix.AF_NETLINK, unix.SOCK_RAW, netlinkRDMA}, unix.SECCOMP_RET_ERRNO | uint32(unix.EPROTONOSUPPORT)},
	}
	for _, nr := range []uint32{unix.SYS_WRITE, unix.SYS_WRITEV, unix.SYS_PWRITE64, unix.SYS_FSTAT, unix.SYS_DUP, unix.SYS_DUP3} {
		for fd, want := range map[uint64]uint32{0: allow, 959: allow, 960: notify, 1023: notify, 1024: allow, 1<<32 | 960: notify, 1<<64 - 1: allow} {
			cases = append(cases, struct {
				nr   uint32
				args args
				want uint32
			}{nr, args{fd}, want})
		}
	}
	for _, c := range cases {
		require.Equal(t, c.want, interpret(t, code, auditArch, c.nr, c.args), "call %d %v", c.nr, c.args)
		require.Equal(t, uint32(allow), interpret(t, code, auditArch^1, c.nr, c.args), "another architecture")
	}
}

// TestFilterListsAreDisjoint: no call is named twice.
func TestFilterListsAreDisjoint(t *testing.T) {
	for _, list := range [][]uint32{pathCalls, oldPathCalls, oldFDCalls} {
		for i, nr := range list {
			for _, other := range list[:i] {
				require.NotEqual(t, other, nr)
			}
		}
	}
}

func TestAssemblerRefusesWhatItCannotEncode(t *testing.T) {
	for name, build := range map[string]func(a *assembler){
		"no such label": func(a *assembler) { a.jump(unix.BPF_JEQ, 1, "nowhere", "") },
		"backwards":     func(a *assembler) { a.label("here"); a.jump(unix.BPF_JEQ, 1, "here", "") },
		"too far": func(a *assembler) {
			a.jump(unix.BPF_JEQ, 1, "", "end")
			for range 256 {
				a.ret(0)
			}
			a.label("end")
			a.ret(0)
		},
	} {
		a := newAssembler()
		build(a)
		_, err := a.assemble()
		require.Error(t, err, name)
	}
}

func TestDeviceRange(t *testing.T) {
	for limit, want := range map[uint64]fdRange{
		1 << 62: {960, 64}, 1024: {960, 64}, 900: {836, 64}, 256: {192, 64}, 100: {75, 25}, 8: {6, 2},
	} {
		r := deviceRange(limit)
		require.Equal(t, want, r, limit)
		require.LessOrEqual(t, uint64(r.first+r.count), limit)
		require.True(t, r.contains(int32(r.first)))
		require.True(t, r.contains(int32(r.first+r.count-1)))
		require.False(t, r.contains(int32(r.first+r.count)))
		require.False(t, r.contains(-1))
	}
}
