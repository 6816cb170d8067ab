//go:build !amd64 && !arm64

package notify

// Available says why programs cannot be run here.
func Available() error {
	return &UnavailableError{Reason: "it knows the system calls of amd64 and arm64 only"}
}

// Run is not possible on this architecture.
func Run(Config) (int, error) { return 0, Available() }
