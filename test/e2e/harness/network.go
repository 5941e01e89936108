package harness

import (
	"errors"
	"net/netip"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// Prefixes of the network, as flags of a proxy want them.
const (
	// PodCIDRs holds every pod address.
	PodCIDRs = "10.244.0.0/16,fd00:244::/32"
	// NodeName is the node that Sluice serves.
	NodeName = "n1"
	// OtherNodeName is the node that B and C live on.
	OtherNodeName = "n2"
)

// Network is the picture in the package comment.
type Network struct {
	API *Host // the API server
	N1  *Host // the node under test; its main addresses are those on the cable to X
	N2  *Host // another node
	X   *Host // a client outside the cluster, and N1's way to the rest of the world
	P1  *Host // a pod on N1, a client
	A   *Host // a pod on N1, behind Services
	B   *Host // a pod on N2, behind Services
	C   *Host // a pod on N2, behind Services
}

// NewNetwork makes the namespaces and the cables between them.
func NewNetwork() (*Network, error) {
	n := &Network{}
	for _, h := range []struct {
		field      **Host
		name, node string
	}{
		{&n.API, "api", ""}, {&n.N1, NodeName, ""}, {&n.N2, OtherNodeName, ""}, {&n.X, "x", ""},
		{&n.P1, "p1", NodeName}, {&n.A, "a", NodeName}, {&n.B, "b", OtherNodeName}, {&n.C, "c", OtherNodeName},
	} {
		namespace, err := netns.New(h.name)
		if err != nil {
			return nil, errors.Join(err, n.Close())
		}
		*h.field = &Host{Namespace: namespace, Node: h.node}
	}
	if err := n.wire(); err != nil {
		return nil, errors.Join(err, n.Close())
	}
	return n, nil
}

func (n *Network) wire() error {
	if err := errors.Join(n.X.ignoreRedirects(), n.N1.forward(), n.N1.refuseEveryTime(), n.N2.forward()); err != nil {
		return err
	}
	for _, cable := range []struct {
		router, leaf *Host
		v4, v6       string
	}{
		{n.N1, n.X, "10.10.0.0/24", "fd00:10:10::/64"},
		{n.N1, n.API, "10.30.0.0/24", "fd00:10:30::/64"},
		{n.N1, n.N2, "10.20.0.0/24", "fd00:10:20::/64"},
		{n.N1, n.P1, "10.244.1.0/30", "fd00:244:1::/126"},
		{n.N1, n.A, "10.244.1.4/30", "fd00:244:1::4/126"},
		{n.N2, n.B, "10.244.2.0/30", "fd00:244:2::/126"},
		{n.N2, n.C, "10.244.2.4/30", "fd00:244:2::4/126"},
	} {
		if err := join(cable.router, cable.leaf, cable.v4, cable.v6); err != nil {
			return err
		}
	}
	n.N1.V4, n.N1.V6 = netip.MustParseAddr("10.10.0.1"), netip.MustParseAddr("fd00:10:10::1")
	return errors.Join(
		n.N1.AddRoute(netip.MustParsePrefix("10.244.2.0/24"), n.N2.V4),
		n.N1.AddRoute(netip.MustParsePrefix("fd00:244:2::/64"), n.N2.V6),
		// A node has a default route, and a process on it can only connect to an address that has a
		// route before the proxy's rules have changed it. X forwards nothing, so packets that no rule
		// took end there.
		n.N1.defaultVia(n.X.V4, n.X.V6),
	)
}

// ignoreRedirects keeps a host from learning shorter ways. Packets from X to an address without a rule
// are sent straight back by N1, which also tells X to stop sending them.
func (h *Host) ignoreRedirects() error {
	var errs []error
	for _, family := range []string{"ipv4", "ipv6"} {
		for _, conf := range []string{"all", "default"} {
			errs = append(errs, h.Sysctl("net."+family+".conf."+conf+".accept_redirects", "0"))
		}
	}
	return errors.Join(errs...)
}

// refuseEveryTime makes a rule with the target REJECT answer every packet. The kernel otherwise sends one
// refusal per second to each host and a thousand in all, and drops the other packets silently.
func (h *Host) refuseEveryTime() error {
	return errors.Join(
		h.Sysctl("net.ipv4.icmp_ratelimit", "0"),
		h.Sysctl("net.ipv6.icmp.ratelimit", "0"),
		h.Sysctl("net.ipv4.icmp_msgs_per_sec", "1000000"), // of both families, in spite of the name
		h.Sysctl("net.ipv4.icmp_msgs_burst", "1000000"),
	)
}

// Pods returns the pods that serve.
func (n *Network) Pods() []*Host { return []*Host{n.A, n.B, n.C} }

// Close lets go of every namespace.
func (n *Network) Close() error {
	var errs []error
	for _, host := range []*Host{n.API, n.N1, n.N2, n.X, n.P1, n.A, n.B, n.C} {
		if host != nil {
			errs = append(errs, host.Close())
		}
	}
	return errors.Join(errs...)
}
