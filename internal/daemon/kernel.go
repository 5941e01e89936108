package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/ipvs"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// kernel is the backend that serves, and what other backends left.
type kernel struct {
	mode config.Mode
	// domains are in the order of the proxy's Status.
	domains []proxy.Domain
	// variant is the one of iptables that this mode writes; empty if it writes none.
	variant iptables.Variant
	// choice has the reason for the mode; nil if the configuration names it.
	choice *backend.Choice
	// left are the variants that former servers of this process wrote and this one
	// does not.
	left []iptables.Variant
}

// newKernel builds the requested backend, or chooses one if none is requested.
func newKernel(ctx context.Context, o *Options, files sysctl.Files, forwarders *backend.Forwarders, log *zap.Logger) (k kernel, err error) {
	if o.KubeProxy.Mode == config.ModeBest {
		k.choice = &backend.Choice{Reach: o.reach(), Former: backend.FindFormer(ctx), Log: log}
	}
	k.mode, k.domains, err = backend.Build(o.KubeProxy.Mode, k.choice, backend.Builders{
		NFTables: func(whole bool) ([]proxy.Domain, error) {
			k.variant = "" // iptables may have been tried
			options := o.nftables(log)
			options.Whole, options.Sockets = whole, forwarders.Sockets
			return backend.NFTables(ctx, options)
		},
		IPTables: func() (domains []proxy.Domain, err error) {
			options, err := o.iptables(files, log)
			if err == nil {
				domains, k.variant, err = backend.IPTables(ctx, options)
			}
			return domains, err
		},
		IPVS: func() (domains []proxy.Domain, err error) {
			domains, k.variant, err = backend.IPVS(ctx, o.ipvs(files, log))
			return domains, err
		},
		Userspace: func() ([]proxy.Domain, error) {
			if files.Planning() {
				o.setARP(files, log) // a server does it when it begins to serve
			}
			return backend.Userspace(forwarders, o.userspace(files, log))
		},
	})
	for i := range k.domains {
		k.domains[i].Pace = o.Pace(k.domains[i].Pace)
	}
	return k, err
}

// close closes what the writers have opened.
func (k *kernel) close() error {
	var failed []error
	for _, d := range k.domains {
		if open, ok := d.Writer.(io.Closer); ok {
			failed = append(failed, open.Close())
		}
	}
	return errors.Join(failed...)
}

// succeed notes the variants of iptables that former servers wrote.
func (k *kernel) succeed(former kernel) {
	k.left = slices.DeleteFunc(append(slices.Clone(former.left), former.variant), func(v iptables.Variant) bool {
		return v == "" || v == k.variant
	})
}

// hostAddresses follows the host's addresses. In IPVS mode, those of Services are on a
// device of the host, and do not count. Userspace mode may follow IPVS mode, which takes the device
// away once listeners and routes are there.
func (k *kernel) hostAddresses() func(ctx context.Context, changed func([]netip.Addr)) error {
	if k.mode == config.ModeIPVS || k.mode == config.ModeUserspace {
		return hostaddress.WatchWithout(ipvs.Device)
	}
	return hostaddress.Watch
}

// cleanUpOthers removes what other modes left, and the rules of the variants of iptables
// that this process has left. It only warns of those that other programs left. It reports whether
// another mode had left anything.
func (k *kernel) cleanUpOthers(ctx context.Context, log *zap.Logger) (replaced bool, err error) {
	replaced, err = backend.CleanUpOthers(ctx, k.mode, k.variant, log)
	failed := []error{err}
	for _, variant := range k.left {
		for _, family := range service.Families {
			summary, err := backend.CleanUpVariant(ctx, false, family, variant, backend.AllTerritories())
			if _, lacks := errors.AsType[*iptables.MissingError](err); lacks {
				continue // nothing can be there
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("iptables-%s/%s: %w", variant, family, err))
			} else if summary.Any() {
				log.Info("rules of another variant removed", zap.String("of", "iptables-"+string(variant)),
					zap.Stringer("family", family), zap.Int("hooks", summary.Hooks))
			}
		}
	}
	return replaced, errors.Join(failed...)
}
