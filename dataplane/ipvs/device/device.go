package device

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Name is the name of the device, which is kube-proxy's.
const Name = "kube-ipvs0"

// kind is the type of the device (IFLA_INFO_KIND).
const kind = "dummy"

// ErrNoDevice says that there is no such device.
var ErrNoDevice = errors.New("there is no device " + Name)

// WrongKindError says that a device of our name is not ours, as it is no dummy.
// It is left alone; somebody has to remove it.
type WrongKindError struct {
	// Kind is what it is, as ip(8) says it.
	Kind string
}

// Error says so.
func (e *WrongKindError) Error() string {
	return fmt.Sprintf("device %s is of type %s and not %s: it is not ours to use or to delete", Name, e.Kind, kind)
}

// Device is the device of one network namespace, whether or not it exists at the
// moment. One goroutine at a time; Watch may run beside it.
type Device struct {
	inside  func(func() error) error
	routing *netlink.Handle
	batch   *socket
	// family is the one whose addresses are watched, AF_UNSPEC for both.
	family int

	mu sync.Mutex
	// index is that of the device as last seen, 0 when it was not there.
	index int
	// making says that we are about to make the device.
	making bool
	// held are the host addresses that the device should have after what we did
	// and saw last. An announcement that contradicts it was caused by others.
	held map[netip.Addr]struct{}
}

// Open opens what it takes to change the device of a network namespace. Inside
// calls a function on a thread in that namespace; nil is for the process's own.
func Open(inside func(func() error) error) (*Device, error) {
	return OpenFamily(inside, unix.AF_UNSPEC)
}

// OpenFamily is Open for addresses of one family (netlink.FAMILY_V4 or FAMILY_V6):
// Watch tells nothing of those of the other one, which somebody else keeps.
func OpenFamily(inside func(func() error) error, family int) (*Device, error) {
	if inside == nil {
		inside = func(f func() error) error { return f() }
	}
	d := &Device{inside: inside, family: family, held: map[netip.Addr]struct{}{}}
	err := inside(func() error {
		var err error
		if d.routing, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
			return err
		}
		if d.batch, err = openSocket(); err != nil {
			d.routing.Close()
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("device %s: open a routing socket: %w", Name, err)
	}
	return d, nil
}

// Close gives the sockets up. The device stays.
func (d *Device) Close() error {
	d.routing.Close()
	return d.batch.close()
}

// Ensure makes the device if it is missing. The error is a WrongKindError when
// another one has its name.
func (d *Device) Ensure() error {
	index, err := d.find()
	if err != nil || index != 0 {
		return err
	}
	d.expect(true)
	defer d.expect(false)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = Name
	err = d.routing.LinkAdd(&netlink.Dummy{LinkAttrs: attrs})
	if err != nil && !errors.Is(err, unix.EEXIST) { // somebody was faster
		return fmt.Errorf("device %s: make it (is the module %s there?): %w", Name, kind, err)
	}
	index, err = d.find()
	if err == nil && index == 0 {
		err = fmt.Errorf("device %s: it vanished: %w", Name, ErrNoDevice)
	}
	return err
}

func (d *Device) expect(making bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.making = making
}

// find looks for the device and remembers its index; 0 when it is not there.
func (d *Device) find() (int, error) {
	index := 0
	link, err := d.routing.LinkByName(Name)
	var missing netlink.LinkNotFoundError
	switch {
	case errors.As(err, &missing):
	case err != nil:
		return 0, fmt.Errorf("device %s: look for it: %w", Name, err)
	case link.Type() != kind:
		d.remember(0)
		return 0, &WrongKindError{Kind: link.Type()}
	default:
		index = link.Attrs().Index
	}
	d.remember(index)
	return index, nil
}

// remember notes the index of the device. Another device has none of the
// addresses of the former.
func (d *Device) remember(index int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.index != index {
		d.index = index
		clear(d.held)
	}
}

// Delete removes the device with its addresses. It need not be there; the error
// is a WrongKindError when another one has its name.
func (d *Device) Delete() error {
	index, err := d.find()
	if err != nil || index == 0 {
		return err
	}
	d.remember(0) // the announcement is not news
	err = d.routing.LinkDel(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Name: Name, Index: index}})
	if err != nil && !errors.Is(err, unix.ENODEV) {
		d.remember(index)
		return fmt.Errorf("device %s: delete it: %w", Name, err)
	}
	return nil
}

// attempts bounds the listings of which the kernel says that they are not one
// picture, because addresses changed meanwhile (NLM_F_DUMP_INTR).
const attempts = 100

// Addresses gives the addresses of a family (netlink.FAMILY_V4 or FAMILY_V6), as
// one dump, each list sorted and without duplicates: the host addresses of the
// device (/32 or /128; others are not ours), and all addresses of all other
// interfaces, without loopback addresses and IPv6 link-local ones. An address can
// be in both. A device of our name that is not ours counts as another interface.
func (d *Device) Addresses(family int) (own, others []netip.Addr, err error) {
	index, err := d.find()
	var wrong *WrongKindError
	if err != nil && !errors.As(err, &wrong) {
		return nil, nil, err
	}
	found, err := d.routing.AddrList(nil, family)
	for attempt := 1; attempt < attempts && errors.Is(err, netlink.ErrDumpInterrupted); attempt++ {
		found, err = d.routing.AddrList(nil, family)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("device %s: list addresses: %w", Name, err)
	}
	for _, a := range found {
		addr, ok := netip.AddrFromSlice(a.IP)
		if !ok || !counts(addr.Unmap()) {
			continue
		}
		ones, bits := a.Mask.Size()
		switch {
		case index == 0 || a.LinkIndex != index:
			others = append(others, addr.Unmap())
		case ones == bits:
			own = append(own, addr.Unmap())
		}
	}
	own, others = sorted(own), sorted(others)
	d.saw(family, own)
	return own, others, nil
}

// counts leaves out the addresses that every host has.
func counts(a netip.Addr) bool {
	return !a.IsLoopback() && (a.Is4() || !a.IsLinkLocalUnicast())
}

func sorted(all []netip.Addr) []netip.Addr {
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// saw notes what addresses of a family the device has.
func (d *Device) saw(family int, own []netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a := range d.held {
		if a.Is4() == (family == netlink.FAMILY_V4) {
			delete(d.held, a)
		}
	}
	for _, a := range own {
		d.held[a] = struct{}{}
	}
}
