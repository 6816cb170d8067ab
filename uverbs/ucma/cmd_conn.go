package ucma

import (
	"encoding/binary"

	"github.com/rvtsim/rvtsim/cm"
	"github.com/rvtsim/rvtsim/ib"
)

// eceBytes is what the newest CONNECT and ACCEPT have at their end.
const eceBytes = 8

// param (kernel: ucma_copy_conn_param) turns the program's parameters into the manager's.
func (p *connParam) param(e ece) cm.ConnParam {
	return cm.ConnParam{
		QPN: ib.QPN(p.QPNum) & ib.QPNMask, Private: append([]byte(nil), p.Private[:p.PrivateLen]...), SRQ: p.SRQ != 0,
		ResponderResources: p.ResponderResources, InitiatorDepth: p.InitiatorDepth, FlowControl: p.FlowControl != 0,
		RetryCount: p.RetryCount, RNRRetryCount: p.RNRRetryCount, ECE: cm.ECE{VendorID: e.VendorID, Options: e.AttrMod},
	}
}

// connect (kernel: ucma_connect).
func connect(k *call) error {
	var cmd connectCmd
	if err := k.decodeGrown(&cmd, binary.Size(&cmd)-eceBytes); err != nil {
		return err
	}
	if cmd.Conn.Valid == 0 {
		return k.err(ib.EINVAL, "there are no parameters")
	}
	c, err := k.ownWithDevice(cmd.ID)
	if err != nil {
		return err
	}
	return c.core.Connect(k.now, cmd.Conn.param(cmd.ECE))
}

// accept (kernel: ucma_accept) with parameters answers a request, and gives its id the
// program's name for it. Without parameters it confirms a response.
func accept(k *call) error {
	var cmd acceptCmd
	if err := k.decodeGrown(&cmd, binary.Size(&cmd)-eceBytes); err != nil {
		return err
	}
	c, err := k.ownWithDevice(cmd.ID)
	if err != nil {
		return err
	}
	if cmd.Conn.Valid == 0 && c.core.QPType() != ib.QPTypeUD {
		return c.core.Establish(k.now)
	}
	// The events that follow carry the name.
	before := c.uid
	if cmd.Conn.Valid != 0 {
		c.uid = cmd.UID
	}
	if err := c.core.Accept(k.now, cmd.Conn.param(cmd.ECE)); err != nil {
		c.uid = before
		return err
	}
	return nil
}

// reject (kernel: ucma_reject).
func reject(k *call) error {
	var cmd rejectCmd
	if err := k.decode(&cmd, 0); err != nil {
		return err
	}
	reason := cm.Reason(cmd.Reason)
	if reason == 0 {
		reason = cm.RejConsumerDefined
	}
	if reason != cm.RejConsumerDefined && reason != cm.RejVendorOption {
		return k.err(ib.EINVAL, "the reason is not a program's to give")
	}
	c, err := k.ownWithDevice(cmd.ID)
	if err != nil {
		return err
	}
	return c.core.Reject(k.now, reason, append([]byte(nil), cmd.Private[:cmd.PrivateLen]...))
}

// disconnect (kernel: ucma_disconnect).
func disconnect(k *call) error {
	var cmd disconnectCmd
	if err := k.decode(&cmd, 0); err != nil {
		return err
	}
	c, err := k.ownWithDevice(cmd.ID)
	if err != nil {
		return err
	}
	return c.core.Disconnect(k.now)
}

// notify (kernel: ucma_notify).
func notify(k *call) error {
	var cmd idValueCmd
	if err := k.decode(&cmd, 0); err != nil {
		return err
	}
	c, err := k.own(cmd.ID)
	if err != nil {
		return err
	}
	if cmd.Value < 0 || cmd.Value > 255 {
		return k.err(ib.EINVAL, "no such event")
	}
	return c.core.Notify(k.now, ib.EventType(cmd.Value))
}
