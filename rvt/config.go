package rvt

import (
	"errors"
	"strconv"

	"github.com/rvtsim/rvtsim/dcqcn"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/qp"
	"github.com/rvtsim/rvtsim/vtime"
)

// Config describes a device. DefaultConfig is complete but for the GIDs.
type Config struct {
	Name string // as in "rvt0"
	// GUID is the node GUID (network byte order when printed).
	GUID uint64
	// GIDs is the port's GID table; index 0 is the node's own address.
	GIDs []ib.GID
	// MTU is the port's active MTU.
	MTU     ib.MTU
	Profile qp.Profile
	// Driver is what else programs see of the kind of device that Profile names.
	Driver qp.Driver
	Limits Limits
	// Seed varies what programs must not depend on: where keys and QPNs start.
	Seed uint64
	// FirstQPN and LastQPN bound the QPNs given out; 0 means 0x11 and 0xfffffe.
	FirstQPN, LastQPN ib.QPN
	// StartQPN is the first number that is given out; 0 means FirstQPN. A device that
	// takes over the range of another one starts where that has never been.
	StartQPN ib.QPN
	// DistinctKeys makes rkeys differ from lkeys.
	DistinctKeys bool
	// ReuseKey is asked whether the key of the region deregistered last may serve again at
	// once; nil: never. The device's owner calls it.
	ReuseKey func() bool
	// Poison fills what is undefined in failed completions, and in the header area of
	// datagram receives, with a pattern.
	Poison bool
	// Congestion turns congestion control on, with these parameters; nil is off.
	Congestion *dcqcn.Params
	// Judge is asked what becomes of a QP whose retransmission timer has run out, and may know
	// that the peer only stands still; nil: a retry is used up, or the QP fails. The device's owner calls it, in the
	// middle of an input: it must be quick and must not call the device.
	Judge func(now vtime.Time, p qp.Plea) qp.Verdict
	// Observer is told what becomes of work requests; nil in ordinary use.
	Observer qp.Observer
	// Room is shared with other devices of the owner, of which one at a time is between an
	// input and its Commit; nil: the device has one of its own.
	Room *qp.Room
	// Guard watches the program, and is the Observer then; nil in ordinary use.
	Guard Guard
}

// Limits (struct ibv_device_attr) is what the device has of everything.
type Limits struct {
	MaxQP, MaxCQ, MaxMR, MaxPD, MaxSRQ, MaxAH int
	MaxQPWR                                   int // max_qp_wr
	MaxSGE                                    int // max_sge, both directions and SRQ
	MaxCQE                                    int
	MaxSRQWR                                  int
	MaxInline                                 int
	MaxQPRdAtom                               int // max_qp_rd_atom, as responder
	MaxQPInitRdAtom                           int // max_qp_init_rd_atom, as requester
	// MaxResRdAtom (max_res_rd_atom) is what the max_dest_rd_atomic of all QPs may add up
	// to, from RTR to RESET. 0: each QP may have MaxQPRdAtom.
	MaxResRdAtom                int
	MaxMcastGroups, MaxMcastQPs int
	MaxMsgBytes                 uint64
	// WindowPackets is the most PSNs a QP leaves unacknowledged on the wire, but for READs
	// longer than half of it (RC-WINDOW-01). It bounds what a receiver's socket must hold.
	WindowPackets int
}

// DefaultLimits suits tests and programs on one machine; rxe's are similar.
func DefaultLimits() Limits {
	return Limits{
		MaxQP: 1 << 20, MaxCQ: 1 << 20, MaxMR: 1 << 16, MaxPD: 1 << 20, MaxSRQ: 1 << 20, MaxAH: 1 << 20,
		MaxQPWR: 16384, MaxSGE: 32, MaxCQE: 1 << 22, MaxSRQWR: 1 << 20, MaxInline: 1024,
		MaxQPRdAtom: 128, MaxQPInitRdAtom: 128, MaxMcastGroups: 8192, MaxMcastQPs: 56,
		MaxMsgBytes: ib.MaxMsgBytes, WindowPackets: 128,
	}
}

// DefaultConfig returns a device of profile ibta at the given addresses.
func DefaultConfig(name string, gids ...ib.GID) Config {
	return Config{Name: name, GUID: 0x0200000000000001, GIDs: gids, MTU: ib.MTU4096, Profile: qp.ProfileIBTA, Limits: DefaultLimits()}
}

// Validate returns everything that is wrong with the configuration.
func (c *Config) Validate() error {
	var errs []error
	bad := func(s string) { errs = append(errs, errors.New("rvt: device "+strconv.Quote(c.Name)+": "+s)) }
	if len(c.GIDs) == 0 {
		bad("it has no GID")
	}
	if !c.MTU.Valid() {
		bad("the MTU is not one of 256, 512, 1024, 2048, 4096")
	}
	if c.Profile.Name == "" {
		bad("it has no profile")
	}
	l := &c.Limits
	for _, v := range []struct {
		name string
		n    int
	}{{"max_qp", l.MaxQP}, {"max_cq", l.MaxCQ}, {"max_mr", l.MaxMR}, {"max_pd", l.MaxPD}, {"max_qp_wr", l.MaxQPWR}, {"max_sge", l.MaxSGE}, {"max_cqe", l.MaxCQE}, {"window_packets", l.WindowPackets}} {
		if v.n < 1 {
			bad("limit " + v.name + " is less than 1")
		}
	}
	if l.MaxMsgBytes > ib.MaxMsgBytes || l.MaxMsgBytes == 0 {
		bad("limit max_msg_sz is not in 1..2^31")
	}
	if l.MaxQPRdAtom < 0 || l.MaxQPRdAtom > 255 || l.MaxQPInitRdAtom < 0 || l.MaxQPInitRdAtom > 255 {
		bad("rd_atomic limits must fit 8 bits")
	}
	if l.MaxResRdAtom < 0 {
		bad("limit max_res_rd_atom is negative")
	}
	if l.WindowPackets >= 1<<22 {
		bad("limit window_packets must be below 2^22, or PSNs could not be told apart")
	}
	if c.Congestion != nil {
		if err := c.Congestion.Validate(); err != nil {
			bad(err.Error())
		}
	}
	first, last := c.QPNRange()
	if c.StartQPN != 0 && (c.StartQPN < first || c.StartQPN > last) {
		bad("StartQPN is outside the QPN range")
	}
	if first < 2 || last >= ib.QPNMulticast || first > last {
		bad("the QPN range is empty or includes 0, 1 or 0xffffff")
	}
	return errors.Join(errs...)
}

// QPNRange is the first and the last number that a queue pair of the device can get.
func (c *Config) QPNRange() (first, last ib.QPN) {
	first, last = c.FirstQPN, c.LastQPN
	if first == 0 {
		first = 0x11
	}
	if last == 0 {
		last = ib.QPNMulticast - 1
	}
	return first, last
}
