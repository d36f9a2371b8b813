package netbed

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// ErrPermission means that this process may not create network namespaces.
var ErrPermission = errors.New("netbed: creating network namespaces is not permitted")

// Bed is a network of hosts. Its methods may be called concurrently.
type Bed struct {
	mu       sync.Mutex // guards hosts, slots and faults, and the configuration of the hosts' filters
	switchNS netns.NsHandle
	bridge   *netlink.Bridge
	hosts    []*Host
	slots    []*Fault // by number of the packet filter; nil: free
}

// Host is one host of a Bed.
type Host struct {
	Name    string
	Address netip.Addr
	ns      netns.NsHandle
	forks   chan func()
	ended   chan struct{} // closed when the thread that runs forks has ended
}

// network is the address range of a Bed. Hosts are numbered from 1.
var network = netip.MustParsePrefix("10.77.0.0/24")

// New creates a network with these hosts. Close must be called.
func New(names ...string) (*Bed, error) {
	b := &Bed{switchNS: -1}
	var err error
	if b.switchNS, err = newNamespace(); err != nil {
		return nil, err
	}
	b.bridge = &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "switch"}}
	err = in(b.switchNS, func() error {
		return errors.Join(netlink.LinkAdd(b.bridge), netlink.LinkSetUp(b.bridge))
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("netbed: create the switch: %w", err), b.Close())
	}
	for i, name := range names {
		if err := b.add(name, i+1); err != nil {
			return nil, errors.Join(fmt.Errorf("netbed: add host %s: %w", name, err), b.Close())
		}
	}
	return b, nil
}

// add creates a host and plugs it into the switch.
func (b *Bed) add(name string, number int) error {
	address := network.Addr().As4()
	address[3] = byte(number)
	h := &Host{Name: name, Address: netip.AddrFrom4(address)}
	var err error
	if h.ns, err = newNamespace(); err != nil {
		return err
	}
	b.hosts = append(b.hosts, h)
	if err := h.startForkThread(); err != nil {
		return err
	}
	err = in(b.switchNS, func() error {
		pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: fmt.Sprint("port", number)}, PeerName: "eth0", PeerNamespace: netlink.NsFd(h.ns)}
		if err := netlink.LinkAdd(pair); err != nil {
			return err
		}
		port, err := netlink.LinkByName(pair.Name)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetMaster(port, b.bridge), netlink.LinkSetUp(port))
	})
	if err != nil {
		return err
	}
	return h.Do(func() error {
		for _, name := range [...]string{"lo", "eth0"} {
			link, err := netlink.LinkByName(name)
			if err == nil && name == "eth0" {
				ip := net.IPNet{IP: h.Address.AsSlice(), Mask: net.CIDRMask(network.Bits(), 32)}
				err = netlink.AddrAdd(link, &netlink.Addr{IPNet: &ip})
			}
			if err == nil {
				err = netlink.LinkSetUp(link)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// Host returns the host with this name; it panics if there is none, because that is a mistake of the test.
func (b *Bed) Host(name string) *Host {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, h := range b.hosts {
		if h.Name == name {
			return h
		}
	}
	panic("netbed: no host is named " + name)
}

// Close removes the network. Processes on its hosts keep running, without a network, and are not waited for; the kernel ends
// those that were started with Pdeathsig.
func (b *Bed) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, f := range b.slots {
		if f != nil {
			_, err := f.healLocked()
			errs = append(errs, err)
		}
	}
	for _, h := range b.hosts {
		if h.forks != nil {
			close(h.forks)
			<-h.ended
		}
		errs = append(errs, h.ns.Close())
	}
	b.hosts = nil
	if b.switchNS.IsOpen() { // deletes the bridge, and with each port its peer
		errs = append(errs, b.switchNS.Close())
	}
	return errors.Join(errs...)
}

// Do calls f on a thread of this host: sockets that f opens are on the host's network, those of goroutines that it starts
// are not.
func (h *Host) Do(f func() error) error { return in(h.ns, f) }

// Start starts a process on this host. The thread that starts it lives as long as the Bed, so that Pdeathsig, which follows
// the thread and not the process, ends the process with the Bed or with this process.
func (h *Host) Start(cmd *exec.Cmd) error {
	started := make(chan error, 1)
	h.forks <- func() { started <- cmd.Start() }
	return <-started
}

// startForkThread starts the thread that starts the processes of this host.
func (h *Host) startForkThread() error {
	entered := make(chan error, 1)
	forks, ended := make(chan func()), make(chan struct{})
	go func() { // ends when Close closes forks; the thread ends with it
		defer close(ended)
		runtime.LockOSThread()
		err := netns.Set(h.ns)
		if entered <- err; err != nil {
			return
		}
		for fork := range forks {
			fork()
		}
	}()
	if err := <-entered; err != nil {
		return fmt.Errorf("enter the network namespace: %w", err)
	}
	h.forks, h.ended = forks, ended
	return nil
}

// Listen listens on a TCP port of this host.
func (h *Host) Listen(port int) (l net.Listener, err error) {
	err = h.Do(func() error {
		l, err = net.Listen("tcp", netip.AddrPortFrom(h.Address, uint16(port)).String())
		return err
	})
	return l, err
}

// newNamespace creates a network namespace without a name.
func newNamespace() (netns.NsHandle, error) {
	created := netns.NsHandle(-1)
	err := onThread(func() (err error) {
		created, err = netns.New()
		return err
	})
	if errors.Is(err, os.ErrPermission) {
		err = fmt.Errorf("%w: %w", ErrPermission, err)
	}
	return created, err
}

// in calls f on a thread that is in the namespace.
func in(ns netns.NsHandle, f func() error) error {
	return onThread(func() error {
		if err := netns.Set(ns); err != nil {
			return fmt.Errorf("enter the network namespace: %w", err)
		}
		return f()
	})
}

// onThread calls f on a thread of its own. The thread ends with the call, whatever namespace it is in: a goroutine that
// exits without UnlockOSThread takes its thread with it.
func onThread(f func() error) error {
	done := make(chan error, 1)
	go func() { // onThread waits for it
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}
