package conform

import (
	"time"

	"github.com/rvtsim/rvtsim/ib"
)

// DUT is a device under test, as a program sees it. Objects have the names that the case
// gives them; "A" and "B" are the queue pairs, "A.s" and "A.r" their completion queues.
// Calls return the errno of the C API, 0 for success. One goroutine uses it.
type DUT interface {
	Objects
	Work
	Outcome
	// Close frees everything. The DUT is not used afterwards.
	Close()
}

// Objects creates, changes and destroys.
type Objects interface {
	AllocPD(name string) ib.Errno
	DeallocPD(name string) ib.Errno
	// RegMR registers memory at an absolute address, which may be one that the program
	// does not have.
	RegMR(name, pd string, addr, length uint64, access ib.Access) (MRKeys, ib.Errno)
	DeregMR(name string) ib.Errno
	AllocMW(name, pd string, typ ib.MWType) (ib.RKey, ib.Errno)
	DeallocMW(name string) ib.Errno
	// CreateCQ makes a queue with a completion channel and returns the capacity granted.
	CreateCQ(name string, cqe int) (int, ib.Errno)
	ResizeCQ(name string, cqe int) (int, ib.Errno)
	DestroyCQ(name string) ib.Errno
	CreateSRQ(name, pd string, a SRQAttr) ib.Errno
	// ModifySRQ sets what is not negative.
	ModifySRQ(name string, maxWR, limit int) ib.Errno
	QuerySRQ(name string) (SRQAttr, ib.Errno)
	DestroySRQ(name string) ib.Errno
	CreateAH(name, pd string, av AV) ib.Errno
	DestroyAH(name string) ib.Errno
	// CreateQP returns the capacities granted and the queue pair's number.
	CreateQP(name string, a QPInit) (QPCap, ib.QPN, ib.Errno)
	ModifyQP(name string, a *QPAttr, mask ib.AttrMask) ib.Errno
	// QueryQP returns what the device says.
	QueryQP(name string) (QPView, ib.Errno)
	DestroyQP(name string) ib.Errno
}

// Work posts.
type Work interface {
	PostSend(qp string, wr *SendWR) ib.Errno
	PostRecv(qp string, wr *RecvWR) ib.Errno
	PostSRQRecv(srq string, wr *RecvWR) ib.Errno
}

// Outcome is what happens then.
type Outcome interface {
	// Poll takes the oldest completion of a queue.
	Poll(cq string) (WC, bool)
	ReqNotify(cq string, solicitedOnly bool) ib.Errno
	// CQEvents collects and acknowledges the completion events of a queue.
	CQEvents(cq string) int
	// AsyncEvent takes the oldest asynchronous event.
	AsyncEvent() (Event, bool)
	// Wait lets time pass until something may have happened, at most d. It returns how
	// long it was. A device in real time sleeps a little instead.
	Wait(d time.Duration) time.Duration
	// Memory tells where the program's memory is. On a fresh device it is zero.
	Memory() (base uint64, size int)
	// Peek and Poke read and write it, from an offset on. What they name is inside.
	Peek(off uint64, n int) []byte
	Poke(off uint64, b []byte)
	// Address is the device's own GID.
	Address() ib.GID
	// Err is why the device cannot be used any more; nil for one that works.
	Err() error
}

// Network is what a DUT may offer besides: a hand on the wire. Cases that need it say so
// with "needs", and are skipped elsewhere.
type Network interface {
	// Inject lets a packet arrive at a queue pair as if its peer had sent it.
	Inject(qp string, p *RawPacket)
	// SetPort takes the port down or up.
	SetPort(up bool)
}

// MRKeys are the keys of a region.
type MRKeys struct {
	LKey ib.LKey
	RKey ib.RKey
}

// SRQAttr (struct ibv_srq_attr) describes a shared receive queue.
type SRQAttr struct{ MaxWR, MaxSGE, Limit int }

// AV (struct ibv_ah_attr) is an address: always the device's own, or a wrong one.
type AV struct {
	SGIDIndex int // relative to the index of the device's own address
	PortNum   int
	IsGlobal  bool
}

// QPCap (struct ibv_qp_cap) is the size of the queues.
type QPCap struct{ MaxSendWR, MaxRecvWR, MaxSendSGE, MaxRecvSGE, MaxInline int }

// QPInit (struct ibv_qp_init_attr) describes a queue pair to create.
type QPInit struct {
	PD, SendCQ, RecvCQ, SRQ string // SRQ may be empty
	Type                    ib.QPType
	SQSigAll                bool
	Cap                     QPCap
}

// QPAttr (struct ibv_qp_attr) holds the attributes to modify.
type QPAttr struct {
	State           ib.QPState
	PortNum         int
	PKeyIndex       int
	Access          ib.Access
	QKey            ib.QKey
	AV              AV
	PathMTU         ib.MTU
	DestQPN         ib.QPN
	RQPSN, SQPSN    ib.PSN
	MaxDestRdAtomic int
	MaxRdAtomic     int
	MinRNRTimer     int
	Timeout         int
	RetryCnt        int
	RNRRetry        int
	EnSQDNotify     bool
}

// QPView is what a query shows.
type QPView struct {
	State      ib.QPState // as queried
	Cached     ib.QPState // as the program's own structure says (struct ibv_qp)
	SQDraining bool
}

// SGE (struct ibv_sge) is a piece of registered memory.
type SGE struct {
	Addr   uint64
	Length uint32
	LKey   ib.LKey
}

// SendWR (struct ibv_send_wr) is a send work request.
type SendWR struct {
	ID         uint64
	Op         ib.WROpcode
	Flags      ib.SendFlags
	SGL        []SGE
	Imm        uint32
	InvRKey    ib.RKey
	RemoteAddr uint64
	RKey       ib.RKey
	CompareAdd uint64
	Swap       uint64
	AH         string
	RemoteQPN  ib.QPN
	RemoteQKey ib.QKey
	Bind       Bind
}

// Bind (struct ibv_mw_bind_info) says what a BIND_MW binds.
type Bind struct {
	MW, MR string
	RKey   ib.RKey
	Addr   uint64
	Length uint64
	Access ib.Access
}

// RecvWR (struct ibv_recv_wr) is a receive work request.
type RecvWR struct {
	ID  uint64
	SGL []SGE
}

// WC (struct ibv_wc) is a completion.
type WC struct {
	ID        uint64
	Status    ib.WCStatus
	Opcode    ib.WCOpcode
	VendorErr uint32
	ByteLen   uint32
	Imm       uint32 // as a number: 0xcafebabe for the bytes ca fe ba be
	QPN       ib.QPN
	SrcQP     ib.QPN
	Flags     ib.WCFlags
}

// Event (struct ibv_async_event) is an asynchronous event and the object it is about.
type Event struct {
	Type   ib.EventType
	Object string // "A", "A.s", an SRQ's name; empty for the port
}

// RawPacket is a packet to inject.
type RawPacket struct {
	Opcode   ib.Opcode
	PSN      ib.PSN
	AckReq   bool
	Syndrome ib.Syndrome
	MSN      ib.MSN
	VA       uint64
	RKey     ib.RKey
	DMALen   uint32
	Payload  int // bytes, all zero
}
