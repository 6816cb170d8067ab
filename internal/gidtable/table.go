package gidtable

import (
	"slices"

	"github.com/rvtsim/rvtsim/ib"
)

// Size is how many entries a table has (gid_tbl_len). rxe has 1024; each of them is two
// files in sysfs, and no machine has so many addresses on one device.
const Size = 128

// MAC is an Ethernet address.
type MAC [6]byte

// EUI64 is the interface identifier of a MAC address: ff:fe in the middle, the bit for
// "universal" inverted (addrconf_addr_eui48). The kernel takes it for node_guid too.
func (m MAC) EUI64() [8]byte {
	return [8]byte{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]}
}

// GUID is the node GUID of an adapter on a device with this MAC address.
func (m MAC) GUID() uint64 {
	var g uint64
	for _, b := range m.EUI64() {
		g = g<<8 | uint64(b)
	}
	return g
}

// DefaultGID (make_default_gid) is the GID at index 0.
func (m MAC) DefaultGID() ib.GID {
	g := ib.GID{0xfe, 0x80}
	e := m.EUI64()
	copy(g[8:], e[:])
	return g
}

// Entry is one row. The zero Entry is an empty one.
type Entry struct {
	GID ib.GID
	// Ifindex is the device that has the address: the port's own, or one on top of it
	// (a VLAN), or the bridge that it belongs to.
	Ifindex int
}

// Table is the GID table of one port. It is not safe for concurrent use.
type Table struct {
	entries []Entry
	held    []bool // the entry is gone but something still names it
	mac     MAC
	filled  bool
}

// New returns an empty table of size entries.
func New(size int) *Table {
	return &Table{entries: make([]Entry, size), held: make([]bool, size)}
}

// Entries returns the rows up to the last one that is not empty, and at least one. Do not
// modify them.
func (t *Table) Entries() []Entry {
	n := len(t.entries)
	for n > 1 && t.entries[n-1] == (Entry{}) {
		n--
	}
	return t.entries[:n]
}

// Update makes the table that of a device: the index and the MAC address that its default GID
// is made of, its own or its bond's, and its addresses
// in the kernel's order, those of devices that belong to it after its own. used reports
// whether a QP or address handle names an index. It returns the number of GID_CHANGE
// events, and how many addresses found no room.
func (t *Table) Update(own int, mac MAC, addrs []Entry, used func(index int) bool) (events, lost int) {
	for i := range t.held {
		t.held[i] = t.held[i] && used(i)
	}
	if t.filled && mac != t.mac {
		t.clear(used) // a new MAC address takes all GIDs away first, as one change
		events++
	}
	t.mac, t.filled = mac, true
	def := Entry{mac.DefaultGID(), own}
	want := t.wanted(def, addrs)
	for i := 1; i < len(t.entries); i++ {
		if e := t.entries[i]; e != (Entry{}) && !slices.Contains(want, e) {
			t.remove(i, used)
			events++
		}
	}
	if e := t.entries[0]; e != (Entry{}) && e != def { // another device has the same MAC address now
		t.remove(0, used)
		events++
	}
	if t.entries[0] != def && !t.held[0] {
		t.entries[0] = def
		events++
	}
	for _, e := range want {
		switch i := t.place(e); {
		case i < 0:
			lost++
		case t.entries[i] == Entry{}:
			t.entries[i] = e
			events++
		}
	}
	return events, lost
}

// Clear empties the table: the device is gone. The kernel tells that as one change.
func (t *Table) Clear(used func(index int) bool) (events int) {
	t.clear(used)
	t.filled = false
	return 1
}

func (t *Table) clear(used func(index int) bool) {
	for i := range t.entries {
		if t.entries[i] != (Entry{}) {
			t.remove(i, used)
		}
	}
}

func (t *Table) remove(i int, used func(index int) bool) {
	t.entries[i] = Entry{}
	t.held[i] = used(i)
}

// wanted lists what belongs at index 1 and above, without what cannot be there and
// without repetitions.
func (t *Table) wanted(def Entry, addrs []Entry) []Entry {
	var want []Entry
	for _, a := range addrs {
		if !a.GID.IsZero() && !a.GID.IsMulticast() && a != def && !slices.Contains(want, a) {
			want = append(want, a)
		}
	}
	return want
}

// place is where an entry is or can be, -1 if there is no room.
func (t *Table) place(e Entry) int {
	free := -1
	for i := len(t.entries) - 1; i > 0; i-- {
		switch {
		case t.entries[i] == e:
			return i
		case t.entries[i] == Entry{} && !t.held[i]:
			free = i
		}
	}
	return free
}
