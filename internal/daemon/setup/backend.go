// SPDX-License-Identifier: Apache-2.0

package setup

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/aggregator"
	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// Backend is the backend in use, and what other backends left.
type Backend struct {
	Mode Mode
	// Domains are in the order of the proxy's Status.
	Domains []proxy.Domain
	// Variant is the one of iptables that this mode writes; empty if it writes none.
	Variant iptkernel.Variant
	// Choice contains the reason for the mode; nil if the configuration names it.
	Choice *backend.Choice
	// NoHashing means that the kernel lacks what Services that hash need in nftables mode.
	NoHashing bool
	// lacks are the reasons for which families are not served.
	lacks backend.Lacks
	// left are the variants that previous servers of this process wrote and this one does not.
	left []iptkernel.Variant
}

// NewBackend builds the requested backend, or chooses one if none is requested. The caller closes it,
// also after an error. tallies are nil for a process that writes nothing.
func NewBackend(
	ctx context.Context, o *Options, files sysctl.Files, forwarders *backend.Forwarders, tallies *backend.Tallies, log *zap.Logger,
) (b *Backend, err error) {
	b = &Backend{}
	if o.KubeProxy.Mode == config.ModeBest {
		b.Choice = &backend.Choice{Reach: o.reach(), Former: backend.FindFormer(ctx), Log: log}
	}
	from := &start{Options: o, files: files, forwarders: forwarders, tallies: tallies, log: log}
	variants, lacks := map[config.Mode]iptkernel.Variant{}, map[config.Mode]*backend.Lacks{}
	name, domains, err := backend.Build(o.KubeProxy.Mode, b.Choice, func(mode config.Mode, whole bool) (domains []proxy.Domain, err error) {
		from.lacks = &backend.Lacks{}
		lacks[mode] = from.lacks
		domains, variants[mode], err = ModeNamed(mode).domains(ctx, from, whole)
		return domains, err
	})
	b.Mode, b.Domains, b.Variant, b.lacks = ModeNamed(name), domains, variants[name], *lacks[name]
	for i := range b.Domains {
		b.Domains[i].Pace = o.Pace(b.Domains[i].Pace)
	}
	b.NoHashing = err == nil && b.Mode.LacksHashing(b.Domains[0].Family)
	return b, err
}

// Close closes what the writers have opened.
func (b *Backend) Close() error {
	var failed []error
	for _, d := range b.Domains {
		if d.Writer.Close != nil {
			failed = append(failed, d.Writer.Close())
		}
	}
	return errors.Join(failed...)
}

// Families returns the families that are served.
func (b *Backend) Families() (served []service.Family) {
	for _, d := range b.Domains {
		if !d.Auxiliary && !slices.Contains(served, d.Family) {
			served = append(served, d.Family)
		}
	}
	return served
}

// Unserved returns an error if a Node has an InternalIP of a family that is not served: its Services would be lost.
func (b *Backend) Unserved(node *service.NodeObject) error {
	if node == nil {
		return nil
	}
	served := b.Families()
	for _, addr := range node.Addresses {
		if family := service.FamilyOf(addr); node.Internal[family] && !slices.Contains(served, family) {
			err := fmt.Errorf("the Node has the %s address %s, but mode %s cannot serve %s on this host", family, addr, b.Mode.Name, family)
			if b.lacks[family] != nil {
				err = fmt.Errorf("%w: %w", err, b.lacks[family])
			}
			return &backend.AdvisedError{Err: err, Do: "correct the cause, or choose another mode (--proxy-mode)"}
		}
	}
	return nil
}

// Succeed records the variants of iptables that previous servers of this process wrote.
func (b *Backend) Succeed(former *Backend) {
	b.left = slices.DeleteFunc(append(slices.Clone(former.left), former.Variant), func(v iptkernel.Variant) bool {
		return v == "" || v == b.Variant
	})
}

// HostAddresses follows the host's addresses, without those of the mode's device.
func (b *Backend) HostAddresses() func(ctx context.Context, changed func([]netip.Addr)) error {
	if b.Mode.HostDevice != "" {
		return hostaddress.WatchWithout(b.Mode.HostDevice)
	}
	return hostaddress.Watch
}

// Sweep returns the sweep of what other modes left, and of the variants of iptables that this process no longer writes.
func (b *Backend) Sweep(dry bool) *backend.Sweep {
	return &backend.Sweep{Dry: dry, Keep: b.Mode.Keep, Families: b.Families(), Variant: b.Variant, Former: b.left}
}

// CleanUpOthers removes what other modes left.
//
// If this process forwards, it preserves open connections that rules translated until StopPreserving, and replaced
// reports whether there were rules. Otherwise, replaced is false.
func (b *Backend) CleanUpOthers(ctx context.Context, log *zap.Logger) (replaced bool, err error) {
	if b.Mode.Forwards {
		found, _ := b.Sweep(true).Run(ctx) // what cannot be seen is not removed either
		if replaced = slices.ContainsFunc(found, func(l backend.Leftover) bool { return l.Any() }); replaced {
			if err := backend.PreserveConnections(); err != nil {
				log.Info("closing connections translated by the previous mode", zap.Error(err))
			}
		}
	}
	found, err := b.Sweep(false).Run(ctx)
	for i := range found {
		found[i].Log(log)
	}
	return replaced, err
}

// Pace returns the pace of the domains that hold the rules of Services.
func (b *Backend) Pace() aggregator.Pace {
	for _, d := range b.Domains {
		if !d.Auxiliary {
			return d.Pace
		}
	}
	return aggregator.Pace{}
}
