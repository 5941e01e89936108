package backend

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// CleanUpOthers removes the rules of the backends that are not used, whoever's they
// are, Sluice's or kube-proxy's. Call it once the rules of the mode in use are in
// force: until then the others serve. What cannot be removed is in the error; the
// rest is removed all the same.
func CleanUpOthers(ctx context.Context, mode Mode, log *zap.Logger) error {
	if mode == ModeNFTables {
		err := CleanUpIPTables(ctx, func(variant string, family service.Family, s iptables.CleanupSummary) {
			if s.Any() {
				log.Info("rules of another mode removed", zap.String("of", "iptables-"+variant), zap.Stringer("family", family),
					zap.Int("hooks", s.Hooks), zap.Any("chains", s.Chains))
			}
		})
		if err != nil {
			return fmt.Errorf("remove the rules of iptables mode: %w", err)
		}
		return nil
	}
	err := CleanUpNFTables(func(family service.Family, removed bool) {
		if removed {
			log.Info("rules of another mode removed", zap.String("of", "nftables"), zap.Stringer("family", family))
		}
	})
	if err != nil {
		return fmt.Errorf("remove the rules of nftables mode: %w", err)
	}
	return nil
}
