package invariants

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
)

// Mark says how often the code that implements a numbered requirement has run.
type Mark struct {
	ID    string
	Count uint64
}

// marks counts by requirement ID. The set of IDs is the set of constants that appear
// in calls of Reached, so it is bounded by the source text.
var marks struct {
	mu   sync.RWMutex
	byID map[string]*atomic.Uint64
}

// Reached notes that the code implementing requirement id (such as "RC-ACK-07") has
// run. A scenario that cites the requirement compares [Count] before and after, and
// so proves that it went through that line. It does nothing unless assertions are
// compiled in, and allocates only the first time it sees an ID.
func Reached(id string) {
	if Enabled {
		reached(id)
	}
}

// reached is apart from Reached so that the latter is inlined to nothing.
func reached(id string) {
	marks.mu.RLock()
	n := marks.byID[id]
	marks.mu.RUnlock()
	if n == nil {
		n = addMark(id)
	}
	n.Add(1)
}

func addMark(id string) *atomic.Uint64 {
	marks.mu.Lock()
	defer marks.mu.Unlock()
	if n := marks.byID[id]; n != nil {
		return n
	}
	if marks.byID == nil {
		marks.byID = make(map[string]*atomic.Uint64)
	}
	n := new(atomic.Uint64)
	marks.byID[id] = n
	return n
}

// Count returns how often id has been reached in this process; always 0 when
// assertions are compiled out. The count is of the whole process: a test that runs
// beside others may see theirs, so it can trust a difference of zero and not more.
func Count(id string) uint64 {
	marks.mu.RLock()
	defer marks.mu.RUnlock()
	if n := marks.byID[id]; n != nil {
		return n.Load()
	}
	return 0
}

// Marks returns every ID reached so far, sorted; nil when assertions are compiled out.
func Marks() []Mark {
	marks.mu.RLock()
	defer marks.mu.RUnlock()
	var out []Mark
	for id, n := range marks.byID {
		out = append(out, Mark{ID: id, Count: n.Load()})
	}
	slices.SortFunc(out, func(a, b Mark) int { return cmp.Compare(a.ID, b.ID) })
	return out
}
