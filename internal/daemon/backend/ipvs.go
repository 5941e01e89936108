// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"go.uber.org/zap"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	ipvskernel "github.com/sluice-proxy/sluice/dataplane/ipvs/kernel"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	ipvswire "github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// IPVSOptions are the settings of the IPVS backend.
type IPVSOptions struct {
	// Variant is that of iptables: "auto", "legacy" or "nft".
	Variant string
	// MasqueradeBit is the bit of the mark that asks for source NAT, 0 to 31.
	MasqueradeBit uint
	// Scheduler is the kernel's name of the scheduler of Services that select none.
	Scheduler string
	// Excluded are ranges whose virtual servers belong to others.
	Excluded []netip.Prefix
	// DrainDeadline is how long removed endpoints keep their connections, unless their Service sets another time.
	DrainDeadline time.Duration
	// Timeouts are those of idle connections; 0 leaves them alone.
	Timeouts ipvswire.Timeouts
	// StrictARP keeps the host from answering ARP for addresses of other interfaces.
	StrictARP bool
	// PrivateLock means that no other program can reach these tables.
	PrivateLock bool
	// Sysctls are where kernel parameters are set. The zero value keeps no record of
	// their former values.
	Sysctls sysctl.Files
	// DryRun changes nothing on the node, provided that Sysctls only plan: the domains are only for reading.
	DryRun bool
	// Lacks, unless nil, receives the reason why a family is not served.
	Lacks *Lacks
	Log   *zap.Logger
}

// IPVS checks that the node has what IPVS mode needs, prepares it, and builds one domain
// per family. It also returns the variant of iptables that writes the rules. There is no
// fallback to another mode: a user who chooses this one wants its schedulers, and gets an
// error that says what is missing.
func IPVS(ctx context.Context, o IPVSOptions) ([]proxy.Domain, iptkernel.Variant, error) {
	if err := hasIPVS(); err != nil {
		return nil, "", &AdvisedError{err, "use a kernel that supports it, or --proxy-mode nftables"}
	}
	variant, err := chooseVariant(ctx, o.Variant, o.PrivateLock, o.Log)
	if err != nil {
		return nil, "", err
	}
	if err := PrepareIPVS(ctx, o); err != nil {
		return nil, "", err
	}
	domains, err := eachFamily[*iptkernel.MissingError](o.Log, o.Lacks, false, func(family service.Family) (proxy.Domain, error) {
		return ipvsDomain(ctx, family, variant, o)
	})
	return domains, variant, err
}

// hasIPVS returns what the kernel lacks of IPVS and of sets. It may load modules.
func hasIPVS() error {
	err := ipvswire.Available()
	sets, setsErr := ipvswire.OpenSets()
	if setsErr != nil {
		return errors.Join(err, setsErr)
	}
	return errors.Join(err, sets.Close())
}

func ipvsDomain(
	ctx context.Context, family service.Family, variant iptkernel.Variant, o IPVSOptions,
) (proxy.Domain, error) {
	tool, randomFully, err := iptablesTool(ctx, family, variant, o.Sysctls.Planning())
	if err != nil {
		return proxy.Domain{}, err
	}
	rules := iptkernel.NewWriter(family, tool, iptkernel.WriterConfig{Stages: stages(variant), Ownership: IPVSOwnership()})
	name := fmt.Sprintf("ipvs/%s", family)
	writer, err := ipvskernel.NewWriter(family, ipvskernel.Config{
		Rules: rules, Excluded: o.Excluded,
		NearlyFull: func(l ipvskernel.SetLevel) {
			o.Log.Warn("IPVS set is nearly full",
				zap.String("domain", name), zap.String("set", l.Set),
				zap.Int("entries", l.Entries), zap.Int("capacity", l.Capacity))
		},
		DrainDeadline: o.DrainDeadline,
		Cut:           func(c ipvskernel.Cut) { cut(o.Log, name, c) },
		Unread: func(key service.Key, f service.Frontend, err error) {
			o.Log.Warn("cannot read connections of a draining endpoint; it drains until the deadline",
				zap.String("domain", name), zap.Stringer("service", key), zap.Stringer("frontend", f), zap.Error(err))
		},
	})
	if err != nil {
		return proxy.Domain{}, fmt.Errorf("IPVS mode in %s: %w", family, err)
	}
	return proxy.Domain{
		Name: name, Family: family, Renderer: o.Renderer(family, Found{RandomFully: randomFully}), Writer: writer,
	}, nil
}

// namedMax bounds the endpoints that one log line names.
const namedMax = 10

// cut logs endpoints whose connections may have been cut.
func cut(log *zap.Logger, domain string, c ipvskernel.Cut) {
	fields := []zap.Field{
		zap.String("domain", domain), zap.Stringer("service", c.Service), zap.Int("endpoints", len(c.Endpoints)),
		zap.Stringers("named", c.Endpoints[:min(namedMax, len(c.Endpoints))]),
	}
	if c.Deadline > 0 {
		log.Info("drain deadline reached; closing remaining connections", append(fields, zap.Duration("deadline", c.Deadline))...)
		return
	}
	log.Info("too many draining endpoints; closing connections of the oldest", append(fields, zap.Int("limit", c.Bound))...)
}

// IPVSTraffic makes a function that returns the kernel's counters by virtual server and, with endpoints, by real
// server; nothing if they cannot be read. A node port counts at each address of the node. One goroutine calls it.
func IPVSTraffic(endpoints bool) func(context.Context) service.PerFamily[*traffic.Reading] {
	var meter ipvswire.Meter
	var grown traffic.Grown[traffic.Pair]
	return func(ctx context.Context) (all service.PerFamily[*traffic.Reading]) {
		servers, reals, err := meter.Read(ctx, endpoints)
		if err != nil {
			return all
		}
		for _, family := range service.Families {
			all[family] = &traffic.Reading{Bytes: true, Frontends: make(map[service.Frontend]traffic.At)}
			if endpoints {
				all[family].Endpoints = make(map[traffic.Pair]traffic.Counts)
			}
		}
		for f, c := range servers {
			all[service.FamilyOf(f.Addr)].Frontends[f] = traffic.At{Counts: c}
		}
		for pair, c := range grown.Add(reals) { // a real server that comes back counts from 0
			all[service.FamilyOf(pair.Frontend.Addr)].Endpoints[pair] = c
		}
		return all
	}
}

// IPVSOwnership returns the chains and hooks that IPVS mode, Sluice's or kube-proxy's, owns in iptables.
func IPVSOwnership() iptkernel.Ownership {
	t := iptkernel.Ownership{
		Owns: func(table iptrender.Table, chain string) bool { return ipvsrender.OwnsChain(string(table), chain) },
	}
	for _, h := range ipvsrender.HookRows() {
		t.Hooks = append(t.Hooks, iptrender.Hook{
			Row: h.Row, Table: iptrender.Table(h.Table), Chain: h.Chain, Target: h.Target,
			Rule: []string{"-m", "comment", "--comment", h.Comment, "-j", h.Target},
		})
	}
	return t
}
