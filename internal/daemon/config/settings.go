package config

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	proxy "github.com/sluice-proxy/sluice"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// loopback4 holds the loopback addresses of IPv4.
var loopback4 = netip.MustParsePrefix("127.0.0.0/8")

// NodeName is the name of this node: the configured one, or the host's.
func (c *Config) NodeName() (string, error) {
	name := c.KubeProxy.HostnameOverride
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return "", fmt.Errorf("cannot find the host's name: %w; set --hostname-override", err)
		}
		name = host
	}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return "", fmt.Errorf("the host has no name; set --hostname-override")
	}
	return name, nil
}

// NodeSettings gives the configured facts about this node for the backend that
// serves, which is the configured one unless that is ModeBest. The error is that
// of NodeName.
//
// What a setting means follows from the configured mode alone: in a file without
// a mode node ports answer on all addresses, as they did with kube-proxy's
// iptables, even if nftables serves.
func (c *Config) NodeSettings(backend v1alpha1.ProxyMode) (proxy.NodeSettings, error) {
	name, err := c.NodeName()
	if err != nil {
		return proxy.NodeSettings{}, err
	}
	k := &c.KubeProxy
	s := proxy.NodeSettings{Name: name, DetectLocal: proxy.DetectLocal(k.DetectLocalMode), MasqueradeAll: c.MasqueradeAll()}
	switch k.DetectLocalMode {
	case localClusterCIDR:
		s.ClusterCIDRs = clusterCIDRs(k.ClusterCIDR)
	case localBridgeInterface:
		s.Interface = k.DetectLocal.BridgeInterface
	case localInterfaceNamePrefix:
		s.Interface = k.DetectLocal.InterfaceNamePrefix
	}
	if address := parseAddress(k.BindAddress); !address.IsUnspecified() {
		s.Address = address
	}
	s.NodePortPrimary, s.NodePortRanges = c.nodePorts()
	s.HostAddresses = backend == ModeIPVS
	s.LocalhostNodePorts = backend == ModeIPTables && *k.IPTables.LocalhostNodePorts &&
		!s.NodePortPrimary && servesLoopback(s.NodePortRanges)
	return s, nil
}

// nodePorts says where node ports answer: on the node's own addresses, on those
// in some ranges, or without either on all.
func (c *Config) nodePorts() (primary bool, ranges []netip.Prefix) {
	for _, text := range c.KubeProxy.NodePortAddresses {
		if text == nodePortPrimary {
			return true, nil
		}
		if r, ok := parseRange(text); ok {
			ranges = append(ranges, r)
		}
	}
	return false, ranges
}

// ForwardsLocalhost reports whether node ports answer on localhost in nftables mode,
// where that takes a forwarder of its own, which occupies their ports: if it is asked
// for, or where nobody has asked for a mode, since iptables mode, which may have served
// the node before, does it. Never if nodePortAddresses says where node ports answer
// and names no loopback address.
func (c *Config) ForwardsLocalhost() bool {
	if c.KubeProxy.Mode == ModeBest && !*c.KubeProxy.IPTables.LocalhostNodePorts {
		return false // whoever wrote this had iptables mode in mind, and no localhost
	}
	if !*c.Sluice.NFTables.LocalhostNodePorts {
		return false
	}
	primary, ranges := c.nodePorts()
	switch {
	case primary:
		return c.KubeProxy.Mode == ModeNFTables // its default, which nobody need have written
	case len(ranges) == 0:
		return true
	}
	return slices.ContainsFunc(ranges, func(r netip.Prefix) bool {
		return r.Overlaps(loopback4) || r.Contains(netip.IPv6Loopback())
	})
}

// servesLoopback reports whether the ranges of IPv4 hold a loopback address; none
// means everything.
func servesLoopback(ranges []netip.Prefix) bool {
	some := false
	for _, r := range ranges {
		if r.Addr().Is4() {
			some = true
			if r.Overlaps(loopback4) {
				return true
			}
		}
	}
	return !some
}
