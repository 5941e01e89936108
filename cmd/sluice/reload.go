package main

import (
	"errors"

	"go.uber.org/zap"
	"k8s.io/kube-proxy/config/v1alpha1"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/internal/config"
)

// update obeys a change of the configuration file as far as that goes without a
// restart, and says what becomes of each field. A file with a mistake changes
// nothing.
func (s *server) update(u config.Update) {
	for _, w := range u.Warnings {
		s.log.Warn("configuration", zap.Stringer("at", w.Place), zap.String("problem", w.Message))
	}
	if u.Err != nil {
		s.log.Error("configuration file refused; what it said before stays in force", zap.Error(u.Err))
		s.recorder.ConfigurationRefused(u.Err)
		return
	}
	if err := s.apply(u.Config); err != nil {
		s.log.Error("configuration file cannot be obeyed", zap.Error(err))
		s.recorder.ConfigurationRefused(err)
		return
	}
	s.current.Store(u.Config)
	for _, c := range u.Changes {
		fields := []zap.Field{zap.String("field", c.Field), zap.String("from", c.Old), zap.String("to", c.New)}
		if c.Why != "" {
			fields = append(fields, zap.String("because", c.Why))
		}
		if c.InPlace {
			s.log.Info("configuration changed", fields...)
		} else {
			s.log.Warn("configuration changed; this counts after a restart", fields...)
		}
	}
}

// apply puts into force what can change in a running process.
func (s *server) apply(c *config.Config) error {
	settings, err := c.NodeSettings(v1alpha1.ProxyMode(s.mode))
	if err != nil {
		return err
	}
	// The name counts after a restart, and localhost node ports need what is set
	// up at the start.
	settings.Name = s.settings.Name
	settings.LocalhostNodePorts = settings.LocalhostNodePorts && s.settings.LocalhostNodePorts
	return errors.Join(
		s.log.set(c.Log()),
		s.proxy.Reconfigure(settings),
		s.proxy.Repace(func(d proxy.Domain) aggregator.Pace { return c.Pace(s.preferred[d.Name]) }),
	)
}
