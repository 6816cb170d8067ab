package topology

import (
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/wire"
)

// opcodeNames lists every packet opcode in order of its number, by the names that
// traces print.
var opcodeNames, opcodeByName = func() (names []string, byName map[string]ib.Opcode) {
	byName = make(map[string]ib.Opcode)
	for o := range 256 {
		if info := wire.Info(ib.Opcode(o)); info != nil {
			names = append(names, info.Name)
			byName[info.Name] = ib.Opcode(o)
		}
	}
	return names, byName
}()

// packetOpcode reads the name of a packet opcode.
func packetOpcode(d *decoder, v value) (ib.Opcode, bool) {
	s, ok := d.text(v)
	if !ok {
		d.mismatch(v, "a packet opcode such as SEND_ONLY or UD_SEND_ONLY")
		return 0, false
	}
	o, ok := opcodeByName[s]
	if !ok {
		d.unknown(v.path, "packet opcode", s, opcodeNames)
	}
	return o, ok
}

// DropTotal is the name under which an expectation adds up all drops.
const DropTotal = "total"

// dropNames lists the reasons for which a device drops packets, and DropTotal.
var dropNames = func() []string {
	names := []string{DropTotal}
	for r := wire.DropNone + 1; r < wire.NumDropReasons; r++ {
		names = append(names, r.String())
	}
	return names
}()

// opcodeName is the name that packetOpcode reads.
func opcodeName(o ib.Opcode) string {
	for _, n := range opcodeNames {
		if opcodeByName[n] == o {
			return n
		}
	}
	return ""
}
