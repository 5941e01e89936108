// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/explain"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// Explain answers a question about the manifests in a directory. Nothing is probed, so that
// the default mode is nftables.
func Explain(o *setup.Options, dir string, q explain.Flow) (*explain.Answer, error) {
	s, err := readState(o, dir, o.Assumed())
	if err != nil {
		return nil, err
	}
	state, err := s.explainState()
	if err != nil {
		return nil, err
	}
	state.Unserved = func(at netip.Addr) []string { return manifest.Unserved(dir, at) }
	return explain.Explain(state, q)
}

// explainState returns the state that the rules for manifests depend on. The node's addresses are those of its
// manifest; without one they are this host's.
func (s *offlineState) explainState() (*explain.State, error) {
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
	found, err := assumed()
	if err != nil {
		return nil, err
	}
	return &explain.State{
		Mode: string(s.mode.Name), Services: s.cache, Node: s.cache.Node(), Facts: s.facts, Addresses: addresses,
		Domain: func(family service.Family) (dataplane.Renderer, dataplane.Layout) {
			renderer, layout, _ := s.mode.Renderer(s.options, family, found) // readState has checked the settings
			return renderer, layout
		},
		ForwardsLocalhost: s.options.ForwardsLocalhost(),
	}, nil
}
