// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	library "github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
)

// DeviceName is the name of the dummy device, the same as kube-proxy's.
const DeviceName = "kube-ipvs0"

// deviceType is the type of the device (IFLA_INFO_KIND).
const deviceType = "dummy"

// ErrNoDevice means that the device does not exist.
var ErrNoDevice = errors.New("no device " + DeviceName)

// WrongTypeError means that the device named DeviceName is not Sluice's, because it is not a dummy.
// Sluice does not change it. The administrator must remove it.
type WrongTypeError struct {
	// Type is the type of the device, as ip(8) prints it.
	Type string
}

// Error names the actual type and the required type.
func (e *WrongTypeError) Error() string {
	return fmt.Sprintf("device %s is of type %s and not %s: it does not belong to Sluice",
		DeviceName, e.Type, deviceType)
}

// Device is the dummy device of one network namespace, whether or not it exists. Its
// addresses are local to the host even while the device is down, so that IPVS receives the packets
// to them. It stays down, as with kube-proxy. Only one goroutine at a time may use it; Watch may run
// at the same time.
type Device struct {
	inside  netlink.Inside
	routing *library.Handle
	// family is the address family that Watch watches, AF_UNSPEC for both.
	family int

	mu sync.Mutex
	// index is the last known index of the device, 0 if it did not exist.
	index int
	// making is set while Ensure creates the device.
	making bool
	// held are the host addresses that the device should have after the last change or list. If an
	// announcement contradicts them, another program changed the addresses.
	held map[netip.Addr]struct{}
}

// OpenDevice opens a connection for the device of a network namespace. Watch ignores addresses that are not of the
// family (AF_INET, AF_INET6, or AF_UNSPEC for both), because another Device may manage those.
func OpenDevice(inside netlink.Inside, family int) (*Device, error) {
	d := &Device{inside: inside, family: family, held: map[netip.Addr]struct{}{}}
	err := inside.Do(func() (err error) {
		d.routing, err = library.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("device %s: open a routing socket: %w", DeviceName, err)
	}
	return d, nil
}

// Close closes the connection. The device stays.
func (d *Device) Close() error {
	d.routing.Close()
	return nil
}

// Exists reports whether the device exists. The error is a *WrongTypeError if a device of another
// type has its name.
func (d *Device) Exists() (bool, error) {
	index, err := d.find()
	return index != 0, err
}

// Ensure creates the device if it does not exist. The error is a *WrongTypeError if a device of
// another type has its name.
func (d *Device) Ensure() error {
	index, err := d.find()
	if err != nil || index != 0 {
		return err
	}
	d.expect(true)
	defer d.expect(false)
	attrs := library.NewLinkAttrs()
	attrs.Name = DeviceName
	err = d.routing.LinkAdd(&library.Dummy{LinkAttrs: attrs})
	if err != nil && !errors.Is(err, unix.EEXIST) { // EEXIST: another program just created it
		return fmt.Errorf("device %s: make it (is the module %s there?): %w", DeviceName, deviceType, err)
	}
	index, err = d.find()
	if err == nil && index == 0 {
		err = fmt.Errorf("device %s: it vanished: %w", DeviceName, ErrNoDevice)
	}
	return err
}

func (d *Device) expect(making bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.making = making
}

// find looks for the device and remembers its index. It returns 0 if there is none.
func (d *Device) find() (int, error) {
	index := 0
	link, err := d.routing.LinkByName(DeviceName)
	_, missing := errors.AsType[library.LinkNotFoundError](err)
	switch {
	case missing:
	case err != nil:
		return 0, fmt.Errorf("device %s: look for it: %w", DeviceName, err)
	case link.Type() != deviceType:
		d.remember(0)
		return 0, &WrongTypeError{Type: link.Type()}
	default:
		index = link.Attrs().Index
	}
	d.remember(index)
	return index, nil
}

// remember notes the index of the device. A new device has none of the addresses of
// the previous one.
func (d *Device) remember(index int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.index != index {
		d.index = index
		clear(d.held)
	}
}

// Delete removes the device with its addresses, if it exists. The error is a *WrongTypeError if a
// device of another type has its name.
func (d *Device) Delete() error {
	index, err := d.find()
	if err != nil || index == 0 {
		return err
	}
	d.remember(0) // so that Watch ignores the announcement
	err = d.routing.LinkDel(&library.Dummy{LinkAttrs: library.LinkAttrs{Name: DeviceName, Index: index}})
	if err != nil && !errors.Is(err, unix.ENODEV) {
		d.remember(index)
		return fmt.Errorf("device %s: delete it: %w", DeviceName, err)
	}
	return nil
}

// attempts limits how often a list is repeated if the kernel reports that addresses changed during it
// (NLM_F_DUMP_INTR).
const attempts = 100

// Addresses returns the addresses of a family (AF_INET or AF_INET6), read with one request, each
// list sorted and without duplicates: the host addresses of the device (/32 or /128; others are
// not Sluice's), and all addresses of all other interfaces, without loopback and IPv6 link-local
// ones. An address can be in both. A device of another type with the name DeviceName counts as
// another interface.
func (d *Device) Addresses(family int) (own, others []netip.Addr, err error) {
	index, err := d.find()
	if _, wrong := errors.AsType[*WrongTypeError](err); err != nil && !wrong {
		return nil, nil, err
	}
	found, err := d.routing.AddrList(nil, family)
	for attempt := 1; attempt < attempts && errors.Is(err, library.ErrDumpInterrupted); attempt++ {
		found, err = d.routing.AddrList(nil, family)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("device %s: list addresses: %w", DeviceName, err)
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

// counts reports whether an address is neither loopback nor IPv6 link-local.
func counts(a netip.Addr) bool {
	return !a.IsLoopback() && (a.Is4() || !a.IsLinkLocalUnicast())
}

func sorted(all []netip.Addr) []netip.Addr {
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// saw notes the device's addresses of a family.
func (d *Device) saw(family int, own []netip.Addr) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for a := range d.held {
		if a.Is4() == (family == unix.AF_INET) {
			delete(d.held, a)
		}
	}
	for _, a := range own {
		d.held[a] = struct{}{}
	}
}

// Add adds host addresses to the device. Adding an existing address succeeds.
func (d *Device) Add(ctx context.Context, addresses []netip.Addr) []error {
	index, err := d.current()
	if err == nil && index == 0 {
		err = ErrNoDevice
	}
	return d.change(ctx, addresses, index, err, true)
}

// Remove removes host addresses from the device. Removing a missing address succeeds, also if the
// device does not exist.
func (d *Device) Remove(ctx context.Context, addresses []netip.Addr) []error {
	index, err := d.current()
	if err == nil && index == 0 {
		return make([]error, len(addresses))
	}
	return d.change(ctx, addresses, index, err, false)
}

// current returns the index of the device, 0 if it does not exist.
func (d *Device) current() (int, error) {
	d.mu.Lock()
	index := d.index
	d.mu.Unlock()
	if index != 0 {
		return index, nil
	}
	return d.find()
}

// change adds or removes each address. If err is not nil, it changes nothing, and err is the result for
// each address.
func (d *Device) change(
	ctx context.Context, addresses []netip.Addr, index int, err error, adding bool,
) []error {
	link := &library.Dummy{LinkAttrs: library.LinkAttrs{Name: DeviceName, Index: index}}
	one := d.routing.AddrDel
	if adding {
		one = d.routing.AddrAdd
	}
	results := make([]error, len(addresses))
	for i, a := range addresses {
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			results[i] = failed(adding, a, err)
			continue
		}
		d.hold(a, adding) // before the kernel announces it
		address := &library.Addr{IPNet: library.NewIPNet(a.AsSlice())}
		results[i] = d.settle(adding, a, answerOf(one(link, address)))
		if results[i] != nil && !Unknown(results[i]) {
			d.hold(a, !adding)
		}
	}
	return results
}

// hold notes whether the device has an address.
func (d *Device) hold(a netip.Addr, held bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if held {
		d.held[a] = struct{}{}
	} else {
		delete(d.held, a)
	}
}

// settle returns the result for the kernel's answer err.
func (d *Device) settle(adding bool, a netip.Addr, err error) error {
	switch {
	case err == nil,
		adding && errors.Is(err, unix.EEXIST),
		!adding && errors.Is(err, unix.EADDRNOTAVAIL),
		!adding && errors.Is(err, unix.ENODEV):
		return nil
	case errors.Is(err, unix.ENODEV):
		d.remember(0) // current looks for the device the next time
		err = ErrNoDevice
	}
	return failed(adding, a, err)
}

func failed(adding bool, a netip.Addr, err error) error {
	verb := "remove"
	if adding {
		verb = "add"
	}
	return fmt.Errorf("device %s: %s %s: %w", DeviceName, verb, a, err)
}
