// SPDX-License-Identifier: Apache-2.0

package offload

import (
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/state"
)

// Part returns the offload; nil if the configuration does not ask for it.
func Part(h *part.Host) *part.Part {
	if h.Options.Sluice.NFTables.Offload != config.OffloadTCP {
		return nil
	}
	o := &Offload{Mode: h.Backend.Mode.Name, Unable: !h.Backend.Mode.Offloads, Log: h.Log}
	return &part.Part{Name: "offload", When: part.Synced, Run: part.Always(o.Run), Findings: o.findings, Status: func(s *inspect.Status) {
		now := o.State()
		s.Offload = &now
	}}
}

// findings returns a finding if connections are not offloaded.
func (o *Offload) findings() []state.Finding {
	now := o.State()
	if now.Problem == "" {
		return nil
	}
	return []state.Finding{{Kind: health.NotOffloaded, Since: now.Since, Problem: now.Problem}}
}
