package daemon

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Network says which namespaces belong to a daemon that has made a network of its own.
// It is kept in a file, for the case that the daemon is killed.
type Network struct {
	ID     string   `json:"id"`     // unlike that of any other network
	Inodes []uint64 `json:"inodes"` // of the network namespaces
}

func networkPath(name string) string { return filepath.Join(Dir(), name+".network") }

// keep writes down that the network belongs to the daemon of that name, which has the name
// to itself.
func (n *Network) keep(name string) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return writeFile(networkPath(name), string(b))
}

// Kept reads what a daemon of that name has written down of its network; nil if there is
// nothing.
func Kept(name string) (*Network, error) {
	b, err := os.ReadFile(networkPath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := &Network{}
	if err := json.Unmarshal(b, n); err != nil {
		return nil, &os.PathError{Op: "parse", Path: networkPath(name), Err: err}
	}
	return n, nil
}

// Forget removes what was kept of this network, unless a daemon of that name runs: it may
// have another one.
func (n *Network) Forget(name string) {
	if !n.isKept(name) {
		return // swept already: no need to take the name
	}
	f, err := lockName(name)
	if err != nil {
		return
	}
	if n.isKept(name) {
		_ = os.Remove(networkPath(name))
	}
	unlockName(name, f)
}

func (n *Network) isKept(name string) bool {
	kept, err := Kept(name)
	return err == nil && kept != nil && kept.ID == n.ID
}

// Sweep removes the files of a daemon that was killed, and what it kept of its network. The
// error is ErrRunning if it was not.
func Sweep(name string) error {
	f, err := lockName(name)
	if err != nil {
		return err
	}
	_ = os.Remove(networkPath(name))
	_ = os.Remove(networkPath(name) + newSuffix) // half written
	_ = os.Remove(SocketPath(name))
	_ = os.RemoveAll(viewDir(name))
	unlockName(name, f)
	return nil
}
