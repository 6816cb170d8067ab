package wire

import "github.com/rvtsim/rvtsim/ib"

// ICRCPrefixes remembers the prefixes of a few lengths: those of a train's packets, of a
// message and its acknowledgement. Its zero value remembers nothing.
type ICRCPrefixes [8]struct {
	src, dst ib.GID
	sport    uint16
	prefix   ICRCPrefix
}

// Of returns the prefix for packets of n bytes on path, ICRC not included. It is good until
// the next call.
func (k *ICRCPrefixes) Of(path *Path, n int) *ICRCPrefix {
	w := &k[uint(n)/4%uint(len(k))]
	if w.prefix.Len() != n || w.sport != path.SPort || w.dst != path.Dst || w.src != path.Src {
		w.src, w.dst, w.sport = path.Src, path.Dst, path.SPort
		w.prefix = NewICRCPrefix(path, n)
	}
	return &w.prefix
}
