package shm

// prefetch asks for n bytes at p, which another processor has written, before they are
// needed: they come while the packet before them is worked at. n is not 0.
//
//go:noescape
func prefetch(p *byte, n int)
