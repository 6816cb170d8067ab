package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// DefaultName is the name of a daemon that nobody has named.
const DefaultName = "default"

var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,31}$`)

// DirEnv names the directory of daemons for processes that see another user id or another
// environment than those who look for them: inside a user namespace, say.
const DirEnv = "RVTSIM_DIR"

// Dir is where the daemons of this user keep their files: $RVTSIM_DIR, or
// $XDG_RUNTIME_DIR/rvtsim, or a directory in /tmp.
func Dir() string {
	if d := os.Getenv(DirEnv); filepath.IsAbs(d) {
		return d
	}
	if d := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(d) {
		if info, err := os.Stat(d); err == nil && info.IsDir() && unix.Access(d, unix.W_OK) == nil {
			return filepath.Join(d, "rvtsim")
		}
	}
	return filepath.Join("/tmp", "rvtsim-"+strconv.Itoa(os.Getuid()))
}

// SocketPath is the control socket of a daemon of this user.
func SocketPath(name string) string { return filepath.Join(Dir(), name+".sock") }

// LogPath is where a daemon in the background writes its log.
func LogPath(name string) string { return filepath.Join(Dir(), name+".log") }

// viewDir is where a daemon keeps the views of its nodes.
func viewDir(name string) string { return filepath.Join(Dir(), name) }

// ErrRunning reports that a daemon of the same name runs.
var ErrRunning = errors.New("it is running already")

// makeDir makes the directory of this user's daemons. One that belongs to somebody
// else, which is possible in /tmp, is refused. The mode is that of the socket: private,
// or passable when programs of other users may attach.
func makeDir(public bool) error {
	dir := Dir()
	mode := fs.FileMode(0o700)
	if public {
		mode = 0o711
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return &os.PathError{Op: "lstat", Path: dir, Err: err}
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Getuid() {
		return fmt.Errorf("daemon: %s is not a directory of this user", dir)
	}
	if !public && st.Mode&0o077 == 0o011 {
		return nil // another daemon of this user is public
	}
	return os.Chmod(dir, mode)
}

func lockPath(name string) string { return filepath.Join(Dir(), name+".lock") }

// lockName takes the name for this process. The lock goes with the process, however it
// ends; unlockName removes the file too.
func lockName(name string) (*os.File, error) {
	for {
		f, err := os.OpenFile(lockPath(name), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
		if err != nil {
			return nil, err
		}
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			f.Close()
			if err == unix.EWOULDBLOCK {
				return nil, fmt.Errorf("daemon %q: %w", name, ErrRunning)
			}
			return nil, os.NewSyscallError("flock", err)
		}
		mine, err := f.Stat()
		if err == nil {
			var there fs.FileInfo
			if there, err = os.Stat(lockPath(name)); err == nil && os.SameFile(mine, there) {
				return f, nil
			}
		}
		f.Close()
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		// The one who had the lock has just removed the file: try the new one.
	}
}

func unlockName(name string, f *os.File) {
	_ = os.Remove(lockPath(name))
	f.Close()
}

// privatePrefix begins the names of daemons that live for one program.
const privatePrefix = "exec-"

// PrivateName is the name of a daemon for a program of this process.
func PrivateName() string { return privatePrefix + strconv.Itoa(os.Getpid()) }

// sweep removes what is left of private daemons that were killed.
func sweep() {
	locks, _ := filepath.Glob(lockPath(privatePrefix + "*"))
	for _, path := range locks {
		_ = Sweep(strings.TrimSuffix(filepath.Base(path), ".lock"))
	}
}

// MakeDir makes the directory of this user's daemons, for what is written before one
// starts.
func MakeDir() error { return makeDir(false) }
