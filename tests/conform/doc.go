// Package conform runs the conformance suite over libibverbs: client/client.c is a verbs program
// that package conform (of the module's root) drives call by call, on any device that
// libibverbs finds. Here it runs as an unmodified program on devices of our own, and what
// it answers must be what the suite finds in Go, but for what expect/ says of the ABI.
package conform

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

//go:embed client/client.c
var source []byte

// Compile makes the client in a directory and returns its path. It needs cc and the
// headers of libibverbs.
func Compile(dir string) (string, error) {
	src, bin := filepath.Join(dir, "conform-client.c"), filepath.Join(dir, "conform-client")
	if err := os.WriteFile(src, source, 0o644); err != nil {
		return "", err
	}
	out, err := exec.Command("cc", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o", bin, src, "-libverbs").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cc client.c: %w\n%s", err, out)
	}
	return bin, nil
}
