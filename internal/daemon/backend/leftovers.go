package backend

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/ipvs"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/service"
)

// CleanUpOthers removes the rules of the backends that are not used, whoever's they
// are, Sluice's or kube-proxy's. Variant is that of iptables which the mode in use
// writes, if it does. Call it once the rules of that mode are in force: until then the
// others serve. What cannot be removed is in the error; the rest is removed all the
// same.
//
// In iptables mode, too, what IPVS mode has left goes, which kube-proxy leaves: its
// virtual servers would go on catching what the rules do not, by addresses that are
// local to the node. What the other variant of iptables has of iptables mode is only
// warned of, at the start.
func CleanUpOthers(ctx context.Context, mode config.Mode, variant iptables.Variant, log *zap.Logger) error {
	told := func(variant string, family service.Family, s iptables.CleanupSummary) {
		if s.Any() {
			log.Info("rules of another mode removed", zap.String("of", "iptables-"+variant), zap.Stringer("family", family),
				zap.Int("hooks", s.Hooks), zap.Any("chains", s.Chains))
		}
	}
	var failed []error
	if mode != config.ModeNFTables {
		if err := leaveNFTables(log); err != nil {
			failed = append(failed, err)
		}
	}
	tables := func() error { return cleanUpTables(ctx, others(mode, variant), told) }
	var err error
	if mode == config.ModeIPVS {
		err = tables()
	} else {
		err = leaveIPVS(ctx, tables, log)
	}
	if err != nil {
		failed = append(failed, fmt.Errorf("remove the rules of other modes: %w", err))
	}
	return errors.Join(failed...)
}

// others says what of iptables is another mode's than the one in use, by variant.
func others(mode config.Mode, used iptables.Variant) func(iptables.Variant) iptables.Territory {
	own, ofIPVS := iptables.OwnTerritory(), IPVSTerritory()
	return func(variant iptables.Variant) iptables.Territory {
		switch {
		case mode == config.ModeIPTables:
			return ofIPVS.Without(own)
		case mode == config.ModeIPVS && variant == used:
			return own.Without(ofIPVS)
		default:
			return own.With(ofIPVS)
		}
	}
}

func leaveNFTables(log *zap.Logger) error {
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

func leaveIPVS(ctx context.Context, tables func() error, log *zap.Logger) error {
	s, err := ipvs.Cleanup(ctx, tables)
	if s.Any() {
		log.Info("rules of another mode removed", zap.String("of", "ipvs"),
			zap.Int("servers", s.Servers), zap.Bool("device", s.Device), zap.Int("sets", s.Sets))
	}
	return err
}
