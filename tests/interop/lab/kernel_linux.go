package lab

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
)

// DefaultKernel is the package whose dependency names the distribution's current kernel.
const DefaultKernel = "linux-image-amd64"

// modules are what the machine needs beyond what is built in; what they depend on is
// found out. Several names stand for what kernels call differently.
var modules = []string{
	"virtio_pci", "virtio_net", "virtio_rng", "crc32_generic", "crc32_pclmul", "crc32c_generic",
	"ib_uverbs", "ib_umad", "rdma_cm", "rdma_ucm", "rdma_rxe", "veth", "af_packet",
}

// required are those without which there is nothing to test.
var required = []string{"virtio_net", "ib_uverbs", "rdma_rxe", "rdma_ucm"}

// moduleDirs are the parts of the module tree that hold them.
var moduleDirs = []string{
	"arch/", "crypto/", "lib/", "net/", "drivers/infiniband/core/", "drivers/infiniband/sw/",
	"drivers/virtio/", "drivers/char/hw_random/", "drivers/net/virtio_net", "drivers/net/net_failover", "drivers/net/veth", "fs/configfs/",
}

// layout is part of the name of an unpacked kernel in the cache. Count it up when other files
// are taken out of the package.
const layout = "+5"

// kernel is an unpacked kernel: its directory holds vmlinux or bzImage, the modules, and
// the file "order" with their names in the order in which to load them.
type kernel struct {
	pkg     string // as in "linux-image-6.1.0-57-amd64"
	dir     string
	image   string   // path of what QEMU boots
	modules []string // file names in load order
}

// cachedKernel returns the kernel of a package from the cache. A package without files of
// its own stands for the kernel that it depends on.
func cachedKernel(cache, pkg string) (*kernel, error) {
	pkg, err := resolve(pkg)
	if err != nil {
		return nil, err
	}
	k := &kernel{pkg: pkg, dir: filepath.Join(cache, pkg+layout)}
	return k, k.load()
}

// fetchKernel makes the kernel of a package available in the cache.
func fetchKernel(cache, pkg string, logf func(string, ...any)) (*kernel, error) {
	k, err := cachedKernel(cache, pkg)
	if err == nil || k == nil {
		return k, err
	}
	pkg = k.pkg
	logf("fetching %s", pkg)
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return nil, err
	}
	work, err := os.MkdirTemp(cache, "new-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	deb, err := download(work, pkg)
	if err != nil {
		return nil, err
	}
	if err := unpack(deb, work); err != nil {
		return nil, fmt.Errorf("unpacking %s: %w", pkg, err)
	}
	if err := os.Remove(deb); err != nil {
		return nil, err
	}
	// Another process may have been faster; then its copy is as good.
	if err := os.Rename(work, k.dir); err != nil && k.load() != nil {
		return nil, err
	}
	return k, k.load()
}

// load finds the parts of an unpacked kernel.
func (k *kernel) load() error {
	order, err := os.ReadFile(filepath.Join(k.dir, "order"))
	if err != nil {
		return err
	}
	k.modules = strings.Fields(string(order))
	for _, name := range []string{"vmlinux", "bzImage"} {
		k.image = filepath.Join(k.dir, name)
		if _, err = os.Stat(k.image); err == nil {
			return nil
		}
	}
	return err
}

// resolve follows meta packages: "linux-image-amd64" to "linux-image-6.1.0-57-amd64".
func resolve(pkg string) (string, error) {
	out, err := exec.Command("apt-cache", "show", "--no-all-versions", pkg).Output()
	if err != nil {
		return "", fmt.Errorf("apt-cache knows no package %s (are the package lists there?): %w", pkg, err)
	}
	for _, line := range strings.Split(string(out), "\n") {
		deps, ok := strings.CutPrefix(line, "Depends: ")
		if !ok {
			continue
		}
		for _, dep := range strings.Split(deps, ",") {
			if name := strings.Fields(dep)[0]; strings.HasPrefix(name, "linux-image-") {
				return name, nil
			}
		}
	}
	return pkg, nil
}

// download fetches a package into dir, which it leaves otherwise as it was.
func download(dir, pkg string) (deb string, err error) {
	for attempt := 0; ; attempt++ {
		cmd := exec.Command("apt-get", "-o", "Acquire::Retries=3", "-q", "download", pkg)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err == nil {
			break
		}
		if attempt > 0 || os.Geteuid() != 0 {
			return "", fmt.Errorf("apt-get download %s: %w: %s", pkg, err, lastLine(out))
		}
		// The lists may name a version that the archive has replaced.
		if out, err := exec.Command("apt-get", "-q", "update").CombinedOutput(); err != nil {
			return "", fmt.Errorf("apt-get update: %w: %s", err, lastLine(out))
		}
	}
	found, err := filepath.Glob(filepath.Join(dir, pkg+"_*.deb"))
	if err == nil && len(found) != 1 {
		err = fmt.Errorf("apt-get download %s left %d files", pkg, len(found))
	}
	if err != nil {
		return "", err
	}
	return found[0], nil
}

// unpack takes out of a kernel package what the machine needs, and only that: all of it
// would be 400 MB.
func unpack(deb, dir string) error {
	cmd := exec.Command("dpkg-deb", "--fsys-tarfile", deb)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	image, mods, err := readPackage(tar.NewReader(out))
	_, _ = io.Copy(io.Discard, out)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return err
	}
	if image == nil {
		return errors.New("no boot/vmlinuz in the package")
	}
	if err := writeImage(dir, image); err != nil {
		return err
	}
	return writeModules(dir, mods)
}

// readPackage returns the compressed kernel and the candidates among the modules, which
// are decompressed, by name.
func readPackage(r *tar.Reader) (image []byte, mods map[string][]byte, err error) {
	mods = map[string][]byte{}
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return image, mods, nil
		}
		if err != nil {
			return nil, nil, err
		}
		name := path.Clean(h.Name)
		_, inTree, isModule := strings.Cut(name, "/kernel/")
		switch {
		case strings.HasPrefix(name, "boot/vmlinuz"):
			if image, err = io.ReadAll(r); err != nil {
				return nil, nil, err
			}
		case isModule && h.Typeflag == tar.TypeReg && hasAnyPrefix(inTree, moduleDirs):
			b, err := io.ReadAll(r)
			if err != nil {
				return nil, nil, err
			}
			base, ok := strings.CutSuffix(path.Base(name), ".ko")
			if !ok {
				if base, ok = strings.CutSuffix(path.Base(name), ".ko.xz"); !ok {
					continue
				}
				if b, err = unxz(b); err != nil {
					return nil, nil, fmt.Errorf("%s: %w", name, err)
				}
			}
			mods[moduleName(base)] = b
		}
	}
}

func hasAnyPrefix(s string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// moduleName is the name under which modules depend on each other.
func moduleName(s string) string { return strings.ReplaceAll(s, "-", "_") }

// unxz decompresses the first xz stream of b; what follows it is ignored.
func unxz(b []byte) ([]byte, error) {
	cmd := exec.Command("xz", "-dc", "--single-stream")
	cmd.Stdin = bytes.NewReader(b)
	return cmd.Output()
}

// writeImage writes vmlinux, which an emulator boots seconds faster than the compressed
// image, or the compressed image if it is packed in an unknown way.
func writeImage(dir string, bzImage []byte) error {
	if i := bytes.Index(bzImage, []byte("\xfd7zXZ\x00")); i >= 0 {
		if vmlinux, err := unxz(bzImage[i:]); err == nil && bytes.HasPrefix(vmlinux, []byte(elf.ELFMAG)) {
			return os.WriteFile(filepath.Join(dir, "vmlinux"), vmlinux, 0o644)
		}
	}
	return os.WriteFile(filepath.Join(dir, "bzImage"), bzImage, 0o644)
}

// writeModules writes the wanted modules and their dependencies, and the order file last.
func writeModules(dir string, have map[string][]byte) error {
	var order []string
	done := map[string]bool{}
	var add func(name string) error
	add = func(name string) error {
		b, ok := have[name]
		if !ok || done[name] {
			return nil // built into the kernel, as far as we can know
		}
		done[name] = true
		deps, err := dependencies(b)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, d := range deps {
			if err := add(d); err != nil {
				return err
			}
		}
		order = append(order, name+".ko")
		return os.WriteFile(filepath.Join(dir, name+".ko"), b, 0o644)
	}
	for _, name := range modules {
		if err := add(name); err != nil {
			return err
		}
	}
	for _, name := range required {
		if !done[name] {
			return fmt.Errorf("the kernel has no module %s", name)
		}
	}
	return os.WriteFile(filepath.Join(dir, "order"), []byte(strings.Join(order, "\n")+"\n"), 0o644)
}

// dependencies reads "depends=" from a module.
func dependencies(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	s := f.Section(".modinfo")
	if s == nil {
		return nil, errors.New("no .modinfo section")
	}
	info, err := s.Data()
	if err != nil {
		return nil, err
	}
	for _, entry := range strings.Split(string(info), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			return strings.Split(moduleName(list), ","), nil
		}
	}
	return nil, nil
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}
