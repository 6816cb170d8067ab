package udp

import (
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
)

// refusing makes p's kernel answer with the errors of script, one per call, 0 meaning
// one message sent for real; after the script all goes through.
func refusing(p *Port, script ...syscall.Errno) {
	p.tx.sendmmsg = func(fd int, hdrs []unix.Mmsghdr) (int, syscall.Errno) {
		if len(script) == 0 {
			return sendmmsg(fd, hdrs)
		}
		e := script[0]
		script = script[1:]
		if e != 0 {
			return 0, e
		}
		return sendmmsg(fd, hdrs[:1])
	}
}

// mixedTrains returns a batch of three trains: 3, 3 and 2 datagrams.
func mixedTrains(dst ib.GID) []fabric.Datagram {
	return datagrams(dst, 300, 300, 300, 500, 500, 400, 600, 600)
}

// TestGSOFallback makes the kernel refuse trains: nothing may be lost, and the ICRCs
// must follow the new layout.
func TestGSOFallback(t *testing.T) {
	for _, errno := range []syscall.Errno{unix.EIO, unix.EINVAL} {
		tx, rx := openPair(t, nil)
		requireGSO(t, tx)
		refusing(tx, 0, errno) // the first train leaves, the second fails
		sent := mixedTrains(rx.LocalGID())
		send(t, tx, sent)
		got := receive(t, rx, len(sent))
		requireSame(t, sent, got)
		for i, want := range []uint16{0, 1, 2, 0, 0, 0, 0, 0} {
			require.Equal(t, want, got[i].Path.IPID, "datagram %d", i)
		}
		require.EqualValues(t, 1, tx.Counters().GSOFallbacks)
		require.Zero(t, tx.Counters().TxErrors)
		require.EqualValues(t, len(sent), tx.Counters().TxPackets)
		require.Equal(t, 1, tx.Details().GSOSegments)
		err := tx.Degraded()
		require.ErrorIs(t, err, ErrGSODisabled)
		require.ErrorIs(t, err, errno)

		send(t, tx, sent)
		requireSame(t, sent, receive(t, rx, len(sent)))
		require.EqualValues(t, 1, tx.Counters().GSOFallbacks, "once is enough")
	}
}

// TestGSORefusedByKernel provokes a real refusal: a kernel takes no train from a
// socket that does without checksums.
func TestGSORefusedByKernel(t *testing.T) {
	tx, rx := openPair(t, nil)
	requireGSO(t, tx)
	require.NoError(t, unix.SetsockoptInt(tx.sock.fd, unix.SOL_SOCKET, unix.SO_NO_CHECK, 1))
	sent := mixedTrains(rx.LocalGID())
	send(t, tx, sent)
	requireSame(t, sent, receive(t, rx, len(sent)))
	require.ErrorIs(t, tx.Degraded(), ErrGSODisabled)
	require.EqualValues(t, 1, tx.Counters().GSOFallbacks)
}

func TestDisableGSO(t *testing.T) {
	tx, rx := openPair(t, func(c *Config) { c.DisableGSO = true })
	sent := datagrams(rx.LocalGID(), repeat(1040, 64)...)
	send(t, tx, sent)
	got := receive(t, rx, len(sent))
	requireSame(t, sent, got)
	for _, d := range got {
		require.Zero(t, d.Path.IPID)
	}
	require.NoError(t, tx.Degraded(), "as configured")
	require.Zero(t, tx.Details().TxTrains)
	require.False(t, rx.Details().GRO)
}

// TestRefusedTrains drops one train of three for reasons that concern only its
// destination.
func TestRefusedTrains(t *testing.T) {
	for _, c := range []struct {
		errno syscall.Errno
		count func(*Details) uint64
	}{
		{unix.ECONNREFUSED, func(d *Details) uint64 { return d.TxUnreachable }},
		{unix.ENETUNREACH, func(d *Details) uint64 { return d.TxUnreachable }},
		{unix.EHOSTUNREACH, func(d *Details) uint64 { return d.TxUnreachable }},
		{unix.EPERM, func(d *Details) uint64 { return d.TxUnreachable }},
		{unix.EMSGSIZE, func(d *Details) uint64 { return d.TxTooLong }},
		{unix.EPIPE, func(d *Details) uint64 { return d.TxOther }},
	} {
		tx, rx := openPair(t, nil)
		requireGSO(t, tx)
		refusing(tx, 0, unix.EINTR, c.errno)
		sent := mixedTrains(rx.LocalGID())
		send(t, tx, sent)
		want := append(sent[:3:3], sent[6:]...)
		requireSame(t, want, receive(t, rx, len(want)))
		require.EqualValues(t, 3, tx.Counters().TxErrors, "%v", c.errno)
		require.EqualValues(t, 3, c.count(tx.Details()), "%v", c.errno)
		require.EqualValues(t, 5, tx.Counters().TxPackets)
		require.NoError(t, tx.Degraded())
		if c.errno != unix.EMSGSIZE {
			require.ErrorIs(t, tx.Details().LastTxErr, c.errno)
		}
	}
}

// TestRefusedByRealKernel sends where no route leads, and more than the path takes.
func TestRefusedByRealKernel(t *testing.T) {
	tx, rx := openPair(t, nil)
	sent := append(datagrams(ib.GIDFromIPv4(255, 255, 255, 255), 64, 64), datagrams(rx.LocalGID(), 64)...)
	send(t, tx, sent) // broadcast needs a permission that the socket never asks for
	requireSame(t, sent[2:], receive(t, rx, 1))
	require.EqualValues(t, 2, tx.Details().TxUnreachable)
	require.ErrorIs(t, tx.Details().LastTxErr, syscall.EACCES)
}

// TestUnsendable checks that what is no packet at all is dropped and not sent.
func TestUnsendable(t *testing.T) {
	tx, rx := openPair(t, nil)
	sent := datagrams(rx.LocalGID(), 64, 15, 0, 64, 64, MaxDatagramBytes+1, 64)
	sent[4].Path.Dst = gid6
	send(t, tx, sent)
	requireSame(t, []fabric.Datagram{sent[0], sent[3], sent[6]}, receive(t, rx, 3))
	require.EqualValues(t, 3, tx.Details().TxMalformed)
	require.EqualValues(t, 1, tx.Details().TxTooLong)
	require.EqualValues(t, 4, tx.Counters().TxErrors)

	sent = datagrams(rx.LocalGID(), MaxDatagramBytes, MaxDatagramBytes)
	send(t, tx, sent)
	requireSame(t, sent, receive(t, rx, 2))
}

func TestBackPressure(t *testing.T) {
	for _, errno := range []syscall.Errno{unix.EAGAIN, unix.ENOBUFS} {
		tx, rx := openPair(t, nil)
		requireGSO(t, tx)
		refusing(tx, 0, errno)
		sent := mixedTrains(rx.LocalGID())
		n, err := tx.WriteBatch(sent)
		require.NoError(t, err)
		require.Equal(t, 3, n, "the first train went out")
		require.EqualValues(t, 1, tx.Counters().TxBackpressure)
		require.NoError(t, tx.Wait(testTimeout), "the socket has room")
		send(t, tx, sent[n:])
		requireSame(t, sent, receive(t, rx, len(sent)))
		require.Zero(t, tx.Counters().TxErrors)
		require.False(t, tx.waiter.blocked.Load())
	}
}

// TestIovecMerge checks the description of a train's memory.
func TestIovecMerge(t *testing.T) {
	arena := make([]byte, 1000)
	iovs := make([]unix.Iovec, 8)
	n := 0
	for _, b := range [][]byte{arena[0:100], arena[100:250], arena[300:400], arena[400:401], arena[0:100], arena[500:510]} {
		n = appendIovec(iovs, 0, n, b)
	}
	require.Equal(t, 4, n)
	for i, want := range []struct{ off, size int }{{0, 250}, {300, 101}, {0, 100}, {500, 10}} {
		require.Equal(t, &arena[want.off], iovs[i].Base)
		require.EqualValues(t, want.size, iovs[i].Len)
	}
	// The next train must not lengthen the one before.
	require.Equal(t, 5, appendIovec(iovs, 4, 4, arena[510:520]))
}

func TestControlRoundTrip(t *testing.T) {
	buf := make([]byte, txControlBytes)
	require.Zero(t, appendControl(buf, true, 0, 0, defaultHopLimit))
	for _, v4 := range []bool{true, false} {
		n := appendControl(buf, v4, 4112, 0x68, 3)
		require.Equal(t, 2*unix.CmsgSpace(4)+unix.CmsgSpace(2), n)
		msgs, err := unix.ParseSocketControlMessage(buf[:n])
		require.NoError(t, err)
		require.Len(t, msgs, 3)
		require.EqualValues(t, unix.UDP_SEGMENT, msgs[0].Header.Type)
		require.EqualValues(t, 4112, *(*uint16)(unsafe.Pointer(&msgs[0].Data[0])))
		c := parseControl(buf[:n])
		require.EqualValues(t, 0x68, c.tclass)
		require.EqualValues(t, 3, c.hopLimit)
	}
}

// FuzzParseControl compares with x/sys, which allocates but is known to be right.
func FuzzParseControl(f *testing.F) {
	buf := make([]byte, txControlBytes)
	f.Add(buf[:appendControl(buf, true, 64, 8, 3)])
	f.Add([]byte{16, 0, 0, 0, 0, 0, 0, 0, 17, 0, 0, 0, 0x68, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		got := parseControl(b)
		msgs, err := unix.ParseSocketControlMessage(b)
		if err != nil {
			return // a malformed tail: ours keeps what came before
		}
		want := rxControl{hopLimit: defaultHopLimit}
		for _, m := range msgs {
			want.take(m.Header.Level, m.Header.Type, m.Data)
		}
		require.Equal(t, want, got)
	})
}
