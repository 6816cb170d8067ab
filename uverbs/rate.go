package uverbs

import "fmt"

// linkRate is active_width and active_speed of struct ibv_port_attr.
type linkRate struct {
	width uint8 // enum ib_port_width
	speed uint8 // enum ib_port_speed
}

const (
	width1X = 1
	width4X = 2

	speedSDR   = 1
	speedDDR   = 2
	speedFDR10 = 8
	speedEDR   = 32
	speedHDR   = 64
	speedNDR   = 128
)

// rateOf is what the kernel makes of the speed of an Ethernet link in Mb/s
// (ib_core: ib_get_eth_speed): the slowest rate of InfiniBand that is no slower.
func rateOf(mbps uint32) linkRate {
	switch {
	case mbps <= 1_000:
		return linkRate{width1X, speedSDR}
	case mbps <= 10_000:
		return linkRate{width1X, speedFDR10}
	case mbps <= 20_000:
		return linkRate{width4X, speedDDR}
	case mbps <= 25_000:
		return linkRate{width1X, speedEDR}
	case mbps <= 40_000:
		return linkRate{width4X, speedFDR10}
	case mbps <= 100_000:
		return linkRate{width4X, speedEDR}
	case mbps <= 200_000:
		return linkRate{width4X, speedHDR}
	}
	return linkRate{width4X, speedNDR}
}

// text is what sysfs shows (ib_core: rate_show), in units of 100 Mb/s for each lane.
func (r linkRate) text() string {
	lanes, name, tenths := 1, "SDR", 25
	if r.width == width4X {
		lanes = 4
	}
	switch r.speed {
	case speedDDR:
		name, tenths = "DDR", 50
	case speedFDR10:
		name, tenths = "FDR10", 100
	case speedEDR:
		name, tenths = "EDR", 250
	case speedHDR:
		name, tenths = "HDR", 500
	case speedNDR:
		name, tenths = "NDR", 1000
	}
	half := ""
	if tenths *= lanes; tenths%10 != 0 {
		half = ".5"
	}
	return fmt.Sprintf("%d%s Gb/sec (%dX %s)", tenths/10, half, lanes, name)
}

// DefaultMbps is the speed of a link that nothing is known about.
const DefaultMbps = 100_000

// rate is the port's.
func (c *DeviceConfig) rate() linkRate {
	if c.Mbps == 0 {
		return rateOf(DefaultMbps)
	}
	return rateOf(c.Mbps)
}
