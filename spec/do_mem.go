package spec

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
)

// doMem prints memory in hexadecimal, compares two pieces (same=), or writes (fill=,
// hex=) as the program that owns it would.
func (in *Interp) doMem(a *args) error {
	b, err := in.bytesOf(a.word("memory, as ma+0:16"))
	if err != nil {
		return err
	}
	same, fill, set := a.str("same", ""), a.str("fill", ""), a.str("hex", "")
	if err := a.done(); err != nil {
		return err
	}
	switch {
	case same != "":
		other, err := in.bytesOf(same)
		if err != nil {
			return err
		}
		in.printf("%s\n", compare(b, other))
	case fill != "":
		if err := fillBytes(b, fill); err != nil {
			return err
		}
		in.result(nil)
	case set != "":
		v, err := hex.DecodeString(set)
		if err != nil || len(v) != len(b) {
			return fmt.Errorf("hex=%s is not %d bytes", set, len(b))
		}
		copy(b, v)
		in.result(nil)
	default:
		for len(b) > 0 {
			n := min(len(b), 16)
			in.printf("%s\n", hex.EncodeToString(b[:n]))
			b = b[n:]
		}
	}
	return nil
}

func compare(a, b []byte) string {
	if bytes.Equal(a, b) {
		return "same"
	}
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("differ from byte %d on", i)
		}
	}
	return "differ in length"
}

// bytesOf is the memory that "ma+16:64" names.
func (in *Interp) bytesOf(s string) ([]byte, error) {
	where, n, ok := strings.Cut(s, ":")
	m, off, err := in.spot(where)
	if err != nil {
		return nil, err
	}
	length, err := parseNum(n)
	if !ok || err != nil || off > uint64(len(m.buf)) || length > uint64(len(m.buf))-off || length > 4096 && n == "" {
		return nil, fmt.Errorf("%q is not a piece of a region", s)
	}
	return m.buf[off : off+length], nil
}
