package exhaust

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/internal/invariants"
	"github.com/rvtsim/rvtsim/mr"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/swqe"
	"github.com/rvtsim/rvtsim/wire"
)

// ucMessages are packets per message on each of two UC connections. Both take their receives
// from one shared queue.
var ucMessages = [2][]int{{3, 2, 1}, {2, 1}}

// ucPacket is a packet of a connection: which of a message of so many.
type ucPacket struct {
	conn, k int // k-th packet of the connection
	at, of  int // place in its message, and the message's packets
}

func ucPackets(conn int) (list []ucPacket) {
	for _, of := range ucMessages[conn] {
		for at := range of {
			list = append(list, ucPacket{conn, len(list), at, of})
		}
	}
	return list
}

// ucArrivals lets the fates of ch happen to the packets of the first connection, and puts
// those of the second one between them, but for the one that is lost. The last message of
// each arrives in any case.
func ucArrivals(ch *chooser, lost int) (list []ucPacket) {
	first, second := ucPackets(0), ucPackets(1)
	var held []ucPacket
	for i, p := range first {
		f := pass
		if i < len(first)-1 {
			f = ch.choose()
		}
		switch f {
		case drop:
		case twice:
			list = append(list, p, p)
		case swap:
			held = append(held, p)
			continue
		default:
			list = append(list, p)
		}
		list, held = append(list, held...), nil
		if i < len(second) && i != lost {
			list = append(list, second[i])
		}
	}
	return list
}

// ucModel says what each arrival completes: "id status" in order. A START takes a receive; the
// message is delivered if the connection's next arrivals are the rest of it, in order.
func ucModel(list []ucPacket, abandoned ib.WCStatus) (want []string) {
	type state struct {
		recv, next int // receive of the open message, 0: none; the packet that is due
		kept       int
	}
	var conns [2]state
	taken := 0
	say := func(id int, s ib.WCStatus) { want = append(want, fmt.Sprintf("%d %v", id, s)) }
	for _, p := range list {
		c := &conns[p.conn]
		if c.recv != 0 && p.k != c.next || p.at == 0 {
			switch {
			case c.recv == 0:
			case abandoned == ib.WCSuccess:
				c.kept = c.recv
			default:
				say(c.recv, abandoned)
			}
			c.recv = 0
		}
		if p.at == 0 {
			if c.recv, c.kept = c.kept, 0; c.recv == 0 {
				taken++
				c.recv = taken
			}
		}
		if c.recv == 0 {
			continue
		}
		c.next = p.k + 1
		if p.at == p.of-1 {
			say(c.recv, ib.WCSuccess)
			c.recv = 0
		}
	}
	for i := range conns { // ERR gives back what is held
		if id := max(conns[i].recv, conns[i].kept); id != 0 {
			say(id, ib.WCWRFlushErr)
		}
	}
	return want
}

// ucRun lets the packets arrive and returns what completed.
func ucRun(profile qp.Profile, list []ucPacket) (got []string, left int) {
	const receives = 12
	h := newHost(1, &config{profile: profile, window: 16})
	peer := ib.GIDFromIPv4(10, 0, 0, 2)
	pd, err := h.d.AllocPD()
	must(err)
	m, err := h.d.RegMR(pd, mr.NewSlice(bufBase, h.buf), bufBase, bufBytes, bufBase, ib.AccessLocalWrite)
	must(err)
	srq, err := h.d.CreateSRQ(pd, rvt.SRQAttr{MaxWR: receives, MaxSGE: 1}, nil)
	must(err)
	for id := range uint64(receives) {
		_, err := h.d.PostSRQRecv(srq, []swqe.RecvWR{{WRID: id + 1, SGL: []mr.SGE{{Addr: bufBase, Length: 1024, LKey: m.LKey}}}})
		must(err)
	}
	var qs [2]*qp.QP
	for i := range qs {
		qs[i], err = h.d.CreateQP(pd, &qp.InitAttr{SendCQ: h.cq, RecvCQ: h.cq, Type: ib.QPTypeUC, SRQ: srq, Cap: qp.Cap{MaxSendWR: 1, MaxSendSGE: 1}})
		must(err)
		a := qp.Attr{State: ib.StateInit, PortNum: 1}
		must(h.d.ModifyQP(0, qs[i], &a, ib.AttrState|ib.AttrPKeyIndex|ib.AttrPort|ib.AttrAccessFlags))
		a = qp.Attr{State: ib.StateRTR, AV: ib.AV{DGID: peer, IsGlobal: true, PortNum: 1}, PathMTU: ib.MTU256, DestQPN: 5, RQPSN: firstPSN}
		must(h.d.ModifyQP(0, qs[i], &a, ib.AttrState|ib.AttrAV|ib.AttrPathMTU|ib.AttrDestQPN|ib.AttrRQPSN))
	}
	for _, p := range list {
		op, n := ib.OpSendMiddle, mtuBytes
		switch {
		case p.of == 1:
			op, n = ib.OpSendOnly, 8
		case p.at == 0:
			op = ib.OpSendFirst
		case p.at == p.of-1:
			op, n = ib.OpSendLast, 8
		}
		f := frame{path: wire.Path{Src: peer, Dst: h.gid, HopLimit: 64},
			pkt: wire.Packet{Opcode: ib.TransportUC | op, PKey: ib.PKeyDefault, DestQP: qs[p.conn].QPN, PSN: firstPSN.Add(p.k), Payload: make([]byte, n)}}
		h.receive(0, &f)
	}
	for _, q := range qs {
		must(h.d.ModifyQP(0, q, &qp.Attr{State: ib.StateErr}, ib.AttrState))
		h.d.Commit(0)
		h.poll()
	}
	for _, wc := range h.wcs {
		got = append(got, fmt.Sprintf("%d %v", wc.WRID, wc.Status))
	}
	return got, receives - srq.RQ.Len()
}

// TestUnreliableShared: whatever becomes of the packets, each receive that a UC message took
// from a shared queue completes once: with the message, or when that is abandoned.
// req: UC-07 UC-03 SRQ-01
func TestUnreliableShared(t *testing.T) {
	most := 5
	if invariants.Race {
		most = 3
	}
	runs, seen := 0, map[string]bool{}
	for _, profile := range []qp.Profile{qp.ProfileIBTA, qp.ProfileRDMAVT, qp.ProfileRXE} {
		for lost := -1; lost < len(ucPackets(1))-1; lost++ {
			ch := &chooser{level: level{"pdts", most}}
			for more := true; more; more = ch.next() {
				list := ucArrivals(ch, lost)
				want := ucModel(list, profile.SRQAbort)
				got, taken := ucRun(profile, list)
				require.Equal(t, want, got, "%s, pattern %s, %d of the second connection lost: %v", profile.Name, ch, lost, list)
				require.Len(t, got, taken, "receives that left the shared queue")
				runs++
				for _, s := range got {
					seen[strings.Fields(s)[1]] = true
				}
			}
		}
	}
	require.Equal(t, map[string]bool{"SUCCESS": true, "REM_ABORT_ERR": true, "REM_INV_REQ_ERR": true, "WR_FLUSH_ERR": true}, seen)
	t.Logf("%d runs", runs)
}
