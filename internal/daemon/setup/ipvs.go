// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	ipvswire "github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

const kernelDecides = "is not possible in IPVS mode, in which the kernel decides"

// IPVS is IPVS mode.
var IPVS = Mode{
	Name: config.ModeIPVS,
	Traits: Traits{
		Keep:           backend.Keep{IPVS: true},
		DrainsItself:   true,
		Deprecated:     true,
		CountsBytes:    true,
		ForgetsClients: true,
		HostDevice:     ipvsrender.Device,
		LeavesOut:      iptkernel.LeavesOut,
		Traffic: func(o *Options, _ []proxy.Domain) func(context.Context) service.PerFamily[*traffic.Reading] {
			return backend.IPVSTraffic(o.Sluice.Traffic.Endpoints)
		},
		Listing:       "ipvsadm -ln",
		Tools:         []Tool{{"ipvsadm.txt", []string{"ipvsadm", "-Ln"}}, {"ipset.txt", []string{"ipset", "list"}}},
		NeedsHostRoot: true, // GENL_ADMIN_PERM of virtual servers
		Policy: reduce.Policy{
			NoEndpoints: map[service.NoEndpoints]string{
				service.NoEndpointsReject: kernelDecides, service.NoEndpointsDrop: kernelDecides, service.NoEndpointsPass: kernelDecides,
			},
			NoDenyRanges: "not possible in IPVS mode",
		},
	},
	domains: func(ctx context.Context, s *start, _ bool) ([]proxy.Domain, iptkernel.Variant, error) {
		o := s.ipvs(s.files, s.log)
		o.Lacks = s.lacks
		return backend.IPVS(ctx, o)
	},
	prepare: func(ctx context.Context, s *start, _ bool) error {
		return backend.PrepareIPVS(ctx, s.ipvs(s.files, s.log))
	},
	kept: func(o *Options) []backend.Parameter {
		options := o.ipvs(sysctl.Files{}, nil)
		return options.Parameters()
	},
	features: func(_ context.Context, o *Options) []Feature {
		return []Feature{{Name: "IPVS", Text: states("ip_vs", "ip_set", "ip_vs_"+o.Scheduler())}}
	},
	Renderer:    ipvsRenderer,
	Unprintable: "because virtual servers, sets, addresses and rules lack a common text format",
}

// drainDeadline is the longest time that a removed TCP endpoint keeps its connections, unless the Service or
// balancing.drainDeadline sets another time. kube-proxy has no limit.
const drainDeadline = 15 * time.Minute

func (o *Options) ipvs(files sysctl.Files, log *zap.Logger) backend.IPVSOptions {
	c := &o.KubeProxy.IPVS
	deadline := o.Sluice.Balancing.DrainDeadline.Duration
	if deadline == 0 {
		deadline = drainDeadline
	}
	return backend.IPVSOptions{
		Variant: o.Sluice.IPTables.Variant, MasqueradeBit: o.MasqueradeBit(), Scheduler: o.Scheduler(),
		Excluded: o.ExcludedCIDRs(), DrainDeadline: deadline, StrictARP: c.StrictARP,
		Timeouts:    ipvswire.Timeouts{TCP: c.TCPTimeout.Duration, TCPFin: c.TCPFinTimeout.Duration, UDP: c.UDPTimeout.Duration},
		PrivateLock: o.Sandboxed, Sysctls: files, DryRun: o.Dry != nil, Log: log,
	}
}

func ipvsRenderer(o *Options, family service.Family, found backend.Found) (dataplane.Renderer, dataplane.Layout, error) {
	options := o.ipvs(sysctl.Files{}, nil)
	return options.Renderer(family, found), nil, nil
}
