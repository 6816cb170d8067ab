package daemon

import (
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/rvtsim/rvtsim/rvt"
	"github.com/rvtsim/rvtsim/uverbs"
	"github.com/rvtsim/rvtsim/vtime"
)

// ViewOf is the directory that stands for / to programs on a node of the daemon whose
// control socket is at path: it holds what they see below /sys and /dev.
func ViewOf(path, node string) string {
	return filepath.Join(strings.TrimSuffix(path, ".sock"), node)
}

// writeView writes the node's view. It consists of plain files, so everything that
// reads sysfs works, the programs that the preload library does not see included when
// they are told where to look ($SYSFS_PATH).
func (h *hosted) writeView(name string, public bool) error {
	h.viewMu.Lock()
	defer h.viewMu.Unlock()
	h.root = filepath.Join(viewDir(name), h.cfg.Name)
	t := h.sysfs()
	h.tree = t
	for dir := range t.Dirs {
		if err := os.MkdirAll(h.path("sys", t.Dirs[dir]), 0o755); err != nil {
			return err
		}
	}
	for file, text := range t.Files {
		if err := writeFile(h.path("sys", file), text); err != nil {
			return err
		}
	}
	for link, target := range t.Links {
		if err := writeLink(h.path("sys", link), h.path("sys", target)); err != nil {
			return err
		}
	}
	for _, file := range []string{"uverbs0", "rdma_cm"} {
		if err := writeFile(h.path("dev/infiniband", file), ""); err != nil {
			return err
		}
	}
	if !public {
		return nil
	}
	return openUp(viewDir(name))
}

// sysfs is the tree of the node as it is now.
func (h *hosted) sysfs() uverbs.Tree {
	cfg := *h.uv.Config()
	h.Do(func(*rvt.Device, vtime.Time) { cfg = *h.uv.Config() })
	return uverbs.SysfsTree(cfg)
}

// updateView writes what has changed since the view was written.
func (h *hosted) updateView() error {
	h.viewMu.Lock()
	defer h.viewMu.Unlock()
	if h.root == "" {
		return nil // not written yet; it will have everything
	}
	old, now := h.tree.Files, h.sysfs()
	for file, text := range now.Files {
		if old[file] == text {
			continue
		}
		if err := writeFile(h.path("sys", file), text); err != nil {
			return err
		}
	}
	for file := range old {
		if _, stays := now.Files[file]; !stays {
			if err := os.Remove(h.path("sys", file)); err != nil {
				return err
			}
		}
	}
	h.tree = now
	return nil
}

func (h *hosted) path(top, rel string) string {
	return filepath.Join(h.root, top, filepath.FromSlash(rel))
}

// writeFile puts a file in place in one step: programs may be reading the old one.
// newSuffix is of files that are not complete.
const newSuffix = ".new"

func writeFile(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp := path + newSuffix
	if err := os.WriteFile(tmp, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, path)
}

// writeLink makes a link that is relative, so that it also works in a container that
// sees the view at another place.
func writeLink(path, target string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	rel, err := filepath.Rel(filepath.Dir(path), target)
	if err != nil {
		return err
	}
	return os.Symlink(rel, path)
}

// openUp lets every user read a view, whatever the umask was.
func openUp(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || d.Type()&fs.ModeSymlink != 0:
			return err
		case d.IsDir():
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
}

// netDevOf is the name of the network interface that owns an address.
func netDevOf(a netip.Addr) string {
	ifs, _ := net.Interfaces()
	for _, i := range ifs {
		addrs, _ := i.Addrs()
		for _, n := range addrs {
			p, err := netip.ParsePrefix(n.String())
			if err == nil && (p.Addr().Unmap() == a || i.Flags&net.FlagLoopback != 0 && p.Masked().Contains(a)) {
				return i.Name
			}
		}
	}
	return "lo"
}
