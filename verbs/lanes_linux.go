package verbs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/fabric"
	"github.com/rvtsim/rvtsim/fabric/shm"
	"github.com/rvtsim/rvtsim/fabric/udp"
	"github.com/rvtsim/rvtsim/ib"
	"github.com/rvtsim/rvtsim/rvt/node"
)

// Devices with Config.Memory meet without a daemon. Each listens on a Unix socket whose name,
// in the abstract name space of its network namespace, is its address: who can reach the one
// can reach the other. A device that connects a queue pair asks there for its peer's inbox
// before it sends the first packet, so that no two packets of a queue pair go different ways.
// The connection stays. It ends with either side, and tells the other one so.

// lanes are a device's ways to others of this machine, and theirs to it.
type lanes struct {
	port   *shm.Port
	inbox  *shm.Inbox
	listen *net.UnixListener
	udp    uint16 // port of the network

	asking sync.Mutex // held while a peer is asked, who may be asking as well; taken before mu

	mu     sync.Mutex // before the node's lock
	closed bool
	taken  [shm.Lanes]bool            // of the inbox, by number
	conns  map[*net.UnixConn]struct{} // to writers and to readers
	users  sync.WaitGroup             // goroutines

	released sync.Once
}

// laneSize is how long the answer to a device that asks is: the number of its lane.
const laneSize = 4

// meetFor is how long a device may take to answer another one, whose program waits meanwhile.
// It is a variable because tests must not depend on how busy the machine is.
var meetFor = 250 * time.Millisecond

// meetingPoint is where a device at an address takes questions of its user's programs.
func meetingPoint(gid ib.GID, port uint16) *net.UnixAddr {
	return &net.UnixAddr{Net: "unixpacket", Name: fmt.Sprintf("@rvtsim/%d/%x:%d", os.Getuid(), gid[:], port)}
}

// openLanes puts an inbox in front of the sockets of a device at addr. It returns nil and
// the port itself if that has no sockets.
func openLanes(port fabric.Port, addr string) (*lanes, fabric.Port, error) {
	sockets, ok := port.(*udp.Port)
	if !ok {
		return nil, port, nil
	}
	gid, number, err := udp.ParseAddr(addr)
	if err != nil {
		return nil, port, err
	}
	listen, err := net.ListenUnix("unixpacket", meetingPoint(gid, number))
	if err != nil {
		return nil, port, err
	}
	in, err := shm.NewInbox()
	if err != nil {
		return nil, port, errors.Join(err, listen.Close())
	}
	l := &lanes{port: shm.New(sockets, in, number, node.Now, node.Pace()), inbox: in, listen: listen, udp: number, conns: map[*net.UnixConn]struct{}{}}
	l.users.Add(1)
	go l.accept()
	return l, l.port, nil
}

// leave makes no more lanes. It comes before the end of the node: the port's descriptors
// are not handed out once they are closed.
func (l *lanes) leave() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	_ = l.listen.Close()
}

// release gives everything back. It comes after the end of the node: nobody uses the port
// any more, and others may have the lanes that it wrote to.
func (l *lanes) release() {
	if l == nil {
		return
	}
	l.mu.Lock()
	for c := range l.conns {
		_ = c.Close()
	}
	l.mu.Unlock()
	l.users.Wait()
	l.released.Do(l.port.Release)
}

// keep notes a connection, whose end watch awaits; false if the device is closed.
func (l *lanes) keep(c *net.UnixConn, watch func()) bool {
	if l.closed {
		return false
	}
	l.conns[c] = struct{}{}
	l.users.Add(1)
	go func() {
		defer l.users.Done()
		watch()
		_ = c.Close()
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.conns, c)
	}()
	return true
}

// accept answers devices that want to write.
func (l *lanes) accept() {
	defer l.users.Done()
	for {
		c, err := l.listen.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(time.Millisecond) // no descriptors, for example
			continue
		}
		if !sameUser(c) || !l.admit(c) {
			_ = c.Close()
		}
	}
}

// admit gives a device a lane, until its connection ends.
func (l *lanes) admit(c *net.UnixConn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := slices.Index(l.taken[:], false)
	if k < 0 || l.closed {
		return false
	}
	rights := unix.UnixRights(l.inbox.FD(), l.port.EventFD())
	if _, _, err := c.WriteMsgUnix(binary.LittleEndian.AppendUint32(nil, uint32(k)), rights, nil); err != nil {
		return false
	}
	l.taken[k] = true
	return l.keep(c, func() {
		_ = await(c)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.taken[k] = false
	})
}

// await returns when a connection has ended, on which nothing more is said.
func await(c *net.UnixConn) error {
	_, err := c.Read(make([]byte, 1))
	return err
}

// sameUser reports whether the other side of a connection is a program of the same user. Who
// has an inbox can look into all its lanes, so strangers get none; and who answers gets our
// packets.
func sameUser(c *net.UnixConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return false
	}
	same := false
	err = raw.Control(func(fd uintptr) {
		who, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		same = err == nil && int(who.Uid) == os.Getuid()
	})
	return err == nil && same
}

// reach makes a lane to the device at dst that queue pair qpn belongs to, if it has an inbox;
// otherwise packets go by UDP. The caller does not own the device.
func (l *lanes) reach(d *Device, dst ib.GID, qpn ib.QPN) {
	if l == nil {
		return
	}
	to := shm.Peer{GID: dst, Seat: uint8(qpn >> 16)}
	l.asking.Lock()
	defer l.asking.Unlock()
	if l.reaches(to) {
		return
	}
	c, err := net.DialUnix("unixpacket", nil, meetingPoint(dst, l.udp))
	if err != nil {
		return // nobody is there, or has no inbox
	}
	lane, file := ask(c)
	if lane == nil {
		_ = c.Close()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.keep(c, func() { watch(c, file) }) {
		_ = c.Close()
		_ = unix.Close(file)
		lane.Close()
		return
	}
	if _, err := d.node.Begin(); err != nil {
		lane.Close()
		return
	}
	l.port.Join(to, lane)
	d.node.End(node.SendNow)
}

// watch waits for the end of the device that an inbox belongs to, whose process may have
// died. If it was this side that closed the connection, nothing is said.
func watch(c *net.UnixConn, file int) {
	if !errors.Is(await(c), net.ErrClosed) {
		shm.MarkGone(file)
	}
	_ = unix.Close(file)
}

// reaches reports whether there is nothing to ask about a peer.
func (l *lanes) reaches(to shm.Peer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed || l.port.Reaches(to)
}

// ask receives the lane that a device gives, and the file of its inbox; nil if it gives none.
func ask(c *net.UnixConn) (*shm.Lane, int) {
	if !sameUser(c) || c.SetDeadline(time.Now().Add(meetFor)) != nil {
		return nil, -1
	}
	b, oob := make([]byte, laneSize), make([]byte, unix.CmsgSpace(2*4))
	n, k, _, _, err := c.ReadMsgUnix(b, oob)
	files := rightsIn(oob[:k])
	if err != nil || n != laneSize || len(files) != 2 || c.SetDeadline(time.Time{}) != nil {
		closeFiles(files)
		return nil, -1
	}
	lane, err := shm.OpenLane(files[0], files[1], int(binary.LittleEndian.Uint32(b)))
	if err != nil {
		closeFiles(files)
		return nil, -1
	}
	return lane, files[0]
}

// rightsIn returns the descriptors that came with a message.
func rightsIn(oob []byte) (files []int) {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		if f, err := syscall.ParseUnixRights(&msgs[i]); err == nil {
			files = append(files, f...)
		}
	}
	return files
}

func closeFiles(files []int) {
	for _, f := range files {
		_ = unix.Close(f)
	}
}
