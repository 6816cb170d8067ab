package rdmacm

import (
	"context"
	"strconv"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/verbs"
)

// QP returns the id's QP, nil if it has none.
func (id *ID) QP() *verbs.QP {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.qp
}

// PD returns the protection domain of the id's QP; without a QP the device's default,
// which is never deallocated.
func (id *ID) PD() *verbs.PD {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.pd != nil {
		return id.pd
	}
	return id.a.pd
}

// SendCQ (id->send_cq) and RecvCQ (id->recv_cq) return the queues that CreateQP made for
// the id, nil for the program's own.
func (id *ID) SendCQ() *verbs.CQ { return id.ownCQ(&id.send) }

// RecvCQ returns the queue for receives that CreateQP made; see SendCQ.
func (id *ID) RecvCQ() *verbs.CQ { return id.ownCQ(&id.recv) }

func (id *ID) ownCQ(h *half) *verbs.CQ {
	id.mu.Lock()
	defer id.mu.Unlock()
	if h.ch == nil {
		return nil
	}
	return h.cq
}

// hasSRQ reports whether the QP receives from a shared queue.
func (id *ID) hasSRQ() bool {
	id.mu.Lock()
	defer id.mu.Unlock()
	return id.srq
}

// CreateQP (rdma_create_qp) makes the id's QP: EINVAL if it has one. pd may be nil, for
// the device's default. attr.Type may be left out. Completion queues that attr does not
// name are made, as large as the work queues, each with a channel of its own; GetSendComp
// and GetRecvComp need them. The QP is in INIT afterwards, and takes receives; for
// datagrams it is in RTS.
func (id *ID) CreateQP(pd *verbs.PD, attr verbs.QPInitAttr) error {
	const verb = "create_qp"
	id.mu.Lock()
	defer id.mu.Unlock()
	if pd == nil {
		pd = id.a.pd
	}
	switch {
	case id.qp != nil:
		return id.err(ib.EINVAL, verb, "the id has a QP")
	case pd.Device() != id.a.dev:
		return id.err(ib.EINVAL, verb, "the protection domain is another device's")
	case attr.Type != 0 && attr.Type != id.core.QPType():
		return id.err(ib.EINVAL, verb, "the id is for "+id.core.QPType().String())
	}
	attr.Type = id.core.QPType()
	if err := id.createCQs(&attr); err != nil {
		return err
	}
	qp, err := pd.CreateQP(attr)
	if err == nil {
		if err = id.initQP(qp); err != nil {
			_ = qp.Destroy(context.Background()) // it has no events yet
		}
	}
	if err != nil {
		id.destroyCQs(context.Background())
		return err
	}
	id.qp, id.pd, id.srq = qp, pd, attr.SRQ != nil
	return nil
}

func (id *ID) createCQs(attr *verbs.QPInitAttr) error {
	for _, c := range []struct {
		h    *half
		cq   **verbs.CQ
		size int
	}{{&id.send, &attr.SendCQ, attr.Cap.MaxSendWR}, {&id.recv, &attr.RecvCQ, attr.Cap.MaxRecvWR}} {
		if *c.cq != nil {
			continue
		}
		ch, err := id.a.dev.CreateCompChannel()
		if err != nil {
			id.destroyCQs(context.Background())
			return err
		}
		c.h.ch = ch
		if c.h.cq, err = id.a.dev.CreateCQ(max(c.size, 1), ch); err != nil {
			id.destroyCQs(context.Background())
			return err
		}
		*c.cq = c.h.cq
	}
	return nil
}

// destroyCQs destroys the queues that CreateQP has made. The caller has id.mu.
func (id *ID) destroyCQs(ctx context.Context) (err error) {
	for _, h := range []*half{&id.send, &id.recv} {
		if h.cq != nil {
			if e := h.cq.Destroy(ctx); e != nil && err == nil {
				err = e
			}
		}
		if h.ch != nil {
			if e := h.ch.Destroy(); e != nil && err == nil {
				err = e
			}
		}
		h.cq, h.ch = nil, nil
	}
	return err
}

// initQP takes a new QP to the state in which programs get it.
func (id *ID) initQP(qp *verbs.QP) error {
	a, mask, err := id.attr(ib.StateInit)
	if err != nil {
		return err
	}
	if err := qp.Modify(&a, mask); err != nil || id.core.QPType() != ib.QPTypeUD {
		return err
	}
	if err := qp.Modify(&verbs.QPAttr{State: ib.StateRTR}, ib.AttrState); err != nil {
		return err
	}
	return qp.Modify(&verbs.QPAttr{State: ib.StateRTS}, ib.AttrState|ib.AttrSQPSN)
}

// DestroyQP (rdma_destroy_qp) destroys the id's QP and the completion queues that
// CreateQP made. EINVAL if there is none.
func (id *ID) DestroyQP(ctx context.Context) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.qp == nil {
		return id.err(ib.EINVAL, "destroy_qp", "the id has no QP")
	}
	if err := id.leaveGroups(); err != nil {
		return err
	}
	err := id.qp.Destroy(ctx)
	if ib.ErrnoOf(err) == ib.EBUSY {
		return err
	}
	id.qp, id.pd, id.srq = nil, nil, false
	if e := id.destroyCQs(ctx); err == nil {
		err = e
	}
	return err
}

// leaveGroups detaches the QP from the groups that Join attached it to.
func (id *ID) leaveGroups() error {
	id.a.gsi.Lock()
	var attached []ib.GID
	for i := range id.groups {
		if g := &id.groups[i]; g.attached {
			attached = append(attached, g.m.GID)
			g.attached = false
		}
	}
	id.a.gsi.Unlock()
	for _, g := range attached {
		if err := id.qp.DetachMcast(g); err != nil {
			return err
		}
	}
	return nil
}

// bounds checks that a buffer lies in its region.
func bounds(verb string, mr *verbs.MR, off, n int) error {
	if mr == nil || off < 0 || n < 0 || off > len(mr.Bytes()) || n > len(mr.Bytes())-off {
		return ib.NewVerbError(ib.EINVAL, verb, "", strconv.Itoa(n)+" bytes at offset "+strconv.Itoa(off)+" are not in the region")
	}
	return nil
}

// need returns the QP or says that there is none.
func (id *ID) need(verb string) (*verbs.QP, error) {
	qp := id.QP()
	if qp == nil {
		return nil, id.err(ib.EINVAL, verb, "the id has no QP")
	}
	return qp, nil
}

// RegMsgs (rdma_reg_msgs) registers memory for sends and receives.
func (id *ID) RegMsgs(buf []byte) (*verbs.MR, error) {
	return id.PD().RegMR(buf, ib.AccessLocalWrite)
}

// RegRead (rdma_reg_read) registers memory that the peer may read.
func (id *ID) RegRead(buf []byte) (*verbs.MR, error) {
	return id.PD().RegMR(buf, ib.AccessLocalWrite|ib.AccessRemoteRead)
}

// RegWrite (rdma_reg_write) registers memory that the peer may write.
func (id *ID) RegWrite(buf []byte) (*verbs.MR, error) {
	return id.PD().RegMR(buf, ib.AccessLocalWrite|ib.AccessRemoteWrite)
}

// PostRecv (rdma_post_recv) posts n bytes of a region, from byte off on, for a message.
// wrID is the context that the completion has.
func (id *ID) PostRecv(wrID uint64, mr *verbs.MR, off, n int) error {
	if err := bounds("post_recv", mr, off, n); err != nil {
		return err
	}
	return id.PostRecvV(wrID, mr.SGE(off, n))
}

// PostRecvV (rdma_post_recvv) is PostRecv of several pieces.
func (id *ID) PostRecvV(wrID uint64, sgl ...verbs.SGE) error {
	qp, err := id.need("post_recv")
	if err != nil {
		return err
	}
	return qp.PostRecv(verbs.RecvWR{WRID: wrID, SGL: sgl})
}

// PostSend (rdma_post_send) sends n bytes of a region. Without ib.SendSignaled it
// completes only if it fails, unless the QP signals everything.
func (id *ID) PostSend(wrID uint64, mr *verbs.MR, off, n int, flags ib.SendFlags) error {
	if err := bounds("post_send", mr, off, n); err != nil {
		return err
	}
	return id.PostSendV(wrID, flags, mr.SGE(off, n))
}

// PostSendInline (rdma_post_send with a NULL region) sends data that need no region. The
// slice may be reused at once.
func (id *ID) PostSendInline(wrID uint64, data []byte, flags ib.SendFlags) error {
	return id.post("post_send", verbs.SendWR{WRID: wrID, Opcode: ib.WRSend, Flags: flags | ib.SendInline, Inline: data})
}

// PostSendV (rdma_post_sendv) is PostSend of several pieces.
func (id *ID) PostSendV(wrID uint64, flags ib.SendFlags, sgl ...verbs.SGE) error {
	return id.post("post_send", verbs.SendWR{WRID: wrID, Opcode: ib.WRSend, Flags: flags, SGL: sgl})
}

// PostRead (rdma_post_read) reads the peer's memory at remoteAddr into a region.
func (id *ID) PostRead(wrID uint64, mr *verbs.MR, off, n int, flags ib.SendFlags, remoteAddr uint64, rkey ib.RKey) error {
	if err := bounds("post_read", mr, off, n); err != nil {
		return err
	}
	return id.post("post_read", verbs.SendWR{WRID: wrID, Opcode: ib.WRRDMARead, Flags: flags, SGL: []verbs.SGE{mr.SGE(off, n)}, RemoteAddr: remoteAddr, RKey: rkey})
}

// PostWrite (rdma_post_write) writes part of a region to the peer's memory at remoteAddr.
func (id *ID) PostWrite(wrID uint64, mr *verbs.MR, off, n int, flags ib.SendFlags, remoteAddr uint64, rkey ib.RKey) error {
	if err := bounds("post_write", mr, off, n); err != nil {
		return err
	}
	return id.post("post_write", verbs.SendWR{WRID: wrID, Opcode: ib.WRRDMAWrite, Flags: flags, SGL: []verbs.SGE{mr.SGE(off, n)}, RemoteAddr: remoteAddr, RKey: rkey})
}

// PostUDSend (rdma_post_ud_send) sends a datagram to a QP, with the Q_Key that all
// datagrams between ids have.
func (id *ID) PostUDSend(wrID uint64, mr *verbs.MR, off, n int, flags ib.SendFlags, ah *verbs.AH, remote ib.QPN) error {
	if err := bounds("post_ud_send", mr, off, n); err != nil {
		return err
	}
	return id.post("post_ud_send", verbs.SendWR{WRID: wrID, Opcode: ib.WRSend, Flags: flags, SGL: []verbs.SGE{mr.SGE(off, n)},
		AH: ah, RemoteQPN: remote, RemoteQKey: cm.QKeyUDP})
}

func (id *ID) post(verb string, wr verbs.SendWR) error {
	qp, err := id.need(verb)
	if err != nil {
		return err
	}
	return qp.PostSend(wr)
}

// GetRecvComp (rdma_get_recv_comp) returns a completed receive. If there is none it
// blocks until a request completes. n is the number of completions, 1, or 0 with an
// error; the WRID of the completion is the context of the request.
//
// A request that failed is a completion like any other: n is 1, err nil, and its Status
// tells. Errors are those of the call: EINVAL if the id has no queue of its own for
// receives (because the program gave CreateQP one, which other ids may share), ENODEV
// when the device is closed, or the context's, which is the only addition to the C call.
//
// Goroutines that wait at the same time get different completions.
func (id *ID) GetRecvComp(ctx context.Context) (wc verbs.WC, n int, err error) {
	return id.getComp(ctx, "get_recv_comp", &id.recv)
}

// GetSendComp (rdma_get_send_comp) is GetRecvComp for sends, READs and WRITEs. Those that
// were posted without ib.SendSignaled complete only if they fail.
func (id *ID) GetSendComp(ctx context.Context) (wc verbs.WC, n int, err error) {
	return id.getComp(ctx, "get_send_comp", &id.send)
}

// TryGetRecvComp is GetRecvComp on a channel whose descriptor does not block: EAGAIN if
// nothing has completed.
func (id *ID) TryGetRecvComp() (wc verbs.WC, n int, err error) {
	return id.tryGetComp("get_recv_comp", &id.recv)
}

// TryGetSendComp is GetSendComp likewise.
func (id *ID) TryGetSendComp() (wc verbs.WC, n int, err error) {
	return id.tryGetComp("get_send_comp", &id.send)
}

// queue returns the id's own queue and its channel.
func (id *ID) queue(verb string, h *half) (*verbs.CQ, *verbs.CompChannel, error) {
	id.mu.Lock()
	defer id.mu.Unlock()
	if h.ch == nil {
		return nil, nil, id.err(ib.EINVAL, verb, "the id has no completion queue of its own for this direction")
	}
	return h.cq, h.ch, nil
}

func (id *ID) tryGetComp(verb string, h *half) (wc verbs.WC, n int, err error) {
	cq, _, err := id.queue(verb, h)
	if err != nil {
		return wc, 0, err
	}
	var one [1]verbs.WC
	if n, err = cq.Poll(one[:]); err == nil && n == 0 {
		err = id.err(ib.EAGAIN, verb, "nothing has completed")
	}
	return one[0], n, err
}

func (id *ID) getComp(ctx context.Context, verb string, h *half) (wc verbs.WC, n int, err error) {
	cq, ch, err := id.queue(verb, h)
	if err != nil {
		return wc, 0, err
	}
	// One event stands for any number of completions, so one waiter at a time looks.
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return wc, 0, ctx.Err()
	}
	var one [1]verbs.WC
	for {
		if n, err = cq.Poll(one[:]); n == 1 || err != nil {
			return one[0], n, err
		}
		if err = cq.ReqNotify(false); err != nil {
			return wc, 0, err
		}
		// What completed before the queue was armed announces nothing.
		if n, err = cq.Poll(one[:]); n == 1 || err != nil {
			return one[0], n, err
		}
		q, err := ch.Get(ctx)
		if err != nil {
			return wc, 0, err
		}
		_ = q.AckEvents(1) // the one that Get gave
	}
}
