package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/observe/health"
)

// pending is the change of the configuration file that a server does not apply (reload: off).
type pending struct {
	now atomic.Pointer[pendingChange] // nil without a change
}

type pendingChange struct {
	hash  string
	since time.Time
}

// follow applies changes of the configuration file until there is a successor, or reports them (reload: off). Only one
// goroutine calls it; the context of the process is for the successor.
func (s *server) follow(ctx, process context.Context, updates <-chan config.Update) {
	for ctx.Err() == nil && s.successor == nil {
		select {
		case <-ctx.Done():
		case u := <-updates:
			if s.options.Sluice.Reload == config.ReloadOff && u.Err == nil && len(u.Changes) > 0 {
				s.hold(u.Config.Hash())
				continue
			}
			s.pending.now.Store(nil)
			s.update(process, u)
		}
	}
}

// hold reports a change that is not applied.
func (s *server) hold(hash string) {
	if p := s.pending.now.Load(); p != nil && p.hash == hash {
		return
	}
	p := &pendingChange{hash: hash, since: time.Now()}
	s.pending.now.Store(p)
	s.log.Warn("changed configuration is not applied", zap.String("hash", hash), zap.String("reason", p.problem()))
	s.reports.recorder.ConfigurationHeld(p.problem())
}

func (p *pendingChange) problem() string {
	return fmt.Sprintf("the configuration file has changed (hash %s) and is not applied: reload is off; a restart of the proxy applies it", p.hash)
}

// findings returns a finding if a change is not applied.
func (p *pending) findings() []health.Finding {
	c := p.now.Load()
	if c == nil {
		return nil
	}
	return []health.Finding{{Kind: health.ConfigurationPending, Since: c.since, Problem: c.problem()}}
}

// held reports whether a change is not applied.
func (p *pending) held() bool { return p.now.Load() != nil }
