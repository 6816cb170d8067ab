package uverbs

import "github.com/rvtsim/rvtsim/qp"

// journal names the sends of a queue pair that are under way, where sends come inside the
// write() and not through a ring: in memory that the program's context shares, for the
// host's [Heir], who could not complete them otherwise. It is laid out like a receive ring
// of the rvt ABI with entries that are nothing but a wr_id. The indices are the device's
// own; nothing is read back.
type journal struct {
	b          []byte
	head, tail uint32 // next free, oldest not retired
	slots      uint32
}

var _ qp.SendQueue = (*journal)(nil)

// journalStride is the size of an entry.
const journalStride = 8

func journalBytes(maxWR int) int { return pageAlign(rvtEntries + journalStride*(maxWR+1)) }

func newJournal(b []byte, maxWR int) *journal { return &journal{b: b, slots: uint32(maxWR) + 1} }

// add notes a send that was posted.
func (j *journal) add(wrID uint64) {
	native.PutUint64(j.b[rvtEntries+journalStride*int(j.head):], wrID)
	j.head = (j.head + 1) % j.slots
	storeWord(j.b, rvtHeadOff, j.head)
}

// Retired implements qp.SendQueue.
func (j *journal) Retired() {
	j.tail = (j.tail + 1) % j.slots
	storeWord(j.b, rvtTailOff, j.tail)
}

// reset empties the journal: nothing is under way.
func (j *journal) reset() {
	j.tail = j.head
	storeWord(j.b, rvtTailOff, j.tail)
}

// span describes the journal to the heir.
func (j *journal) span(r ring) Span {
	return Span{Offset: r.offset, Size: r.size, Slots: int(j.slots), Stride: journalStride}
}
