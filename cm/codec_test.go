package cm

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/tests/golden"
	"github.com/rvtsim/rvtsim/wire"
)

// captured is a message of the connection manager in a capture.
type captured struct {
	from, to ib.GID
	tclass   uint8
	mad      MAD
}

// captureOf returns the messages of one golden capture.
func captureOf(t testing.TB, name string) []captured {
	all, err := golden.Captures()
	require.NoError(t, err)
	var out []captured
	for _, c := range all {
		if c.Name != name {
			continue
		}
		for _, f := range c.Frames {
			var p wire.Packet
			require.Equal(t, wire.DropNone, wire.Decode(f.Body, &p))
			if p.DestQP == ib.QPNGSI {
				out = append(out, captured{f.Path.Src, f.Path.Dst, f.Path.TClass, MAD(p.Payload)})
			}
		}
	}
	require.NotEmpty(t, out, "no capture %q", name)
	return out
}

var captures = []struct {
	name  string
	attrs []Attr
}{
	{"cm_rc_rping", []Attr{AttrREQ, AttrREP, AttrRTU, AttrDREQ, AttrDREP}},
	{"cm_rc_ucmatose", []Attr{AttrREQ, AttrREP, AttrRTU, AttrDREQ, AttrDREP}},
	{"cm_rej_no_listener", []Attr{AttrREQ, AttrREJ}},
	{"cm_ud_sidr_udaddy", []Attr{AttrSIDRReq, AttrSIDRRep}},
}

// TestGoldenRoundTrip decodes every captured message and encodes it again.
func TestGoldenRoundTrip(t *testing.T) {
	for _, c := range captures {
		msgs := captureOf(t, c.name)
		require.Len(t, msgs, len(c.attrs))
		for i, m := range msgs {
			h, body, err := Decode(m.mad[:])
			require.NoError(t, err)
			require.Equal(t, c.attrs[i], h.Attr)
			require.Equal(t, m.mad, Encode(h, body), "%s message %d", c.name, i)
		}
	}
}

// TestGoldenFields names every field of the captured REQ and REP.
func TestGoldenFields(t *testing.T) {
	msgs := captureOf(t, "cm_rc_rping")
	h, body, err := Decode(msgs[0].mad[:])
	require.NoError(t, err)
	require.Equal(t, Header{BaseVersion: 1, Class: 7, ClassVersion: 2, Method: 3, TID: 0x0000000247dfff1f, Attr: AttrREQ}, h)
	client, server := ib.GIDFromIPv4(10, 77, 0, 1), ib.GIDFromIPv4(10, 77, 0, 2)
	want := &REQ{LocalCommID: 0x1fffdf47, ServiceID: NewServiceID(PSTCP, 7471), LocalCAGUID: 0x505400fffe770001, LocalQPN: 0x11,
		ResponderResources: 1, InitiatorDepth: 1, RemoteResponseTimeout: 20, StartingPSN: 0x3b701b, LocalResponseTimeout: 20,
		RetryCount: 7, PKey: 0xffff, PathMTU: ib.MTU1024, RNRRetryCount: 7, MaxCMRetries: 15,
		Primary: Path{LocalLID: 0xffff, RemoteLID: 0xffff, LocalGID: client, RemoteGID: server, FlowLabel: 0x28494, HopLimit: 64, AckTimeout: 19}}
	PrivateHeader{IPVersion: 4, SrcPort: 38907, Src: client, Dst: server}.Put(want.Private[:])
	require.Equal(t, want, body)
	require.Equal(t, uint32((31*38907+7471)&0xfffff), want.Primary.FlowLabel)
	require.Equal(t, PrivateHeader{IPVersion: 4, SrcPort: 38907, Src: client, Dst: server}, DecodePrivateHeader(want.Private[:]))

	h, body, err = Decode(msgs[1].mad[:])
	require.NoError(t, err)
	require.Equal(t, uint64(0x0000000247dfff1f), h.TID)
	require.Equal(t, &REP{LocalCommID: 0x9bcec43c, RemoteCommID: 0x1fffdf47, LocalQPN: 0x12, StartingPSN: 0xabaa97,
		ResponderResources: 1, InitiatorDepth: 1, TargetACKDelay: 15, RNRRetryCount: 7, LocalCAGUID: 0x505400fffe770002}, body)
}

// definedBits returns a message of kind a with every bit set that a field covers.
func definedBits(a Attr) []byte {
	ones := MAD(bytes.Repeat([]byte{0xff}, MADBytes))
	m := newMessage(a)
	m.walk(&codec{ones[HeaderBytes:], true})
	var out MAD
	m.walk(&codec{out[HeaderBytes:], false})
	return out[HeaderBytes:]
}

// TestLayout checks, for each message, that fields do not overlap and how many bits
// have none.
func TestLayout(t *testing.T) {
	for _, c := range []struct {
		attr     Attr
		reserved int // bits
	}{
		{AttrREQ, 8 + 32 + (6 + 3 + 3) + (6 + 3 + 2)}, {AttrREP, 4}, {AttrRTU, 0}, {AttrDREQ, 8}, {AttrDREP, 0}, {AttrMRA, 6 + 3},
		{AttrREJ, 6 + 1}, {AttrSIDRReq, 16}, {AttrSIDRRep, 0}, {AttrLAP, 32 + 3 + 32 + 4 + 2 + 3 + 3}, {AttrAPR, 16},
	} {
		zero := 0
		for _, b := range definedBits(c.attr) {
			for i := range 8 {
				if b>>i&1 == 0 {
					zero++
				}
			}
		}
		require.Equal(t, c.reserved, zero, "%v", c.attr)
		// Setting one bit and decoding and encoding must give that bit or none.
		for bit := range 8 * bodyBytes {
			var in, out MAD
			in[HeaderBytes+bit/8] = 0x80 >> (bit % 8)
			m := newMessage(c.attr)
			m.walk(&codec{in[HeaderBytes:], true})
			m.walk(&codec{out[HeaderBytes:], false})
			if definedBits(c.attr)[bit/8]&(0x80>>(bit%8)) != 0 {
				require.Equal(t, in, out, "%v bit %d", c.attr, bit)
			} else {
				require.Equal(t, MAD{}, out, "%v bit %d", c.attr, bit)
			}
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	good := captureOf(t, "cm_rc_rping")[0].mad
	for _, c := range []struct {
		name string
		edit func(m *MAD) []byte
		want error
	}{
		{"empty", func(*MAD) []byte { return nil }, ErrShort},
		{"short", func(m *MAD) []byte { return m[:255] }, ErrShort},
		{"long", func(m *MAD) []byte { return append(m[:], 0) }, ErrShort},
		{"base version", func(m *MAD) []byte { m[0] = 2; return m[:] }, ErrNotCM},
		{"class", func(m *MAD) []byte { m[1] = 3; return m[:] }, ErrNotCM},
		{"class version", func(m *MAD) []byte { m[2] = 1; return m[:] }, ErrNotCM},
		{"method", func(m *MAD) []byte { m[3] = 1; return m[:] }, ErrNotCM},
		{"attribute", func(m *MAD) []byte { m[17] = 0x1b; return m[:] }, ErrAttribute},
	} {
		m := good
		_, body, err := Decode(c.edit(&m))
		require.ErrorIs(t, err, c.want, c.name)
		require.Nil(t, body, c.name)
	}
}

func TestServiceID(t *testing.T) {
	require.Equal(t, ServiceID(0x1061d2f), NewServiceID(PSTCP, 7471))
	s, p, ok := NewServiceID(PSUDP, 7174).Split()
	require.True(t, ok)
	require.Equal(t, PSUDP, s)
	require.Equal(t, uint16(7174), p)
	_, _, ok = ServiceID(0x0200000001061d2f).Split()
	require.False(t, ok)
}

func TestNames(t *testing.T) {
	require.Equal(t, "STALE_CONN", RejStaleConn.String())
	require.Equal(t, "Reason(34)", Reason(34).String())
	require.Equal(t, "SIDR_REP", AttrSIDRRep.String())
	require.Equal(t, "10.1.2.3:7", IPv4(10, 1, 2, 3, 7).String())
	require.True(t, strings.HasPrefix(Wildcard(FamilyIPv6, 9).String(), "[0000:"))
}

// FuzzDecode decodes anything, and encodes what it got: all bits that have a name are
// the same again.
func FuzzDecode(f *testing.F) {
	for _, c := range captures {
		for _, m := range captureOf(f, c.name) {
			f.Add(m.mad[:])
		}
	}
	f.Add([]byte{1, 7, 2, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, m, err := Decode(b)
		if err != nil {
			return
		}
		out := Encode(h, m)
		h2, m2, err := Decode(out[:])
		require.NoError(t, err)
		require.Equal(t, h, h2)
		require.Equal(t, m, m2)
		for i, mask := range definedBits(h.Attr) {
			require.Equal(t, b[HeaderBytes+i]&mask, out[HeaderBytes+i])
		}
	})
}
