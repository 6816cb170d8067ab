//go:build !amd64 && !arm64

package notify

// Run is not possible on this architecture.
func Run(Config) (int, error) {
	return 0, &UnavailableError{Reason: "it knows the system calls of amd64 and arm64 only"}
}
