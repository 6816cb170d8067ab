package front

import (
	"flag"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	hostileFor  = flag.Duration("front.hostile", 3*time.Second, "how long programs misbehave, for each ABI")
	hostileSeed = flag.Int("front.seed", 1, "the first seed of programs that misbehave")
)

// TestHostilePrograms lets programs misbehave, two at a time and each of two processes,
// beside one that does not: the daemon lives, the good program gets every message, and
// nothing is left of the others. FuzzWrite of package uverbs looks for the same in one
// process, guided by coverage; here the engine reads rings that change under its eyes.
func TestHostilePrograms(t *testing.T) {
	bad := program(t, "hostile")
	good := program(t, "posting")
	for _, abi := range []string{"rxe", "rvt"} {
		t.Run(abi, func(t *testing.T) {
			s := up(t, 1, "--abi", abi)
			pid := s.report().PID
			end := time.Now().Add(*hostileFor)
			var wg sync.WaitGroup
			for i := range 2 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					for seed := *hostileSeed + i; time.Now().Before(end); seed += 2 {
						out, err := s.try("n1", bad, fmt.Sprint(seed), "500")
						if err != nil {
							t.Logf("seed %d: %v %s", seed, err, out) // it may well crash
						}
					}
				}()
			}
			for time.Now().Before(end) {
				out, err := s.try("n1", good)
				require.NoError(t, err, "%s", out)
			}
			wg.Wait()
			require.Equal(t, pid, s.report().PID, "the daemon lives")
			s.empty()
			s.run("n1", good)
		})
	}
}
