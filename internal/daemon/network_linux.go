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

// Keep writes down that the network belongs to the daemon of that name.
func (n *Network) Keep(name string) error {
	b, err := json.Marshal(n)
	if err != nil {
		return err
	}
	if err := MakeDir(); err != nil {
		return err
	}
	return writeFile(networkPath(name), string(b))
}

// Kept reads what Keep wrote; nil if there is nothing.
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

// Forget removes what Keep wrote.
func Forget(name string) { _ = os.Remove(networkPath(name)) }

// Sweep removes the files of a daemon that was killed. The error is ErrRunning if it was
// not.
func Sweep(name string) error {
	f, err := lockName(name)
	if err != nil {
		return err
	}
	_ = os.Remove(SocketPath(name))
	_ = os.RemoveAll(viewDir(name))
	unlockName(name, f)
	return nil
}
