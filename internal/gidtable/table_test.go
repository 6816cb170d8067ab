package gidtable

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rvtsim/rvtsim/ib"
)

var mac = MAC{0x52, 0x54, 0x00, 0x77, 0x00, 0x01}

const own = 2

func entry(s string, ifindex int) Entry { return Entry{netip.MustParseAddr(s).As16(), ifindex} }

func entries(addrs ...string) []Entry {
	var out []Entry
	for _, a := range addrs {
		out = append(out, entry(a, own))
	}
	return out
}

func unused(int) bool { return false }

// text prints a table for comparison.
func text(t *Table) string {
	var rows []string
	for _, e := range t.Entries() {
		s := "-"
		if e != (Entry{}) {
			s = netip.AddrFrom16(e.GID).Unmap().String()
			if e.Ifindex != own {
				s += fmt.Sprintf("@%d", e.Ifindex)
			}
		}
		rows = append(rows, s)
	}
	return strings.Join(rows, " ")
}

func TestIdentifiers(t *testing.T) {
	require.Equal(t, "fe80::5054:ff:fe77:1", netip.AddrFrom16(mac.DefaultGID()).String())
	require.EqualValues(t, 0x505400fffe770001, mac.GUID())
	// The loopback device of Linux has no MAC address, and this default GID.
	require.Equal(t, "fe80::200:ff:fe00:0", netip.AddrFrom16(MAC{}.DefaultGID()).String())
}

func TestOrderAtCreation(t *testing.T) {
	tab := New(8)
	events, lost := tab.Update(own, mac, entries("192.0.2.1", "192.0.2.7", "2001:db8::1", "fe80::5054:ff:fe77:1", "fe80::99"), unused)
	require.Equal(t, "fe80::5054:ff:fe77:1 192.0.2.1 192.0.2.7 2001:db8::1 fe80::99", text(tab), "the link-local address that equals the default GID is not doubled")
	require.Equal(t, 5, events)
	require.Zero(t, lost)
}

func TestDefaultGIDNeedsNoAddress(t *testing.T) {
	tab := New(8)
	events, _ := tab.Update(own, mac, nil, unused)
	require.Equal(t, "fe80::5054:ff:fe77:1", text(tab))
	require.Equal(t, 1, events)
}

func TestHolesAreFilledLowestFirst(t *testing.T) {
	tab := New(8)
	tab.Update(own, mac, entries("192.0.2.1", "192.0.2.2", "192.0.2.3"), unused)
	events, _ := tab.Update(own, mac, entries("192.0.2.3"), unused)
	require.Equal(t, "fe80::5054:ff:fe77:1 - - 192.0.2.3", text(tab))
	require.Equal(t, 2, events, "one for each address that went")
	events, _ = tab.Update(own, mac, entries("192.0.2.3", "192.0.2.9"), unused)
	require.Equal(t, "fe80::5054:ff:fe77:1 192.0.2.9 - 192.0.2.3", text(tab))
	require.Equal(t, 1, events)
	events, _ = tab.Update(own, mac, entries("192.0.2.9", "192.0.2.3"), unused)
	require.Zero(t, events, "the order of the device's addresses means nothing later")
}

func TestEntryInUseKeepsItsPlace(t *testing.T) {
	tab := New(8)
	tab.Update(own, mac, entries("192.0.2.1", "192.0.2.2"), unused)
	first := func(i int) bool { return i == 1 }
	tab.Update(own, mac, entries("192.0.2.2"), first)
	require.Equal(t, "fe80::5054:ff:fe77:1 - 192.0.2.2", text(tab), "it reads as empty")
	tab.Update(own, mac, entries("192.0.2.2", "192.0.2.1"), first)
	require.Equal(t, "fe80::5054:ff:fe77:1 - 192.0.2.2 192.0.2.1", text(tab), "but is not given to anybody, not even to its old owner")
	tab.Update(own, mac, entries("192.0.2.2", "192.0.2.1", "192.0.2.5"), unused)
	require.Equal(t, "fe80::5054:ff:fe77:1 192.0.2.5 192.0.2.2 192.0.2.1", text(tab))
}

func TestNewMACAddress(t *testing.T) {
	tab := New(8)
	addrs := entries("192.0.2.1", "2001:db8::1")
	tab.Update(own, mac, addrs, unused)
	events, _ := tab.Update(own, MAC{2, 0, 0, 0, 0, 9}, addrs, unused)
	require.Equal(t, "fe80::ff:fe00:9 192.0.2.1 2001:db8::1", text(tab))
	require.Equal(t, 4, events, "one for the end of all, one for each that came back")
}

func TestDefaultGIDOfBond(t *testing.T) {
	tab := New(8)
	addrs := []Entry{entry("198.51.100.1", 7)}
	tab.Update(own, mac, entries("192.0.2.1"), unused)
	events, _ := tab.Update(7, mac, addrs, unused) // the device joins bond 7, whose addresses come
	require.Equal(t, "fe80::5054:ff:fe77:1@7 198.51.100.1@7", text(tab))
	require.Equal(t, 4, events, "two that go and two that come")
	tab.Update(7, mac, nil, unused) // another member carries the traffic
	require.Equal(t, "fe80::5054:ff:fe77:1@7", text(tab), "the default GID stays on all members")
	tab.Update(own, mac, nil, unused)
	require.Equal(t, "fe80::5054:ff:fe77:1", text(tab), "after leaving, its own")
	tab.Update(7, mac, nil, func(i int) bool { return i == 0 })
	require.Equal(t, "-", text(tab), "somebody names the old one still")
}

func TestDevicesOnTop(t *testing.T) {
	tab := New(8)
	addrs := append(entries("192.0.2.1"), entry("198.51.100.1", 5), entry("fe80::5054:ff:fe77:1", 5))
	tab.Update(own, mac, addrs, unused)
	require.Equal(t, "fe80::5054:ff:fe77:1 192.0.2.1 198.51.100.1@5 fe80::5054:ff:fe77:1@5", text(tab), "a VLAN has its own link-local entry although the number is that of index 0")
	events, _ := tab.Update(own, mac, entries("192.0.2.1"), unused)
	require.Equal(t, 2, events)
}

func TestFullTable(t *testing.T) {
	tab := New(3)
	events, lost := tab.Update(own, mac, entries("192.0.2.1", "192.0.2.2", "192.0.2.3"), unused)
	require.Equal(t, 3, events)
	require.Equal(t, 1, lost)
	require.Equal(t, "fe80::5054:ff:fe77:1 192.0.2.1 192.0.2.2", text(tab))
}

func TestNoDoublesNoNonsense(t *testing.T) {
	tab := New(8)
	events, _ := tab.Update(own, mac, append(entries("192.0.2.1", "192.0.2.1", "ff02::1"), Entry{ib.GID{}, own}), unused)
	require.Equal(t, "fe80::5054:ff:fe77:1 192.0.2.1", text(tab))
	require.Equal(t, 2, events)
}

func TestClear(t *testing.T) {
	tab := New(8)
	tab.Update(own, mac, entries("192.0.2.1"), unused)
	require.Equal(t, 1, tab.Clear(unused))
	require.Equal(t, "-", text(tab))
	events, _ := tab.Update(own, mac, entries("192.0.2.1"), unused)
	require.Equal(t, 2, events)
}

// TestTableHoldsWhatItShould holds any history of addresses against what must be true at
// any time: each address has one row, nothing else has, and no row moves.
func TestTableHoldsWhatItShould(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := New(12)
		inUse := map[int]bool{}
		pool := entries("192.0.2.1", "192.0.2.2", "192.0.2.3", "2001:db8::1", "2001:db8::2", "fe80::9")
		for range rapid.IntRange(1, 20).Draw(t, "steps") {
			before := append([]Entry(nil), tab.Entries()...)
			var addrs []Entry
			for _, e := range pool {
				if rapid.Bool().Draw(t, "has") {
					addrs = append(addrs, e)
				}
			}
			at := rapid.IntRange(0, 6).Draw(t, "used")
			inUse[at] = !inUse[at]
			events, lost := tab.Update(own, mac, addrs, func(i int) bool { return inUse[i] })
			rows, changed := map[Entry]int{}, 0
			for i, e := range tab.Entries() {
				if e != (Entry{}) {
					rows[e]++
				}
				old := Entry{}
				if i < len(before) {
					old = before[i]
				}
				if e != old {
					changed++
					if e != (Entry{}) && inUse[i] && old != (Entry{}) {
						t.Fatalf("index %d is in use and went from %v to %v", i, old, e)
					}
				}
			}
			for i := len(tab.Entries()); i < len(before); i++ {
				if before[i] != (Entry{}) {
					changed++
				}
			}
			if len(rows) != len(addrs)+1-lost || rows[Entry{mac.DefaultGID(), own}] != 1 {
				t.Fatalf("table %s for %v", text(tab), addrs)
			}
			for _, e := range addrs {
				if rows[e] > 1 || rows[e] == 0 && lost == 0 {
					t.Fatalf("%v has %d rows: %s", e, rows[e], text(tab))
				}
			}
			if events < changed {
				t.Fatalf("%d events for %d changed rows", events, changed)
			}
		}
	})
}

func TestPortState(t *testing.T) {
	down, noCarrier, up := Link{}, Link{Up: true}, Link{Up: true, Carrier: true}
	require.Equal(t, Disabled, NewPort(down))
	require.Equal(t, Polling, NewPort(noCarrier))
	require.Equal(t, LinkUp, NewPort(up))
	s := NewPort(down)
	for _, step := range []struct {
		from, to Link
		want     PortState
	}{
		{down, noCarrier, LinkUp}, // starting a device counts, carrier or not
		{noCarrier, noCarrier, LinkUp},
		{noCarrier, up, LinkUp},
		{up, noCarrier, Polling},
		{noCarrier, down, Disabled},
		{down, up, LinkUp},
		{up, down, Disabled},
	} {
		s = s.Next(step.from, step.to)
		require.Equal(t, step.want, s, "from %+v to %+v", step.from, step.to)
	}
}
