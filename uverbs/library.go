package uverbs

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/vtime"
)

// libraryRefusal is what the preload library says of a post that the program's own
// libraries refused (struct rvtsim_refused).
type libraryRefusal struct {
	Verb, Handle, Errno      uint32
	Opcode, Flags, NumSGE    uint32
	First, Reserved          uint32 // bytes of the first entry
	WRID, Length, RemoteAddr uint64
}

// Verbs of a libraryRefusal.
const (
	refusedSend = 1 + iota
	refusedRecv
	refusedSRQRecv
	refusedBatch // ibv_wr_complete; NumSGE and Length are the largest of the batch
	refusedBind  // ibv_bind_mw; Flags are access flags
	destroyingCQ // not refused: see acks
	destroyingQP
	destroyed
)

// acks is how many events of an object a program has acknowledged, as it said when it was
// about to destroy it. The library waits for the others. Only some programs say so.
type acks struct {
	known             bool
	completion, async uint32
}

// unacked tells the host if the destruction of an object has to wait.
func (c *Context) unacked(verb string, handle uint32, object fmt.Stringer, a *acks, completion, async uint32) {
	n := int(completion) - int(a.completion) + int(async) - int(a.async)
	if h, ok := c.dev.host.(UnackedHost); ok && a.known && n > 0 {
		h.Unacked(c, verb, handle, object, n)
	}
}

// RefusedByLibrary is told of a post that never became a command, because the program's
// own libraries refused it. The host hears of it as of any refused call (RefusalHost), with
// the reason as far as the attributes of the queue tell it. What makes no sense is EINVAL.
func (c *Context) RefusedByLibrary(caller *Caller, data []byte) Reply {
	var r libraryRefusal
	if n, err := binary.Decode(data, native, &r); err != nil || n != len(data) {
		return Reply{Errno: ib.EINVAL}
	}
	c.dev.host.Do(func(*rvt.Device, vtime.Time) {
		c.dev.calling, c.dev.site = c, caller.Site
		if !c.destroying(&r) {
			c.refused(c.reasonOf(&r))
		}
		c.dev.calling, c.dev.site = nil, 0
	})
	return Reply{}
}

// destroying takes note of what a program says before it destroys something.
func (c *Context) destroying(r *libraryRefusal) bool {
	a := acks{true, uint32(r.Length), uint32(r.RemoteAddr)}
	switch r.Verb {
	case destroyingCQ:
		if o := get[cqObj](c, r.Handle); o != nil {
			o.acks = a
		}
	case destroyingQP:
		if o := get[qpObj](c, r.Handle); o != nil {
			o.acks = a
		}
	case destroyed:
		if h, ok := c.dev.host.(UnackedHost); ok {
			h.Acknowledged(c, r.Handle)
		}
	default:
		return false
	}
	return true
}

// reasonOf works out which rule of the library a post broke.
func (c *Context) reasonOf(r *libraryRefusal) error {
	errno := ib.Errno(r.Errno)
	if r.Verb == refusedSRQRecv {
		o := get[srqObj](c, r.Handle)
		if o == nil {
			return ib.NewVerbError(errno, "post_srq_recv", "", "the program's library refused it")
		}
		return ib.NewVerbError(errno, "post_srq_recv", o.srq.String(), recvReason(r, o.srq.RQ.Cap(), o.maxSGE))
	}
	verb, ok := refusedVerbs[r.Verb]
	if !ok {
		verb = "post_send"
	}
	o := get[qpObj](c, r.Handle)
	if o == nil {
		return ib.NewVerbError(errno, verb, "", "the program's library refused it")
	}
	switch r.Verb {
	case refusedSend:
		return ib.NewVerbError(errno, verb, o.q.String(), sendReason(r, o))
	case refusedBatch:
		return ib.NewVerbError(errno, verb, o.q.String(), batchReason(r, o))
	case refusedBind:
		return ib.NewVerbError(errno, verb, o.q.String(), bindReason(r, o))
	}
	reason := recvReason(r, int(o.cap.MaxRecvWR), int(o.cap.MaxRecvSGE))
	switch {
	case o.q.SRQ != nil:
		reason = "the QP uses an SRQ: post to that"
	case qp.StateOps(o.q.State)&qp.PostRecvOK == 0:
		reason = "state is " + o.q.State.String() + ": receives may be posted from INIT on"
	}
	return ib.NewVerbError(errno, verb, o.q.String(), reason)
}

// refusedVerbs names the calls that a program's libraries refuse.
var refusedVerbs = map[uint32]string{refusedRecv: "post_recv", refusedBatch: "wr_complete", refusedBind: "bind_mw"}

// batchReason works with what is known of a batch of ibv_wr_*: its last wr_id, and the
// largest list and inline data in it.
func batchReason(r *libraryRefusal, o *qpObj) string {
	batch := "the batch that ends with wr " + strconv.FormatUint(r.WRID, 10)
	switch {
	case int64(r.NumSGE) > int64(o.cap.MaxSendSGE):
		return batch + " has a work request with " + strconv.Itoa(int(r.NumSGE)) + " gather entries, the QP allows " + strconv.Itoa(int(o.cap.MaxSendSGE))
	case r.Length > uint64(o.cap.MaxInlineData):
		return batch + " has a work request with " + strconv.FormatUint(r.Length, 10) + " bytes inline, the QP allows " + strconv.Itoa(int(o.cap.MaxInlineData))
	case ib.Errno(r.Errno) == ib.ENOSPC || ib.Errno(r.Errno) == ib.ENOMEM:
		return batch + " is not posted: " + fullSend(o)
	}
	return batch + ": the program's library refused it"
}

func bindReason(r *libraryRefusal, o *qpObj) string {
	wr := "wr " + strconv.FormatUint(r.WRID, 10) + " (BIND_MW)"
	switch {
	case ib.Access(r.Flags)&ib.AccessZeroBased != 0:
		return wr + ": ZERO_BASED is for windows of type 2"
	case ib.Errno(r.Errno) == ib.ENOMEM:
		return wr + ": " + fullSend(o)
	case !o.postable():
		return "state is " + o.q.State.String() + ": sends may be posted in RTS, SQD, SQE and ERR"
	}
	return wr + ": the program's library refused it"
}

func fullSend(o *qpObj) string {
	return "the send queue is full: it has room for " + strconv.Itoa(int(o.cap.MaxSendWR)) + " work requests, and as many are posted and not completed"
}

func recvReason(r *libraryRefusal, size, maxSGE int) string {
	wr := "wr " + strconv.FormatUint(r.WRID, 10)
	switch {
	case int64(r.NumSGE) > int64(maxSGE):
		return wr + " has " + strconv.Itoa(int(r.NumSGE)) + " scatter entries, the queue allows " + strconv.Itoa(maxSGE)
	case ib.Errno(r.Errno) == ib.ENOMEM:
		return wr + ": the receive queue is full: " + strconv.Itoa(size) + " receives are posted"
	}
	return wr + ": the program's library refused it"
}

func sendReason(r *libraryRefusal, o *qpObj) string {
	wr := "wr " + strconv.FormatUint(r.WRID, 10)
	op := ib.WROpcode(r.Opcode)
	if r.Opcode < 256 {
		wr += " (" + op.String() + ")"
	}
	inline := r.Flags&uint32(ib.SendInline) != 0
	atomic := r.Opcode == uint32(ib.WRAtomicFetchAndAdd) || r.Opcode == uint32(ib.WRAtomicCmpAndSwp)
	switch {
	case int64(r.NumSGE) > int64(o.cap.MaxSendSGE):
		return wr + " has " + strconv.Itoa(int(r.NumSGE)) + " gather entries, the QP allows " + strconv.Itoa(int(o.cap.MaxSendSGE))
	case atomic && r.RemoteAddr%8 != 0:
		return wr + ": the remote address of an atomic must be a multiple of 8"
	case atomic && r.First != 8:
		return wr + ": an atomic needs a local entry of 8 bytes"
	case inline && r.Length > uint64(o.cap.MaxInlineData):
		return wr + ": " + strconv.FormatUint(r.Length, 10) + " bytes inline, the QP allows " + strconv.Itoa(int(o.cap.MaxInlineData))
	case ib.Errno(r.Errno) == ib.ENOMEM:
		return wr + ": " + fullSend(o)
	case !o.postable():
		return "state is " + o.q.State.String() + ": sends may be posted in RTS, SQD, SQE and ERR"
	}
	return wr + ": the program's library refused it"
}
