package topology

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func readExample(name string) ([]byte, error) {
	return os.ReadFile("../../examples/" + name + ".yaml")
}

// checkProblems requires that every problem points into the file. One column after
// the end of a line is inside: there something is missing.
func checkProblems(t *testing.T, b []byte, err error) {
	t.Helper()
	var ps Problems
	require.ErrorAs(t, err, &ps)
	require.NotEmpty(t, ps)
	lines := strings.Split(newlines.Replace(string(b)), "\n")
	for _, p := range ps {
		require.NotEmpty(t, p.Message)
		require.GreaterOrEqual(t, p.Line, 1)
		require.LessOrEqual(t, p.Line, len(lines), p.Error())
		require.GreaterOrEqual(t, p.Column, 1)
		require.LessOrEqual(t, p.Column, utf8.RuneCountInString(lines[p.Line-1])+1, p.Error())
	}
}

// checkFlowResolved requires what users of a File rely on without looking.
func checkFlowResolved(t *testing.T, file *File, fl *Flow) {
	t.Helper()
	require.True(t, fl.From >= 0 && fl.From < len(file.Nodes))
	require.True(t, fl.To >= 0 && fl.To < len(file.Nodes))
	require.NotEmpty(t, fl.Name)
	require.NotEmpty(t, fl.Ops)
	require.NotEmpty(t, fl.Sizes.Values)
	require.NotZero(t, fl.Sizes.Kind)
	require.True(t, fl.Depth > 0 && fl.QPs > 0 && fl.RecvDepth >= 0 && fl.RecvSize >= 0)
	require.True(t, fl.MaxRdAtomic >= 0 && fl.MaxDestRdAtomic >= 0)
	require.True(t, fl.PathMTU.Valid())
	require.True(t, fl.Timeout <= 31 && fl.MinRNRTimer <= 31 && fl.RetryCnt <= 7 && fl.RNRRetry <= 7)
	require.NotNil(t, fl.Expect.Completions)
	for _, o := range fl.Ops {
		require.True(t, o.Op.On(fl.Transport))
		require.NotZero(t, o.Weight)
	}
}
