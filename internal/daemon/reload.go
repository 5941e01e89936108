package daemon

import (
	"context"
	"errors"
	"slices"

	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// update applies a change of the configuration file, in place or by a successor. It
// reports whether the file is in force, or about to be. A file that cannot be applied as a
// whole changes nothing.
func (s *server) update(ctx context.Context, u config.Update) (inForce bool) {
	warn(s.log.Logger, u.Warnings)
	err := u.Err
	handOver := err == nil && s.mustHandOver(u.Config, u.Changes)
	switch {
	case err != nil:
	case handOver:
		s.successor, err = s.prepareSuccessor(ctx, u.Config, u.Changes)
	default:
		err = s.apply(u.Config)
	}
	if ctx.Err() != nil {
		return false // the process is stopping, which may be the reason of the error
	}
	if err != nil {
		s.log.Error("configuration file rejected; the previous configuration stays in force", zap.Error(err))
		s.recorder.ConfigurationRefused(err)
		return false
	}
	for _, c := range u.Changes {
		fields := []zap.Field{zap.String("field", c.Field), zap.String("from", c.Old), zap.String("to", c.New)}
		if c.Why != "" {
			fields = append(fields, zap.String("because", c.Why))
		}
		s.log.Info("configuration changed", fields...)
	}
	if handOver {
		s.log.Info("handing over to the changed configuration; the rules stay in the kernel")
	}
	return true
}

// mustHandOver reports whether a configuration needs a successor: because of a changed
// field, or because node ports on localhost need something that only a start sets up.
func (s *server) mustHandOver(c *config.Config, changes []config.Change) bool {
	if slices.ContainsFunc(changes, func(c config.Change) bool { return c.Effect == config.HandOver }) {
		return true
	}
	if s.mode == config.ModeNFTables {
		return c.ForwardsLocalhost() != s.ForwardsLocalhost()
	}
	settings, err := c.NodeSettings(s.mode)
	return err == nil && settings.LocalhostNodePorts && !s.settings.LocalhostNodePorts
}

// apply changes the running parts, all of them or none.
func (s *server) apply(c *config.Config) error {
	if err := s.change(c); err != nil {
		return errors.Join(err, s.change(s.current.Load()))
	}
	s.current.Store(c)
	return nil
}

func (s *server) change(c *config.Config) error {
	settings, err := c.NodeSettings(s.mode)
	if err != nil {
		return err
	}
	settings.Name = s.settings.Name // the host may have a new one, which counts from the next start
	s.monitor.SetSyncPeriod(c.SyncPeriod())
	return errors.Join(
		s.log.set(c.Log()),
		s.proxy.Reconfigure(settings),
		s.proxy.Repace(func(d proxy.Domain) aggregator.Pace { return c.Pace(s.preferred[d.Name]) }),
	)
}

// prepareSuccessor makes the server that takes over while this one serves. After an error
// nothing has changed.
func (s *server) prepareSuccessor(ctx context.Context, c *config.Config, changes []config.Change) (*server, error) {
	o := *s.Options
	o.Config, o.warnings = c, nil // update has logged them
	if err := o.check(); err != nil {
		return nil, err
	}
	next, err := newServer(ctx, &o, s.process)
	if err == nil {
		if err = s.log.set(c.Log()); err != nil {
			err = errors.Join(err, next.discard())
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.reassert())
	}
	next.handed = changes
	next.succeed(s.kernel)
	if node := s.proxy.Node(); node != nil && node.Name == next.settings.Name {
		next.proxy.PostNode(node) // its object may be missing now
	}
	return next, nil
}

// reassert sets the state that the process or the node has only one of, after a
// successor could not be made.
func (s *server) reassert() error {
	err := s.log.set(s.current.Load().Log())
	err = errors.Join(err, s.metricsConfig().Process.Set())
	if s.client == nil {
		return err
	}
	return errors.Join(err, s.node.prepare(s.Options, s.log.Logger))
}
