package netdev

import (
	"fmt"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/rvtsim/rvtsim/internal/gidtable"
)

// Watcher follows one device. Open and State have to be called on a thread that is in the
// device's network namespace, by one caller; the rest may be called from anywhere.
type Watcher struct {
	h       *netlink.Handle
	name    string
	index   int
	changed chan struct{}
	done    chan struct{}
	once    sync.Once
	wg      sync.WaitGroup

	mu    sync.Mutex
	links []gidtable.Link // as announced since the last look
	deaf  bool            // the subscription has ended
	lost  int             // how often one ended because its buffer was too small

	receiveBytes int // of the buffer of a subscription
}

// Open starts to follow the device of that name.
func Open(name string) (*Watcher, error) { return openSized(name, receiveBytes) }

func openSized(name string, size int) (*Watcher, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netdev: netlink: %w", err)
	}
	w := &Watcher{h: h, name: name, changed: make(chan struct{}, 1), done: make(chan struct{}), receiveBytes: size}
	link, err := h.LinkByName(name)
	if err != nil {
		w.Close()
		return nil, fmt.Errorf("network device %s: %w", name, err)
	}
	if t := link.Attrs().EncapType; t != "ether" && t != "loopback" {
		w.Close()
		return nil, fmt.Errorf("network device %s is of type %s; RoCE needs Ethernet", name, t)
	}
	if link.Type() == "vlan" {
		w.Close()
		return nil, fmt.Errorf("network device %s is a VLAN: bind to the device below it, whose GID table has the VLAN's addresses", name)
	}
	w.index = link.Attrs().Index
	if err := w.subscribe(); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}

// Changed has something to receive when it is time to look at State again.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// State looks at the device. The error is ErrGone if there is none any more.
func (w *Watcher) State() (State, error) {
	w.mu.Lock()
	links, deaf := w.links, w.deaf
	w.links, w.deaf = nil, false
	w.mu.Unlock()
	if deaf { // first subscribe, then look, so that nothing falls in between
		if err := w.subscribe(); err != nil {
			return State{}, err
		}
	}
	s, err := look(w.h, w.index)
	s.Links = links
	return s, err
}

// Close ends the watching.
func (w *Watcher) Close() {
	w.once.Do(func() { close(w.done) })
	w.wg.Wait()
	w.h.Close()
}

// receiveBytes is the buffer of a subscription. A burst that it cannot hold costs
// nothing but a fresh look.
const receiveBytes = 1 << 20

// subscribe asks for messages about links and addresses, in the namespace of this thread.
func (w *Watcher) subscribe() error {
	links, addrs := make(chan netlink.LinkUpdate, 64), make(chan netlink.AddrUpdate, 64)
	ignore := func(error) {} // the channel is closed then, which is enough to know
	stop := make(chan struct{})
	if err := netlink.LinkSubscribeWithOptions(links, stop, netlink.LinkSubscribeOptions{ErrorCallback: ignore, ReceiveBufferSize: w.receiveBytes}); err != nil {
		close(stop)
		return fmt.Errorf("netdev: links: %w", err)
	}
	if err := netlink.AddrSubscribeWithOptions(addrs, stop, netlink.AddrSubscribeOptions{ErrorCallback: ignore, ReceiveBufferSize: w.receiveBytes}); err != nil {
		close(stop)
		return fmt.Errorf("netdev: addresses: %w", err)
	}
	w.wg.Add(1)
	go w.follow(links, addrs, stop)
	return nil
}

// follow takes messages off the sockets at once. When the kernel has dropped some it
// closes the subscription, and with it the channels.
func (w *Watcher) follow(links <-chan netlink.LinkUpdate, addrs <-chan netlink.AddrUpdate, stop chan struct{}) {
	defer w.wg.Done()
	defer func() {
		close(stop)
		go drain(links)
		go drain(addrs)
	}()
	for {
		select {
		case <-w.done:
			return
		case u, ok := <-links:
			if !ok {
				w.unheard()
				return
			}
			// Leaving a bridge is told as the end of a link of that family.
			if int(u.Index) == w.index && u.Header.Type == unix.RTM_NEWLINK && u.IfInfomsg.Family == unix.AF_UNSPEC {
				w.note(linkOf(u.Attrs()))
			}
		case _, ok := <-addrs:
			if !ok {
				w.unheard()
				return
			}
		}
		w.tell()
	}
}

// drain lets the senders of a subscription that is over end.
func drain[T any](ch <-chan T) {
	for range ch {
	}
}

// unheard notes that the subscription has ended by itself.
func (w *Watcher) unheard() {
	w.mu.Lock()
	w.deaf = true
	w.lost++
	w.mu.Unlock()
	w.tell()
}

// mostLinks bounds the states that wait for somebody to look. A device that flaps more
// often than that loses some of its ups and downs, in pairs.
const mostLinks = 256

// note keeps a state of the link if it is news.
func (w *Watcher) note(l gidtable.Link) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.links); n > 0 && w.links[n-1] == l {
		return
	}
	if len(w.links) == mostLinks {
		w.links = w.links[:mostLinks-2]
	}
	w.links = append(w.links, l)
}

func (w *Watcher) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}
