package offline

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

// Explain answers a question about the manifests in a directory. Nothing is probed, so that
// the default mode is nftables.
func Explain(o *setup.Options, dir string, q explain.Flow) (*explain.Answer, error) {
	mode := o.KubeProxy.Mode
	if mode == config.ModeBest {
		mode = config.ModeNFTables
	}
	s, err := readState(o, dir, mode)
	if err != nil {
		return nil, err
	}
	state, err := s.explainState(mode)
	if err != nil {
		return nil, err
	}
	return explain.Explain(state, q)
}

// explainState is what decides in the rules for manifests. The node's addresses are those of its manifest;
// without one they are this host's.
func (s *offlineState) explainState(mode config.Mode) (*explain.State, error) {
	var addresses []netip.Addr
	if node := s.cache.Node(); node != nil {
		addresses = node.Addresses
	}
	for _, family := range service.Families {
		addresses = slices.Concat(addresses, s.facts.NodePorts[family].Addresses)
	}
	if len(addresses) == 0 {
		var err error
		if addresses, err = hostaddress.List(); err != nil {
			return nil, err
		}
	}
	liberal, err := iptkernel.TCPBeLiberal(sysctl.Files{})
	if err != nil {
		return nil, err
	}
	return &explain.State{
		Mode: string(mode), Services: s.cache, Node: s.cache.Node(), Facts: s.facts, Addresses: addresses,
		Domain:            explainDomain(mode, s.options, liberal),
		ForwardsLocalhost: s.options.ForwardsLocalhost(),
	}, nil
}

// explainDomain returns how a mode renders a family.
func explainDomain(mode config.Mode, o *setup.Options, liberal bool) func(service.Family) (dataplane.Renderer, dataplane.Layout) {
	bit := o.MasqueradeBit()
	return func(family service.Family) (dataplane.Renderer, dataplane.Layout) {
		switch mode {
		case config.ModeIPVS:
			return ipvsrender.NewRenderer(family, ipvsrender.Options{
				Scheduler: o.Scheduler(), MasqueradeBit: bit, RandomFully: true,
			}), nil
		case config.ModeIPTables:
			options := iptrender.Options{MasqueradeBit: bit, RandomFully: true, InvalidDropOmitted: liberal}
			return iptrender.NewRenderer(family, options), iptrender.NewLayout(family)
		default:
			return nftrender.NewRenderer(family, nftrender.Options{MasqueradeBit: bit}), nil
		}
	}
}
