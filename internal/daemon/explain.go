package daemon

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/ipvs"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/service"
)

// Explain answers a question about the manifests in a directory. Nothing is probed, so that
// the default mode is nftables.
func Explain(o *Options, dir string, q explain.Question) (*explain.Answer, error) {
	mode := o.KubeProxy.Mode
	if mode == config.ModeBest {
		mode = config.ModeNFTables
	}
	p, err := readPicture(o, dir, mode)
	if err != nil {
		return nil, err
	}
	s, err := p.explainState(mode)
	if err != nil {
		return nil, err
	}
	return explain.Explain(s, q)
}

// explainState is what decides in the picture. The node's addresses are those of its manifest;
// without one they are this host's.
func (p *picture) explainState(mode config.Mode) (*explain.State, error) {
	var addresses []netip.Addr
	if node := p.cache.Node(); node != nil {
		addresses = node.Addresses
	}
	for _, family := range service.Families {
		addresses = slices.Concat(addresses, p.facts.NodePorts[family].Addresses)
	}
	if len(addresses) == 0 {
		var err error
		if addresses, err = hostaddress.List(); err != nil {
			return nil, err
		}
	}
	liberal, err := iptables.TCPBeLiberal(sysctl.Files{})
	if err != nil {
		return nil, err
	}
	return &explain.State{
		Mode: string(mode), Services: p.cache, Node: p.cache.Node(), Facts: p.facts, Addresses: addresses,
		Domain:            explainDomain(mode, p.Options, liberal),
		ForwardsLocalhost: mode == config.ModeNFTables && p.ForwardsLocalhost(),
	}, nil
}

// explainDomain returns how a mode renders a family.
func explainDomain(mode config.Mode, o *Options, liberal bool) func(service.Family) (dataplane.Renderer, dataplane.Layout) {
	bit := o.MasqueradeBit()
	return func(family service.Family) (dataplane.Renderer, dataplane.Layout) {
		switch mode {
		case config.ModeIPVS:
			return ipvs.NewRenderer(family, ipvs.Options{Scheduler: o.Scheduler(), MasqueradeBit: bit, RandomFully: true}), nil
		case config.ModeIPTables:
			options := iptables.Options{MasqueradeBit: bit, RandomFully: true, InvalidDropOmitted: liberal}
			return iptables.NewRenderer(family, options), iptables.NewLayout(family)
		default:
			return nftables.NewRenderer(family, nftables.Options{MasqueradeBit: bit}), nil
		}
	}
}
