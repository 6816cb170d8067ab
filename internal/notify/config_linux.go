package notify

// Config says what to run, and on which node.
type Config struct {
	Prog string   // path of the program
	Args []string // its arguments, the name included
	Env  []string

	Socket string // control socket of the daemon
	Node   string
	Root   string // the node's view, which stands for / where it has something
}

// UnavailableError reports that the kernel, or whoever set up this environment, does
// not let a supervisor answer system calls.
type UnavailableError struct {
	Reason string
	Err    error // what the kernel said; may be nil
}

func (e *UnavailableError) Error() string {
	s := "programs cannot be run by seccomp user notification here: " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *UnavailableError) Unwrap() error { return e.Err }
