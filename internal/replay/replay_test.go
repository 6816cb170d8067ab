package replay

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rvtsim/rvtsim/qp"
)

const golden = "../../tests/golden/soft-roce"

// TestGolden replays every capture of real soft-RoCE under its own profile: no
// difference may be left without a name.
func TestGolden(t *testing.T) {
	flows, err := LoadFlows(filepath.Join(golden, "flows.json"))
	require.NoError(t, err)
	files, err := filepath.Glob(filepath.Join(golden, "*.pcap"))
	require.NoError(t, err)
	require.Len(t, files, 74)
	for _, prof := range []qp.Profile{qp.ProfileRXE, qp.ProfileIBTA, qp.ProfileRDMAVT} {
		t.Run(prof.Name, func(t *testing.T) {
			played, compared := 0, 0
			for _, f := range files {
				r, err := Run(f, flows, prof)
				require.NoError(t, err)
				for _, p := range r.Parts {
					compared += p.Compared
					for _, d := range p.Diffs {
						if d.Why == "" {
							t.Errorf("%s: %s: %s: %s: ours %s, kernel's %s", r.Name, p.Role, d.Where, d.Field, d.Ours, d.Theirs)
						} else if testing.Verbose() {
							t.Logf("%s: %s: %s: %s: ours %s, kernel's %s: %s", r.Name, p.Role, d.Where, d.Field, d.Ours, d.Theirs, d.Why)
						}
					}
				}
				require.Empty(t, r.Problems, r.Name)
				if r.NotPlayed == "" {
					played++
				}
			}
			require.Equal(t, 69, played)
			t.Logf("%d captures played, %d packets compared", played, compared)
		})
	}
}

func TestFlowsErrors(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"syntax":    {"{\n\"a\": }", ":2:"},
		"transport": {`{"a":{"client":{"qpn":17,"path_mtu":1024},"server":{"qpn":17,"path_mtu":1024}}}`, "setup.transport"},
		"mtu":       {`{"a":{"setup":{"transport":"rc"},"client":{"qpn":17,"path_mtu":1000},"server":{"qpn":17,"path_mtu":1024}}}`, "path_mtu 1000"},
		"ops":       {`{"a":{"setup":{"transport":"rc"},"client":{"qpn":17,"path_mtu":1024,"ops":"Z1"},"server":{"qpn":17,"path_mtu":1024}}}`, "unknown operation"},
	} {
		t.Run(name, func(t *testing.T) {
			f := filepath.Join(t.TempDir(), "flows.json")
			require.NoError(t, os.WriteFile(f, []byte(c.text), 0o600))
			_, err := LoadFlows(f)
			require.ErrorContains(t, err, c.want)
		})
	}
}
