// SPDX-License-Identifier: Apache-2.0

package userspace

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// These mark Sluice's routes. Neither iproute2 nor the kernel lists the protocol number; the metric
// distinguishes a route from the kernel's own route for an interface address, which has no metric.
const (
	routeProtocol = 219
	routeMetric   = 219
)

// families are the address families.
var families = service.PerFamily[uint8]{unix.AF_INET, unix.AF_INET6}

// groups are the multicast groups of routes.
var groups = service.PerFamily[int]{unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE}

// routes are the local routes of one family in one network namespace. Use it from one goroutine at
// a time.
type routes struct {
	family service.Family
	socket *netlink.Socket
	// loopback is the index of the loopback interface.
	loopback int
	// most is how many routes one exchange changes. The kernel answers each message, and the answers
	// have to fit into the buffer.
	most int
}

// openRoutes opens a connection in the network namespace of the calling thread.
func openRoutes(family service.Family) (*routes, error) {
	lo, err := net.InterfaceByName("lo")
	if err != nil {
		return nil, fmt.Errorf("local addresses: %w", err)
	}
	socket, err := netlink.Open(netlink.Config{Protocol: unix.NETLINK_ROUTE, ReceiveBytes: 1 << 20})
	if err != nil {
		return nil, fmt.Errorf("local addresses: %w", err)
	}
	answers, err := socket.Answers()
	if err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return &routes{family: family, socket: socket, loopback: lo.Index, most: min(answers, changeMax)}, nil
}

func (r *routes) close() error { return r.socket.Close() }

// attempts limits how often routes are listed if they change during the dump.
const attempts = 100

// list returns Sluice's local addresses, in no order.
func (r *routes) list(ctx context.Context) (found []netip.Addr, err error) {
	request, mark := netlink.Begin(nil, unix.RTM_GETROUTE, unix.NLM_F_DUMP)
	request = netlink.Finish(append(request, make([]byte, unix.SizeofRtMsg)...), mark)
	request[netlink.HeaderBytes] = families[r.family]
	err = netlink.Dump(ctx, attempts, func() error {
		found = nil
		return r.socket.Ask(ctx, request, func(m netlink.Message) error {
			if addr, ok := ownRoute(m, unix.RTM_NEWROUTE); ok {
				found = append(found, addr)
			}
			return nil
		})
	})
	if err != nil {
		return nil, fmt.Errorf("list local addresses: %w", err)
	}
	return found, nil
}

// ownRoute returns the address of a message about one of Sluice's local routes.
func ownRoute(m netlink.Message, kind uint16) (netip.Addr, bool) {
	p := m.Payload
	if m.Kind != kind || len(p) < unix.SizeofRtMsg || p[5] != routeProtocol || p[7] != unix.RTN_LOCAL {
		return netip.Addr{}, false
	}
	attrs := p[unix.SizeofRtMsg:]
	if table := netlink.Find(attrs, unix.RTA_TABLE); table.Data != nil && table.HostUint32() != unix.RT_TABLE_LOCAL {
		return netip.Addr{}, false
	}
	addr := netlink.Find(attrs, unix.RTA_DST).Addr()
	return addr, addr.IsValid() && int(p[1]) == addr.BitLen() && netlink.Find(attrs, unix.RTA_PRIORITY).HostUint32() == routeMetric
}

// changeMax limits the routes that are changed between two checks of the context.
const changeMax = 256

// change adds or removes routes. The result has an error for each that could not be changed. It is no
// error if a route to add exists, or a route to remove does not.
func (r *routes) change(ctx context.Context, addrs []netip.Addr, adding bool) []error {
	results := make([]error, len(addrs))
	for first := 0; first < len(addrs); first += r.most {
		part := addrs[first:min(first+r.most, len(addrs))]
		err := context.Cause(ctx)
		if err == nil {
			err = r.exchange(part, adding, results[first:])
		}
		if err != nil {
			for i := range part {
				results[first+i] = err
			}
		}
	}
	for i, err := range results {
		if err != nil {
			results[i] = fmt.Errorf("local address %s: %w", addrs[i], err)
		}
	}
	return results
}

// exchange sends one message for each address. The kernel answers each.
func (r *routes) exchange(addrs []netip.Addr, adding bool, results []error) error {
	var b []byte
	for _, addr := range addrs {
		b = r.appendChange(b, addr, adding)
	}
	return r.socket.Exchange(b, func(at int, a netlink.Answer) {
		switch {
		case a.Errno == 0, adding && a.Errno == unix.EEXIST, !adding && a.Errno == unix.ESRCH:
		default:
			results[at] = a.Err()
		}
	})
}

func (r *routes) appendChange(b []byte, addr netip.Addr, adding bool) []byte {
	kind, flags := uint16(unix.RTM_DELROUTE), uint16(unix.NLM_F_ACK)
	if adding {
		kind, flags = unix.RTM_NEWROUTE, unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL
	}
	b, mark := netlink.Begin(b, kind, flags)
	// struct rtmsg: family, length of the destination, of the source, TOS, table, protocol, scope,
	// type, flags.
	b = append(b, families[r.family], byte(addr.BitLen()), 0, 0,
		unix.RT_TABLE_LOCAL, routeProtocol, unix.RT_SCOPE_HOST, unix.RTN_LOCAL)
	b = binary.NativeEndian.AppendUint32(b, 0)
	b = netlink.AppendBytes(b, unix.RTA_DST, addr.AsSlice())
	b = netlink.AppendHostUint32(b, unix.RTA_OIF, uint32(r.loopback))
	b = netlink.AppendHostUint32(b, unix.RTA_PRIORITY, routeMetric)
	return netlink.Finish(b, mark)
}

// watch calls gone if another program removed one of Sluice's routes, or if announcements were lost.
func (r *routes) watch(ctx context.Context, inside netlink.Inside, gone func()) error {
	var listener *netlink.Listener
	err := inside.Do(func() (err error) {
		listener, err = netlink.Listen(unix.NETLINK_ROUTE, nil, groups[r.family])
		return err
	})
	if err != nil {
		return fmt.Errorf("watch local addresses: %w", err)
	}
	defer listener.Close() // nothing can be lost
	return listener.Run(ctx, func(m netlink.Message) {
		if _, own := ownRoute(m, unix.RTM_DELROUTE); own && m.Port != r.socket.Port() {
			gone()
		}
	}, gone)
}

// Release removes a family's routes of some addresses, if any exist, in the network namespace of the calling thread.
func Release(ctx context.Context, family service.Family, addrs []netip.Addr) error {
	if len(addrs) == 0 {
		return nil
	}
	r, err := openRoutes(family)
	if err != nil {
		return err
	}
	return errors.Join(append(r.change(ctx, addrs, false), r.close())...)
}

// Cleanup removes all local addresses of a family in the network namespace of the calling thread,
// and returns how many there were. With dry it only counts them.
func Cleanup(ctx context.Context, family service.Family, dry bool) (int, error) {
	r, err := openRoutes(family)
	if err != nil {
		return 0, err
	}
	found, err := r.list(ctx)
	if err == nil && !dry {
		err = errors.Join(r.change(ctx, found, false)...)
	}
	return len(found), errors.Join(err, r.close())
}
