package demo

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// network is the demo's small world:
//
//	client 203.0.113.10 ── node (the sandbox itself) ─┬─ pod-11 10.244.1.11
//	                                                  ├─ pod-12 10.244.1.12
//	                                                  ├─ pod-13 10.244.1.13
//	                                                  └─ pod-14 10.244.1.14 (stands by)
type network struct {
	node     *netns.Namespace
	client   *netns.Namespace
	closers  []func() error
	backends int
}

// podNumbers are the last parts of the pods' addresses; the last one stands by.
var podNumbers = []int{11, 12, 13, 14}

// sysctls make the sandbox a router, as a node is. accept_local and the like are
// left alone.
var sysctls = [][2]string{
	{"net.ipv4.ip_forward", "1"},
	{"net.ipv6.conf.all.forwarding", "1"},
}

func newNetwork() (n *network, err error) {
	n = &network{}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.close())
		}
	}()
	if n.node, err = netns.Current("node"); err != nil {
		return n, err
	}
	n.closers = append(n.closers, n.node.Close)
	for _, s := range sysctls {
		if err := n.node.Sysctl(s[0], s[1]); err != nil {
			return n, err
		}
	}
	if n.client, err = n.host("client", "203.0.113.10", "203.0.113.1", "2001:db8:ffff::10", "2001:db8:ffff::1"); err != nil {
		return n, err
	}
	for _, number := range podNumbers {
		if err := n.pod(number); err != nil {
			return n, err
		}
	}
	return n, nil
}

// host makes a namespace behind the node, with a default route through it.
func (n *network) host(name, addr4, via4, addr6, via6 string) (*netns.Namespace, error) {
	h, err := netns.New(name)
	if err != nil {
		return nil, err
	}
	n.closers = append(n.closers, h.Close)
	full := func(text string) netip.Prefix {
		a := netip.MustParseAddr(text)
		return netip.PrefixFrom(a, a.BitLen())
	}
	err = netns.Link(n.node, h, netns.LinkSpec{
		NameA: "to-" + name, NameB: "eth0",
		AddrsA: []netip.Prefix{full(via4), full(via6)},
		AddrsB: []netip.Prefix{full(addr4), full(addr6)},
	})
	if err != nil {
		return nil, err
	}
	return h, n.route(h, full(addr4), full(addr6), full(via4), full(via6))
}

// route joins a host to the node by routes alone, so that all pods can share a
// subnet on cables of their own.
func (n *network) route(h *netns.Namespace, addr4, addr6, via4, via6 netip.Prefix) error {
	for _, p := range []netip.Prefix{addr4, addr6} {
		if err := n.node.AddLinkRoute(p, "to-"+h.Name()); err != nil {
			return err
		}
	}
	for _, via := range []netip.Prefix{via4, via6} {
		if err := h.AddLinkRoute(via, "eth0"); err != nil {
			return err
		}
		all := netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		if via.Addr().Is4() {
			all = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		}
		if err := h.AddRoute(all, via.Addr()); err != nil {
			return err
		}
	}
	return nil
}

// pod starts a pod whose backend answers on TCP 8080 and UDP 5353.
func (n *network) pod(number int) error {
	name := fmt.Sprintf("pod-%d", number)
	addr4 := fmt.Sprintf("10.244.1.%d", number)
	addr6 := fmt.Sprintf("fd00:10:244:1::%d", number)
	h, err := n.host(name, addr4, "10.244.1.1", addr6, "fd00:10:244:1::1")
	if err != nil {
		return err
	}
	for _, addr := range []string{addr4, addr6} {
		for _, port := range []uint16{8080, 5353} {
			b, err := netns.StartBackend(h, name, netip.AddrPortFrom(netip.MustParseAddr(addr), port))
			if err != nil {
				return err
			}
			n.backends++
			n.closers = append(n.closers, b.Close)
		}
	}
	return nil
}

// close ends everything in reverse order.
func (n *network) close() error {
	var errs []error
	for i := len(n.closers) - 1; i >= 0; i-- {
		errs = append(errs, n.closers[i]())
	}
	n.closers = nil
	return errors.Join(errs...)
}
