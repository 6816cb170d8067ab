package uverbs

import (
	"encoding/binary"
	"os"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// method is a command of the write() interface: the lengths that the kernel checks
// before it looks inside (verify_hdr), and what carries it out.
type method struct {
	req   int  // least bytes of the command after its header
	resp  int  // least bytes of room for the answer
	udata bool // the driver adds to the command or to the answer
	run   func(*call) error
}

// methods are the legacy commands, exMethods the extended ones. A command without a
// row is one that the device does not have: EOPNOTSUPP.
var (
	methods = map[uint32]method{
		cmdGetContext:        {8, 8, true, getContext},
		cmdQueryDevice:       {8, 176, false, queryDeviceCmd},
		cmdQueryPort:         {16, 40, false, queryPortCmd},
		cmdAllocPD:           {8, 4, true, allocPD},
		cmdDeallocPD:         {4, 0, false, deallocPD},
		cmdCreateAH:          {56, 4, true, createAHCmd},
		cmdDestroyAH:         {4, 0, false, destroyAH},
		cmdRegMR:             {40, 12, true, regMRCmd},
		cmdReregMR:           {48, 8, true, reregMRCmd},
		cmdDeregMR:           {4, 0, false, deregMR},
		cmdAllocMW:           {16, 8, true, allocMWCmd},
		cmdDeallocMW:         {4, 0, false, deallocMW},
		cmdCreateCompChannel: {8, 4, false, createCompChannel},
		cmdCreateCQ:          {32, 8, true, createCQCmd},
		cmdResizeCQ:          {16, 8, true, resizeCQCmd},
		cmdDestroyCQ:         {16, 8, false, destroyCQ},
		cmdPollCQ:            {16, 8, false, pollCQCmd},
		cmdReqNotifyCQ:       {8, 0, false, reqNotify},
		cmdCreateQP:          {56, 32, true, createQPCmd},
		cmdQueryQP:           {16, 128, false, queryQPCmd},
		cmdModifyQP:          {112, 0, false, modifyQPCmd},
		cmdDestroyQP:         {16, 4, false, destroyQP},
		cmdPostSend:          {24, 4, false, postSend},
		cmdPostRecv:          {24, 4, false, postRecv},
		cmdAttachMcast:       {24, 0, false, attachMcast},
		cmdDetachMcast:       {24, 0, false, detachMcast},
		cmdCreateSRQ:         {32, 16, true, createSRQCmd},
		cmdModifySRQ:         {16, 0, true, modifySRQCmd},
		cmdQuerySRQ:          {16, 16, false, querySRQ},
		cmdDestroySRQ:        {16, 4, false, destroySRQ},
		cmdPostSRQRecv:       {24, 4, false, postSRQRecv},
	}
	exMethods = map[uint32]method{
		cmdQueryDevice: {8, 184, false, queryDeviceEx},
		cmdCreateCQ:    {32, 16, true, createCQEx},
		cmdCreateQP:    {52, 40, true, createQPEx},
		cmdModifyQP:    {112, 8, false, modifyQPEx},
	}
)

// call is one command on its way through the device.
type call struct {
	c      *Context
	d      *rvt.Device
	now    vtime.Time
	caller *Caller
	passed Passed
	ex     bool

	in      []byte // the command after its headers
	drvIn   []byte // what the provider added to it
	outCore int    // room for the answer
	outDrv  int    // room for the driver's part of it
	rep     *Reply

	eventsTo *channel // asynchronous events of what is created; nil: the first file
}

// Write carries out one write() to the device file. buf is the whole buffer and is
// not kept. passed may be nil if the command passes no descriptor.
func (c *Context) Write(caller *Caller, buf []byte, passed Passed) Reply {
	var rep Reply
	k := call{c: c, caller: caller, passed: passed, rep: &rep}
	m, err := k.parse(buf)
	if err != nil {
		return Reply{Errno: ib.ErrnoOf(err)}
	}
	k.own(native.Uint32(buf), func() error { return k.dispatch(&m, native.Uint32(buf)) })
	return rep
}

// Arms reports whether a write() asks for an event of a completion queue: whoever made it
// is likely to sleep next.
func Arms(buf []byte) bool { return len(buf) >= cmdHdrBytes && native.Uint32(buf) == cmdReqNotifyCQ }

// own runs a command as the owner of the device, and completes the answer.
func (k *call) own(command uint32, run func() error) {
	if command == cmdResizeCQ {
		// The program expects the completions of the sends that it posted before, as
		// far as they need no answer of a peer, to be in the queue already.
		k.c.dev.host.Do(func(d *rvt.Device, _ vtime.Time) { k.c.Scan(d) })
	}
	var err error = ib.NewVerbError(ib.ENODEV, "write", "", "the device is gone") // unless it runs
	k.c.dev.host.Do(func(d *rvt.Device, now vtime.Time) {
		k.d, k.now = d, now
		k.c.dev.calling = k.c
		if k.caller != nil {
			k.c.dev.site = k.caller.Site
		}
		if err = run(); err != nil {
			k.c.refused(err)
		}
		k.c.dev.calling, k.c.dev.site = nil, 0
	})
	rep := k.rep
	if rep.Errno = ib.ErrnoOf(err); rep.Errno != 0 {
		for _, f := range rep.Files {
			f.F.Close()
		}
		rep.Files = nil
	}
	if len(rep.Out) == 0 {
		rep.OutAddr = 0
	}
}

// dispatch runs a command that has the right lengths.
func (k *call) dispatch(m *method, command uint32) error {
	c := k.c
	if c.closed || !c.ready && command != cmdGetContext {
		return ib.NewVerbError(ib.EINVAL, "write", "", "the context does not exist")
	}
	if k.caller == nil {
		k.caller = &Caller{}
	}
	return m.run(k)
}

// parse (kernel: ib_uverbs_write, verify_hdr) checks the headers and lengths and
// splits the command into its parts.
func (k *call) parse(buf []byte) (method, error) {
	bad := func(errno ib.Errno, reason string) (method, error) {
		return method{}, ib.NewVerbError(errno, "write", "", reason)
	}
	if len(buf) < cmdHdrBytes {
		return bad(ib.EINVAL, "shorter than a command header")
	}
	command := native.Uint32(buf)
	if command&^(cmdMask|cmdExtended) != 0 {
		return bad(ib.EINVAL, "the command number has unknown bits")
	}
	k.ex = command&cmdExtended != 0
	table := methods
	if k.ex {
		table = exMethods
	}
	m, ok := table[command&cmdMask]
	if !ok {
		return bad(ib.EOPNOTSUPP, "the device has no such command")
	}
	inWords, outWords := int(native.Uint16(buf[4:])), int(native.Uint16(buf[6:]))
	if k.ex {
		return m, k.parseEx(buf, &m, inWords, outWords)
	}
	return m, k.parseLegacy(buf, &m, inWords, outWords)
}

func lengthErr(errno ib.Errno, reason string) error {
	return ib.NewVerbError(errno, "write", "", reason)
}

// parseLegacy checks a command whose lengths count 4-byte words, headers included.
func (k *call) parseLegacy(buf []byte, m *method, inWords, outWords int) error {
	switch {
	case inWords*4 != len(buf):
		return lengthErr(ib.EINVAL, "in_words is not the length of the command")
	case len(buf) < m.req+cmdHdrBytes:
		if native.Uint32(buf) != cmdDestroyCQ || len(buf) != 16 {
			return lengthErr(ib.ENOSPC, "the command is too short")
		}
		buf = append(append([]byte(nil), buf...), make([]byte, 8)...) // rdma-core 18 and 19
	case outWords*4 < m.resp:
		return lengthErr(ib.ENOSPC, "no room for the answer")
	}
	if outWords*4 < m.resp {
		return lengthErr(ib.ENOSPC, "no room for the answer")
	}
	k.in = buf[cmdHdrBytes:]
	k.outCore = outWords * 4
	if m.udata {
		k.drvIn = k.in[m.req:]
		k.outDrv = k.outCore - m.resp
		k.outCore = m.resp
	}
	if m.resp > 0 {
		k.rep.OutAddr = native.Uint64(k.in)
	}
	return nil
}

// parseEx checks an extended command, whose lengths count 8-byte words without the
// headers, core and provider apart.
func (k *call) parseEx(buf []byte, m *method, inWords, outWords int) error {
	const hdr = cmdHdrBytes + exCmdHdrBytes
	if len(buf) < hdr {
		return lengthErr(ib.EINVAL, "shorter than an extended command header")
	}
	resp := native.Uint64(buf[8:])
	drvIn, drvOut := int(native.Uint16(buf[16:])), int(native.Uint16(buf[18:]))
	switch {
	case (inWords+drvIn)*8 != len(buf)-hdr:
		return lengthErr(ib.EINVAL, "in_words and provider_in_words are not the length of the command")
	case inWords*8 < m.req:
		return lengthErr(ib.ENOSPC, "the command is too short")
	case native.Uint32(buf[20:]) != 0:
		return lengthErr(ib.EINVAL, "a reserved field is not 0")
	case resp == 0 && (outWords != 0 || drvOut != 0), resp != 0 && outWords == 0 && drvOut == 0:
		return lengthErr(ib.EINVAL, "the answer has an address or a length, but not both")
	case resp != 0 && outWords*8 < m.resp:
		return lengthErr(ib.ENOSPC, "no room for the answer")
	}
	k.in, k.drvIn = buf[hdr:hdr+inWords*8], buf[hdr+inWords*8:]
	k.outCore, k.outDrv = outWords*8, drvOut*8
	k.rep.OutAddr = resp
	return nil
}

// decode reads the command into a structure. What an extended command lacks at its
// end is 0; what it has more must be 0, or it asks for something unknown.
func (k *call) decode(v any) error {
	in, size := k.in, binary.Size(v)
	if len(in) < size {
		in = append(append(make([]byte, 0, size), in...), make([]byte, size-len(in))...)
	}
	if k.ex {
		for _, b := range in[size:] {
			if b != 0 {
				return lengthErr(ib.EOPNOTSUPP, "the command has fields that this version does not know")
			}
		}
	}
	_, err := binary.Decode(in[:size], native, v)
	return err
}

// respond stores the core's part of the answer, as far as the caller has room.
func (k *call) respond(v any) { k.rep.Out = k.clip(encode(v), k.outCore) }

// respondDriver appends the driver's part after the core's.
func (k *call) respondDriver(b []byte) {
	if k.outDrv == 0 || len(b) == 0 {
		return
	}
	if n := k.outCore - len(k.rep.Out); n > 0 {
		k.rep.Out = append(k.rep.Out, make([]byte, n)...)
	}
	k.rep.Out = append(k.rep.Out, k.clip(b, k.outDrv)...)
}

func (k *call) clip(b []byte, room int) []byte { return b[:min(len(b), room)] }

// responseLength is the value of a response_length field.
func (k *call) responseLength(v any) uint32 { return uint32(min(binary.Size(v), k.outCore)) }

// pass hands a file over; its number goes to offset off of the answer.
func (k *call) pass(f *os.File, off int) {
	k.rep.Files = append(k.rep.Files, File{F: f, Off: off})
}

// checkMap tells whether the caller wants its queues mapped. A personality that works
// with rings only refuses one without room for the answer.
func (k *call) checkMap(verb string, infos int) (mapped bool, err error) {
	a := k.c.dev.abi
	if k.outDrv >= infos*a.mapInfoBytes() {
		return true, nil
	}
	if a.needsMap() {
		return false, ib.NewVerbError(ib.EINVAL, verb, "", "no room for the provider's part of the answer")
	}
	return false, nil
}
