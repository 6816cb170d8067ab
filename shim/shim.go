// Package shim holds the preload library that takes a program's verbs calls to the
// daemon: its source in C, and the way to a compiled one. It knows nothing of verbs.
package shim

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

//go:embed src/*.c src/*.h
var source embed.FS

// flags are those of the compiler. The library must not depend on anything but libc.
var flags = []string{"-shared", "-fPIC", "-O2", "-std=gnu11", "-Wall", "-Wextra", "-fvisibility=hidden", "-pthread"}

// Env names a compiled library to be used as it is, for systems without a compiler.
const Env = "RVTSIM_SHIM"

// FileName is the name of the library that belongs to this program: it changes with
// the source.
func FileName() string {
	h := sha256.New()
	_ = fs.WalkDir(source, "src", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := source.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(b), b)
		return err
	})
	fmt.Fprint(h, flags)
	return "shim-" + runtime.GOARCH + "-" + hex.EncodeToString(h.Sum(nil))[:16] + ".so"
}

// Library returns the path of the compiled library: the one that [Env] names, one that
// was installed beside the program, one that an earlier call left in the user's cache,
// or a new one there.
func Library() (string, error) {
	if p := os.Getenv(Env); p != "" {
		if _, err := os.Stat(p); err != nil {
			return "", fmt.Errorf("shim: %s: %w", Env, err)
		}
		return filepath.Abs(p)
	}
	name := FileName()
	if exe, err := os.Executable(); err == nil {
		for _, dir := range []string{filepath.Dir(exe), filepath.Join(filepath.Dir(exe), "..", "lib", "rvtsim")} {
			p := filepath.Join(dir, name)
			if _, err := os.Stat(p); err == nil && !strings.ContainsAny(p, ": ") {
				return p, nil
			}
		}
	}
	var errs []error
	for _, dir := range cacheDirs() {
		p := filepath.Join(dir, name)
		if own(p) {
			return p, nil
		}
		err := Build(dir)
		if err == nil {
			return p, nil
		}
		errs = append(errs, err)
		if errors.Is(err, exec.ErrNotFound) {
			break
		}
	}
	return "", errors.Join(errs...)
}

// cacheDirs lists where a library may be kept. The second is for users whose home
// cannot be written to. A path with a colon or a space cannot be preloaded.
func cacheDirs() []string {
	var dirs []string
	if d, err := os.UserCacheDir(); err == nil && !strings.ContainsAny(d, ": ") {
		dirs = append(dirs, filepath.Join(d, "rvtsim"))
	}
	return append(dirs, filepath.Join("/tmp", "rvtsim-"+strconv.Itoa(os.Getuid())))
}

// Build compiles the library into dir, where it appears in one step.
func Build(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	if !own(dir) {
		return fmt.Errorf("shim: %s belongs to somebody else", dir)
	}
	tmp, err := os.MkdirTemp(dir, "build-")
	if err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := os.CopyFS(tmp, source); err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	units, _ := filepath.Glob(filepath.Join(tmp, "src", "*.c"))
	out := filepath.Join(tmp, "shim.so")
	cc := os.Getenv("CC")
	if cc == "" {
		cc = "cc"
	}
	args := append(append(append([]string{}, flags...), "-o", out), units...)
	cmd := exec.Command(cc, append(args, "-ldl")...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("shim: the preload library must be compiled once, with a C compiler (set %s to use one that is compiled already): %s: %w\n%s", Env, cc, err, text)
	}
	if err := os.Rename(out, filepath.Join(dir, FileName())); err != nil {
		return fmt.Errorf("shim: %w", err)
	}
	return nil
}
