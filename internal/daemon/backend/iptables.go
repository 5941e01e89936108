// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/internal/host/sandbox"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// writeShare is the largest share of time that writing may take in iptables mode, where the legacy
// variant copies the whole table for each write. Measurements: ADR 13.
const writeShare = 0.25

// IPTablesOptions are the settings of the iptables backend.
type IPTablesOptions struct {
	// Variant is "auto", "legacy" or "nft".
	Variant string
	// MasqueradeBit is the bit of the mark that asks for source NAT, 0 to 31.
	MasqueradeBit uint
	// LocalhostNodePorts lets IPv4 node ports answer on 127.0.0.0/8.
	LocalhostNodePorts bool
	// PrivateLock is set if no other program can reach these tables, so that the xtables lock need
	// not be shared.
	PrivateLock bool
	// Sysctls sets kernel parameters. The zero value does not record their former values.
	Sysctls sysctl.Files
	// Lacks, unless nil, receives the reason why a family is not served.
	Lacks *Lacks
	Log   *zap.Logger
}

// IPTables finds out which variant and which families the node offers, builds one domain per family,
// and returns the variant with them. It blocks for some commands. A node without IPv6 is served in IPv4 alone, and the other
// way round. A node with neither is an error that says what is missing for each.
func IPTables(ctx context.Context, o IPTablesOptions) ([]proxy.Domain, iptkernel.Variant, error) {
	variant, err := chooseVariant(ctx, o.Variant, o.PrivateLock, o.Log)
	if err != nil {
		return nil, "", err
	}
	if o.LocalhostNodePorts {
		if err := openLocalhost(ctx, variant, o); err != nil {
			return nil, "", err
		}
	}
	domains, err := eachFamily[*iptkernel.MissingError](o.Log, o.Lacks, false, func(family service.Family) (proxy.Domain, error) {
		return iptablesDomain(ctx, family, variant, o)
	})
	return domains, variant, err
}

// PrepareIPTables sets the kernel parameter that iptables mode needs, if any (--init-only).
func PrepareIPTables(ctx context.Context, o IPTablesOptions) error {
	if !o.LocalhostNodePorts {
		return nil
	}
	found, err := iptkernel.Detect(ctx, o.Variant, []service.Family{service.IPv4})
	if err != nil {
		return err
	}
	return openLocalhost(ctx, found.Variant, o)
}

// openLocalhost lets node ports answer on 127.0.0.0/8. Before that, it protects the rest of this range from neighboring
// hosts, because an API server that does not answer can delay the first rules.
func openLocalhost(ctx context.Context, variant iptkernel.Variant, o IPTablesOptions) error {
	_, err := iptkernel.EnsureRouteLocalnet(o.Sysctls, func() error {
		if o.Sysctls.Planning() {
			return nil
		}
		tool, _, err := iptablesTool(ctx, service.IPv4, variant, false)
		if err != nil {
			return err
		}
		receipt := iptkernel.NewWriter(service.IPv4, tool, iptkernel.WriterConfig{}).Write(ctx, iptrender.Firewall())
		if receipt.Outcome != dataplane.Landed {
			return fmt.Errorf("protect 127.0.0.0/8: %w", receipt.Err)
		}
		return nil
	})
	if _, lacks := errors.AsType[*iptkernel.MissingError](err); lacks {
		return nil // IPv4 is not served
	}
	return err
}

// chooseVariant chooses a variant of iptables, logs the reason, and warns of conflicts with other
// programs.
func chooseVariant(
	ctx context.Context, wanted string, privateLock bool, log *zap.Logger,
) (iptkernel.Variant, error) {
	found, err := iptkernel.Detect(ctx, wanted, []service.Family{service.IPv4})
	if err != nil {
		return "", err
	}
	log.Info("iptables variant chosen",
		zap.String("variant", string(found.Variant)), zap.String("reason", found.Reason))
	for _, leftover := range found.Leftovers {
		log.Warn("the unused iptables variant still contains Service rules", zap.String("rules", leftover))
	}
	if found.Unused != "" {
		log.Warn("both iptables variants contain rules",
			zap.String("variant", string(found.Variant)), zap.String("otherVariant", found.Unused))
	}
	if privateLock {
		return found.Variant, nil
	}
	shared, err := iptkernel.LockShared()
	switch {
	case err != nil:
		log.Info("cannot determine whether the xtables lock is shared with the host",
			zap.String("path", iptkernel.LockPath()), zap.Error(err))
	case !shared:
		log.Warn("xtables lock is not shared with the host; concurrent iptables changes are possible", zap.String("path", iptkernel.LockPath()))
	}
	return found.Variant, nil
}

func iptablesDomain(
	ctx context.Context, family service.Family, variant iptkernel.Variant, o IPTablesOptions,
) (proxy.Domain, error) {
	tool, randomFully, err := iptablesTool(ctx, family, variant, o.Sysctls.Planning())
	if err != nil {
		return proxy.Domain{}, err
	}
	accounting, err := canAccount(ctx, tool, family, o.Sysctls.Planning(), o.Log)
	if err != nil {
		return proxy.Domain{}, err
	}
	liberal, err := iptkernel.TCPBeLiberal(o.Sysctls)
	if err != nil {
		return proxy.Domain{}, err
	}
	config := iptkernel.WriterConfig{Stages: stages(variant), Accounting: accounting}
	if variant == iptkernel.NFT {
		config.TurnSize = iptkernel.TurnSize // in the legacy variant, each write rewrites the whole table
	}
	return proxy.Domain{
		Name:     fmt.Sprintf("iptables-%s/%s", variant, family),
		Family:   family,
		Renderer: o.Renderer(family, Found{randomFully, liberal, accounting}),
		Layout:   iptrender.NewLayout(family),
		Writer:   iptkernel.NewWriter(family, tool, config).Contract(),
		Pace:     aggregator.Pace{MaxWriteShare: writeShare},
	}, nil
}

// canAccount reports whether rules can count packets for kube-proxy's two metrics, and logs why not.
// With planning it asks nothing that would create a table.
func canAccount(
	ctx context.Context, tool *iptkernel.Exec, family service.Family, planning bool, log *zap.Logger,
) (bool, error) {
	if planning && tool.WouldCreate(iptrender.Filter) {
		_, err := iptkernel.ReadAccounts()
		return err == nil, nil
	}
	err := tool.Accounting(ctx)
	if lacks, ok := errors.AsType[*iptkernel.NoAccountingError](err); ok {
		log.Info("rules do not count packets, so that kubeproxy_iptables_ct_state_invalid_dropped_packets_total and "+
			"kubeproxy_iptables_localhost_nodeports_accepted_packets_total are missing",
			zap.Stringer("family", family), zap.Error(lacks))
		return false, nil
	}
	return err == nil, err
}

// iptablesTool finds the programs of a family and a variant, and reports whether they can choose
// masqueraded ports at random. With planning it asks nothing that would create a table.
func iptablesTool(
	ctx context.Context, family service.Family, variant iptkernel.Variant, planning bool,
) (tool *iptkernel.Exec, randomFully bool, err error) {
	if tool, err = iptkernel.NewExec(ctx, iptkernel.ExecConfig{Family: family, Variant: variant}); err != nil {
		return nil, false, err
	}
	if family == service.IPv6 {
		if missing, ok := errors.AsType[*sysctl.NoIPv6Error](sysctl.Files{}.IPv6()); ok {
			return nil, false, &iptkernel.MissingError{Family: family, What: missing.What, Need: missing.Need}
		}
	}
	if planning && tool.WouldCreate(iptrender.NAT) {
		return tool, true, nil
	}
	if err = tool.Present(ctx, planning); err != nil {
		return nil, false, err
	}
	randomFully, err = tool.RandomFully(ctx)
	return tool, randomFully, err
}

// HasIPTables returns what a family of one variant lacks. It changes nothing, and asks the kernel
// nothing if that would create a table: asked is false then.
func HasIPTables(
	ctx context.Context, family service.Family, variant iptkernel.Variant,
) (asked bool, err error) {
	tool, _, err := iptablesTool(ctx, family, variant, true)
	return err == nil && !tool.WouldCreate(iptrender.NAT), err
}

// stages returns the bounds of one input. The legacy variant has none. The nft variant's user space
// slows down with the chains in one input. In a user namespace without privileges over the machine,
// its socket buffer cannot exceed net.core.wmem_max, by default some 400 KiB, and a rule takes up
// to a kilobyte.
func stages(variant iptkernel.Variant) iptkernel.StageLimits {
	switch {
	case variant != iptkernel.NFT:
		return iptkernel.StageLimits{}
	case sandbox.OwnUserNamespace():
		return iptkernel.StageLimits{Chains: 100, Rules: 250}
	default:
		return iptkernel.StageLimits{Chains: 500}
	}
}
