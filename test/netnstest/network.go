// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// Plan is a [netns.Plan] with routes, and with servers that answer.
type Plan struct {
	Cables   []netns.Cable
	Loopback map[string][]netip.Addr
	Routes   []Route
	Servers  []Server
}

// Route sends what Host has for To through the neighbour Via.
type Route struct {
	Host string
	To   netip.Prefix
	Via  netip.Addr
}

// Server is a [Backend] to start on a host.
type Server struct {
	Name, Host string
	At         netip.AddrPort
}

// Network is a network with servers. Serve, Leave and Close must not be called at the same time.
type Network struct {
	*netns.Network
	servers map[netip.AddrPort]server
}

type server struct {
	host    string
	backend *Backend
}

// NewNetwork carries out a plan. When it returns, packets flow on every cable and every server answers.
func NewNetwork(plan Plan) (*Network, error) {
	built, err := netns.Build(netns.Plan{Cables: plan.Cables, Loopback: plan.Loopback})
	if err != nil {
		return nil, err
	}
	n := &Network{built, map[netip.AddrPort]server{}}
	for _, r := range plan.Routes {
		if err := n.Hosts[r.Host].AddRoute(r.To, r.Via); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	for _, s := range plan.Servers {
		if err := n.Serve(s.Name, s.Host, s.At); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return n, nil
}

// Serve starts a [Backend] under a name, at an address that the host has.
func (n *Network) Serve(name, host string, at netip.AddrPort) error {
	b, err := StartBackend(n.Hosts[host], name, at)
	if err != nil {
		return err
	}
	n.servers[at] = server{host, b}
	return nil
}

// Leave ends the server at an address. The host keeps the address.
func (n *Network) Leave(at netip.AddrPort) error {
	s, ok := n.servers[at]
	if !ok {
		return fmt.Errorf("no server at %v", at)
	}
	delete(n.servers, at)
	return s.backend.Close()
}

// Think delays the answers of all servers to later datagrams.
func (n *Network) Think(d time.Duration) {
	for _, s := range n.servers {
		s.backend.Think(d)
	}
}

// HostAt returns the host with a server at an address, at any port, or nil.
func (n *Network) HostAt(addr netip.Addr) *netns.Namespace {
	for at, s := range n.servers {
		if at.Addr() == addr {
			return n.Hosts[s.host]
		}
	}
	return nil
}

// Servers returns how many servers answer.
func (n *Network) Servers() int { return len(n.servers) }

// Close ends every server and lets go of the namespaces.
func (n *Network) Close() error {
	var errs []error
	for _, s := range n.servers {
		errs = append(errs, s.backend.Close())
	}
	return errors.Join(append(errs, n.Network.Close())...)
}
