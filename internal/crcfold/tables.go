package crcfold

import "sync/atomic"

var tables atomic.Bool

// PreferTables says whether CRCs by tables are faster in this process than those by the
// processor's carry-less multiplication, which an emulator computes bit by bit. It may be
// called at any time: all ways give the same CRC.
func PreferTables(yes bool) { tables.Store(yes) }

// Tables reports what PreferTables said last, false before.
func Tables() bool { return tables.Load() }
