// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/service"
)

// Part returns the export of spans. If the configuration does not enable it, the part has only its metric.
func Part(h *part.Host) *part.Part {
	dropped := func() uint64 { return 0 }
	p := &part.Part{Name: "traces", Metrics: metrics.One("sluice_traces_dropped_total",
		"Sampled changes whose spans were not exported, because the receiver of spans was too slow or failed.",
		metrics.Total, func() float64 { return float64(dropped()) })}
	c := &h.Options.Sluice.Tracing
	if c.Endpoint == "" {
		return p
	}
	families := map[string]service.Family{}
	for _, d := range h.Domains {
		families[d.Name] = d.Family
	}
	t := New(Config{
		Endpoint: c.Endpoint, PerMillion: c.SamplingRatePerMillion, Slow: c.SlowThreshold.Duration, Seed: uint32(h.Options.Sluice.Balancing.Seed),
		Mode: string(h.Backend.Mode.Name), Node: h.Node.Name, Version: h.Options.Version, Domains: families,
		Failed: func(err error) {
			if tell, _ := h.Repeated.Failed("traces"); tell {
				h.Log.Warn("cannot export traces; dropping them", zap.Error(err))
			}
		},
	})
	dropped = t.Dropped
	p.Listener, p.Run = t, part.Always(t.Run)
	return p
}
