package strict

import (
	"fmt"
	"slices"
	"strings"
)

// checkNames are the switches as files and command lines write them.
var checkNames = []struct {
	name string
	of   func(*Checks) *bool
}{
	{"poison", func(c *Checks) *bool { return &c.Poison }},
	{"slots", func(c *Checks) *bool { return &c.Slots }},
	{"freedom", func(c *Checks) *bool { return &c.Freedom }},
	{"send_queue", func(c *Checks) *bool { return &c.SendQueue }},
	{"buffers", func(c *Checks) *bool { return &c.Buffers }},
	{"receives", func(c *Checks) *bool { return &c.Receives }},
	{"events", func(c *Checks) *bool { return &c.Events }},
	{"cq_size", func(c *Checks) *bool { return &c.CQSize }},
	{"connections", func(c *Checks) *bool { return &c.Connections }},
	{"memory", func(c *Checks) *bool { return &c.Memory }},
	{"lifetime", func(c *Checks) *bool { return &c.Lifetime }},
}

// CheckNames returns the names of the switches.
func CheckNames() []string {
	names := make([]string, len(checkNames))
	for i := range checkNames {
		names[i] = checkNames[i].name
	}
	return names
}

// Enable turns on the check of that name; false if there is none.
func (c *Checks) Enable(name string) bool {
	i := slices.Index(CheckNames(), name)
	if i >= 0 {
		*checkNames[i].of(c) = true
	}
	return i >= 0
}

// Any reports whether any check is on.
func (c Checks) Any() bool { return c != Checks{} }

// ParseChecks reads "all" or names separated by commas.
func ParseChecks(s string) (c Checks, err error) {
	if s == "all" {
		return All(), nil
	}
	for _, name := range strings.Split(s, ",") {
		if !c.Enable(strings.TrimSpace(name)) {
			return Checks{}, fmt.Errorf("strict: unknown check %q; want all, or some of %s", name, strings.Join(CheckNames(), ", "))
		}
	}
	return c, nil
}

// All returns every check.
func All() (c Checks) {
	for i := range checkNames {
		*checkNames[i].of(&c) = true
	}
	return c
}
