package uverbs

import (
	"math/bits"

	"github.com/rvtsim/rvtsim/cq"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/swqe"
)

// abi is a personality: the part of the ABI that is private to a driver and its
// provider library.
type abi interface {
	// version is the provider ABI's number, in sysfs.
	version() int
	// driverID (enum rdma_driver_id) is what the provider calls its kernel driver.
	driverID() uint32
	// grantCQE and grantWR return how many entries a queue gets for n asked for.
	grantCQE(n int) int
	grantWR(n int) int
	// mapInfo appends what tells the provider where a ring is: its offset, and its
	// size where the provider does not work it out itself.
	mapInfo(b []byte, r ring) []byte
	// mapInfoBytes is the length of one mapInfo.
	mapInfoBytes() int
	// needsMap reports whether a program that has no room for a mapInfo is refused. If
	// not, its queues live in the device and are worked by commands.
	needsMap() bool
	// hasSQ reports whether sends are posted through a ring.
	hasSQ() bool

	cqBytes(cqe int) int
	newCQ(b []byte, cqe int) cq.Ring
	rqBytes(maxWR, maxSGE int) int
	newRQ(b []byte, maxWR, maxSGE int) recvRing
}

// recvRing is a receive queue that the program fills.
type recvRing interface {
	swqe.RecvQueue
	// drop removes every receive, as a transition to RESET does.
	drop()
	// moveTo copies the receives that wait to an empty ring, in order, as many as fit.
	moveTo(dst recvRing)
	// put appends a receive; false if there is no room.
	put(e *swqe.RWQE) bool
}

// ring is allocated ring memory.
type ring struct {
	offset uint64
	size   int
}

// pageBytes is the granularity of mappings.
const pageBytes = 4096

func pageAlign(n int) int { return (n + pageBytes - 1) &^ (pageBytes - 1) }

// rxeABI is the personality of rdma_rxe (rdma_user_rxe.h): every queue is a
// rxe_queue_buf whose number of slots is a power of two, one of them unused.
type rxeABI struct{}

var (
	_ abi = rxeABI{}
	_ abi = rvtABI{}
)

func (rxeABI) version() int       { return 1 }
func (rxeABI) driverID() uint32   { return driverRXE }
func (rxeABI) grantCQE(n int) int { return rxeSlots(n) - 1 }
func (rxeABI) grantWR(n int) int  { return rxeSlots(n) - 1 }
func (rxeABI) needsMap() bool     { return true }
func (rxeABI) hasSQ() bool        { return true }
func (rxeABI) mapInfoBytes() int  { return 16 }

// mapInfo appends a struct mminfo.
func (rxeABI) mapInfo(b []byte, r ring) []byte {
	b = native.AppendUint64(b, r.offset)
	b = native.AppendUint32(b, uint32(r.size))
	return native.AppendUint32(b, 0)
}

// rxeSlots returns the slots of a queue for n entries. At least two: a provider
// divides by the index mask.
func rxeSlots(n int) int { return max(1<<bits.Len(uint(n)), 2) }

// rxeElem returns the logarithm of an element's size.
func rxeElem(bytes int) int { return bits.Len(uint(bytes - 1)) }

func (rxeABI) cqBytes(cqe int) int { return rxeBytes(cqe+1, rxeElem(wcBytes)) }

func (rxeABI) newCQ(b []byte, cqe int) cq.Ring {
	return &rxeCQ{newRXEQueue(b, cqe+1, rxeElem(wcBytes))}
}

func (rxeABI) rqBytes(maxWR, maxSGE int) int {
	return rxeBytes(maxWR+1, rxeElem(rxeRecvSGE+sgeBytes*maxSGE))
}

func (rxeABI) newRQ(b []byte, maxWR, maxSGE int) recvRing {
	return &rxeRQ{q: newRXEQueue(b, maxWR+1, rxeElem(rxeRecvSGE+sgeBytes*maxSGE)), maxSGE: maxSGE}
}

// rxeSQBytes returns the size of a send ring.
func rxeSQBytes(maxWR, maxSGE, maxInline int) int {
	return rxeBytes(maxWR+1, rxeSQElem(maxSGE, maxInline))
}

func rxeSQElem(maxSGE, maxInline int) int {
	return rxeElem(rxeSendData + max(sgeBytes*maxSGE, maxInline))
}

func rxeBytes(slots, elem int) int { return pageAlign(rxeHeader + slots<<elem) }

// rvtABI is the personality of rdmavt (rvt-abi.h): queues have exactly the entries
// that were asked for, and sends travel inside the write().
type rvtABI struct{}

func (rvtABI) version() int       { return 2 }
func (rvtABI) driverID() uint32   { return driverHFI1 }
func (rvtABI) grantCQE(n int) int { return n }
func (rvtABI) grantWR(n int) int  { return n }
func (rvtABI) needsMap() bool     { return false }
func (rvtABI) hasSQ() bool        { return false }
func (rvtABI) mapInfoBytes() int  { return 8 }

// mapInfo appends the offset; the provider knows the size.
func (rvtABI) mapInfo(b []byte, r ring) []byte { return native.AppendUint64(b, r.offset) }

func (rvtABI) cqBytes(cqe int) int { return pageAlign(rvtEntries + wcBytes*(cqe+1)) }

func (rvtABI) newCQ(b []byte, cqe int) cq.Ring { return &rvtCQ{b: b, slots: uint32(cqe + 1)} }

func (rvtABI) rqBytes(maxWR, maxSGE int) int {
	return pageAlign(rvtEntries + (rvtRWQESGE+sgeBytes*maxSGE)*(maxWR+1))
}

func (rvtABI) newRQ(b []byte, maxWR, maxSGE int) recvRing {
	return &rvtRQ{b: b, slots: uint32(maxWR + 1), maxSGE: maxSGE}
}

// most returns the largest n for which grant(n) does not exceed limit: what a device
// with that limit can offer.
func most(grant func(int) int, limit int) int {
	if grant(limit) == limit {
		return limit
	}
	return 1<<(bits.Len(uint(limit+1))-1) - 1
}

// alloc allocates ring memory; the error is ENOMEM.
func (c *Context) alloc(verb string, size int) (ring, []byte, error) {
	off, b, err := c.mem.Alloc(size)
	if err == nil && len(b) < size {
		c.mem.Free(off)
		err = ib.ENOMEM
	}
	if err != nil {
		return ring{}, nil, ib.NewVerbError(ib.ENOMEM, verb, "", "no ring memory: "+err.Error())
	}
	return ring{off, size}, b, nil
}

// free gives ring memory back, if r is any.
func (c *Context) free(r ring) {
	if r.size > 0 {
		c.mem.Free(r.offset)
	}
}
