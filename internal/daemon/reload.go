// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
)

// update makes the successor for a changed configuration file. After an error, or if only comments
// changed, this server goes on as before. The context is that of the process.
func (s *server) update(ctx context.Context, u config.Update) {
	setup.Warn(s.log, u.Warnings)
	err := u.Err
	if err == nil && len(u.Changes) > 0 {
		s.successor, err = s.prepareSuccessor(ctx, u.Config, u.Changes)
	}
	if ctx.Err() != nil {
		return // the process is stopping, which may be the reason of the error
	}
	if err != nil {
		s.log.Error("rejected invalid configuration file; keeping the previous configuration", zap.Error(err))
		s.host.Recorder.ConfigurationRejected(err)
		s.configuration.accepted(s.options.Hash(), false)
		return
	}
	s.configuration.accepted(s.options.Hash(), true)
	for _, c := range u.Changes {
		s.log.Info("configuration changed", zap.String("field", c.Field), zap.String("from", c.Old), zap.String("to", c.New))
	}
	if s.successor != nil {
		s.log.Info("reloading configuration; rules remain in the kernel")
	}
}

// prepareSuccessor makes the server that takes over while this one serves. After an error
// nothing has changed.
func (s *server) prepareSuccessor(ctx context.Context, c *config.Config, changes []config.Change) (*server, error) {
	o := *s.options
	o.Config, o.Warnings = c, nil // update has logged them
	if err := o.Check(); err != nil {
		return nil, err
	}
	next, err := newServer(ctx, &o, s.life)
	if err == nil {
		if err = s.life.log.Set(c.Log()); err != nil {
			err = errors.Join(err, next.discard())
		}
	}
	if err != nil {
		return nil, errors.Join(err, s.reassert())
	}
	next.configuration.handed = changes
	next.backend.Succeed(s.backend)
	if node := s.proxy.Node(); node != nil && node.Name == next.host.Node.Name {
		next.proxy.SeedNode(node) // its object may be missing now
	}
	return next, nil
}

// reassert restores the process-wide and node-wide settings of this server after a successor could not be made.
func (s *server) reassert() error {
	err := s.life.log.Set(s.configuration.current.Load().Log())
	err = errors.Join(err, metricsProcess(s.options).Set())
	if s.feed.Client == nil {
		return err
	}
	return errors.Join(err, s.options.PrepareNode(s.sysctls, s.log))
}
