// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/conntrack/cleaner"
	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// cleanerPart removes stale flows; nil in userspace mode, which translates nothing.
func (s *server) cleanerPart() (*part.Part, error) {
	if s.backend.Mode.Forwards {
		return nil, nil
	}
	c, err := cleaner.New(cleaner.Config{
		NodePorts: s.host.NodePorts, Owner: s.host.Owner, Listen: s.cleaned,
		Drains: !s.backend.Mode.DrainsItself,
	})
	if err != nil {
		return nil, err
	}
	return &part.Part{Name: "cleaner", Run: c.Run, Observer: proxy.ApplyObserver{
		Programmed: c.Programmed, BeforeWrite: c.Submitted, AfterRepair: c.Repaired,
	}}, nil
}

// cleaned reports the removal of stale flows.
func (s *server) cleaned(swept cleaner.Swept) {
	s.answers.Metrics.Conntrack(swept)
	s.answers.Book.FlowsDeleted(swept.Services)
	for i := range swept.Cut {
		s.drainCut(swept.Family, &swept.Cut[i])
	}
	switch {
	case swept.Err != nil:
		warnIfNew := zap.DebugLevel
		if tell, _ := s.host.Repeated.Failed("flows" + swept.Family.String()); tell {
			warnIfNew = zap.WarnLevel
		}
		s.log.Log(warnIfNew, "cannot delete stale conntrack entries; retrying", zap.Stringer("family", swept.Family),
			zap.Int("failures", swept.Failures), zap.Error(swept.Err))
	case swept.Deleted > 0:
		s.log.Debug("stale flows removed", zap.Stringer("family", swept.Family),
			zap.Int("flows", swept.Deleted), zap.Duration("took", swept.Took))
	}
}

// drainCut logs that connections to removed endpoints were cut.
func (s *server) drainCut(family service.Family, c *cleaner.Cut) {
	const namedMax = 10
	s.log.Info("drain deadline reached; connections cut", zap.Stringer("service", c.Service), zap.Stringer("family", family),
		zap.Int("connections", c.Connections), zap.Int("endpoints", len(c.Endpoints)),
		zap.Stringers("named", c.Endpoints[:min(namedMax, len(c.Endpoints))]), zap.Duration("deadline", c.Deadline),
		zap.Int("beforeDeadline", c.Crowded))
}
