package cm

import (
	"math/bits"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
)

// replay is a captured exchange that two managers play again. What Linux drew at random
// or counted is taken from the capture and forced upon them: comm IDs (and with them
// transaction IDs), starting PSNs, QPNs, the source port, and the parameters of the
// programs. Everything else they have to find themselves, and all 256 bytes of every
// message must be equal.
type replay struct {
	w        *world
	captured []captured
}

func newReplay(t *testing.T, name string) *replay {
	r := &replay{w: newWorld(t, 2, nil), captured: captureOf(t, name)}
	r.w.fate = func(n int, p *Packet) []time.Duration {
		c := r.captured[n]
		require.Equal(t, c.from, p.Port.GIDs[0], "%s message %d", name, n)
		require.Equal(t, c.to, p.AV.DGID, "%s message %d", name, n)
		require.Equal(t, c.tclass, p.AV.TrafficClass)
		require.Equal(t, c.mad, p.MAD, "%s message %d", name, n)
		return []time.Duration{latency}
	}
	return r
}

// message returns the body of a captured message.
func (r *replay) message(i int) Message {
	_, m, err := Decode(r.captured[i].mad[:])
	require.NoError(r.w.t, err)
	return m
}

// forceCommID makes a manager's next exchange get an ID.
func forceCommID(m *Manager, id CommID) { m.nextID, m.idMask = 0, bits.ReverseBytes32(uint32(id)) }

func (r *replay) done() { require.Len(r.w.t, r.w.sent, len(r.captured)) }

// client resolves as the captured REQ or SIDR_REQ did.
func (r *replay) client(space PortSpace, typ ib.QPType, s ServiceID, private []byte) *ID {
	h := DecodePrivateHeader(private)
	_, port, _ := s.Split()
	n := r.w.nodes[0]
	return n.resolved(space, typ, n.addr(h.SrcPort), r.w.nodes[1].addr(port))
}

// req: CM-WIRE-01 CM-WIRE-02 CM-WIRE-03
func TestReplayRC(t *testing.T) {
	for _, c := range []struct {
		name         string
		serverLeaves bool
	}{{"cm_rc_rping", false}, {"cm_rc_ucmatose", true}} {
		t.Run(c.name, func(t *testing.T) {
			r := newReplay(t, c.name)
			w := r.w
			client, server := w.nodes[0], w.nodes[1]
			req, rep := r.message(0).(*REQ), r.message(1).(*REP)
			_, port, _ := req.ServiceID.Split()
			server.listen(PSTCP, ib.QPTypeRC, port, 0)
			a := r.client(PSTCP, ib.QPTypeRC, req.ServiceID, req.Private[:])
			forceCommID(client.m, req.LocalCommID)
			a.psn = req.StartingPSN
			require.NoError(t, a.Connect(w.now, ConnParam{QPN: req.LocalQPN, ResponderResources: req.ResponderResources, InitiatorDepth: req.InitiatorDepth,
				RetryCount: req.RetryCount, RNRRetryCount: req.RNRRetryCount, FlowControl: req.FlowControl, SRQ: req.SRQ}))
			forceCommID(server.m, rep.LocalCommID)
			w.run(10 * latency)
			ev := server.last(EventConnectRequest)
			require.Equal(t, make([]byte, UserREQBytes), ev.Conn.Private)
			b := ev.ID
			b.psn = rep.StartingPSN
			require.NoError(t, b.Accept(w.now, ConnParam{QPN: rep.LocalQPN, ResponderResources: rep.ResponderResources, InitiatorDepth: rep.InitiatorDepth,
				RNRRetryCount: rep.RNRRetryCount, FlowControl: rep.FlowControl, SRQ: rep.SRQ}))
			w.run(10 * latency)
			require.NoError(t, a.Establish(w.now))
			w.run(10 * latency)
			first, second := a, b
			if c.serverLeaves {
				first, second = b, a
			}
			require.NoError(t, first.Disconnect(w.now))
			w.run(10 * latency)
			require.NoError(t, second.Disconnect(w.now))
			w.run(10 * latency)
			r.done()
		})
	}
}

// req: CM-WIRE-02 CM-REJ-01
func TestReplayNoListener(t *testing.T) {
	r := newReplay(t, "cm_rej_no_listener")
	req := r.message(0).(*REQ)
	a := r.client(PSTCP, ib.QPTypeRC, req.ServiceID, req.Private[:])
	forceCommID(r.w.nodes[0].m, req.LocalCommID)
	a.psn = req.StartingPSN
	require.NoError(t, a.Connect(r.w.now, ConnParam{QPN: req.LocalQPN, ResponderResources: req.ResponderResources, InitiatorDepth: req.InitiatorDepth,
		RetryCount: req.RetryCount, RNRRetryCount: req.RNRRetryCount}))
	r.w.run(10 * latency)
	r.done()
	ev := r.w.nodes[0].last(EventRejected)
	require.Equal(t, int(RejInvalidServiceID), ev.Status)
	require.Len(t, ev.Conn.Private, REJPrivateBytes)
}

// req: CM-WIRE-02 CM-SIDR-01
func TestReplaySIDR(t *testing.T) {
	r := newReplay(t, "cm_ud_sidr_udaddy")
	w := r.w
	req, rep := r.message(0).(*SIDRReq), r.message(1).(*SIDRRep)
	_, port, _ := req.ServiceID.Split()
	w.nodes[1].listen(PSUDP, ib.QPTypeUD, port, 0)
	a := r.client(PSUDP, ib.QPTypeUD, req.ServiceID, req.Private[:])
	forceCommID(w.nodes[0].m, req.RequestID)
	require.NoError(t, a.Connect(w.now, ConnParam{QPN: 0x13}))
	w.run(10 * latency)
	ev := w.nodes[1].last(EventConnectRequest)
	require.Len(t, ev.Conn.Private, UserSIDRBytes)
	require.NoError(t, ev.ID.Accept(w.now, ConnParam{QPN: rep.QPN}))
	w.run(10 * latency)
	r.done()
	est := w.nodes[0].last(EventEstablished)
	require.Equal(t, QKeyUDP, est.Conn.QKey)
	require.Equal(t, ib.QPN(0x14), est.Conn.QPN)
	require.Equal(t, w.nodes[1].gid, est.AV.DGID)
	require.Len(t, est.Conn.Private, SIDRRepPrivateBytes)
	require.Equal(t, []EventType{EventConnectRequest}, w.nodes[1].types(ev.ID), "the passive side of UD sees no ESTABLISHED")
}
