package proxy

import (
	"fmt"
	"net/netip"

	"github.com/sluice-proxy/sluice/service"
)

// DetectLocal names how packets from local pods are recognised
// (KubeProxyConfiguration, detectLocalMode).
type DetectLocal string

// The four modes; the empty string means ClusterCIDR.
const (
	DetectClusterCIDR         DetectLocal = "ClusterCIDR"
	DetectNodeCIDR            DetectLocal = "NodeCIDR"
	DetectBridgeInterface     DetectLocal = "BridgeInterface"
	DetectInterfaceNamePrefix DetectLocal = "InterfaceNamePrefix"
)

// NodeSettings are the configured facts about this node. Together with the Node
// object and the host's addresses they make service.NodeFacts.
type NodeSettings struct {
	// Name is the node's name as the API knows it. Required.
	Name string
	// DetectLocal defaults to ClusterCIDR.
	DetectLocal DetectLocal
	// ClusterCIDRs is used in mode ClusterCIDR; a family without one has no
	// detection.
	ClusterCIDRs service.PerFamily[netip.Prefix]
	// Interface is the bridge's name in mode BridgeInterface, and the prefix
	// in mode InterfaceNamePrefix.
	Interface string
	// NodePortRanges limits node ports to the host's addresses inside these
	// ranges; a family without a range has no limit.
	NodePortRanges []netip.Prefix
	// NodePortPrimary limits node ports to the node's own addresses; a family
	// without one has no limit. It goes without NodePortRanges.
	NodePortPrimary bool
	// MasqueradeAll asks for source NAT of all ClusterIP traffic.
	MasqueradeAll bool
	// LocalhostNodePorts lets IPv4 node ports answer on 127.0.0.0/8.
	LocalhostNodePorts bool
	// HostAddresses asks for the host's addresses in the facts, for domains that
	// serve each of them by itself; others would render anew whenever one changes.
	HostAddresses bool
	// Address, when valid, overrides the node IP of its family.
	Address netip.Addr
}

func (s NodeSettings) validate() error {
	if s.Name == "" {
		return fmt.Errorf("node name: empty; set it with --hostname-override")
	}
	switch s.DetectLocal {
	case "", DetectClusterCIDR, DetectNodeCIDR:
	case DetectBridgeInterface, DetectInterfaceNamePrefix:
		if s.Interface == "" {
			return fmt.Errorf("detect-local mode %s: no interface name given", s.DetectLocal)
		}
	default:
		return fmt.Errorf("detect-local mode %q: want ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix", s.DetectLocal)
	}
	return nil
}

// detector gives the local detector of one family.
func (s NodeSettings) detector(family service.Family, node *service.NodeObject) service.LocalDetector {
	switch s.DetectLocal {
	case DetectNodeCIDR:
		if node == nil {
			return service.LocalDetector{}
		}
		return service.LocalDetector{CIDR: node.PodCIDRs[family]}
	case DetectBridgeInterface:
		return service.LocalDetector{Interface: s.Interface}
	case DetectInterfaceNamePrefix:
		return service.LocalDetector{Interface: s.Interface + "+"}
	default:
		return service.LocalDetector{CIDR: s.ClusterCIDRs[family]}
	}
}
