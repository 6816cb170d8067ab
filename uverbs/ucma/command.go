package ucma

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/uverbs"
	"github.com/rvtsim/rvtsim/vtime"
)

// method is a command: its name and what carries it out.
type method struct {
	verb string
	run  func(*call) error
}

// methods are the commands by number. One without a function is one that the kernel does
// not have.
var methods = [...]method{
	cmdCreateID:     {"create_id", createID},
	cmdDestroyID:    {"destroy_id", destroyID},
	cmdBindIP:       {"bind_ip", bindIP},
	cmdResolveIP:    {"resolve_ip", resolveIP},
	cmdResolveRoute: {"resolve_route", resolveRoute},
	cmdQueryRoute:   {"query_route", queryRoute},
	cmdConnect:      {"connect", connect},
	cmdListen:       {"listen", listen},
	cmdAccept:       {"accept", accept},
	cmdReject:       {"reject", reject},
	cmdDisconnect:   {"disconnect", disconnect},
	cmdInitQPAttr:   {"init_qp_attr", initQPAttr},
	cmdGetEvent:     {"get_event", getEvent},
	cmdGetOption:    {"get_option", nil},
	cmdSetOption:    {"set_option", setOption},
	cmdNotify:       {"notify", notify},
	cmdJoinIPMcast:  {"join_ip_mcast", joinIPMcast},
	cmdLeaveMcast:   {"leave_mcast", leaveMcast},
	cmdMigrateID:    {"migrate_id", migrateID},
	cmdQuery:        {"query", query},
	cmdBind:         {"bind", bind},
	cmdResolveAddr:  {"resolve_addr", resolveAddr},
	cmdJoinMcast:    {"join_mcast", joinMcast},
}

// call is one command on its way.
type call struct {
	ch     *Channel
	m      *cm.Manager
	now    vtime.Time
	verb   string
	caller *uverbs.Caller
	passed uverbs.Passed
	about  *context // the id that the command names, once it is known

	in  []byte // what the header says belongs to the command
	out int    // room for the answer
	rep *uverbs.Reply
}

// Write carries out one write() to the device file (kernel: ucma_write). buf is the
// whole buffer and is not kept; write() returns its whole length on success. caller may
// be nil for commands that read nothing else of the program's memory (SET_OPTION does),
// passed for those that name no descriptor (MIGRATE_ID does).
func (ch *Channel) Write(caller *uverbs.Caller, buf []byte, passed uverbs.Passed) uverbs.Reply {
	var rep uverbs.Reply
	k := call{ch: ch, caller: caller, passed: passed, rep: &rep}
	err := k.parse(buf)
	if err == nil {
		run := methods[native.Uint32(buf)].run
		err = ch.dev.host.Do(func(m *cm.Manager, now vtime.Time) error {
			if ch.closed {
				return k.err(ib.EINVAL, "the channel is closed")
			}
			k.m, k.now = m, now
			err := run(&k)
			ch.announce()
			return err
		})
	}
	if err != nil {
		ch.refused(err)
	}
	if rep.Errno = ib.ErrnoOf(err); rep.Errno != 0 {
		return uverbs.Reply{Errno: rep.Errno}
	}
	return rep
}

// refused tells the host of a command that failed. That no event waits is no failure.
func (ch *Channel) refused(err error) {
	h, ok := ch.dev.host.(TroubleHost)
	if !ok || ib.ErrnoOf(err) == ib.EAGAIN {
		return
	}
	_ = ch.dev.host.Do(func(*cm.Manager, vtime.Time) error {
		h.Refused(ch, err)
		return nil
	})
}

// parse checks the header.
func (k *call) parse(buf []byte) error {
	k.verb = "write"
	if len(buf) < HeaderBytes {
		return k.err(ib.EINVAL, "shorter than a command header")
	}
	command, in := native.Uint32(buf), int(native.Uint16(buf[4:]))
	if command >= uint32(len(methods)) {
		return k.err(ib.EINVAL, "there is no such command")
	}
	if in+HeaderBytes > len(buf) {
		return k.err(ib.EINVAL, "the command is longer than what was written")
	}
	m := &methods[command]
	if k.verb = m.verb; m.run == nil {
		return k.err(ib.ENOSYS, "not implemented")
	}
	// The kernel copies the whole structure whatever in says, except for CONNECT and
	// ACCEPT, which have grown.
	k.in, k.out = buf[HeaderBytes:], int(native.Uint16(buf[6:]))
	if command == cmdConnect || command == cmdAccept {
		k.in = k.in[:in]
	}
	return nil
}

func (k *call) err(errno ib.Errno, reason string) error {
	about := ""
	if k.about != nil {
		about = k.about.core.String()
	}
	return ib.NewVerbError(errno, k.verb, about, reason)
}

// decode reads the command, after it has made sure that there is room for the answer.
func (k *call) decode(v any, room int) error {
	if k.out < room {
		return k.err(ib.ENOSPC, "no room for the answer")
	}
	size := binary.Size(v)
	if len(k.in) < size {
		return k.err(ib.EINVAL, "the command is too short")
	}
	_, err := binary.Decode(k.in[:size], native, v)
	return err
}

// decodeGrown reads a command of which the last bytes, from least on, may be missing.
func (k *call) decodeGrown(v any, least int) error {
	if len(k.in) < least {
		return k.err(ib.EINVAL, "the command is too short")
	}
	b := make([]byte, binary.Size(v))
	copy(b, k.in)
	_, err := binary.Decode(b, native, v)
	return err
}

// respond stores the answer, as far as there is room.
func (k *call) respond(addr uint64, b []byte) {
	k.rep.OutAddr, k.rep.Out = addr, append([]byte(nil), b[:min(len(b), k.out)]...)
}
