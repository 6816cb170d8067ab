package spec

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// TestScenarios runs every script. After a change that is meant, rewrite with
//
//	go test ./spec -run TestScenarios -rewrite
//
// and read each changed line against the requirement it shows before committing it.
func TestScenarios(t *testing.T) {
	datadriven.Walk(t, "scenarios", func(t *testing.T, path string) {
		in := New()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			c := Command{Pos: d.Pos, Name: d.Cmd, Input: d.Input}
			for _, a := range d.CmdArgs {
				c.Args = append(c.Args, Arg{a.Key, a.Vals})
			}
			out, err := in.Run(c)
			if err != nil {
				t.Fatal(err)
			}
			return out
		})
	})
}

// scripts returns the path and text of every scenario.
func scripts(t testing.TB) (paths []string, texts []string) {
	t.Helper()
	err := filepath.WalkDir("scenarios", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".txt") {
			return err
		}
		b, err := os.ReadFile(path)
		paths, texts = append(paths, filepath.ToSlash(path)), append(texts, string(b))
		return err
	})
	require.NoError(t, err)
	return paths, texts
}

// TestParseScript holds our own reader of scripts against the library's: the same
// steps must come out of every scenario, with the outputs the scripts expect.
func TestParseScript(t *testing.T) {
	paths, texts := scripts(t)
	for i, path := range paths {
		steps, err := ParseScript(path, texts[i])
		require.NoError(t, err)
		in := New()
		for _, s := range steps {
			got, err := in.Run(s.Command)
			require.NoError(t, err)
			require.Equal(t, s.Want, got, s.Pos)
		}
	}
}

func TestScriptErrors(t *testing.T) {
	tests := []struct{ script, want string }{
		{"frobnicate\n----\n", `x:1: frobnicate: unknown directive "frobnicate"`},
		{"device A colour=red\n----\n", `x:1: device: unknown argument "colour"`},
		{"device A profile=mlx5\n----\n", `x:1: device: no profile "mlx5": there are ibta, rdmavt and rxe`},
		{"device\n----\n", "x:1: device: missing argument: device name"},
		{"device A\n----\n\ncq c dev=Z\n----\n", `x:4: cq: no device "Z"`},
		{"setup\n----\n\npost-send a jump\n----\n", `x:4: post-send: no operation "jump"`},
		{"setup\n----\n\npost-send a send sge=ma\n----\n", `x:4: post-send: "ma" is not name+offset:length`},
		{"setup\n----\n\nadvance soon\n----\n", "x:4: advance: soon is not a duration like 500us, at most an hour"},
		{"setup\n----\n\ndrop op=SEND\n----\n", `x:4: drop: no packet opcode "SEND"`},
		{"device A\n----\n\ndevice A\n----\n", `x:4: device: device "A" exists already`},
		{"setup timeout=99999\n----\n", "x:1: setup: timeout=99999 is not a number up to 255"},
		{"drop a=(\n----\n", "x:1: cannot parse the directive: want words, key=value or key=(value, value)"},
	}
	for _, tt := range tests {
		_, err := runScript(tt.script)
		require.EqualError(t, err, tt.want)
	}
}

// runScript runs a script and returns everything it prints.
func runScript(text string) (string, error) {
	steps, err := ParseScript("x", text)
	if err != nil {
		return "", err
	}
	in := New()
	var b strings.Builder
	for _, s := range steps {
		out, err := in.Run(s.Command)
		if err != nil {
			return b.String(), err
		}
		b.WriteString(out)
	}
	return b.String(), nil
}

// FuzzScenario: no script panics or runs for ever, and each is deterministic.
func FuzzScenario(f *testing.F) {
	_, texts := scripts(f)
	for _, s := range texts {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > 1<<14 || strings.Count(text, "----") > 64 {
			return
		}
		one, err1 := runScript(text)
		two, err2 := runScript(text)
		require.Equal(t, one, two)
		require.Equal(t, err1, err2)
	})
}
