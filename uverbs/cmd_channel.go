package uverbs

import "github.com/rvtsim/rvtsim/ib"

// channelOf finds the completion channel behind a descriptor of the caller; nil
// without an error if fd is negative.
func (c *Context) channelOf(verb string, fd int32, passed Passed) (*channel, error) {
	if fd < 0 {
		return nil, nil
	}
	if passed != nil {
		if ino, ok := passed(fd); ok {
			if ch := c.channels[ino]; ch != nil {
				return ch, nil
			}
		}
	}
	return nil, ib.NewVerbError(ebadf, verb, "", "comp_channel is not a completion channel of this context")
}

// ebadf is EBADF.
const ebadf ib.Errno = 9

// sweepChannels closes channels that the program has closed and no queue uses.
func (c *Context) sweepChannels() {
	for ino, ch := range c.channels {
		if ch.users == 0 && ch.abandoned() {
			ch.close()
			delete(c.channels, ino)
		}
	}
}

// createCompChannel (ibv_create_comp_channel) makes a channel; its descriptor is the
// answer.
func createCompChannel(k *call) error {
	k.c.sweepChannels()
	ch, r, err := newChannel(8)
	if err != nil {
		return ib.NewVerbError(emfile, "create_comp_channel", "", "no pipe: "+err.Error())
	}
	k.c.channels[ch.ino] = ch
	k.respond(handleOnly{^uint32(0)})
	k.pass(r, 0)
	return nil
}

// emfile is EMFILE.
const emfile ib.Errno = 24
