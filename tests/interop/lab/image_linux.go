package lab

import (
	"debug/elf"
	_ "embed"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/rvtsim/rvtsim/tests/conform"
)

//go:embed guest/init
var guestInit []byte

//go:embed guest/agent.c
var guestAgent []byte

//go:embed guest/cmpeer.c
var cmPeer []byte

// guestPrograms are copied from this host, if it has them. The first ones must be there.
var guestPrograms = []string{
	"rdma", "ibv_devinfo", "ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_ud_pingpong", "ibv_srq_pingpong",
	"rping", "ucmatose", "udaddy", "mckey", "rdma_server", "rdma_client", "rdma_xserver", "rdma_xclient", "rstream", "cmtime", "udpong",
	"ib_send_bw", "ib_write_bw", "ib_read_bw", "ib_atomic_bw", "ib_send_lat",
}

const guestRequired = 6

// systemPath finds the system's own programs before any others: what a version manager
// puts in front is often a script.
const systemPath = "/usr/sbin:/usr/bin:/sbin:/bin"

// findProgram returns the path of a system program, "" if there is none.
func findProgram(name string) string {
	for _, dir := range filepath.SplitList(systemPath) {
		p := filepath.Join(dir, name)
		if st, err := os.Stat(p); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return p
		}
	}
	return ""
}

// ownPrograms are compiled programs by the name that they have in the machine.
type ownPrograms map[string]string

// writeInitramfs makes the initramfs. It takes well under a second, so it is made anew
// each time rather than kept.
func writeInitramfs(name string, k *kernel, own ownPrograms, more []string) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	defer f.Close()
	b := &builder{archive: newArchive(f), libs: map[string]bool{}}
	b.dirs("proc", "sys", "dev", "tmp", "run")
	b.content("init", guestInit)
	b.content("etc/hosts", []byte("127.0.0.1 localhost\n"))
	b.content("etc/nsswitch.conf", []byte("hosts: files\n"))
	b.modules(k)
	b.busybox()
	for _, p := range slices.Sorted(maps.Keys(own)) {
		b.program("bin/"+p, own[p])
	}
	for i, p := range guestPrograms {
		switch from := findProgram(p); {
		case from != "":
			b.program("bin/"+p, from)
		case i < guestRequired:
			b.fail(fmt.Errorf("this host has no %s", p))
		}
	}
	for _, p := range more {
		from := p
		if !strings.Contains(p, "/") {
			from = findProgram(p)
		}
		b.program("bin/"+filepath.Base(p), from)
	}
	b.provider()
	if b.err != nil {
		return b.err
	}
	if err := b.archive.close(); err != nil {
		return err
	}
	return f.Close()
}

// builder fills an archive and keeps the first error.
type builder struct {
	archive *archive
	libs    map[string]bool // by soname
	err     error
}

func (b *builder) fail(err error) {
	if b.err == nil {
		b.err = err
	}
}

func (b *builder) dirs(names ...string) {
	for _, n := range names {
		b.fail(b.archive.dir(n))
	}
}

func (b *builder) content(name string, content []byte) { b.fail(b.archive.file(name, content)) }

// copy adds a file of this host.
func (b *builder) copy(name, from string) {
	content, err := os.ReadFile(from)
	if err != nil {
		b.fail(err)
		return
	}
	b.content(name, content)
}

func (b *builder) modules(k *kernel) {
	b.copy("modules/order", filepath.Join(k.dir, "order"))
	for _, m := range k.modules {
		b.copy("modules/"+m, filepath.Join(k.dir, m))
	}
}

func (b *builder) busybox() {
	from := findProgram("busybox")
	out, err := exec.Command(from, "--list").Output()
	if err != nil {
		b.fail(fmt.Errorf("busybox --list: %w", err))
		return
	}
	b.copy("bin/busybox", from)
	for _, applet := range strings.Fields(string(out)) {
		if applet != "busybox" {
			b.fail(b.archive.link("bin/"+applet, "busybox"))
		}
	}
}

// program adds a program and the libraries that it needs.
func (b *builder) program(name, from string) {
	b.copy(name, from)
	b.needs(from)
}

// provider adds what libibverbs loads at run time for rxe, and what the C library loads
// when a thread ends or a name is looked up.
func (b *builder) provider() {
	b.content("etc/libibverbs.d/rxe.driver", []byte("driver rxe\n"))
	found, _ := filepath.Glob("/usr/lib/*/libibverbs/librxe-rdmav*.so")
	if len(found) == 0 {
		b.fail(fmt.Errorf("this host has no rxe provider of libibverbs"))
	}
	for _, f := range found {
		b.program(f, f)
	}
	b.library("libgcc_s.so.1")
	b.library("libnss_files.so.2")
}

// needs adds the interpreter and the libraries of an ELF file, and theirs.
func (b *builder) needs(name string) {
	f, err := elf.Open(name)
	if err != nil {
		b.fail(fmt.Errorf("%s: %w", name, err))
		return
	}
	defer f.Close()
	if s := f.Section(".interp"); s != nil {
		if data, err := s.Data(); err == nil {
			interp := strings.TrimRight(string(data), "\x00")
			b.copy(interp, interp)
		}
	}
	libs, err := f.ImportedLibraries()
	if err != nil {
		b.fail(fmt.Errorf("%s: %w", name, err))
		return
	}
	for _, l := range libs {
		b.library(l)
	}
}

// libraryDirs are where the loader looks without a configuration.
var libraryDirs = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// library adds a shared library by its soname.
func (b *builder) library(soname string) {
	if b.libs[soname] {
		return
	}
	b.libs[soname] = true
	for _, dir := range libraryDirs {
		p := filepath.Join(dir, soname)
		if _, err := os.Stat(p); err == nil {
			// One directory that the loader searches is enough for all.
			b.program("lib/x86_64-linux-gnu/"+soname, p)
			return
		}
	}
	if soname != "libnss_files.so.2" { // part of the C library since 2.34
		b.fail(fmt.Errorf("library %s was not found", soname))
	}
}

// compileOwn compiles our programs for the machine, which has this host's libraries.
func compileOwn(dir string) (own ownPrograms, err error) {
	own = ownPrograms{}
	if own["agent"], err = compile(dir, "agent", guestAgent, "-libverbs"); err != nil {
		return nil, err
	}
	if own["cmpeer"], err = CompileCMPeer(dir); err != nil {
		return nil, err
	}
	own["conform-client"], err = conform.Compile(dir)
	return own, err
}

// CompileCMPeer compiles guest/cmpeer.c, which the machine has as cmpeer, for this host.
func CompileCMPeer(dir string) (program string, err error) {
	return compile(dir, "cmpeer", cmPeer, "-lrdmacm", "-libverbs")
}

// compile compiles a program of one file into a directory.
func compile(dir, name string, source []byte, libs ...string) (program string, err error) {
	src, bin := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
	if err := os.WriteFile(src, source, 0o644); err != nil {
		return "", err
	}
	args := append([]string{"-O1", "-g", "-Wall", "-Werror", "-o", bin, src}, libs...)
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("cc %s.c: %w\n%s", name, err, out)
	}
	return bin, nil
}
