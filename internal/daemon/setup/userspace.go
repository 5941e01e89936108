// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"

	"go.uber.org/zap"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// Userspace is userspace mode.
var Userspace = Mode{
	Name: config.ModeUserspace,
	Traits: Traits{
		Forwards:        true,
		WithoutIPTables: true,
		CountsBytes:     true,
		Refusals:        []traffic.Reason{traffic.NoEndpoints, traffic.Limit, traffic.Unreachable},
		CountsEndpoints: true,
		Listing:         "ss -lntup",
		LeavesOut:       iptkernel.LeavesOut,
		HostDevice:      ipvsrender.Device, // left by IPVS mode, and removed once listeners and routes are there
		// Addresses of Services are made local by routes, and guarded by a table.
		Tools: []Tool{
			{"routes-ip.txt", []string{"ip", "-4", "route", "show", "table", "local"}},
			{"routes-ip6.txt", []string{"ip", "-6", "route", "show", "table", "local"}},
			{"sockets.txt", []string{"ss", "-tulnp"}},
			{"nft-guard-ip.txt", []string{"nft", "list", "table", "ip", "sluice-guard"}},
			{"nft-guard-ip6.txt", []string{"nft", "list", "table", "ip6", "sluice-guard"}},
		},
		Keep: backend.Keep{Userspace: true},
		Policy: reduce.Policy{NoEndpoints: map[service.NoEndpoints]string{
			service.NoEndpointsPass: "is not possible in userspace mode, in which the addresses of Services are addresses of the node",
		}},
	},
	domains: func(_ context.Context, s *start, _ bool) ([]proxy.Domain, iptkernel.Variant, error) {
		if s.files.Planning() {
			s.SetARP(s.files, s.log) // a server does it when it begins to serve
		}
		o := s.userspace(s.files, s.log)
		o.Lacks = s.lacks
		domains, err := backend.Userspace(s.forwarders, o)
		return domains, "", err
	},
	prepare: func(_ context.Context, s *start, _ bool) error { // the rest needs CAP_NET_ADMIN for as long as it serves
		return backend.SetUserspace(s.userspace(s.files, s.log))
	},
	kept: func(o *Options) []backend.Parameter {
		if o.Sluice.Userspace.AnswerARP {
			return nil
		}
		return backend.StrictARP()
	},
	Renderer:    nftablesRenderer,
	Unprintable: "because there are no rules",
}

func (o *Options) userspace(files sysctl.Files, log *zap.Logger) backend.UserspaceOptions {
	u := &o.Sluice.Userspace
	return backend.UserspaceOptions{
		Settings: userspace.Settings{
			Seed: uint32(o.Sluice.Balancing.Seed), HealthPort: o.HealthPort(),
		},
		ExposeHostPorts: u.ExposeHostPorts, AnswerARP: u.AnswerARP, Sysctls: files, Log: log,
	}
}
