package udp

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/wire"
)

// verdict is what the ICRC check says of a datagram.
type verdict uint8

const (
	icrcBad    verdict = iota
	icrcFits           // checked in full, with the guess or over IPv6
	icrcSolved         // fits with an identification found by solving
)

// verify checks the ICRC that ends buf, which must hold MinDatagramBytes, for the
// IPv4 identification guess and, unless the mode forbids it, for any other. It
// returns the identification that fits.
func verify(mode VerifyMode, path *wire.Path, known *wire.ICRCPrefixes, buf []byte, guess uint16) (uint16, verdict) {
	body := buf[:len(buf)-wire.ICRCBytes]
	want := binary.LittleEndian.Uint32(buf[len(body):])
	fits := known.Of(path, len(body)).ICRC(guess, body) == want
	switch {
	case fits && path.IsIPv4():
		return guess, icrcFits
	case fits:
		return 0, icrcFits
	case !path.IsIPv4():
		return 0, icrcBad
	}
	id, ok := wire.SolveIPID(path, body, want)
	if !ok || mode == VerifyZeroID && id >= MaxSegments {
		return 0, icrcBad
	}
	return id, icrcSolved
}

// idGuess predicts the identifications of the segments of one received message. A
// train that one send made carries 0, 1, 2...; a train that the receiving kernel put
// together from single sends carries equal ones, or a stretch of the peer's count.
type idGuess struct{ next, step uint16 }

func newIDGuess() idGuess { return idGuess{step: 1} }

// learn notes the identification that a segment turned out to have.
func (g *idGuess) learn(id uint16, first bool) {
	if id != g.next && !first {
		g.step += id - g.next
	}
	g.next = id + g.step
}
