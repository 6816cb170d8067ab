package neigh

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Of linux/inet_diag.h and linux/sock_diag.h.
const (
	sockDiagByFamily = 20
	inetDiagReqBytes = 56
	anyPort          = 49152 // a source port that RoCE uses
)

// taken returns 0 if a UDP socket takes what is sent to the port at Dst, EAGAIN if none
// does: one may come. Where the kernel cannot tell, somebody does.
func (t *Table) taken(q Question, ifindex int) unix.Errno {
	req := request(q, ifindex)
	if err := unix.Sendto(t.diag, req, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0
	}
	var b [4096]byte
	n, _, err := unix.Recvfrom(t.diag, b[:], 0)
	if err != nil || n < unix.NLMSG_HDRLEN+4 {
		return 0
	}
	if binary.NativeEndian.Uint16(b[4:]) == unix.NLMSG_ERROR && -int32(binary.NativeEndian.Uint32(b[unix.NLMSG_HDRLEN:])) == int32(unix.ENOENT) {
		return unix.EAGAIN
	}
	return 0
}

// request is a struct inet_diag_req_v2 behind its header. The kernel looks the socket up as
// for a packet from "src" to "dst".
func request(q Question, ifindex int) []byte {
	e := binary.NativeEndian
	b := make([]byte, unix.NLMSG_HDRLEN+inetDiagReqBytes)
	e.PutUint32(b, uint32(len(b)))
	e.PutUint16(b[4:], sockDiagByFamily)
	e.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[unix.NLMSG_HDRLEN:]
	r[0], r[1] = unix.AF_INET, unix.IPPROTO_UDP
	if q.Dst.Is6() {
		r[0] = unix.AF_INET6
	}
	e.PutUint32(r[4:], ^uint32(0)) // states
	binary.BigEndian.PutUint16(r[8:], anyPort)
	binary.BigEndian.PutUint16(r[10:], q.Port)
	putAddr(r[12:], q.Src)
	putAddr(r[28:], q.Dst)
	e.PutUint32(r[44:], uint32(ifindex))
	e.PutUint64(r[48:], ^uint64(0)) // no cookie
	return b
}

func putAddr(b []byte, a netip.Addr) { copy(b, a.AsSlice()) }
