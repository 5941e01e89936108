// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"
	"strings"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// NFTables is nftables mode.
var NFTables = Mode{
	Name: config.ModeNFTables,
	Traits: Traits{
		Keep: backend.Keep{NFTables: true}, Policy: reduce.Policy{UnobservedLeast: true}, WithoutIPTables: true, Offloads: true, LocalPorts: true,
		Traffic: rulesTraffic, Refusals: rulesRefusals, Lines: nftrender.Lines, lacksHashing: backend.LacksHashing,
		Element: func(family service.Family, id dataplane.ID) (string, error) {
			return nftrender.ElementText(family, &dataplane.Object{ID: id})
		},
		Listing: "nft list ruleset",
		Tools: []Tool{
			{"nft-ip.txt", []string{"nft", "list", "table", "ip", "kube-proxy"}},
			{"nft-ip6.txt", []string{"nft", "list", "table", "ip6", "kube-proxy"}},
		},
	},
	domains: func(ctx context.Context, s *start, whole bool) ([]proxy.Domain, iptkernel.Variant, error) {
		o := s.nftables(s.log)
		o.Whole, o.Sockets, o.Tallies, o.Lacks = whole, s.forwarders.Sockets, s.tallies, s.lacks
		domains, err := backend.NFTables(ctx, o)
		return domains, "", err
	},
	prepare:  func(_ context.Context, _ *start, whole bool) error { return backend.PrepareNFTables(whole) },
	features: nftablesFeatures,
	Renderer: nftablesRenderer,
	Text:     nftablesText,
}

func (o *Options) nftables(log *zap.Logger) backend.NFTablesOptions {
	return backend.NFTablesOptions{
		MasqueradeBit: o.MasqueradeBit(), CountEndpoints: o.Sluice.Traffic.Endpoints, HashSeed: uint32(o.Sluice.Balancing.Seed), LocalPorts: o.ForwardsLocalhost(),
		DryRun: o.Dry != nil, Log: log,
	}
}

func nftablesFeatures(context.Context, *Options) (all []Feature) {
	for _, family := range service.Families {
		f := Feature{Name: "nftables " + family.String(), Text: "all required kernel features are available", OK: true}
		if err := backend.HasNFTables(family); err != nil {
			f.Text, f.OK = OneLine(err), false
		}
		all = append(all, f)
	}
	return all
}

// OneLine returns an error in one line.
func OneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// rulesRefusals are the reasons that rules count.
var rulesRefusals = []traffic.Reason{traffic.NoEndpoints, traffic.SourceRange}

// rulesTraffic reads what rules count.
func rulesTraffic(_ *Options, domains []proxy.Domain) func(context.Context) service.PerFamily[*traffic.Reading] {
	return func(ctx context.Context) service.PerFamily[*traffic.Reading] { return backend.Traffic(ctx, domains) }
}

func nftablesRenderer(o *Options, family service.Family, _ backend.Found) (dataplane.Renderer, dataplane.Layout, error) {
	options := o.nftables(nil)
	return options.Renderer(family), nil, nil
}

// nftablesText returns one table for nft, after two lines that delete a table of that name. It has to exist to be deleted.
func nftablesText(family service.Family, objects []dataplane.Object) (string, error) {
	text, err := nftrender.Text(family, objects)
	if err != nil {
		return "", err
	}
	table, _, _ := strings.Cut(text, " {\n")
	return table + "\ndelete " + table + "\n" + text, nil
}
