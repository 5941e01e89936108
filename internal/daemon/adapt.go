package daemon

import (
	"context"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/daemon/balance"
	"github.com/sluice-proxy/sluice/service"
)

// newBalance makes what observes connections for Services that adapt. The proxy comes later, and before the first question.
// Userspace mode avoids endpoints that fail in each case, and counts its connections itself. The kernel's scheduler does so in
// IPVS mode.
func (s *server) newBalance() *balance.Watcher {
	return balance.New(balance.Config{
		Snapshot: func(key service.Key) service.Snapshot { return s.proxy.Snapshot(key) },
		Facts:    func() *service.NodeFacts { return s.proxy.Facts() },
		Feed:     s.connections,
		Observe:  func(key service.Key, o *service.Observed) { s.proxy.Observe(key, o) },
		Outliers: !s.backend.Mode.Forwards, Least: s.backend.Mode.Policy.UnobservedLeast,
		Pause:  s.options.SuspectPause,
		Delete: conntrack.Delete,
		Listen: s.reports.adapted,
		Partly: func(key service.Key) {
			s.log.Warn("too many connections to observe; a sample counts", zap.Stringer("service", key))
		},
		Failed: func(err error) {
			if err != nil {
				s.log.Warn("cannot observe or delete connections; failing endpoints stay in use", zap.Error(err))
			}
		},
	})
}

// adapted reports a suspect, or that an endpoint is none any more.
func (r *reports) adapted(e balance.Event) {
	if e.Suspect {
		r.log.Info("endpoint does not answer; avoiding it", zap.Stringer("service", e.Key), zap.Stringer("endpoint", e.Endpoint))
		r.recorder.EndpointSuspect(e.Key, e.Endpoint.String())
		return
	}
	r.log.Info("endpoint is no longer avoided", zap.Stringer("service", e.Key), zap.Stringer("endpoint", e.Endpoint))
}

// adapt observes connections once the rules belong to this process.
func (s *server) adapt(ctx context.Context) {
	select {
	case <-s.life.owner.mayWrite:
		s.balance.Run(ctx)
	case <-ctx.Done():
	}
}
