//go:build amd64 || arm64

package notify

import (
	"os"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// view is the directory that stands for / where the node has something of its own.
type view struct {
	root string
	fd   int
}

func openView(root string) (view, error) {
	fd, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return view{}, &os.PathError{Op: "open", Path: root, Err: err}
	}
	return view{root: strings.TrimSuffix(root, "/"), fd: fd}, nil
}

// open opens what the view has at an absolute path. Neither links nor dots lead out of
// it.
func (v view) open(name string, flags int) (int, unix.Errno) {
	how := unix.OpenHow{Flags: uint64(flags | unix.O_CLOEXEC), Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS}
	for {
		fd, err := unix.Openat2(v.fd, "."+name, &how)
		if err == unix.EINTR || err == unix.EAGAIN {
			continue
		}
		e, _ := err.(unix.Errno)
		return fd, e
	}
}

// mayConcern is a quick look at a path: most have nothing to do with us.
func mayConcern(p string) bool {
	return strings.Contains(p, "infiniband") || strings.Contains(p, "uverbs") || strings.Contains(p, "rdma_cm")
}

// inView reports whether the node answers for an absolute path without dots.
func inView(p string) bool {
	return strings.HasPrefix(p, "/sys/class/infiniband") || strings.HasPrefix(p, "/sys/class/misc/rdma_cm") ||
		p == "/dev/infiniband" || strings.HasPrefix(p, "/dev/infiniband/")
}

// locate turns a path of the program, which base leads to if it is relative, into one in
// the view. dots are left in it where they may follow a link.
func (v view) locate(p string, base func() (string, bool)) (string, bool) {
	if !mayConcern(p) {
		return "", false
	}
	if !strings.HasPrefix(p, "/") {
		dir, ok := base()
		if !ok {
			return "", false
		}
		p = dir + "/" + p
	}
	// The program may have got hold of where the view really is.
	if in, ok := strings.CutPrefix(p, v.root+"/"); ok {
		p = "/" + in
	}
	clean := path.Clean(p)
	if !inView(clean) {
		return "", false
	}
	for strings.Contains(p, "//") {
		p = strings.ReplaceAll(p, "//", "/")
	}
	p = strings.ReplaceAll(p, "/./", "/")
	if inView(p) {
		return p, true
	}
	return clean, true
}

// Device files, by the kind of struct rvtsim_req.
const uverbsPrefix = "/dev/infiniband/uverbs"

// cmDevice stands for the number of the connection manager's device.
const cmDevice = ^uint32(0)

// deviceAt returns the number of the verbs device that a path in the view names, or
// cmDevice.
func deviceAt(p string) (index uint32, ok bool) {
	if path.Clean(p) == "/dev/infiniband/rdma_cm" {
		return cmDevice, true
	}
	s, ok := strings.CutPrefix(path.Clean(p), uverbsPrefix)
	if !ok || len(s) > 4 || s != "0" && strings.HasPrefix(s, "0") {
		return 0, false
	}
	n, err := strconv.ParseUint(s, 10, 32)
	return uint32(n), err == nil
}
