package netdev

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ethtoolCmd is struct ethtool_cmd (linux/ethtool.h).
type ethtoolCmd struct {
	cmd     uint32
	_, _    uint32 // supported, advertising
	speed   uint16
	_       [8]uint8
	_, _    uint32 // maxtxpkt, maxrxpkt
	speedHi uint16
	_, _    uint8
	_       uint32 // lp_advertising
	_       [2]uint32
}

const (
	ethtoolGSet  = 1 // ETHTOOL_GSET
	speedUnknown = 1<<32 - 1
)

// speedOf asks the driver of a device for the speed of its link in Mb/s, 0 if it does not
// know. The calling thread is in the device's network namespace.
func speedOf(name string) uint32 {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	cmd := ethtoolCmd{cmd: ethtoolGSet}
	var ifr struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(ifr.name[:unix.IFNAMSIZ-1], name)
	ifr.data = unsafe.Pointer(&cmd)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&ifr)))
	runtime.KeepAlive(&cmd)
	speed := uint32(cmd.speedHi)<<16 | uint32(cmd.speed)
	if errno != 0 || speed == speedUnknown {
		return 0
	}
	return speed
}
