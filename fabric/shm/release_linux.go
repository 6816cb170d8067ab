package shm

// Release gives the inbox and all lanes back, and tells those who write to the inbox that
// nobody reads it any more. It follows Close, when nobody uses the port or what it delivered:
// for hosts that outlive their ports. Others leave it to the end of their process.
func (p *Port) Release() {
	MarkGone(p.inbox.fd)
	for _, l := range *p.lanes.Load() {
		l.Close()
	}
	for _, l := range p.dead {
		l.Close()
	}
	p.lanes.Store(&map[Peer]*Lane{})
	p.dead, p.lane, p.to = nil, nil, Peer{}
	p.inbox.close()
}
