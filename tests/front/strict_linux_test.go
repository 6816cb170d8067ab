package front

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// codes finds the reports of strict mode in a text, each code once.
func codes(text string) []string {
	found := regexp.MustCompile(`STRICT-[A-Z]+-\d\d`).FindAllString(text, -1)
	slices.Sort(found)
	return slices.Compact(found)
}

// explained asks what the programs of a node ran into until all codes are there.
func (s *site) explained(node string, want []string) string {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; {
		out, err := s.command(s.t.Context(), "explain", "--node", node).CombinedOutput()
		require.NoError(s.t, err, "%s", out)
		if slices.Equal(codes(string(out)), want) {
			return string(out)
		}
		require.True(s.t, time.Now().Before(deadline), "want %v:\n%s", want, out)
	}
}

// TestStrictPrograms: unmodified programs on a strict node are told what they do wrong,
// each what it is and nothing else, and a right one nothing.
func TestStrictPrograms(t *testing.T) {
	type row struct {
		name  string
		codes string
		text  string // in the explanation
		place string // the function of the program that made the call, if there is one to blame
	}
	rows := []row{
		{"unpolled", "STRICT-SQ-02", "completions wait in the queue to be polled", "unpolled"},
		{"overlap", "STRICT-RECV-01", "1 byte of receive wr 1 belongs to", ""},
		{"nothing", "", "no call was refused", ""},
		{"lost-wakeup", "STRICT-EV-01", "waits in it since before it was armed", "lost_wakeup"},
		{"small-queue", "STRICT-CQ-01", "more can come from what is posted", ""}, // a post_recv makes no call
		{"wrong-key", "STRICT-MEM-03", "used key", ""},
		{"unsignaled", "STRICT-SQ-01", "unsignaled work requests fill the send queue", "unsignaled"},
		{"buffer", "STRICT-BUF-01 STRICT-RECV-02", "is not what it was when it was posted", "buffer"},
		{"no-channel", "STRICT-EV-03", "without a channel", "no_channel"},
		{"no-grh", "STRICT-CONN-01", "is_global", "no_grh"},
		{"timers", "STRICT-CONN-02 STRICT-CONN-03", "a dead peer is noticed after", "timers"},
		{"freed-region", "STRICT-MEM-02", "1 posted work request names it", "freed_region"},
		{"unacknowledged", "STRICT-EV-02", "destroy_cq waits: 2 events were delivered and are not acknowledged", "unacknowledged"},
		{"never-armed", "STRICT-EV-04", "1 completion waits in it", ""},
		{"dead-qp", "STRICT-QP-01", "after it was destroyed", ""},
	}
	for _, abi := range fewer(1, []string{"rxe", "rvt"}) {
		rows := fewer(4, rows)
		if abi == "rvt" {
			rows = rows[:5] // where the rings differ
		}
		s := up(t, len(rows), "--abi", abi, "--strict")
		s.because = "the node is strict"
		for i, r := range rows {
			t.Run(abi+"/"+r.name, func(t *testing.T) {
				node := "n" + strconv.Itoa(i+1)
				one := *s
				one.t = t
				out, err := one.try(node, program(t, "misuse"), r.name)
				require.NoError(t, err, "%s", out)
				text := one.explained(node, strings.Fields(r.codes))
				require.Contains(t, text, r.text)
				require.NotContains(t, text, "a program  ", "it is known which")
				require.Equal(t, r.name == "unpolled" || r.name == "unsignaled", strings.Contains(text, "send queue of qp"), "what was full is told of: %s", text)
				if r.place != "" {
					require.Regexp(t, `called from (\w+ \(\w+\.[ch]:\d+\), called from )*`+r.place+` \(misuse\.c:\d+\)`, text)
				}
			})
		}
	}
}

// TestRefusedCalls: who runs a program without strict mode learns why a call was refused
// and why work failed, though the program itself says a number at most.
func TestRefusedCalls(t *testing.T) {
	s := up(t, 1)
	s.run("n1", program(t, "misuse"), "no-grh")
	text := s.explained("n1", nil)
	require.Contains(t, text, "misuse (pid")
	require.Contains(t, text, "modify_qp")
	require.Contains(t, text, "is_global = 1")
	require.Contains(t, text, "EINVAL")
}

// TestExplainSaysWhere: what a program without strict mode ran into comes with the lines
// that made the call, and that posted the work.
func TestExplainSaysWhere(t *testing.T) {
	s := newSite(t, nil)
	for _, c := range []struct{ checks, name, want string }{
		{"", "no-grh", `called from no_grh \(misuse\.c:\d+\), called from main \(misuse\.c:\d+\)`},
		{"--strict=memory,poison", "wrong-key", `posted by post \(misuse\.c:\d+\), called from wrong_key \(misuse\.c:\d+\), called from main`},
	} {
		args := []string{"exec", "--explain", "--listen", "n1=" + newAddress()}
		if c.checks != "" {
			args = append(args, c.checks)
		}
		out, err := s.command(t.Context(), append(args, "--", program(t, "misuse"), c.name)...).CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Regexp(t, c.want, string(out))
	}
}

// TestGarbageIsIgnored: what neither type, mask, flag nor opcode names may hold anything, in
// create_qp, create_srq, create_ah, modify_qp and posts, and a program that leaves it
// uninitialised is told nothing on a strict node. A field that counts is named.
func TestGarbageIsIgnored(t *testing.T) {
	for _, abi := range []string{"rxe", "rvt"} {
		t.Run(abi, func(t *testing.T) {
			s := up(t, 1, "--abi", abi, "--strict")
			s.because = "the node is strict"
			require.Equal(t, "ok\n", s.run("n1", program(t, "garbage"), "20"))
			out, err := s.command(t.Context(), "explain", "--node", "n1").CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Empty(t, codes(string(out)), "%s", out)
			require.Contains(t, string(out), "max_send_wr 2147483647 exceeds max_qp_wr")
		})
	}
}
