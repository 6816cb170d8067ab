package front

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/stretchr/testify/require"
)

const recipes = "../../examples/ci"

// steps are the commands of a recipe, each what one shell runs, without those that install
// something.
func steps(t *testing.T, file string) (run []string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(recipes, file))
	require.NoError(t, err)
	var all []string
	if file == "github.yml" {
		var w struct {
			Jobs map[string]struct {
				Steps []struct{ Uses, If, Run string }
			}
		}
		require.NoError(t, yaml.Unmarshal(b, &w))
		for _, s := range w.Jobs["rdma"].Steps {
			require.True(t, (s.Run == "") != (s.Uses == ""), "%+v", s)
			if s.Run != "" {
				all = append(all, s.Run)
			}
		}
	} else {
		var w map[string]struct{ Script []string }
		require.NoError(t, yaml.Unmarshal(b, &w))
		all = w["rdma"].Script
	}
	for _, c := range all {
		if !strings.Contains(c, "apt-get ") && !strings.HasPrefix(c, "go install ") {
			run = append(run, c)
		}
	}
	require.Greater(t, len(run), 2)
	if file == "gitlab.yml" { // one shell runs them all
		run = []string{strings.Join(run, "\n")}
	}
	return run
}

// TestRecipes runs the recipes for continuous integration, but for what they install, in a
// network of their own. The document shows the same text.
func TestRecipes(t *testing.T) {
	need(t, "ibv_rc_pingpong", "unshare", "ip")
	manual, err := os.ReadFile("../../docs/unmodified-programs.md")
	require.NoError(t, err)
	for file, kind := range map[string]string{"github.yml": "yaml", "gitlab.yml": "yaml", "Dockerfile": "dockerfile"} {
		text, err := os.ReadFile(filepath.Join(recipes, file))
		require.NoError(t, err)
		require.Contains(t, string(manual), "```"+kind+"\n"+string(text)+"```\n", file)
	}
	for _, file := range []string{"github.yml", "gitlab.yml"} {
		t.Run(file, func(t *testing.T) {
			s := newSite(t, nil)
			script := "set -e\nip link set lo up\n"
			for i, c := range steps(t, file) {
				step := filepath.Join(s.dir, fmt.Sprintf("step%d", i))
				require.NoError(t, os.WriteFile(step, []byte(c+"\n"), 0o644))
				script += "bash -e " + step + "\n"
			}
			cmd := exec.CommandContext(t.Context(), "unshare", "--net", "--map-root-user", "bash", "-c", script+"rvtsim down\n")
			cmd.Env = append(s.env, "PATH="+built.dir+":"+os.Getenv("PATH"))
			out, err := cmd.CombinedOutput()
			log, _ := os.ReadFile(filepath.Join(s.dir, "rvtsim", "default.log"))
			require.NoError(t, err, "%s\n%s", out, log)
			require.Contains(t, string(out), "1000 iters in", "both have run")
			require.Contains(t, string(log), "engine=program")
			require.NotContains(t, string(log), "because=")
		})
	}
}
