//go:build !linux

package udp

// Port is the portable port on this system.
type Port = Portable

// Open is [OpenPortable] on this system.
func Open(cfg Config) (*Port, error) { return OpenPortable(cfg) }
