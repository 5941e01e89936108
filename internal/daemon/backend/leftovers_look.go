package backend

import (
	"context"
	"errors"
	"fmt"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	ipvskernel "github.com/sluice-proxy/sluice/dataplane/ipvs/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/service"
)

// Leftover is what another mode left in one place.
type Leftover struct{ Of, What string }

// Others returns what CleanUpOthers would remove. It changes nothing.
func Others(
	ctx context.Context, mode config.Mode, variant iptkernel.Variant, served []service.Family,
) (found []Leftover, err error) {
	told := func(variant string, family service.Family, s iptkernel.CleanupSummary) {
		if s.Any() {
			chains := 0
			for _, n := range s.Chains {
				chains += n
			}
			found = append(found, Leftover{fmt.Sprintf("iptables-%s/%s", variant, family),
				plural.Of(s.Hooks, "hook") + ", " + plural.Of(chains, "chain")})
		}
	}
	var failed []error
	if mode != config.ModeNFTables {
		failed = append(failed, CleanUpNFTables(true, served, func(family service.Family, present bool) {
			if present {
				found = append(found, Leftover{fmt.Sprintf("nftables/%s", family), "the table kube-proxy"})
			}
		}))
	}
	if mode != config.ModeUserspace {
		failed = append(failed, CleanUpUserspace(ctx, true, served, func(family service.Family, left UserspaceLeft) {
			if left.Any() {
				found = append(found, Leftover{fmt.Sprintf("userspace/%s", family),
					fmt.Sprintf("%d local addresses, guard: %t", left.Addresses, left.Guard)})
			}
		}))
	}
	tables := func() error { return cleanUpTables(ctx, true, served, others(mode, variant), told) }
	if mode == config.ModeIPVS {
		failed = append(failed, tables())
		return found, errors.Join(failed...)
	}
	s, err := ipvskernel.Cleanup(ctx, true, tables)
	if s.Any() {
		found = append(found, Leftover{"ipvs", fmt.Sprintf("%s, %s, device: %t", plural.Of(s.Servers, "virtual server"), plural.Of(s.Sets, "set"), s.Device)})
	}
	return found, errors.Join(append(failed, err)...)
}
