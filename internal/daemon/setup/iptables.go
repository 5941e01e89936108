// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// IPTables is iptables mode.
var IPTables = Mode{
	Name: config.ModeIPTables,
	Traits: Traits{
		Keep: backend.Keep{IPTables: true}, Policy: reduce.Policy{NoBalancing: onlyRandom()}, CountsEndpoints: true,
		Accounts: iptkernel.ReadAccounts, Traffic: rulesTraffic, Refusals: rulesRefusals, LeavesOut: iptkernel.LeavesOut,
	},
	domains: func(ctx context.Context, s *start, _ bool) ([]proxy.Domain, iptkernel.Variant, error) {
		o, err := s.iptables(s.files, s.log)
		if err != nil {
			return nil, "", err
		}
		o.Lacks = s.lacks
		return backend.IPTables(ctx, o)
	},
	prepare: func(ctx context.Context, s *start, _ bool) error {
		o, err := s.iptables(s.files, s.log)
		if err != nil {
			return err
		}
		return backend.PrepareIPTables(ctx, o)
	},
	kept: func(o *Options) []backend.Parameter {
		if options, err := o.iptables(sysctl.Files{}, nil); err != nil || !options.LocalhostNodePorts {
			return nil
		}
		return []backend.Parameter{{Path: iptkernel.RouteLocalnet, Value: "1", Advice: iptkernel.AdviceRouteLocalnet}}
	},
	features:  iptablesFeatures,
	Renderer:  iptablesRenderer,
	Text:      func(_ service.Family, objects []dataplane.Object) (string, error) { return iptkernel.Text(objects) },
	OneFamily: true,
}

// onlyRandom returns the reason against each algorithm except random.
func onlyRandom() map[service.Balancing]string {
	impossible := map[service.Balancing]string{}
	for by := range service.Balancing(len(service.Balancings())) {
		if by != service.Random {
			impossible[by] = "is not possible in iptables mode"
		}
	}
	return impossible
}

func (o *Options) iptables(files sysctl.Files, log *zap.Logger) (backend.IPTablesOptions, error) {
	settings, err := o.NodeSettings(config.ModeIPTables)
	return backend.IPTablesOptions{
		Variant: o.Sluice.IPTables.Variant, MasqueradeBit: o.MasqueradeBit(), LocalhostNodePorts: settings.LocalhostNodePorts,
		PrivateLock: o.Sandboxed, Sysctls: files, Log: log,
	}, err
}

func iptablesFeatures(ctx context.Context, _ *Options) (all []Feature) {
	modules := service.PerFamily[string]{"iptable_nat", "ip6table_nat"}
	for _, variant := range []iptkernel.Variant{iptkernel.NFT, iptkernel.Legacy} {
		for _, family := range service.Families {
			f := Feature{Name: "iptables-" + string(variant) + " " + family.String(), Text: "programs and tables work"}
			asked, err := backend.HasIPTables(ctx, family, variant)
			switch f.OK = asked && err == nil; {
			case err != nil:
				f.Text = OneLine(err)
			case !asked:
				f.Text = "tools found; tables not probed, because that would create them; " + states(modules[family])
			}
			all = append(all, f)
		}
	}
	return all
}

func iptablesRenderer(o *Options, family service.Family, found backend.Found) (dataplane.Renderer, dataplane.Layout, error) {
	options, err := o.iptables(sysctl.Files{}, nil)
	return options.Renderer(family, found), iptrender.NewLayout(family), err
}
