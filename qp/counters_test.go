package qp

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// Add adds every counter to the one of the same name.
func TestCountersAdd(t *testing.T) {
	var a, b Counters
	fill := func(c *Counters, step uint64) {
		n := uint64(0)
		var set func(v reflect.Value)
		set = func(v reflect.Value) {
			if v.Kind() == reflect.Uint64 {
				n += step
				v.SetUint(n)
				return
			}
			for i := range v.Len() {
				set(v.Index(i))
			}
		}
		for i := range reflect.TypeFor[Counters]().NumField() {
			set(reflect.ValueOf(c).Elem().Field(i))
		}
	}
	fill(&a, 1)
	fill(&b, 1000)
	a.Add(&b)
	var want Counters
	fill(&want, 1001)
	require.Equal(t, want, a)
}
