package device

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Add gives the device host addresses, and gives a result per address. An address
// that is there already is success. Nil is done for certain; an error that Unknown
// tells apart is unknown; after any other it is not done for certain.
func (d *Device) Add(ctx context.Context, addresses []netip.Addr) []error {
	index, err := d.current()
	if err == nil && index == 0 {
		err = ErrNoDevice
	}
	return d.change(ctx, addresses, index, err, unix.RTM_NEWADDR)
}

// Remove takes host addresses from the device, with results as Add's. An address
// that is not there is success, as all are when there is no device.
func (d *Device) Remove(ctx context.Context, addresses []netip.Addr) []error {
	index, err := d.current()
	if err == nil && index == 0 {
		return make([]error, len(addresses))
	}
	return d.change(ctx, addresses, index, err, unix.RTM_DELADDR)
}

// current gives the index of the device; 0 when it is not there.
func (d *Device) current() (int, error) {
	d.mu.Lock()
	index := d.index
	d.mu.Unlock()
	if index != 0 {
		return index, nil
	}
	return d.find()
}

// change sends a request (RTM_NEWADDR or RTM_DELADDR) for each address, unless
// there is an error already, which is then the result of all.
func (d *Device) change(ctx context.Context, addresses []netip.Addr, index int, err error, request int) []error {
	results := make([]error, len(addresses))
	adding := request == unix.RTM_NEWADDR
	for start := 0; start < len(addresses); start += requestsMax {
		part := addresses[start:min(start+requestsMax, len(addresses))]
		about := results[start : start+len(part)]
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			for i, a := range part {
				about[i] = failed(adding, a, err)
			}
			continue
		}
		d.hold(part, nil, adding) // before the kernel announces it
		requests := make([]*nl.NetlinkRequest, len(part))
		for i, a := range part {
			requests[i] = addressRequest(request, index, a)
		}
		d.batch.exchange(requests, about)
		for i, a := range part {
			about[i] = d.settle(adding, a, about[i])
		}
		d.hold(part, about, !adding)
	}
	return results
}

// hold notes whether the device has those of the addresses whose change has
// failed, or all of them when there are no results.
func (d *Device) hold(addresses []netip.Addr, results []error, held bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, a := range addresses {
		switch {
		case results != nil && (results[i] == nil || Unknown(results[i])):
		case held:
			d.held[a] = struct{}{}
		default:
			delete(d.held, a)
		}
	}
}

// settle turns the kernel's answer into the result.
func (d *Device) settle(adding bool, a netip.Addr, err error) error {
	switch {
	case err == nil,
		adding && errors.Is(err, unix.EEXIST),
		!adding && errors.Is(err, unix.EADDRNOTAVAIL),
		!adding && errors.Is(err, unix.ENODEV):
		return nil
	case errors.Is(err, unix.ENODEV):
		d.remember(0) // to be looked for the next time
		err = ErrNoDevice
	}
	return failed(adding, a, err)
}

func failed(adding bool, a netip.Addr, err error) error {
	verb := "remove"
	if adding {
		verb = "add"
	}
	return fmt.Errorf("device %s: %s %s: %w", Name, verb, a, err)
}

// addressRequest asks for a host address to come or to go.
func addressRequest(kind, index int, a netip.Addr) *nl.NetlinkRequest {
	flags, family := unix.NLM_F_ACK, unix.AF_INET6
	if kind == unix.RTM_NEWADDR {
		flags |= unix.NLM_F_CREATE | unix.NLM_F_EXCL
	}
	if a.Is4() {
		family = unix.AF_INET
	}
	request := nl.NewNetlinkRequest(kind, flags)
	head := nl.NewIfAddrmsg(family)
	head.Prefixlen, head.Index = uint8(a.BitLen()), uint32(index)
	request.AddData(head)
	request.AddData(nl.NewRtAttr(unix.IFA_LOCAL, a.AsSlice()))
	request.AddData(nl.NewRtAttr(unix.IFA_ADDRESS, a.AsSlice()))
	return request
}
