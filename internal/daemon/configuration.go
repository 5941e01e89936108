// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/observe/state"
)

// configuration is the state of the configuration file.
type configuration struct {
	// current is the configuration, with the verbosity that a client may have set since.
	current atomic.Pointer[config.Config]
	// handed are the changes of the configuration for which this server was made; nil for the first server.
	handed []config.Change
	loaded atomic.Pointer[loaded]
	// pending is the change that this server does not apply (reload: off); nil without one.
	pending atomic.Pointer[pendingChange]
}

// loaded is the result of the last read of the file: the hash of the applied configuration, and when a file was last
// accepted. failed means that the file has changed since and was rejected.
type loaded struct {
	hash   string
	at     time.Time
	failed bool
}

type pendingChange struct {
	hash  string
	since time.Time
}

const (
	hashName    = "sluice_config_hash"
	successName = "sluice_config_last_reload_successful"
	timeName    = "sluice_config_last_reload_success_timestamp_seconds"
	pendingName = "sluice_config_pending"
)

// configurationPart reports about the configuration file.
func (s *server) configurationPart() *part.Part {
	return &part.Part{
		Name: "configuration", Findings: s.configuration.findings,
		Metrics: metrics.Sampled{Read: s.configuration.sample, Of: []metrics.Definition{
			{Name: hashName, Labels: []string{"hash"}, Help: "Always 1; the label contains the hash of the applied configuration."},
			{Name: successName, Help: "1 if the newest configuration file is valid and was accepted, 0 if it was rejected."},
			{Name: timeName, Help: "Unix time at which a configuration file was last accepted."},
			{Name: pendingName, Help: "1 if a changed configuration file is not applied because of reload: off, otherwise 0."},
		}},
	}
}

func (c *configuration) sample(send metrics.Send) {
	now := c.loaded.Load()
	send(hashName, 1, now.hash)
	send(successName, metrics.Flag(!now.failed))
	send(timeName, float64(now.at.UnixMilli())/1000)
	send(pendingName, metrics.Flag(c.pending.Load() != nil))
}

// accepted records that a configuration was accepted, or rejected.
func (c *configuration) accepted(hash string, accepted bool) {
	now := loaded{hash: hash, at: time.Now(), failed: !accepted}
	if !accepted {
		now.at = c.loaded.Load().at
	}
	c.loaded.Store(&now)
}

// findings returns a finding if a change is not applied.
func (c *configuration) findings() []state.Finding {
	p := c.pending.Load()
	if p == nil {
		return nil
	}
	return []state.Finding{{Kind: health.ConfigurationPending, Since: p.since, Problem: p.problem()}}
}

// follow applies changes of the configuration file until there is a successor, or reports them (reload: off). Only one
// goroutine calls it; the successor gets the context of the process.
func (s *server) follow(ctx, process context.Context, updates <-chan config.Update) {
	for ctx.Err() == nil && s.successor == nil {
		select {
		case <-ctx.Done():
		case u := <-updates:
			if s.options.Sluice.Reload == config.ReloadOff && u.Err == nil && len(u.Changes) > 0 {
				s.hold(u.Config.Hash())
				continue
			}
			s.configuration.pending.Store(nil)
			s.update(process, u)
		}
	}
}

// hold reports a change that is not applied.
func (s *server) hold(hash string) {
	if p := s.configuration.pending.Load(); p != nil && p.hash == hash {
		return
	}
	p := &pendingChange{hash: hash, since: time.Now()}
	s.configuration.pending.Store(p)
	s.log.Warn("changed configuration is not applied", zap.String("hash", hash), zap.String("reason", p.problem()))
	s.host.Recorder.ConfigurationHeld(p.problem())
}

func (p *pendingChange) problem() string {
	return fmt.Sprintf("the configuration file has changed (hash %s) and is not applied: reload is off; a restart of the proxy applies it", p.hash)
}
