package main

import (
	"context"
	"errors"

	"go.uber.org/zap"
	"k8s.io/kube-proxy/config/v1alpha1"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
)

// update obeys a change of the configuration file: in place, or by a successor. It
// tells whether what the file says is in force, or about to be. What cannot be
// obeyed as a whole changes nothing.
func (s *server) update(ctx context.Context, u config.Update) (inForce bool) {
	for _, w := range u.Warnings {
		s.log.Warn("configuration", zap.Stringer("at", w.Place), zap.String("problem", w.Message))
	}
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
		return false // told to stop: what comes of it is nobody's mistake
	}
	if err != nil {
		s.log.Error("configuration file refused; what it said before stays in force", zap.Error(err))
		s.recorder.ConfigurationRefused(err)
		return false
	}
	s.tell(u.Changes)
	if handOver {
		s.log.Info("handing over to the changed configuration; the rules stay in the kernel")
	}
	return true
}

// tell logs what has changed.
func (s *server) tell(changes []config.Change) {
	for _, c := range changes {
		fields := []zap.Field{zap.String("field", c.Field), zap.String("from", c.Old), zap.String("to", c.New)}
		if c.Why != "" {
			fields = append(fields, zap.String("because", c.Why))
		}
		s.log.Info("configuration changed", fields...)
	}
}

// apply puts into force what can change in the parts that run, all of it or nothing.
func (s *server) apply(c *config.Config) error {
	if err := s.change(c); err != nil {
		return errors.Join(err, s.change(s.current.Load()))
	}
	s.current.Store(c)
	return nil
}

func (s *server) change(c *config.Config) error {
	settings, err := c.NodeSettings(v1alpha1.ProxyMode(s.mode))
	if err != nil {
		return err
	}
	settings.Name = s.settings.Name // the host's may have changed; it is looked up at the start
	return errors.Join(
		s.log.set(c.Log()),
		s.proxy.Reconfigure(settings),
		s.proxy.Repace(func(d proxy.Domain) aggregator.Pace { return c.Pace(s.preferred[d.Name]) }),
		s.monitor.SetSyncPeriod(c.SyncPeriod()),
	)
}
