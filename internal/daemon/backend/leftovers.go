// SPDX-License-Identifier: Apache-2.0

package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"

	iptkernel "github.com/sluice-proxy/sluice/dataplane/iptables/kernel"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	ipvskernel "github.com/sluice-proxy/sluice/dataplane/ipvs/kernel"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/service"
)

// Keep selects the modes whose rules stay: the mode that serves, or none.
type Keep struct{ NFTables, IPTables, IPVS, Userspace bool }

// Sweep finds what the modes of Sluice or kube-proxy left on a node, and removes it. A starting proxy runs it once the
// rules of the configured mode are applied; until then, the others forward traffic. Rules of families that it does not name
// remain, except for those of IPVS mode.
//
// Unlike kube-proxy, iptables mode removes what IPVS mode left: its virtual servers would still catch what the rules do not,
// because their addresses are local to the node. Rules of iptables mode in the other variant stay; the start warns about
// them.
type Sweep struct {
	// Dry changes nothing, and reports also what stays.
	Dry      bool
	Keep     Keep
	Families []service.Family
	// Variant is the variant of iptables that the serving mode writes; empty if it writes none. Former are the variants
	// that this process wrote before; none of their rules stay.
	Variant iptkernel.Variant
	Former  []iptkernel.Variant
	// WithoutTables leaves out iptables, which takes seconds if it is large.
	WithoutTables bool

	found []Leftover
}

// Leftover describes what one mode left in one place. The JSON of a plan contains the place and the description.
type Leftover struct {
	// Of is the place, such as "nftables/IPv4", and What describes what is there; empty if nothing is.
	Of   string `json:"of"`
	What string `json:"what"`
	// Kept is set if it stays, because its mode serves.
	Kept bool `json:"-"`
	// Title contains the columns of a table of such places, and Row the cells. A bool is true if something is there.
	Title string `json:"-"`
	Row   []any  `json:"-"`
	// removed is the log message about its removal.
	removed string
	fields  []zap.Field
}

// Any reports whether something is there that does not stay.
func (l *Leftover) Any() bool { return l.What != "" && !l.Kept }

// Log logs that it was removed.
func (l *Leftover) Log(log *zap.Logger) {
	if l.Any() {
		log.Info(l.removed, l.fields...)
	}
}

// Run returns all places, also those with nothing. The error says what could not be removed; the rest is removed
// nevertheless.
func (s *Sweep) Run(ctx context.Context) ([]Leftover, error) {
	// Tables of nftables mode go first: they translate to endpoints that are not updated any more, and reading the rules of
	// iptables takes seconds on a large node.
	var err error
	for _, family := range s.Families {
		err = errors.Join(err, s.table(ctx, family))
	}
	for _, family := range s.Families {
		err = errors.Join(err, s.addresses(ctx, family))
	}
	first := s.found
	s.found = nil
	if failed := s.servers(ctx); failed != nil {
		err = errors.Join(err, fmt.Errorf("remove the rules of iptables and IPVS modes: %w", failed))
	}
	return append(s.found, first...), err
}

// servers sweeps IPVS, and iptables in between: rules must be removed before the sets that they look up.
func (s *Sweep) servers(ctx context.Context) error {
	if s.Keep.IPVS && !s.Dry {
		return s.tables(ctx)
	}
	left, err := ipvskernel.Cleanup(ctx, s.Dry, func() error { return s.tables(ctx) })
	what := ""
	if left.Any() {
		what = fmt.Sprintf("%s, %s, device: %t", plural.Of(left.Servers, "virtual server"), plural.Of(left.Sets, "set"), left.Device)
	}
	s.found = append(s.found, Leftover{
		Of: "ipvs", What: what, Kept: s.Keep.IPVS, Title: "IPVS\tVIRTUAL SERVERS\tSETS\tDEVICE", Row: []any{" ", left.Servers, left.Sets, left.Device},
		removed: removedRules, fields: []zap.Field{
			zap.String("mode", "ipvs"), zap.Int("servers", left.Servers), zap.Bool("device", left.Device), zap.Int("sets", left.Sets),
		},
	})
	return err
}

const removedRules = "rules of another mode removed"

// tables sweeps both variants of iptables. It removes accounting objects last, when no rule counts in them any more.
func (s *Sweep) tables(ctx context.Context) error {
	if s.WithoutTables {
		return nil
	}
	var failed []error
	for _, variant := range []iptkernel.Variant{iptkernel.NFT, iptkernel.Legacy} {
		for _, family := range s.Families {
			err := s.variant(ctx, variant, family)
			if _, lacks := errors.AsType[*iptkernel.MissingError](err); err != nil && !lacks { // otherwise, nothing can be there
				failed = append(failed, fmt.Errorf("iptables-%s/%s: %w", variant, family, err))
			}
		}
	}
	if !s.Keep.IPTables && !s.Dry {
		failed = append(failed, iptkernel.RemoveAccounts())
	}
	return errors.Join(failed...)
}

func (s *Sweep) variant(ctx context.Context, variant iptkernel.Variant, family service.Family) error {
	tool, err := iptkernel.NewExec(ctx, iptkernel.ExecConfig{Family: family, Variant: variant})
	if err != nil {
		return err
	}
	left, err := iptkernel.Cleanup(ctx, family, tool, s.owned(variant), s.Dry)
	if _, lacks := errors.AsType[*iptkernel.MissingError](err); lacks {
		return err
	}
	what, chains := "", 0
	for _, n := range left.Chains {
		chains += n
	}
	if left.Any() {
		what = plural.Of(left.Hooks, "hook") + ", " + plural.Of(chains, "chain")
	}
	removed := removedRules
	if s.Variant != "" && slices.Contains(s.Former, variant) {
		removed = "rules of another variant removed"
	}
	s.found = append(s.found, Leftover{
		Of: fmt.Sprintf("iptables-%s/%s", variant, family), What: what,
		Title:   "VARIANT\tFAMILY\tHOOKS\tCHAINS IN NAT\tIN FILTER\tIN MANGLE",
		Row:     []any{variant, family, left.Hooks, left.Chains[iptrender.NAT], left.Chains[iptrender.Filter], left.Chains[iptrender.Mangle]},
		removed: removed, fields: []zap.Field{
			zap.String("mode", "iptables-"+string(variant)), zap.Stringer("family", family), zap.Int("hooks", left.Hooks), zap.Any("chains", left.Chains),
		},
	})
	return err
}

// owned returns the chains and hooks of a variant that do not stay.
func (s *Sweep) owned(variant iptkernel.Variant) iptkernel.Ownership {
	own, ofIPVS := iptkernel.DefaultOwnership(), IPVSOwnership()
	switch {
	case slices.Contains(s.Former, variant):
		return own.With(ofIPVS)
	case s.Keep.IPTables:
		return ofIPVS.Without(own)
	case s.Keep.IPVS && variant == s.Variant:
		return own.Without(ofIPVS)
	default:
		return own.With(ofIPVS)
	}
}

// table sweeps nftables.
func (s *Sweep) table(ctx context.Context, family service.Family) (err error) {
	if s.Keep.NFTables && !s.Dry {
		return nil
	}
	there := false
	if s.Dry {
		there, err = nftkernel.Exists(ctx, family)
	} else {
		there, err = nftkernel.Cleanup(family)
	}
	what := ""
	if there {
		what = "the table kube-proxy"
	}
	s.found = append(s.found, Leftover{
		Of: fmt.Sprintf("nftables/%s", family), What: what, Kept: s.Keep.NFTables, Title: "NFTABLES\tFAMILY\tTABLE", Row: []any{" ", family, there},
		removed: removedRules, fields: []zap.Field{zap.String("mode", "nftables"), zap.Stringer("family", family)},
	})
	if err != nil {
		return fmt.Errorf("remove the rules of nftables mode: %w", err)
	}
	return nil
}

// addresses sweeps the local addresses of userspace mode, then their guard.
func (s *Sweep) addresses(ctx context.Context, family service.Family) error {
	if s.Keep.Userspace && !s.Dry {
		return nil
	}
	guard, what := false, ""
	local, err := userspace.Cleanup(ctx, family, s.Dry)
	if err == nil {
		guard, err = nftkernel.RemoveGuard(ctx, family, s.Dry)
	}
	if local > 0 || guard {
		what = fmt.Sprintf("%d local addresses, guard: %t", local, guard)
	}
	s.found = append(s.found, Leftover{
		Of: fmt.Sprintf("userspace/%s", family), What: what, Kept: s.Keep.Userspace, Title: "USERSPACE\tFAMILY\tLOCAL ADDRESSES\tGUARD", Row: []any{" ", family, local, guard},
		removed: "local addresses of another mode removed", fields: []zap.Field{
			zap.String("mode", "userspace"), zap.Stringer("family", family), zap.Int("addresses", local), zap.Bool("guard", guard),
		},
	})
	if err != nil {
		return fmt.Errorf("remove the local addresses of userspace mode: %w", err)
	}
	return nil
}

// PreserveConnections keeps open connections, translated or not, as they are while rules are added or removed.
func PreserveConnections() error { return eachTable(nftkernel.PreserveConnections) }

// StopPreserving ends the effect of PreserveConnections.
func StopPreserving() error {
	return eachTable(func(family service.Family) error {
		_, err := nftkernel.StopPreserving(family)
		return err
	})
}

func eachTable(change func(service.Family) error) error {
	var failed []error
	for _, family := range service.Families {
		failed = append(failed, change(family))
	}
	return errors.Join(failed...)
}
