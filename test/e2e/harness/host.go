package harness

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// Host is a namespace with one main address per family.
type Host struct {
	*netns.Namespace
	// V4 and V6 are the addresses it is known by.
	V4, V6 netip.Addr
	// Node is the node it lives on, if it is a pod.
	Node string
}

// join connects a leaf to a router by a cable and gives the leaf a default route. In each prefix the
// router gets the first address and the leaf the second, which becomes the leaf's main address.
func join(router, leaf *Host, v4, v6 string) error {
	subnets := []netip.Prefix{netip.MustParsePrefix(v4), netip.MustParsePrefix(v6)}
	spec := netns.LinkSpec{NameA: leaf.Name(), NameB: "eth0"}
	var gateways []netip.Addr
	for _, subnet := range subnets {
		gateway := subnet.Addr().Next()
		gateways = append(gateways, gateway)
		spec.AddrsA = append(spec.AddrsA, netip.PrefixFrom(gateway, subnet.Bits()))
		spec.AddrsB = append(spec.AddrsB, netip.PrefixFrom(gateway.Next(), subnet.Bits()))
	}
	leaf.V4, leaf.V6 = gateways[0].Next(), gateways[1].Next()
	if err := netns.Link(router.Namespace, leaf.Namespace, spec); err != nil {
		return err
	}
	return leaf.defaultVia(gateways...)
}

// defaultVia adds one default route per gateway.
func (h *Host) defaultVia(gateways ...netip.Addr) error {
	for _, gateway := range gateways {
		everything := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if gateway.Is6() {
			everything = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		if err := h.AddRoute(everything, gateway); err != nil {
			return err
		}
	}
	return nil
}

// ForgetFlows makes a router forget every connection it has tracked. A question that was asked before the
// rules for it were there leaves an entry behind that says "not translated", for two minutes. A later
// connection from the same port, which a client is free to use again, would be taken for the same flow
// and not be translated either, whatever the rules are by then.
func (h *Host) ForgetFlows() error {
	err := h.Do(func() error {
		handle, err := netlink.NewHandle(unix.NETLINK_NETFILTER)
		if err != nil {
			return err
		}
		defer handle.Close()
		return handle.ConntrackTableFlush(netlink.ConntrackTable)
	})
	if err != nil {
		return fmt.Errorf("forget the flows of %s: %w", h.Name(), err)
	}
	return nil
}

// forward makes the host a router.
func (h *Host) forward() error {
	for _, key := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"} {
		if err := h.Sysctl(key, "1"); err != nil {
			return fmt.Errorf("let %s forward packets: %w", h.Name(), err)
		}
	}
	return nil
}
