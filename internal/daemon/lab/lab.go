// SPDX-License-Identifier: Apache-2.0

// Package lab is a small network around a proxy in a sandbox, for users who want to try Services without a cluster: a
// client outside of the node, and a pod for each address that the manifests name as an endpoint, with real servers at
// its ports. It follows the manifests. Package daemon calls it for sluice run, and package demo for sluice demo.
//
//	client 192.0.2.10 ── node (the sandbox itself) ─┬─ pod 10.244.1.11
//	                                                └─ pod 10.244.1.12 …
package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// Names of the hosts.
const (
	node   = "node"
	client = "client"
	// outside is the node's interface to the client.
	outside = "outside"
)

// podsMax bounds the pods: each is a network namespace.
const podsMax = 250

var (
	// ClientAddrs are the addresses of the client. They are reserved for documentation (RFC 5737, RFC 3849), as are
	// those of a node whose addresses no manifest contains.
	ClientAddrs = service.PerFamily[netip.Addr]{
		service.IPv4: netip.MustParseAddr("192.0.2.10"), service.IPv6: netip.MustParseAddr("2001:db8:ffff::10"),
	}
	usualNodeAddrs = service.PerFamily[netip.Addr]{
		service.IPv4: netip.MustParseAddr("192.0.2.1"), service.IPv6: netip.MustParseAddr("2001:db8:ffff::1"),
	}
)

// Lab is the network. One goroutine at a time uses it.
type Lab struct {
	log     *zap.Logger
	network *netns.Network
	// gateways are the node's addresses, as the client and the pods see it.
	gateways []netip.Prefix
	// own are all addresses of the node.
	own map[netip.Addr]bool
	// hosts contains the name of the host of each served address, and servers the servers there.
	hosts   map[netip.Addr]string
	servers map[Socket]*server
	// cables counts all pods so far, to name their cables.
	cables int
	// said contains the logged problems, so that each is logged once.
	said map[string]bool
}

// Socket is an address and port of a protocol.
type Socket struct {
	At       netip.AddrPort
	Protocol service.Protocol
}

// New makes the network with the client, in this process's own namespace. The node gets the
// given addresses.
func New(addresses []netip.Addr, log *zap.Logger) (*Lab, error) {
	l := &Lab{log: log, own: map[netip.Addr]bool{}, hosts: map[netip.Addr]string{}, servers: map[Socket]*server{}, said: map[string]bool{}}
	here, err := netns.Current(node)
	if err != nil {
		return nil, err
	}
	ipv6 := here.HasIPv6()
	if err := here.Close(); err != nil {
		return nil, err
	}
	nodeAddrs, others := l.place(addresses, ipv6)
	var atClient []netip.Prefix
	for _, family := range service.Families {
		if family == service.IPv4 || ipv6 {
			l.own[nodeAddrs[family]] = true
			l.gateways = append(l.gateways, netns.Single(nodeAddrs[family]))
			atClient = append(atClient, netns.Single(ClientAddrs[family]))
		}
	}
	l.network, err = netns.Build(netns.Plan{
		Here:     node,
		Cables:   []netns.Cable{{Router: node, Leaf: client, Port: outside, AtRouter: l.gateways, AtLeaf: atClient}},
		Loopback: map[string][]netip.Addr{node: others},
	})
	if err != nil {
		return nil, err
	}
	// Packets to Services need a route before the rules give them another destination.
	if err := l.network.Hosts[node].AddDefaultRoute(outside); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// place makes these addresses the node's own: the first of each family that the host has on the cable to the
// client, the others on its loopback interface.
func (l *Lab) place(addresses []netip.Addr, ipv6 bool) (nodeAddrs service.PerFamily[netip.Addr], others []netip.Addr) {
	nodeAddrs = usualNodeAddrs
	for _, family := range service.Families {
		first := true
		for _, a := range addresses {
			if service.FamilyOf(a) != family || family == service.IPv6 && !ipv6 || l.own[a] {
				continue
			}
			l.own[a] = true
			if first {
				nodeAddrs[family], first = a, false
			} else {
				others = append(others, a)
			}
		}
	}
	return nodeAddrs, others
}

// Want makes exactly the given servers answer, each under its name. What cannot be served is
// logged.
func (l *Lab) Want(wanted map[Socket]string) {
	for socket, s := range l.servers {
		if name, stays := wanted[socket]; stays {
			s.name.Store(&name) // without a moment in which the pod refuses
		} else {
			l.stop(socket)
		}
	}
	l.leave(wanted)
	order := slices.SortedFunc(maps.Keys(wanted), func(a, b Socket) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Protocol, b.Protocol))
	})
	for _, socket := range order {
		if l.servers[socket] != nil {
			continue
		}
		if err := l.start(socket, wanted[socket]); err != nil {
			l.say(fmt.Sprintf("%v: %v", socket, err))
		}
	}
}

// String returns "10.244.1.11:8080/tcp".
func (s Socket) String() string { return s.At.String() + "/" + s.Protocol.String() }

// leave removes the pods whose address is not wanted any more.
func (l *Lab) leave(wanted map[Socket]string) {
	addresses := map[netip.Addr]bool{}
	for socket := range wanted {
		addresses[socket.At.Addr()] = true
	}
	for addr, host := range l.hosts {
		if addresses[addr] || host == node {
			continue
		}
		delete(l.hosts, addr)
		if err := l.network.Detach(host); err != nil {
			l.say(err.Error())
		}
	}
}

// start starts a server, in a pod that it makes if needed.
func (l *Lab) start(socket Socket, name string) error {
	host, err := l.host(socket.At.Addr())
	if err != nil {
		return err
	}
	s, err := serve(l.network.Hosts[host], socket, name)
	if err == nil {
		l.servers[socket] = s
	}
	return err
}

// host returns the host with an address: a new pod, or the node itself.
func (l *Lab) host(addr netip.Addr) (string, error) {
	switch {
	case l.own[addr]:
		return node, nil
	case l.hosts[addr] != "":
		return l.hosts[addr], nil
	case len(l.hosts) >= podsMax:
		return "", fmt.Errorf("is not served: the limit of %d test pods is reached", podsMax)
	case !addr.IsGlobalUnicast() || slices.Contains(ClientAddrs[:], addr):
		return "", errors.New("is not served: a test pod cannot use this address")
	case addr.Is6() && !l.network.Hosts[node].HasIPv6():
		return "", errors.New("is not served: this kernel lacks IPv6")
	}
	name := "pod " + addr.String()
	var gateways []netip.Prefix
	for _, g := range l.gateways {
		if g.Addr().Is4() == addr.Is4() {
			gateways = append(gateways, g)
		}
	}
	err := l.network.Attach(netns.Cable{
		Router: node, Leaf: name, Port: fmt.Sprintf("pod-%d", l.cables),
		AtRouter: gateways, AtLeaf: []netip.Prefix{netns.Single(addr)},
	})
	if err != nil {
		return "", err
	}
	l.cables++
	l.hosts[addr] = name
	return name, nil
}

func (l *Lab) stop(socket Socket) {
	l.servers[socket].close()
	delete(l.servers, socket)
}

// say logs what cannot be served, once.
func (l *Lab) say(what string) {
	if !l.said[what] {
		l.said[what] = true
		l.log.Warn("failed to start part of the sandbox network", zap.String("problem", what))
	}
}

// Client returns the path of the client's network namespace.
func (l *Lab) Client() string { return l.network.Hosts[client].Path() }

// DialContext connects from the client to a literal address.
func (l *Lab) DialContext(ctx context.Context, network, addr string) (net.Conn, error) {
	return l.network.Hosts[client].DialContext(ctx, network, addr)
}

// Close ends everything. The kernel removes the cables a moment later.
func (l *Lab) Close() error {
	for socket := range l.servers {
		l.stop(socket)
	}
	return l.network.Close()
}

// CloseNow ends everything and removes each cable, which takes the kernel 50 ms each, so that another lab can follow
// immediately.
func (l *Lab) CloseNow() error {
	l.Want(nil)
	return errors.Join(l.network.Detach(client), l.Close())
}
