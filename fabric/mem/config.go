package mem

import (
	"errors"
	"fmt"
	"time"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/ib"
)

// Config describes a network. The zero value is a network of perfect links without
// latency.
type Config struct {
	// Seed determines all random choices.
	Seed uint64
	// Default is every link that SetLink does not set apart.
	Default LinkConfig
	// Encode sends every packet through its wire encoding and back. It costs time
	// and changes nothing that a receiver can see.
	Encode bool
	// Sink, if not nil, is shown every packet that has an encoding as the sender
	// hands it over: before the network can do anything to it, and once if it goes
	// to a multicast group.
	Sink fabric.Sink
	// MaxInFlight bounds the packets in flight; one more is lost as LossQueue.
	// 0 means DefaultMaxInFlight.
	MaxInFlight int
	// Ahead, if not nil, is shown frames that are likely to be the next but one. It may ask
	// the processor for their memory, and must not read or change them.
	Ahead func(*Frame)
}

// DefaultMaxInFlight is far above what any world needs and far below what would
// exhaust memory unnoticed (about 1.2 GB without payloads).
const DefaultMaxInFlight = 1 << 22

// LinkConfig describes one direction of a link.
type LinkConfig struct {
	// Latency is the time from the last bit sent to the packet's arrival.
	Latency time.Duration
	// Jitter adds a uniform [0, Jitter] to it. Order is kept: a packet does not
	// arrive before an earlier one of the same egress. For jitter that reorders, use
	// Impairment.Jitter.
	Jitter time.Duration
	// BandwidthBitsPerSecond gives each frame a serialisation delay, for its bytes
	// and [wire.FrameOverheadBytes]; 0 is infinite bandwidth.
	BandwidthBitsPerSecond uint64
	// QueueBytes bounds the bytes that wait at the egress, the frame being sent
	// included; a frame that does not fit is dropped. 0 means no bound. It needs a
	// bandwidth.
	QueueBytes int
	// ECN marks packets that meet a long queue, if their traffic class says that they may
	// be marked. It needs a bandwidth.
	ECN ECN
	// MTU is the largest payload, as an IB MTU; 0 means 4096.
	MTU ib.MTU
	// Impairment is what goes wrong on the way. For the default link each sender
	// has its own random streams and rule counters.
	Impairment fabric.ImpairmentConfig
}

// ECN says when a queue sets "congestion experienced" in the IP header of a packet whose
// sender is capable of it (RED as in DCQCN: Kmin, Kmax, Pmax): never
// below MinBytes that wait, with a probability that rises to Probability at MaxBytes,
// and always above. The zero value marks nothing.
type ECN struct {
	MinBytes, MaxBytes int
	Probability        float64
}

// MaxBandwidth is the highest bandwidth, 1 Pbit/s: it keeps the arithmetic of delays
// in range.
const MaxBandwidth = 1e15

// Validate returns all problems of the configuration, joined, or nil.
func (c *Config) Validate() error {
	var errs []error
	if c.MaxInFlight < 0 {
		errs = append(errs, fmt.Errorf("mem: max in flight is %d, want 0 or more", c.MaxInFlight))
	}
	if err := c.Default.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("default link: %w", err))
	}
	return errors.Join(errs...)
}

// Validate returns all problems of the link, joined, or nil.
func (c *LinkConfig) Validate() error {
	var errs []error
	if c.Latency < 0 || c.Latency > fabric.MaxDelay {
		errs = append(errs, fmt.Errorf("mem: latency is %v, want 0 to %v", c.Latency, fabric.MaxDelay))
	}
	if c.Jitter < 0 || c.Jitter > fabric.MaxDelay {
		errs = append(errs, fmt.Errorf("mem: jitter is %v, want 0 to %v", c.Jitter, fabric.MaxDelay))
	}
	if c.BandwidthBitsPerSecond > MaxBandwidth {
		errs = append(errs, fmt.Errorf("mem: bandwidth is %d bit/s, at most %d", c.BandwidthBitsPerSecond, uint64(MaxBandwidth)))
	}
	if c.QueueBytes < 0 {
		errs = append(errs, fmt.Errorf("mem: queue is %d bytes, want 0 or more", c.QueueBytes))
	}
	if c.QueueBytes > 0 && c.BandwidthBitsPerSecond == 0 {
		errs = append(errs, errors.New("mem: a bounded queue needs a bandwidth"))
	}
	if e := &c.ECN; *e != (ECN{}) {
		if c.BandwidthBitsPerSecond == 0 {
			errs = append(errs, errors.New("mem: marking needs a bandwidth"))
		}
		if e.MinBytes < 0 || e.MaxBytes < e.MinBytes || !(e.Probability >= 0 && e.Probability <= 1) {
			errs = append(errs, fmt.Errorf("mem: marking between %d and %d bytes with probability %v, want 0 <= min <= max and a probability", e.MinBytes, e.MaxBytes, e.Probability))
		}
	}
	if c.MTU != 0 && !c.MTU.Valid() {
		errs = append(errs, fmt.Errorf("mem: MTU %d is none of the five path MTUs", uint8(c.MTU)))
	}
	errs = append(errs, c.Impairment.Validate())
	return errors.Join(errs...)
}

// equal reports whether two links are alike and sound.
func (c *LinkConfig) equal(o *LinkConfig) bool {
	return c.Latency == o.Latency && c.Jitter == o.Jitter && c.BandwidthBitsPerSecond == o.BandwidthBitsPerSecond &&
		c.QueueBytes == o.QueueBytes && c.ECN == o.ECN && c.MTU == o.MTU && c.Impairment.IsZero() && o.Impairment.IsZero()
}
