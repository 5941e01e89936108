// SPDX-License-Identifier: Apache-2.0

package balance

import (
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// Part returns the part that observes connections for Services that adapt. pause is the first pause of a suspect; 0 for
// the default. Userspace mode always avoids endpoints that fail, and counts its connections itself. In IPVS mode, the
// kernel's scheduler counts them.
func Part(h *part.Host, pause time.Duration) *part.Part {
	w := New(Config{
		Snapshot: h.Snapshot, Facts: h.Facts, Feed: h.Connections,
		Observe:  func(key service.Key, o *service.Observed) { h.Proxy().Observe(key, o) },
		Outliers: !h.Backend.Mode.Forwards, Least: h.Backend.Mode.Policy.UnobservedLeast,
		Pause: pause, Delete: conntrack.Delete,
		Listen: func(e Event) { report(h, &e) },
		Partly: func(key service.Key) {
			h.Log.Warn("too many connections to observe; a sample counts", zap.Stringer("service", key))
		},
		Failed: func(err error) {
			if err != nil {
				h.Log.Warn("cannot observe or delete connections; failing endpoints stay in use", zap.Error(err))
			}
		},
	})
	return &part.Part{
		Name: "balancing", When: part.Owned, Run: part.Always(w.Run), Observer: proxy.ApplyObserver{Programmed: w.Programmed},
		Metrics: metrics.Sampled{Read: w.sample, Of: []metrics.Definition{
			{Name: suspectsName, Help: "Endpoints that get no new connections because they did not answer; see sluice.dev/outlier."},
			{Name: ejectionsName, Help: "Times that an endpoint was taken out because it did not answer.", Kind: metrics.Counter},
			{Name: partlyName, Help: "Services with more connections than are observed: leastConnections follows a sample of them."},
		}},
	}
}

const (
	suspectsName  = "sluice_suspect_endpoints"
	ejectionsName = "sluice_endpoint_ejections_total"
	partlyName    = "sluice_partly_observed_services"
)

func (w *Watcher) sample(send metrics.Send) {
	now, ever := w.Tally()
	send(suspectsName, float64(now))
	send(ejectionsName, float64(ever))
	send(partlyName, float64(w.PartlyObserved()))
}

// report reports a suspect, or that an endpoint is no longer one.
func report(h *part.Host, e *Event) {
	if e.Suspect {
		h.Log.Info("endpoint does not answer; avoiding it", zap.Stringer("service", e.Key), zap.Stringer("endpoint", e.Endpoint))
		h.Recorder.EndpointSuspect(e.Key, e.Endpoint.String())
		return
	}
	h.Log.Info("endpoint is no longer avoided", zap.Stringer("service", e.Key), zap.Stringer("endpoint", e.Endpoint))
}
