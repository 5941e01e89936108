// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strings"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// The addresses. The pod and what is beyond the node have none: their links only take packets.
var (
	vip = service.PerFamily[netip.Addr]{
		service.IPv4: netip.MustParseAddr("192.0.2.10"), service.IPv6: netip.MustParseAddr("2001:db8:2::10"),
	}
	clusterIP = service.PerFamily[netip.Addr]{
		service.IPv4: netip.MustParseAddr("10.96.1.1"), service.IPv6: netip.MustParseAddr("fd00:10:96::101"),
	}
	pod = service.PerFamily[netip.Addr]{
		service.IPv4: netip.MustParseAddr("10.244.1.10"), service.IPv6: netip.MustParseAddr("fd00:10:244:1::10"),
	}
)

const (
	webPort = 80
	askPort = 53
	podPort = 8053
)

type network struct {
	client, node, pods, beyond *netns.Namespace
}

// foreign are the rules of another program. With them the kernel tracks connections even while our
// tables are missing, and what begins then stays as it began.
const foreign = `table inet others {
	chain tracking { type filter hook prerouting priority 0; ct state new counter; }
	chain leaving { type nat hook postrouting priority 100; }
}
`

// newNetwork lays three cables. Neighbours are entered by hand, since nothing answers.
func newNetwork(reuse bool) (n *network, err error) {
	n = &network{}
	for name, at := range map[string]**netns.Namespace{
		"client": &n.client, "node": &n.node, "pods": &n.pods, "beyond": &n.beyond,
	} {
		if *at, err = netns.New(name); err != nil {
			return nil, err
		}
	}
	prefixes := netns.Prefixes
	err = errors.Join(
		netns.Link(n.node, n.client, netns.LinkSpec{NameA: "to-client", NameB: "eth0", AddrsA: prefixes("198.18.0.1/15", "2001:db8:1::1/64")}),
		netns.Link(n.node, n.pods, netns.LinkSpec{NameA: "to-pods", NameB: "eth0", AddrsA: prefixes("10.244.1.1/24", "fd00:10:244:1::1/64")}),
		netns.Link(n.node, n.beyond, netns.LinkSpec{NameA: "to-beyond", NameB: "eth0", AddrsA: prefixes("203.0.113.1/24", "2001:db8:3::1/64")}))
	if err != nil {
		return nil, err
	}
	const nobody = "02:00:00:00:00:01"
	for _, arguments := range [][]string{
		{"-4", "neigh", "replace", pod[service.IPv4].String(), "lladdr", nobody, "dev", "to-pods"},
		{"-6", "neigh", "replace", pod[service.IPv6].String(), "lladdr", nobody, "dev", "to-pods"},
		{"-4", "neigh", "replace", "203.0.113.2", "lladdr", nobody, "dev", "to-beyond"},
		{"-6", "neigh", "replace", "2001:db8:3::2", "lladdr", nobody, "dev", "to-beyond"},
		{"-4", "route", "add", "default", "via", "203.0.113.2"},
		{"-6", "route", "add", "default", "via", "2001:db8:3::2"},
	} {
		if err := netnstest.Run(n.node, exec.Command("ip", arguments...)); err != nil {
			return nil, err
		}
	}
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(foreign)
	if err := netnstest.Run(n.node, nft); err != nil {
		return nil, err
	}
	if err := n.node.Sysctls(map[string]string{
		"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1",
		"net.ipv4.conf.all.rp_filter": "0", "net.ipv4.conf.to-client.rp_filter": "0",
		"net.netfilter.nf_conntrack_checksum": "0", // packets carry none
	}); err != nil {
		return nil, err
	}
	timeout := "1" // the table has room for some seconds only
	if reuse {
		timeout = "30"
	}
	return n, n.node.Sysctls(map[string]string{
		"net.netfilter.nf_conntrack_tcp_timeout_syn_sent": timeout, "net.netfilter.nf_conntrack_udp_timeout": timeout,
	})
}

func (n *network) close() error {
	return errors.Join(n.client.Close(), n.node.Close(), n.pods.Close(), n.beyond.Close())
}

// arrived returns how many packets have come to the pod.
func (n *network) arrived() (uint64, error) {
	out, err := netnstest.Output(n.pods, exec.Command("ip", "-j", "-s", "link", "show", "dev", "eth0"))
	if err != nil {
		return 0, err
	}
	var links []struct {
		Stats64 struct{ RX struct{ Packets uint64 } }
	}
	if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 {
		return 0, fmt.Errorf("ip said %q (%w)", out, err)
	}
	return links[0].Stats64.RX.Packets, nil
}

// hardware returns the index and address of an interface.
func hardware(n *netns.Namespace, name string) (index int, addr net.HardwareAddr, err error) {
	err = n.Do(func() error {
		i, err := net.InterfaceByName(name)
		if err == nil {
			index, addr = i.Index, i.HardwareAddr
		}
		return err
	})
	return index, addr, err
}
