// SPDX-License-Identifier: Apache-2.0

package netns

import (
	"errors"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// LinkSpec describes a cable between namespaces A and B.
type LinkSpec struct {
	// NameA and NameB are the interface names at the two ends, at most 15 bytes each.
	NameA, NameB string
	// AddrsA and AddrsB are the addresses at the two ends, with the length of their on-link prefix.
	AddrsA, AddrsB []netip.Prefix
}

// Link joins two namespaces by a veth pair and brings both ends up. When it returns, packets flow:
// IPv6 addresses skip duplicate detection, which takes a second and finds nothing on a new cable,
// and it has waited for what the kernel sets up in the background. If something fails, Link removes
// the pair again.
func Link(a, b *Namespace, spec LinkSpec) error {
	if err := lay(a, b, spec); err != nil {
		return err
	}
	if err := errors.Join(a.awaitReady(spec.NameA), b.awaitReady(spec.NameB)); err != nil {
		return errors.Join(err, a.DeleteLink(spec.NameA))
	}
	return nil
}

// lay is [Link] without the wait.
func lay(a, b *Namespace, spec LinkSpec) error {
	if err := a.addVeth(b, spec); err != nil {
		return err
	}
	err := a.configure(spec.NameA, spec.AddrsA)
	if err == nil {
		err = b.configure(spec.NameB, spec.AddrsB)
	}
	if err != nil {
		return errors.Join(err, a.DeleteLink(spec.NameA))
	}
	return nil
}

func (n *Namespace) addVeth(peer *Namespace, spec LinkSpec) error {
	// The kernel puts the peer into its namespace in the same step, so no name clashes on the way.
	err := peer.withFD(func(fd int) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = spec.NameA
		return n.routing.LinkAdd(&netlink.Veth{
			LinkAttrs:     attrs,
			PeerName:      spec.NameB,
			PeerNamespace: netlink.NsFd(fd),
		})
	})
	if err != nil {
		return n.errorf("link %s to %s in netns %s: %w", spec.NameA, spec.NameB, peer.name, err)
	}
	return nil
}

// configure gives an interface its addresses and brings it up.
func (n *Namespace) configure(ifname string, addrs []netip.Prefix) error {
	link, err := n.link(ifname)
	if err != nil {
		return err
	}
	for _, addr := range addrs {
		if err := n.addAddress(link, addr); err != nil {
			return err
		}
	}
	return n.bringUp(link)
}

// readyMax bounds the wait for a link. Both ends are up by then, which is all a veth pair needs; a
// millisecond is usual.
const readyMax = 5 * time.Second

// awaitReady waits for what the kernel does on work queues after it has answered the request to
// bring a link up: noticing that the cable is connected, and giving the interface its IPv6
// link-local address, without which a router asks for no neighbor. Until then packets are dropped
// silently and a connection spends a second on its first retransmission.
func (n *Namespace) awaitReady(ifname string) error {
	for start := time.Now(); ; time.Sleep(200 * time.Microsecond) {
		missing, err := n.missing(ifname)
		if err != nil {
			return err
		}
		if missing == "" {
			return nil
		}
		if time.Since(start) > readyMax {
			return n.errorf("%s has no %s %v after it was brought up", ifname, missing, readyMax)
		}
	}
}

// missing names what an interface still lacks to carry packets.
func (n *Namespace) missing(ifname string) (string, error) {
	link, err := n.link(ifname)
	if err != nil {
		return "", err
	}
	if link.Attrs().OperState != netlink.OperUp {
		return "carrier", nil
	}
	if !n.ipv6 {
		return "", nil
	}
	addrs, err := n.routing.AddrList(link, netlink.FAMILY_V6)
	if errors.Is(err, netlink.ErrDumpInterrupted) {
		return "a quiet moment", nil // the kernel changed addresses meanwhile
	}
	if err != nil {
		return "", n.errorf("list addresses of %s: %w", ifname, err)
	}
	for _, addr := range addrs {
		if addr.IP.IsLinkLocalUnicast() && addr.Flags&unix.IFA_F_TENTATIVE == 0 {
			return "", nil
		}
	}
	return "IPv6 link-local address", nil
}

// DeleteLink removes an interface; of a veth pair, both ends.
func (n *Namespace) DeleteLink(ifname string) error {
	link, err := n.link(ifname)
	if err != nil {
		return err
	}
	if err := n.routing.LinkDel(link); err != nil {
		return n.errorf("delete %s: %w", ifname, err)
	}
	return nil
}

// AddAddress gives an interface one more address. An IPv6 address is usable immediately.
func (n *Namespace) AddAddress(ifname string, addr netip.Prefix) error {
	link, err := n.link(ifname)
	if err != nil {
		return err
	}
	if err := n.addAddress(link, addr); err != nil {
		return err
	}
	if addr.Addr().Is4() || link.Attrs().Flags&net.FlagUp == 0 {
		return nil
	}
	return n.awaitLocal(addr.Addr())
}

func (n *Namespace) addAddress(link netlink.Link, addr netip.Prefix) error {
	address := &netlink.Addr{IPNet: ipNet(addr)}
	if addr.Addr().Is6() {
		address.Flags = unix.IFA_F_NODAD
	}
	if err := n.routing.AddrAdd(link, address); err != nil {
		return n.errorf("add address %s to %s: %w", addr, link.Attrs().Name, err)
	}
	return nil
}

// awaitLocal waits until the kernel delivers packets for an address to this host. It puts the route
// for a new IPv6 address in place on a work queue (addrconf_dad_work in the kernel's
// net/ipv6/addrconf.c).
func (n *Namespace) awaitLocal(addr netip.Addr) error {
	for start := time.Now(); ; time.Sleep(200 * time.Microsecond) {
		routes, err := n.routing.RouteGet(addr.AsSlice())
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if time.Since(start) > readyMax {
			return n.errorf("no route to own address %s %v after it was added: %v", addr, readyMax, err)
		}
	}
}

// AddRoute sends packets for dst through the neighbor via, which must be on a connected link.
func (n *Namespace) AddRoute(dst netip.Prefix, via netip.Addr) error {
	route := &netlink.Route{Dst: ipNet(dst.Masked()), Gw: via.AsSlice()}
	if err := n.routing.RouteAdd(route); err != nil {
		return n.errorf("add route to %s via %s: %w", dst, via, err)
	}
	return nil
}

// AddLinkRoute sends packets for dst straight out of an interface, as to a neighbor on it.
func (n *Namespace) AddLinkRoute(dst netip.Prefix, ifname string) error {
	link, err := n.link(ifname)
	if err != nil {
		return err
	}
	route := &netlink.Route{Dst: ipNet(dst.Masked()), LinkIndex: link.Attrs().Index, Scope: netlink.SCOPE_LINK}
	if err := n.routing.RouteReplace(route); err != nil {
		return n.errorf("add route to %s by %s: %w", dst, ifname, err)
	}
	return nil
}

func (n *Namespace) setUp(ifname string) error {
	link, err := n.link(ifname)
	if err != nil {
		return err
	}
	return n.bringUp(link)
}

func (n *Namespace) bringUp(link netlink.Link) error {
	if err := n.routing.LinkSetUp(link); err != nil {
		return n.errorf("bring %s up: %w", link.Attrs().Name, err)
	}
	return nil
}

func (n *Namespace) link(ifname string) (netlink.Link, error) {
	link, err := n.routing.LinkByName(ifname)
	if err != nil {
		return nil, n.errorf("find %s: %w", ifname, err)
	}
	return link, nil
}

// ipNet keeps the host bits: an interface address has them, a route was masked before.
func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
