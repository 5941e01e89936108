package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-proxy/sluice/aggregator"
)

// statusGauges show an aggregator's Status.
type statusGauges struct {
	gateOpen, gateMissing, waiting, oldest, failing, atFault, quarantined prometheus.Gauge
	keys, objects, dirty, pending, shadowed                               prometheus.Gauge
}

func newStatusGauges(of *ofDomain, domain string) statusGauges {
	return statusGauges{
		gateOpen:    of.gateOpen.WithLabelValues(domain),
		gateMissing: of.gateMissing.WithLabelValues(domain),
		waiting:     of.waiting.WithLabelValues(domain),
		oldest:      of.oldest.WithLabelValues(domain),
		failing:     of.failing.WithLabelValues(domain),
		atFault:     of.atFault.WithLabelValues(domain),
		quarantined: of.quarantined.WithLabelValues(domain),
		keys:        of.keys.WithLabelValues(domain),
		objects:     of.objects.WithLabelValues(domain),
		dirty:       of.dirty.WithLabelValues(domain),
		pending:     of.pending.WithLabelValues(domain),
		shadowed:    of.shadowed.WithLabelValues(domain),
	}
}

func (g *statusGauges) set(s *aggregator.Status, now time.Time) {
	g.gateOpen.Set(flag(s.Open))
	g.gateMissing.Set(float64(s.Missing))
	g.waiting.Set(float64(s.Waiting))
	g.oldest.Set(0)
	if !s.OldestPending.IsZero() {
		g.oldest.Set(max(0, now.Sub(s.OldestPending).Seconds()))
	}
	g.failing.Set(float64(s.Failures))
	g.atFault.Set(flag(s.NodeAtFault))
	g.quarantined.Set(float64(len(s.Quarantined)))
	g.keys.Set(float64(s.Ledger.Keys))
	g.objects.Set(float64(s.Ledger.Objects))
	g.dirty.Set(float64(s.Ledger.Dirty))
	g.pending.Set(float64(s.Ledger.Pending))
	g.shadowed.Set(float64(s.Ledger.Shadowed))
}

func flag(set bool) float64 {
	if set {
		return 1
	}
	return 0
}
