package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/vtime"
	"github.com/rvtsim/rvtsim/wire"
)

// VerifyMode says how strictly the ICRC of received packets is checked.
type VerifyMode uint8

const (
	// VerifySolve accepts any IPv4 identification for which the ICRC fits. The
	// likely ones are tried first and check all 32 bits; any other is solved for,
	// which leaves 16 bits of checking. Needed for peers that number their packets,
	// such as soft-RoCE. Over IPv6 the check is always complete.
	VerifySolve VerifyMode = iota
	// VerifyZeroID is for networks of ports like this one only: the identification
	// must be one that such a port can send, 0 to MaxSegments-1. That leaves 25 bits
	// of checking at worst.
	VerifyZeroID
	// VerifyOff delivers everything that is long enough to be a packet.
	VerifyOff
)

func (m VerifyMode) String() string {
	switch m {
	case VerifySolve:
		return "solve"
	case VerifyZeroID:
		return "zero-id"
	case VerifyOff:
		return "off"
	}
	return fmt.Sprintf("VerifyMode(%d)", uint8(m))
}

// ParseVerifyMode reads "solve", "zero-id" or "off".
func ParseVerifyMode(s string) (VerifyMode, error) {
	for m := VerifySolve; m <= VerifyOff; m++ {
		if m.String() == s {
			return m, nil
		}
	}
	return 0, fmt.Errorf("udp: verify mode %q: want solve, zero-id or off", s)
}

// Limits that the kernel or IP sets.
const (
	// MaxSegments is the most datagrams in one train (kernel: UDP_MAX_SEGMENTS; 64
	// before Linux 6.9, which the probe at open finds out).
	MaxSegments = 128
	// MaxDatagramBytes is the largest UDP payload over IPv4. IPv6 would allow 20
	// more; one limit keeps the two equal.
	MaxDatagramBytes = 65507
	// maxTrainBytes keeps a train with all its headers below a device's usual
	// gso_max_size of 65536. The kernel would take a few more bytes but then cut the
	// train up itself, on loopback too, which costs what the train should save.
	maxTrainBytes = 65536 - 96
	// MinDatagramBytes is a BTH and an ICRC.
	MinDatagramBytes = fabric.MinDatagramBytes
	// MaxGroups is the most multicast groups that one port joins.
	MaxGroups = 64

	// batchSize is what BatchSize returns on Linux, and the largest number of
	// messages in one system call.
	batchSize       = 128
	defaultHopLimit = fabric.DefaultHopLimit
)

// Config describes a port. Start from [DefaultConfig] and set at least Local.
type Config struct {
	// Local is the address to bind to. It must be one address of this machine, not
	// a wildcard: it goes into every ICRC.
	Local ib.GID
	// Port is the UDP port, of this port and of all its peers. The ICRC names 4791
	// whatever this is, so another port is for tests and for separate networks on
	// one address; a protocol analyser will call the ICRC wrong there.
	Port uint16
	// Now gives the arrival instants. Nil means time since Open.
	Now func() vtime.Time `json:"-"`
	// Verify is the ICRC check on receive.
	Verify VerifyMode
	// DisableGSO sends and receives every datagram by itself.
	DisableGSO bool
	// GSOSegments limits a train, from 2 to MaxSegments. The probe at open lowers
	// it on kernels that take fewer.
	GSOSegments int
	// QuietNaps makes [Port.Nap] sleep, and keep the processor that Go's scheduler has lent
	// to its goroutine, for naps of up to a millisecond. To give it up and take it back
	// keeps the scheduler's monitor thread awake, every 20 us, and that thread interrupts
	// whoever polls. It is for processes with a low number of goroutines that run at once
	// and a higher GOMAXPROCS; a garbage collection may wait for a nap.
	QuietNaps bool `json:"-"`
	// RecvBufferBytes and SendBufferBytes are asked of the kernel (SO_RCVBUF). An
	// unprivileged process gets at most net.core.rmem_max; [Details] has the
	// outcome. 0 keeps the system's default.
	RecvBufferBytes, SendBufferBytes int
}

// DefaultConfig returns the configuration for a local address on the RoCE v2 port.
func DefaultConfig(local ib.GID) Config {
	return Config{
		Local:           local,
		Port:            wire.UDPPort,
		Verify:          VerifySolve,
		GSOSegments:     MaxSegments,
		RecvBufferBytes: 16 << 20,
		SendBufferBytes: 4 << 20,
	}
}

// Validate returns everything that is wrong with c, joined.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("udp: "+format, args...)) }
	switch a := AddrFromGID(c.Local); {
	case a.IsUnspecified():
		bad("Local is %v; a port needs one address of its own", a)
	case c.Local.IsMulticast():
		bad("Local is the multicast group %v", a)
	}
	if c.Port == 0 {
		bad("Port is 0; all nodes of a network share one port, %d by default", wire.UDPPort)
	}
	if c.Verify > VerifyOff {
		bad("Verify is %v", c.Verify)
	}
	if c.GSOSegments < 2 || c.GSOSegments > MaxSegments {
		bad("GSOSegments is %d, want 2 to %d", c.GSOSegments, MaxSegments)
	}
	if c.RecvBufferBytes < 0 || c.SendBufferBytes < 0 || c.RecvBufferBytes > 1<<30 || c.SendBufferBytes > 1<<30 {
		bad("socket buffers are %d and %d bytes, want 0 to 1 GiB", c.RecvBufferBytes, c.SendBufferBytes)
	}
	return errors.Join(errs...)
}

// local returns the address and port to bind.
func (c *Config) local() netip.AddrPort { return netip.AddrPortFrom(AddrFromGID(c.Local), c.Port) }

// clock returns Now, or a clock that starts here.
func (c *Config) clock() func() vtime.Time {
	if c.Now != nil {
		return c.Now
	}
	start := time.Now()
	return func() vtime.Time { return vtime.Time(time.Since(start)) }
}

// Details are figures of a port beyond [fabric.PortCounters]. Like those they belong
// to the port's caller.
type Details struct {
	// Sent or refused datagrams. PortCounters.TxErrors is the sum of the refused.
	TxTrains      uint64 // sends that carried more than one datagram
	TxUnreachable uint64 // refused: no route, peer refuses, filter, device down
	TxTooLong     uint64 // refused: larger than the path's MTU
	TxMalformed   uint64 // refused here: no packet, or the other address family
	TxOther       uint64 // refused for any other reason; LastTxErr has it
	LastTxErr     error  // the latest reason behind TxUnreachable or TxOther

	RxTrains     uint64 // messages that carried more than one datagram
	RxSolvedID   uint64 // delivered with an identification found by solving
	RxTruncated  uint64 // larger than the receive buffer; also in RxTooShort
	RxSockErrors uint64 // errors queued on the socket, such as a peer's ICMP

	// GSOSegments is the limit in force, 1 if segmentation offload is off. GRO says
	// whether the kernel may deliver trains.
	GSOSegments int
	GRO         bool
	// RecvBufferBytes and SendBufferBytes are what the kernel granted, its own
	// bookkeeping included: on Linux twice what was asked for.
	RecvBufferBytes, SendBufferBytes int
	// NetdevMTU is the MTU in bytes of the interface that owns the address.
	NetdevMTU int
}
