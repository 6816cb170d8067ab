package ucma

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/uverbs"
)

// FuzzWrite lets two programs, of which one has two channels, write what they like. It
// looks for panics, answers that do not fit, counts that are wrong, numbers that clash,
// and events that wait unannounced.
//
// req: CM-FILE-02 CM-FILE-03 CM-FILE-06
func FuzzWrite(f *testing.F) {
	for _, seed := range [][]byte{
		{0, 0, 0, 1, 0, 2, 0, 4, 0, 6, 1, 5, 1, 8, 0, 12, 0, 10, 0, 1},
		{1, 0, 1, 20, 1, 7, 0, 0, 0, 21, 0, 12, 0, 4, 0, 12, 0, 6, 1, 12, 1, 8, 0, 12, 0, 8, 1, 12, 2, 18, 0, 1},
		{0, 0x80, 0, 2, 0, 16, 0, 12, 0, 17, 0, 22, 0, 1},
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		w := newWorld(t)
		ps := []*program{w.nodes[0].open(), w.nodes[1].open(), w.nodes[1].open()}
		handed := map[*context]uint32{}
		for steps := 0; len(in) >= 2 && steps < 200; steps++ {
			p := ps[int(in[0])%len(ps)]
			cmd := uint32(in[1]) % uint32(len(methods)+1)
			twist := in[0] >> 4
			in = in[2:]
			write(t, p, cmd, twist, &in, handed)
			if twist&1 == 0 {
				w.settle()
			}
			if twist == 15 {
				w.pass(10 * time.Second)
			}
			checkAll(t, w, ps, handed)
		}
		for _, p := range ps {
			p.ch.Close()
		}
		w.pass(3 * time.Minute)
		for _, n := range w.nodes {
			require.Empty(t, n.groups)
			require.Empty(t, n.dev.channels)
			for _, c := range n.dev.ids.of {
				require.Nil(t, c)
			}
		}
	})
}

// write gives one command, well-formed in the main, with bytes of the input in it.
func write(t *testing.T, p *program, cmd uint32, twist byte, in *[]byte, handed map[*context]uint32) {
	next := func() byte {
		if len(*in) == 0 {
			return 0
		}
		b := (*in)[0]
		*in = (*in)[1:]
		return b
	}
	var v any
	id := uint32(next() % 8)
	if twist == 14 {
		id = uint32(next())<<24 | 5
	}
	switch cmd {
	case cmdCreateID:
		v = &createIDCmd{UID: uint64(next()), Response: answerAt, PS: []uint16{0x106, 0x111, 0x13f, 2, 9}[next()%5], QPType: next() % 12}
	case cmdBindIP:
		v = &bindIPCmd{Addr: ip4(next()%4, uint16(next()%4)), ID: id}
	case cmdResolveIP:
		v = &resolveIPCmd{Dst: ip4(next()%4, 1+uint16(next()%4)), ID: id, Timeout: 1000}
	case cmdConnect:
		v = &connectCmd{Conn: param(0x10+uint32(next()%8), int(next())), ID: id}
	case cmdAccept:
		c := param(0x10+uint32(next()%8), int(next()))
		c.Valid = next() % 2
		v = &acceptCmd{UID: uint64(next()), Conn: c, ID: id}
	case cmdReject:
		v = &rejectCmd{ID: id, PrivateLen: next(), Reason: next() % 40}
	case cmdJoinIPMcast:
		j := &joinIPCmd{Response: answerAt, UID: 7, ID: id}
		putAddr(j.Addr[:], cm.IPv4(239, 0, 0, 95+next()%5, 0))
		v = j
	case cmdSetOption:
		v = &setOptionCmd{OptVal: 0x1000, ID: id, Level: uint32(next() % 3), OptName: uint32(next() % 5), OptLen: uint32(next() % 80)}
	case cmdGetEvent:
		v = &getEventCmd{answerAt}
	case cmdListen, cmdNotify, cmdResolveRoute, cmdDisconnect:
		v = &idValueCmd{id, int32(int8(next()))}
	case cmdMigrateID:
		v = &idCmd{Response: answerAt, ID: id, Arg: 1000 + uint32(next()%4)}
	case cmdQuery, cmdQueryRoute, cmdInitQPAttr, cmdDestroyID, cmdLeaveMcast:
		v = &idCmd{Response: answerAt, ID: id, Arg: uint32(next() % 9)}
	default:
		v = make([]byte, int(next())*2)
	}
	body := encode(v)
	for range twist & 3 {
		if twist >= 12 && len(body) > 0 {
			body[int(next())%len(body)] ^= next()
		}
	}
	room := uint16(400)
	if twist == 13 {
		room = uint16(next()) * 2
	}
	b := binary.NativeEndian.AppendUint32(nil, cmd)
	b = binary.NativeEndian.AppendUint16(b, uint16(len(body)))
	b = binary.NativeEndian.AppendUint16(b, room)
	c, before := p.n.dev.ids.get(id), len(p.ch.events)
	owner := c != nil && c.ch == p.ch
	var first *context
	if before > 0 {
		first = p.ch.events[0].ctx
	}
	r := p.ch.Write(&uverbs.Caller{Mem: p.mem}, append(b, body...), inodeOf)
	require.LessOrEqual(t, len(r.Out), int(room))
	if r.Errno != 0 {
		require.Empty(t, r.Out)
	}
	switch {
	case cmd == cmdGetEvent && before == 0:
		require.NotZero(t, r.Errno)
	case cmd == cmdGetEvent && r.Errno == 0:
		handed[first]++
	case cmd == cmdDestroyID && r.Errno == 0 && twist < 12:
		require.True(t, owner)
		require.Equal(t, handed[c], native.Uint32(r.Out), "events reported")
	case cmd == cmdDestroyID && owner && twist < 12:
		require.Equal(t, ib.Errno(0), r.Errno, "an id can always be destroyed")
	}
}

func checkAll(t *testing.T, w *world, ps []*program, handed map[*context]uint32) {
	for _, p := range ps {
		require.Equal(t, len(p.ch.events) > 0, p.ready)
		for _, c := range p.ch.ids {
			require.Same(t, p.ch, c.ch)
			require.Same(t, c, p.n.dev.ids.get(c.id))
			require.Equal(t, handed[c], c.reported)
		}
		for i := range p.ch.events {
			require.Same(t, p.ch, p.ch.events[i].ctx.ch, "an event of somebody else's id")
		}
	}
}
