package daemon

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rvtsim/rvtsim/ib"
)

// The protocol of shim/src/protocol.h, which explains it. A test compares the two.
const (
	protoMagic   = 0x52565453
	protoVersion = 1
	maxReply     = 65536                    // of one answer
	maxRequest   = reqLen + 4<<16 + maxSite // in_words of a write() command is 16 bits, in words of 4 bytes
	maxFiles     = 4
	nodeLen      = 64
	gateFirst    = 64
	gateWords    = 480
	busyFirst    = 544
	wantSites    = 1
	maxSite      = 1024

	reqLen   = 48 - 8 + nodeLen
	repLen   = 48
	writeLen = 16
)

// Kinds of device file.
const (
	devUverbs = 1
	devCM     = 2
)

// op is an operation of a request.
type op uint16

const (
	opOpen    op = 1
	opAttach  op = 2
	opWrite   op = 3
	opIoctl   op = 4
	opFDInfo  op = 5
	opHost    op = 6
	opReport  op = 7
	opObeyed  op = 8
	opRefused op = 9
	opPeer    op = 10
	opInbox   op = 12
	opReach   op = 13
	opList    op = 16
	opStop    op = 17
	opFault   op = 18
)

func (o op) String() string {
	switch o {
	case opOpen:
		return "OPEN"
	case opAttach:
		return "ATTACH"
	case opRefused:
		return "REFUSED"
	case opWrite:
		return "WRITE"
	case opIoctl:
		return "IOCTL"
	case opFDInfo:
		return "FDINFO"
	case opHost:
		return "HOST"
	case opReport:
		return "REPORT"
	case opInbox:
		return "INBOX"
	case opReach:
		return "REACH"
	case opObeyed:
		return "OBEYED"
	case opPeer:
		return "PEER"
	case opList:
		return "LIST"
	case opStop:
		return "STOP"
	case opFault:
		return "FAULT"
	}
	return fmt.Sprintf("op(%d)", uint16(o))
}

// whyDaemon says why a program that could host itself lets the daemon work for it
// (RVTSIM_WHY_*).
var whyDaemon = [...]string{"", "it opens the device in a child of fork", "the engine cannot be loaded", "the engine does not start",
	"no engine was built: make build, or rvtsim engine", "a sanitizer or valgrind watches it",
	"the engine belongs to another build of rvtsim: make build, or rvtsim engine"}

// Kinds of answer.
const (
	repReply   = 0
	repQueryFD = 1
	repAsk     = 2
	repFatal   = 3
	repOrder   = 4
	repHow     = 5
	repReached = 6
)

// request is struct rvtsim_req with what follows it.
type request struct {
	op    op
	pid   uint32
	kind  uint32
	token uint64
	arg   uint64
	index uint32
	why   uint32
	node  string
	data  []byte // of WRITE and IOCTL; in the receive buffer
}

// reply is struct rvtsim_rep with what follows it.
type reply struct {
	kind       uint32
	errno      ib.Errno
	token      uint64
	bellOffset uint64
	outAddr    uint64
	out        []byte
	offsets    []int // of descriptors in out, one for each file that goes along
	writes     []memWrite
	queryFD    uint32
}

type memWrite struct {
	addr uint64
	data []byte
}

var (
	errShort   = errors.New("daemon: message is too short")
	errMagic   = errors.New("daemon: the peer speaks another protocol")
	errVersion = fmt.Errorf("daemon: the peer speaks another version of the protocol than %d: it was started by another version of rvtsim", protoVersion)
	errTooLong = errors.New("daemon: answer is too long")
)

// parseRequest reads a message. The result refers to b.
func parseRequest(b []byte) (request, error) {
	le := binary.LittleEndian
	if len(b) < reqLen {
		return request{}, errShort
	}
	if le.Uint32(b) != protoMagic {
		return request{}, errMagic
	}
	if le.Uint16(b[4:]) != protoVersion {
		return request{}, errVersion
	}
	r := request{
		op: op(le.Uint16(b[6:])), pid: le.Uint32(b[8:]), kind: le.Uint32(b[12:]),
		token: le.Uint64(b[16:]), arg: le.Uint64(b[24:]), index: le.Uint32(b[32:]), why: le.Uint32(b[36:]), data: b[reqLen:],
	}
	name := b[40:reqLen]
	for i, c := range name {
		if c == 0 {
			name = name[:i]
			break
		}
	}
	r.node = string(name)
	return r, nil
}

// appendRequest is the other direction, for the command line and tests.
func appendRequest(b []byte, r *request) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, protoMagic)
	b = le.AppendUint16(b, protoVersion)
	b = le.AppendUint16(b, uint16(r.op))
	b = le.AppendUint32(b, r.pid)
	b = le.AppendUint32(b, r.kind)
	b = le.AppendUint64(b, r.token)
	b = le.AppendUint64(b, r.arg)
	b = le.AppendUint32(b, r.index)
	b = le.AppendUint32(b, r.why)
	var name [nodeLen]byte
	copy(name[:nodeLen-1], r.node)
	b = append(b, name[:]...)
	return append(b, r.data...)
}

// appendReply encodes r. An answer that does not fit in one message is an error.
func appendReply(b []byte, r *reply) ([]byte, error) {
	le := binary.LittleEndian
	start := len(b)
	b = le.AppendUint32(b, r.kind)
	b = le.AppendUint32(b, uint32(r.errno))
	b = le.AppendUint64(b, r.token)
	b = le.AppendUint64(b, r.bellOffset)
	b = le.AppendUint64(b, r.outAddr)
	b = le.AppendUint32(b, uint32(len(r.out)))
	b = le.AppendUint32(b, uint32(len(r.offsets)))
	b = le.AppendUint32(b, uint32(len(r.writes)))
	b = le.AppendUint32(b, r.queryFD)
	for _, off := range r.offsets {
		b = le.AppendUint32(b, uint32(off))
	}
	b = pad8(b, start)
	b = pad8(append(b, r.out...), start)
	for _, w := range r.writes {
		b = le.AppendUint64(b, w.addr)
		b = le.AppendUint32(b, uint32(len(w.data)))
		b = le.AppendUint32(b, 0)
		b = pad8(append(b, w.data...), start)
	}
	if len(b)-start > maxReply || len(r.offsets) > maxFiles {
		return b[:start], errTooLong
	}
	return b, nil
}

func pad8(b []byte, start int) []byte {
	for (len(b)-start)%8 != 0 {
		b = append(b, 0)
	}
	return b
}

// replyErrno is the errno of an encoded answer.
func replyErrno(b []byte) uint32 { return binary.LittleEndian.Uint32(b[4:]) }
