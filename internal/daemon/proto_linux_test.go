package daemon

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

// layoutProgram prints what protocol.h says.
const layoutProgram = `
#include <stddef.h>
#include <stdio.h>
#include "protocol.h"
#define S(t) printf(#t " %zu\n", sizeof(struct t))
#define F(t, f) printf(#t "." #f " %zu %zu\n", offsetof(struct t, f), sizeof(((struct t *)0)->f))
#define C(c) printf(#c " %llu\n", (unsigned long long)(c))
int main(void)
{
	S(rvtsim_req); F(rvtsim_req, magic); F(rvtsim_req, version); F(rvtsim_req, op); F(rvtsim_req, pid);
	F(rvtsim_req, kind); F(rvtsim_req, token); F(rvtsim_req, arg); F(rvtsim_req, index); F(rvtsim_req, node);
	S(rvtsim_rep); F(rvtsim_rep, kind); F(rvtsim_rep, error); F(rvtsim_rep, token); F(rvtsim_rep, bell_offset);
	F(rvtsim_rep, out_addr); F(rvtsim_rep, out_len); F(rvtsim_rep, nfiles); F(rvtsim_rep, nwrites); F(rvtsim_rep, query_fd);
	S(rvtsim_write); F(rvtsim_write, addr); F(rvtsim_write, len);
	C(RVTSIM_MAGIC); C(RVTSIM_VERSION); C(RVTSIM_MAX_MSG); C(RVTSIM_MAX_FILES); C(RVTSIM_NODE_LEN);
	C(RVTSIM_DEV_UVERBS); C(RVTSIM_DEV_CM); C(RVTSIM_OPEN); C(RVTSIM_ATTACH); C(RVTSIM_WRITE); C(RVTSIM_IOCTL);
	C(RVTSIM_FDINFO); C(RVTSIM_LIST); C(RVTSIM_STOP); C(RVTSIM_FAULT); C(RVTSIM_REPLY); C(RVTSIM_QUERY_FD);
	C(RVTSIM_GATE_FIRST); C(RVTSIM_GATE_WORDS); C(RVTSIM_BUSY_FIRST); C(RVTSIM_WANT_SITES); C(RVTSIM_MAX_SITE); F(rvtsim_req, why); C(RVTSIM_REFUSED); C(RVTSIM_INBOX); C(RVTSIM_REACH); C(RVTSIM_REACHED);
	return 0;
}`

func TestProtocolMatchesTheLibrarys(t *testing.T) {
	if _, err := exec.LookPath("cc"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("cc is missing")
		}
		t.Skip("SKIP cc is missing")
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "x.c"), []byte(layoutProgram), 0o600))
	out, err := exec.Command("cc", "-I../../shim/src", "-o", filepath.Join(dir, "x"), filepath.Join(dir, "x.c")).CombinedOutput()
	require.NoError(t, err, "%s", out)
	out, err = exec.Command(filepath.Join(dir, "x")).Output()
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(goLayout), strings.TrimSpace(string(out)))
	// The numbers above are the C side's; these tie the Go side to them.
	require.Equal(t, []int{104, 48, 16}, []int{reqLen, repLen, writeLen})
	constants := fmt.Sprint(uint32(protoMagic), protoVersion, maxReply, maxFiles, nodeLen, devUverbs, devCM,
		uint16(opOpen), uint16(opAttach), uint16(opWrite), uint16(opIoctl), uint16(opFDInfo), uint16(opList), uint16(opStop), uint16(opFault), uint16(opInbox), uint16(opReach), repReached,
		repReply, repQueryFD, gateFirst, gateWords, busyFirst, wantSites, maxSite)
	require.Equal(t, "1381389395 1 65536 4 64 1 2 1 2 3 4 5 16 17 18 12 13 6 0 1 64 480 544 1 1024", constants)
}

const goLayout = `
rvtsim_req 104
rvtsim_req.magic 0 4
rvtsim_req.version 4 2
rvtsim_req.op 6 2
rvtsim_req.pid 8 4
rvtsim_req.kind 12 4
rvtsim_req.token 16 8
rvtsim_req.arg 24 8
rvtsim_req.index 32 4
rvtsim_req.node 40 64
rvtsim_rep 48
rvtsim_rep.kind 0 4
rvtsim_rep.error 4 4
rvtsim_rep.token 8 8
rvtsim_rep.bell_offset 16 8
rvtsim_rep.out_addr 24 8
rvtsim_rep.out_len 32 4
rvtsim_rep.nfiles 36 4
rvtsim_rep.nwrites 40 4
rvtsim_rep.query_fd 44 4
rvtsim_write 16
rvtsim_write.addr 0 8
rvtsim_write.len 8 4
RVTSIM_MAGIC 1381389395
RVTSIM_VERSION 1
RVTSIM_MAX_MSG 65536
RVTSIM_MAX_FILES 4
RVTSIM_NODE_LEN 64
RVTSIM_DEV_UVERBS 1
RVTSIM_DEV_CM 2
RVTSIM_OPEN 1
RVTSIM_ATTACH 2
RVTSIM_WRITE 3
RVTSIM_IOCTL 4
RVTSIM_FDINFO 5
RVTSIM_LIST 16
RVTSIM_STOP 17
RVTSIM_FAULT 18
RVTSIM_REPLY 0
RVTSIM_QUERY_FD 1
RVTSIM_GATE_FIRST 64
RVTSIM_GATE_WORDS 480
RVTSIM_BUSY_FIRST 544
RVTSIM_WANT_SITES 1
RVTSIM_MAX_SITE 1024
rvtsim_req.why 36 4
RVTSIM_REFUSED 9
RVTSIM_INBOX 12
RVTSIM_REACH 13
RVTSIM_REACHED 6
`

func TestRequestFieldsAreWhereTheHeaderSays(t *testing.T) {
	b := appendRequest(nil, &request{op: 3, pid: 0x11111111, kind: 0x22222222, token: 0x3333333333333333, arg: 0x4444444444444444, index: 0x55555555, node: "n1", data: []byte("xyz")})
	le := binary.LittleEndian
	require.Len(t, b, reqLen+3)
	require.EqualValues(t, 3, le.Uint16(b[6:]))
	require.EqualValues(t, 0x11111111, le.Uint32(b[8:]))
	require.EqualValues(t, 0x22222222, le.Uint32(b[12:]))
	require.EqualValues(t, 0x3333333333333333, le.Uint64(b[16:]))
	require.EqualValues(t, 0x4444444444444444, le.Uint64(b[24:]))
	require.EqualValues(t, 0x55555555, le.Uint32(b[32:]))
	require.Equal(t, "n1\x00", string(b[40:43]))
	require.Equal(t, "xyz", string(b[reqLen:]))
}

func TestReplyFieldsAreWhereTheHeaderSays(t *testing.T) {
	b, err := appendReply(nil, &reply{kind: 1, errno: 22, token: 3, bellOffset: 4, outAddr: 5, out: []byte("abcde"), offsets: []int{0}, queryFD: 9,
		writes: []memWrite{{addr: 0x1234, data: []byte("q")}}})
	require.NoError(t, err)
	le := binary.LittleEndian
	require.EqualValues(t, 1, le.Uint32(b))
	require.EqualValues(t, 22, le.Uint32(b[4:]))
	require.EqualValues(t, 22, replyErrno(b))
	require.EqualValues(t, []uint64{3, 4, 5}, []uint64{le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])})
	require.EqualValues(t, []uint32{5, 1, 1, 9}, []uint32{le.Uint32(b[32:]), le.Uint32(b[36:]), le.Uint32(b[40:]), le.Uint32(b[44:])})
	require.Equal(t, "abcde\x00\x00\x00", string(b[56:64]), "out follows the offsets, padded to 8")
	require.EqualValues(t, 0x1234, le.Uint64(b[64:]))
	require.EqualValues(t, 1, le.Uint32(b[72:]))
	require.Equal(t, "q", string(b[80:81]))
	require.Len(t, b, 88)
	_, err = appendReply(nil, &reply{out: make([]byte, maxReply)})
	require.ErrorIs(t, err, errTooLong)
}

func FuzzParseRequest(f *testing.F) {
	f.Add(appendRequest(nil, &request{op: opOpen, node: "n1"}))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := parseRequest(b)
		if err != nil {
			return
		}
		require.NotContains(t, r.node, "\x00")
		if len(r.node) == nodeLen {
			return // not terminated, which the library never sends
		}
		again, err := parseRequest(appendRequest(nil, &r))
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
}

func TestErrnoOf(t *testing.T) {
	require.EqualValues(t, 0, errnoOf(nil))
	require.EqualValues(t, 12, errnoOf(ib.NewVerbError(ib.ENOMEM, "x", "", "y")))
	require.EqualValues(t, 24, errnoOf(os.NewSyscallError("x", errEMFILE)))
}
