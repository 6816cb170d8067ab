package topology

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMarshalIsReadBack: what is written says the same as the file it comes from.
func TestMarshalIsReadBack(t *testing.T) {
	paths, err := filepath.Glob("../../examples/*.yaml")
	require.NoError(t, err)
	texts := map[string][]byte{"all keys": []byte(everyKey)}
	for _, p := range paths {
		f, err := Load(p)
		require.NoError(t, err)
		texts[p] = f.Plain().Marshal("of " + p)
	}
	for name, text := range texts {
		f, err := Parse("x.yaml", text)
		require.NoError(t, err, "%s:\n%s", name, text)
		want := f.Plain()
		got, err := Parse("x.yaml", want.Marshal(name))
		require.NoError(t, err, "%s:\n%s", name, want.Marshal(name))
		require.Equal(t, want.Nodes, got.Nodes)
		require.Equal(t, want.Links, got.Links)
		require.Equal(t, want.Flows, got.Flows)
		require.Equal(t, want.Expect, got.Expect)
		require.Equal(t, want.Network, got.Network)
		require.Equal(t, want.Form, got.Form)
		require.Equal(t, want.Switches, got.Switches)
		require.Len(t, got.Schedule(), len(want.Schedule()))
		require.Equal(t, string(want.Marshal("")), string(got.Plain().Marshal("")))
	}
}
