package main

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// network is one node between a client and the pods:
//
//	client .10 ── 203.0.113.0/24 ── node ── 10.244.1.0/24 ── pods .10 to .12
type network struct {
	client, node, pods *netns.Namespace
	backends           []*netns.Backend
}

// podsPerService pods serve each live Service, each Service on a port of its own; two of
// them at a time are its endpoints.
const podsPerService = 3

// nodeAddress is the node's on the client's link, for node ports.
var nodeAddress = service.PerFamily[netip.Addr]{
	service.IPv4: netip.MustParseAddr("203.0.113.1"),
	service.IPv6: netip.MustParseAddr("2001:db8:ffff::1"),
}

// podAddress is that of a pod.
func podAddress(family service.Family, pod int) netip.Addr {
	template := service.PerFamily[string]{service.IPv4: "10.244.1.%d", service.IPv6: "fd00:10:244:1::%d"}[family]
	return netip.MustParseAddr(fmt.Sprintf(template, 10+pod))
}

// clusterIP is that of Service n.
func clusterIP(family service.Family, n int) netip.Addr {
	if family == service.IPv4 {
		return netip.AddrFrom4([4]byte{10, 96, byte(n >> 8), byte(n)})
	}
	return netip.MustParseAddr(fmt.Sprintf("fd00:10:96::%x", n))
}

func newNetwork(live int) (*network, error) {
	n := &network{}
	for _, host := range []struct {
		name string
		to   **netns.Namespace
	}{{"client", &n.client}, {"node", &n.node}, {"pods", &n.pods}} {
		var err error
		if *host.to, err = netns.New(host.name); err != nil {
			return n, err
		}
	}
	if err := n.link(); err != nil {
		return n, err
	}
	for pod := range podsPerService {
		for _, family := range service.Families {
			bits := service.PerFamily[int]{service.IPv4: 24, service.IPv6: 64}[family]
			addr := podAddress(family, pod)
			if err := n.pods.AddAddress("eth0", netip.PrefixFrom(addr, bits)); err != nil {
				return n, err
			}
			for s := range live {
				b, err := netns.StartBackend(n.pods, fmt.Sprintf("%s-%d", serviceName(s), pod), netip.AddrPortFrom(addr, podPort(s)))
				if err != nil {
					return n, err
				}
				n.backends = append(n.backends, b)
			}
		}
	}
	return n, nil
}

func (n *network) link() error {
	prefixes := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	err := errors.Join(
		n.node.Sysctls(map[string]string{
			"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1",
			// What is not translated is answered at once: the client sees every
			// connection that comes to nobody, and none is saved by sending it again.
			"net.ipv4.icmp_ratelimit": "0", "net.ipv6.icmp.ratelimit": "0",
		}),
		netns.Link(n.node, n.client, netns.LinkSpec{
			NameA: "to-client", AddrsA: prefixes("203.0.113.1/24", "2001:db8:ffff::1/64"),
			NameB: "eth0", AddrsB: prefixes("203.0.113.10/24", "2001:db8:ffff::10/64"),
		}),
		netns.Link(n.node, n.pods, netns.LinkSpec{
			NameA: "to-pods", AddrsA: prefixes("10.244.1.1/24", "fd00:10:244:1::ff/64"), NameB: "eth0",
		}))
	if err != nil {
		return err
	}
	for family, everything := range map[service.Family]string{service.IPv4: "0.0.0.0/0", service.IPv6: "::/0"} {
		via := service.PerFamily[string]{service.IPv4: "10.244.1.1", service.IPv6: "fd00:10:244:1::ff"}[family]
		err = errors.Join(err, n.client.AddRoute(netip.MustParsePrefix(everything), nodeAddress[family]))
		if family == service.IPv4 {
			// The way back needs no address of the pods' own there yet.
			err = errors.Join(err, n.pods.AddAddress("eth0", netip.MustParsePrefix("10.244.1.2/24")))
		} else {
			err = errors.Join(err, n.pods.AddAddress("eth0", netip.MustParsePrefix("fd00:10:244:1::fe/64")))
		}
		err = errors.Join(err, n.pods.AddRoute(netip.MustParsePrefix(everything), netip.MustParseAddr(via)))
	}
	return err
}

func (n *network) close() error {
	var errs []error
	for _, b := range n.backends {
		errs = append(errs, b.Close())
	}
	for _, host := range []*netns.Namespace{n.client, n.pods, n.node} {
		if host != nil {
			errs = append(errs, host.Close())
		}
	}
	return errors.Join(errs...)
}
