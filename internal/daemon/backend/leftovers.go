package backend

import (
	"context"
	"errors"
	"fmt"

	"go.uber.org/zap"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	ipvskernel "github.com/sluice-proxy/sluice/dataplane/ipvs/kernel"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/service"
)

// CleanUpOthers removes the rules of all modes but one, Sluice's or kube-proxy's. Variant is
// the one of iptables that this mode writes; empty if it writes none. Call it once the rules
// of this mode are applied: until then, the others serve. The error says what could not be
// removed; the rest is removed nevertheless. Rules of families that this mode does not serve remain, except for those
// of IPVS mode.
//
// Unlike kube-proxy, iptables mode removes what IPVS mode left: its virtual servers would
// still catch what the rules do not, because their addresses are local to the node. Rules of
// iptables mode in the other variant stay; the start warns about them.
//
// In userspace mode, open connections that the rules have translated go on until
// StopPreserving, and replaced reports whether there were rules.
func CleanUpOthers(
	ctx context.Context, mode config.Mode, variant iptkernel.Variant, served []service.Family, log *zap.Logger,
) (replaced bool, err error) {
	told := func(variant string, family service.Family, s iptkernel.CleanupSummary) {
		if s.Any() {
			log.Info("rules of another mode removed", zap.String("mode", "iptables-"+variant), zap.Stringer("family", family),
				zap.Int("hooks", s.Hooks), zap.Any("chains", s.Chains))
		}
	}
	var failed []error
	if mode == config.ModeUserspace {
		found, _ := Others(ctx, mode, variant, served) // what cannot be seen is not removed either
		if replaced = len(found) > 0; replaced {
			if err := PreserveConnections(); err != nil {
				log.Info("closing connections translated by the previous mode", zap.Error(err))
			}
		}
	}
	if mode != config.ModeNFTables {
		if err := leaveNFTables(served, log); err != nil {
			failed = append(failed, err)
		}
	}
	if mode != config.ModeUserspace {
		if err := leaveUserspace(ctx, served, log); err != nil {
			failed = append(failed, err)
		}
	}
	tables := func() error {
		err := cleanUpTables(ctx, false, served, others(mode, variant), told)
		if mode != config.ModeIPTables {
			err = errors.Join(err, iptkernel.RemoveAccounts())
		}
		return err
	}
	if mode == config.ModeIPVS {
		err = tables()
	} else {
		err = leaveIPVS(ctx, tables, log)
	}
	if err != nil {
		failed = append(failed, fmt.Errorf("remove the rules of other modes: %w", err))
	}
	return replaced, errors.Join(failed...)
}

// others returns, for each variant, the chains and hooks of the modes that are not in use.
func others(mode config.Mode, used iptkernel.Variant) func(iptkernel.Variant) iptkernel.Ownership {
	own, ofIPVS := iptkernel.DefaultOwnership(), IPVSOwnership()
	return func(variant iptkernel.Variant) iptkernel.Ownership {
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

func leaveNFTables(served []service.Family, log *zap.Logger) error {
	err := CleanUpNFTables(false, served, func(family service.Family, removed bool) {
		if removed {
			log.Info("rules of another mode removed", zap.String("mode", "nftables"), zap.Stringer("family", family))
		}
	})
	if err != nil {
		return fmt.Errorf("remove the rules of nftables mode: %w", err)
	}
	return nil
}

func leaveUserspace(ctx context.Context, served []service.Family, log *zap.Logger) error {
	err := CleanUpUserspace(ctx, false, served, func(family service.Family, left UserspaceLeft) {
		if left.Any() {
			log.Info("local addresses of another mode removed", zap.String("mode", "userspace"),
				zap.Stringer("family", family), zap.Int("addresses", left.Addresses), zap.Bool("guard", left.Guard))
		}
	})
	if err != nil {
		return fmt.Errorf("remove the local addresses of userspace mode: %w", err)
	}
	return nil
}

func leaveIPVS(ctx context.Context, tables func() error, log *zap.Logger) error {
	s, err := ipvskernel.Cleanup(ctx, false, tables)
	if s.Any() {
		log.Info("rules of another mode removed", zap.String("mode", "ipvs"),
			zap.Int("servers", s.Servers), zap.Bool("device", s.Device), zap.Int("sets", s.Sets))
	}
	return err
}

// PreserveConnections keeps open connections as they are while rules come or go: those that rules have
// translated, and those that none has.
func PreserveConnections() error { return eachTable(nftkernel.PreserveConnections) }

// StopPreserving ends the effect of PreserveConnections.
func StopPreserving() error {
	return eachTable(func(family service.Family, inside func(func() error) error) error {
		_, err := nftkernel.StopPreserving(family, inside)
		return err
	})
}

func eachTable(change func(service.Family, func(func() error) error) error) error {
	var failed []error
	for _, family := range service.Families {
		failed = append(failed, change(family, nil))
	}
	return errors.Join(failed...)
}
