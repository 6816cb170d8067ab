//go:build linux

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rvtsim/rvtsim/internal/notify"
	"github.com/rvtsim/rvtsim/shim"
)

// Values of --engine.
const (
	engineDaemon  = "daemon"
	engineProgram = "program"
)

// Values of --via.
const (
	viaPreload = "preload"
	viaSeccomp = "seccomp"
)

// preloads are the libraries that come into a program.
type preloads struct {
	first  string // a library of the program's own that has to be the very first
	shim   string
	engine string // empty if the daemon serves the program
	lacks  bool   // the engine is wanted, but it is not there
}

// prepare decides how the program gets to see the device and who works for it. What the
// user has not asked for is chosen so that the program runs: in the fastest way.
func (f *execFlags) prepare(stderr io.Writer, prog string) (lib preloads, err error) {
	if f.engine != "" && f.engine != engineDaemon && f.engine != engineProgram {
		return lib, usage(fmt.Errorf("--engine %q: want daemon or program", f.engine))
	}
	why, answered := beyondPreload(prog)
	switch f.via {
	case "":
		f.via = viaPreload
		if why == "" {
			break
		}
		err := errors.New("it will not see the device")
		if answered {
			err = notify.Available()
		}
		if err != nil {
			fmt.Fprintf(stderr, "rvtsim: warning: %s %s: %v\n", prog, why, err)
			break
		}
		fmt.Fprintf(stderr, "rvtsim: %s %s: the daemon serves it, --via seccomp\n", prog, why)
		f.via = viaSeccomp
	case viaPreload:
		if why != "" {
			fmt.Fprintf(stderr, "rvtsim: warning: %s %s: it will not see the device\n", prog, why)
		}
	case viaSeccomp:
		if f.engine == engineProgram {
			return lib, usage(errors.New("--engine program needs a library in the program: it goes with --via preload only"))
		}
	default:
		return lib, usage(fmt.Errorf("--via %q: want preload or seccomp", f.via))
	}
	if f.via == viaSeccomp {
		return lib, nil
	}
	return f.libraries(stderr, prog)
}

// libraries finds what is to be preloaded.
func (f *execFlags) libraries(stderr io.Writer, prog string) (lib preloads, err error) {
	if lib.shim, err = shim.Library(); err != nil {
		return lib, envErr(err)
	}
	lib.first = sanitizerOf(prog)
	if f.engine == engineDaemon {
		return lib, nil
	}
	if lib.engine, err = shim.Engine(); err != nil {
		lib.lacks = true
		if f.engine == engineProgram || !errors.Is(err, shim.ErrNoEngine) {
			fmt.Fprintf(stderr, "rvtsim: warning: the daemon serves the program: %v\n", err)
		}
	}
	return lib, nil
}

// beyondPreload says why the dynamic linker will not preload our library into a program,
// or nothing, and whether a supervisor can answer the program's system calls instead.
func beyondPreload(prog string) (why string, answered bool) {
	if info, err := os.Stat(prog); err == nil && info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0 && os.Getuid() != 0 {
		return "is setuid or setgid", false
	}
	f, err := elf.Open(prog)
	if err != nil {
		return "", false // a script: its interpreter decides
	}
	defer f.Close()
	if f.Class == elf.ELFCLASS32 {
		return "is a 32-bit program", false
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, _ := io.ReadAll(p.Open())
		if strings.Contains(string(name), "/ld-musl-") {
			return "is linked with musl", true
		}
		return "", false
	}
	return "is statically linked", true
}

// sanitizerOf is the library of a sanitizer that a program is linked with and that insists
// on being the first.
func sanitizerOf(prog string) string {
	f, err := elf.Open(prog)
	if err != nil {
		return ""
	}
	defer f.Close()
	libs, _ := f.ImportedLibraries()
	for _, l := range libs {
		for _, s := range []string{"libasan.so", "libhwasan.so", "libclang_rt.asan"} {
			if strings.HasPrefix(l, s) {
				return l
			}
		}
	}
	return ""
}
