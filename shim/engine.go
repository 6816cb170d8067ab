package shim

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/rvtsim/rvtsim/internal/buildid"
)

// EngineEnv names a compiled engine to be used as it is. The preload library finds the
// engine by it as well.
const EngineEnv = "RVTSIM_ENGINE"

// NoEngineEnv tells the preload library that a program would have had an engine inside, if
// one had been built.
const NoEngineEnv = "RVTSIM_NO_ENGINE"

// EngineName is the file name of the engine for programs of this machine.
func EngineName() string { return "rvtsim-engine-" + runtime.GOARCH + ".so" }

// ErrNoEngine reports that the engine was not built.
var ErrNoEngine = errors.New("shim: the engine is not there: build it beside rvtsim, with make build or rvtsim engine")

// Engine returns the path of the engine: what [EngineEnv] names, or the one that lies
// beside the program or in the user's cache. Whether it fits is found out when it is
// loaded.
func Engine() (string, error) {
	if p := os.Getenv(EngineEnv); p != "" {
		if _, err := os.Stat(p); err != nil {
			return "", fmt.Errorf("shim: %s: %w", EngineEnv, err)
		}
		return filepath.Abs(p)
	}
	if exe, err := os.Executable(); err == nil {
		for _, dir := range []string{filepath.Dir(exe), filepath.Join(filepath.Dir(exe), "..", "lib", "rvtsim")} {
			p := filepath.Join(dir, EngineName())
			if _, err := os.Stat(p); err == nil {
				return p, nil
			}
		}
	}
	for _, dir := range cacheDirs() {
		if p := filepath.Join(dir, EngineName()); own(p) {
			return p, nil
		}
	}
	return "", ErrNoEngine
}

// modulePath is this module.
const modulePath = "github.com/rvtsim/rvtsim"

// engineFlags are those of the engine's build. A runtime that is a guest must not send
// signals to the threads of its host, who may use SIGURG himself. The engine carries the
// name of the build of rvtsim that it belongs to: the daemon of another has it refused.
func engineFlags() ([]string, error) {
	build, err := buildid.Own()
	return []string{"-ldflags=-X=runtime.godebugDefault=asyncpreemptoff=1 -X=" + modulePath + "/internal/daemon.engineBuild=" + build}, err
}

// BuildEngine compiles the engine into dir, where it appears in one step. source is the
// directory of the module's source; if it is empty, the source of the version that this
// program was built from is fetched. It needs Go and a C compiler.
func BuildEngine(dir, source string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	if source == "" {
		if source, err = fetchSource(); err != nil {
			return err
		}
	}
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, "engine.so")
	flags, err := engineFlags()
	if err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	cmd := exec.Command("go", append([]string{"build", "-buildmode=c-shared", "-o", out}, append(flags, "./cmd/rvtsim-engine")...)...)
	cmd.Dir, cmd.Env = source, append(os.Environ(), "CGO_ENABLED=1")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("shim: the engine must be compiled, with Go and a C compiler: %w\n%s", err, text)
	}
	if err := os.Rename(out, filepath.Join(dir, EngineName())); err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	return nil
}

// fetchSource returns the directory of this version's source in Go's module cache.
func fetchSource() (string, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Path != modulePath || !strings.HasPrefix(info.Main.Version, "v") {
		return "", errors.New("shim: this rvtsim was not installed by its version; say where its source is")
	}
	out, err := exec.Command("go", "mod", "download", "-json", modulePath+"@"+info.Main.Version).Output()
	if err != nil {
		return "", fmt.Errorf("shim: the source of %s: %w", info.Main.Version, err)
	}
	_, rest, found := strings.Cut(string(out), `"Dir": "`)
	d, _, end := strings.Cut(rest, `"`)
	if !found || !end {
		return "", fmt.Errorf("shim: the source of %s is not in the module cache", info.Main.Version)
	}
	return d, nil
}
