package sim

import (
	"net/netip"
	"time"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/memory"
	"github.com/sluice-proxy/sluice/service"
)

// scenario is what happens in one simulation.
type scenario struct {
	// seed decides the settings, and what packets are sent at quiet points.
	seed   uint64
	events []event
}

// settings are what a process is started with.
type settings struct {
	node    proxy.NodeSettings
	pace    aggregator.Pace
	options iptables.Options
	writer  iptables.WriterConfig
	blame   memory.Blame
}

func settingsOf(seed uint64) settings {
	d := newDice(seed, 77)
	s := settings{
		node: proxy.NodeSettings{Name: thisNode, MasqueradeAll: d.percent(15), LocalhostNodePorts: d.percent(30)},
		pace: aggregator.Pace{
			Spacing:    []time.Duration{0, 100 * time.Millisecond, 5 * time.Second}[d.IntN(3)],
			WriteShare: []float64{0, 0.5}[d.IntN(2)],
		},
		options: iptables.Options{MasqueradeBit: uint(14 * d.IntN(2)), RandomFully: d.percent(50), InvalidDropOmitted: d.percent(50)},
		blame:   []memory.Blame{memory.BlameLine, memory.BlameCommit, memory.BlameNobody}[d.IntN(3)],
	}
	if d.percent(30) {
		s.writer.Stages = iptables.StageLimits{Chains: 1 + d.IntN(4), Rules: d.IntN(10)}
	}
	if d.percent(30) {
		s.node.NodePortRanges = nodePortRanges()
	}
	s.detectLocal(d)
	return s
}

func nodePortRanges() []netip.Prefix {
	ranges := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	for _, family := range service.Families {
		ranges = append(ranges, netip.PrefixFrom(host(family, 0), host(family, 0).BitLen()-8))
	}
	return ranges
}

func (s *settings) detectLocal(d dice) {
	switch d.IntN(5) {
	case 0: // nothing recognises pods
	case 1:
		s.node.DetectLocal = proxy.DetectNodeCIDR
	case 2:
		s.node.DetectLocal, s.node.Interface = proxy.DetectBridgeInterface, podInterface
	case 3:
		s.node.DetectLocal, s.node.Interface = proxy.DetectInterfaceNamePrefix, podInterface[:4]
	case 4:
		s.node.ClusterCIDRs[service.IPv4] = netip.MustParsePrefix("10.244.0.0/16")
		s.node.ClusterCIDRs[service.IPv6] = netip.MustParsePrefix("fd00:244::/32")
	}
}

// podInterface is the interface through which packets of local pods come.
const podInterface = "veth9"
