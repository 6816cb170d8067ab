package front

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAbortedReceives: an unmodified program whose UC message loses a packet gets the receive
// of the shared queue back with IBV_WC_REM_ABORT_ERR (16), on a strict node as well, and the
// explanation says which packet was missing.
// req: UC-07 UD-09 OBJ-QP-06
func TestAbortedReceives(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
	}{
		{"rxe", []string{"--abi", "rxe"}, "receive 1: status 16\nreceive 2: status 0\nstate 3\nreceive 3: status 16\nreceive 4: status 0\nstate 3\n"},
		{"rvt, strict", []string{"--abi", "rvt", "--strict"}, "receive 1: status 16\nreceive 2: status 0\nstate 3\nreceive 3: status 16\nreceive 4: status 0\nstate 3\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := up(t, 2, c.args...)
			s.fault("set_impairment", "rules=[{action: drop, opcode: UC_SEND_MIDDLE, nth: 1}]")
			dir := t.TempDir()
			to := s.start("n2", program(t, "aborted"), dir, "to")
			s.run("n1", program(t, "aborted"), dir, "from")
			require.NoError(t, to.wait(), "%s", to.output())
			require.Equal(t, c.want, to.output())
			out, err := s.command(t.Context(), "explain", "--node", "n2").CombinedOutput()
			require.NoError(t, err, "%s", out)
			require.Regexp(t, `wr 1 of qp 0x\w+ failed with REM_ABORT_ERR \(vendor_err 0x211\): a packet of the message is missing\.`, string(out))
			require.Contains(t, string(out), "The queue pair is still in RTS and takes the next message.")
			require.Contains(t, string(out), "REM_ABORT_ERR (vendor_err 0x201): the message is longer than the posted receive.")
		})
	}
}
