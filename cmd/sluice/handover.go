package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
	"k8s.io/kube-proxy/config/v1alpha1"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/service"
)

// mustHandOver reports whether a configuration takes a successor: a changed field does,
// or what is made at the start for node ports on localhost is not as it has to be.
func (s *server) mustHandOver(c *config.Config, changes []config.Change) bool {
	if slices.ContainsFunc(changes, func(c config.Change) bool { return c.Effect == config.HandOver }) {
		return true
	}
	if s.mode == backend.ModeNFTables {
		return c.ForwardsLocalhost() != s.ForwardsLocalhost()
	}
	settings, err := c.NodeSettings(v1alpha1.ProxyMode(s.mode))
	return err == nil && settings.LocalhostNodePorts && !s.settings.LocalhostNodePorts
}

// prepareSuccessor makes the server that takes over, while this one serves. An error
// means that nothing has changed.
func (s *server) prepareSuccessor(ctx context.Context, c *config.Config, changes []config.Change) (*server, error) {
	o := *s.options
	o.Config, o.warnings = c, nil // they have been logged
	if err := o.check(); err != nil {
		return nil, err
	}
	next, err := newServer(ctx, &o, s.log, s.owner, s.upstream)
	if err == nil {
		if err = s.log.set(c.Log()); err != nil {
			next.end()
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.reassert())
	}
	next.handed = changes
	next.left = slices.DeleteFunc(append(slices.Clone(s.left), s.variants()...), func(v iptables.Variant) bool {
		return slices.Contains(next.variants(), v)
	})
	return next, nil
}

// reassert sets again what the whole process, or the node, has one of, after a
// successor that did not come about.
func (s *server) reassert() error {
	err := s.log.set(s.current.Load().Log())
	if s.client == nil {
		return err
	}
	_, metricsErr := metrics.New(s.metricsConfig())
	return errors.Join(err, metricsErr, s.prepareNode())
}

// variants are those of iptables that this server writes.
func (s *server) variants() (all []iptables.Variant) {
	if used := s.usedVariant(); used != "" {
		all = append(all, used)
	}
	return all
}

// usedVariant is the one of iptables that this server writes, if it does.
func (s *server) usedVariant() iptables.Variant {
	if s.mode != backend.ModeIPTables {
		return s.variant
	}
	name, _, _ := strings.Cut(s.made[0].Name, "/")
	return iptables.Variant(strings.TrimPrefix(name, "iptables-"))
}

// leaveVariants removes the rules of the variants of iptables that this process has
// left; those that somebody else has left are only warned of.
func (s *server) leaveVariants(ctx context.Context) error {
	var failed []error
	for _, variant := range s.left {
		for _, family := range service.Families {
			summary, err := backend.CleanUpVariant(ctx, family, variant, backend.AllTerritories())
			if _, lacks := errors.AsType[*iptables.MissingError](err); lacks {
				continue // nothing can be there
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("iptables-%s/%s: %w", variant, family, err))
			} else if summary.Any() {
				s.log.Info("rules of another variant removed", zap.String("of", "iptables-"+string(variant)),
					zap.Stringer("family", family), zap.Int("hooks", summary.Hooks))
			}
		}
	}
	return errors.Join(failed...)
}

// names lists changed fields.
func names(changes []config.Change) string {
	var all []string
	for _, c := range changes {
		all = append(all, c.Field)
	}
	return strings.Join(all, ", ")
}
