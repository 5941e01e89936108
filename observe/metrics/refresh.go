package metrics

import (
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/source"
)

// refresh asks for everything that is not counted along.
func (m *Metrics) refresh() {
	m.refreshing.Lock()
	defer m.refreshing.Unlock()
	m.refreshActors()
	for _, d := range m.domains {
		d.refreshUnserved()
	}
	asked := m.sources.Load()
	if asked == nil {
		return
	}
	// Read first, so that what comes between is not taken for settled.
	now, events := time.Now(), asked.events()
	var services int
	var endpoints uint64
	for _, s := range asked.status() {
		d := m.domains[s.Domain]
		if d == nil {
			continue
		}
		d.gauges.set(&s, now)
		if !d.Auxiliary {
			d.refreshTimes(&s)
			services = max(services, s.Waiting+s.Ledger.Pending)
			endpoints = max(endpoints, d.untaken(&s, events.SliceChanges))
		}
	}
	m.kube.servicesPending.Set(float64(services))
	m.kube.endpointsPending.Set(float64(endpoints))
	m.refreshTotals(events)
}

func (m *Metrics) refreshActors() {
	all, running, parked := m.roster.len(), m.running.Load(), m.parked.Load()
	m.own.actors.WithLabelValues(stateRunning).Set(float64(running))
	m.own.abandoned.Set(float64(m.abandoned.Load()))
	m.own.actors.WithLabelValues(stateParked).Set(float64(parked))
	m.own.actors.WithLabelValues(stateWaiting).Set(float64(max(0, int64(all)-running-parked)))
}

// refreshUnserved shows the counts of ports without local endpoints, from the first
// success on.
func (d *domain) refreshUnserved() {
	if d.Auxiliary || d.landed.Load() == 0 {
		return
	}
	sums, gauge := &d.metrics.unserved[d.Family], d.metrics.kube.noLocalEndpoints
	gauge.WithLabelValues("internal", d.family).Set(float64(sums.internal.Load()))
	gauge.WithLabelValues("external", d.family).Set(float64(sums.external.Load()))
}

// refreshTimes shows when something was last handed over, and when the kernel was last
// in step. A fragment that needs no write, or that is held back, leaves nothing
// pending: the domain is in step since it came, and the difference of the two
// times, which alerts watch, does not grow.
func (d *domain) refreshTimes(s *aggregator.Status) {
	var submitted int64
	if !s.Submitted.IsZero() {
		submitted = s.Submitted.UnixNano()
	}
	if queued := max(d.opened.Load(), submitted); queued > 0 {
		d.metrics.kube.lastQueued.WithLabelValues(d.family).Set(seconds(queued))
	}
	landed := d.landed.Load()
	if landed == 0 {
		return
	}
	if s.Waiting == 0 && s.OldestPending.IsZero() {
		landed = max(landed, submitted)
	}
	d.metrics.kube.lastTimestamp.WithLabelValues(d.family).Set(seconds(landed))
}

// untaken is the number of slice changes that no batch of the domain has taken yet.
// Changes that left nothing pending made no difference that could be seen in the
// kernel: they are done with, too.
func (d *domain) untaken(s *aggregator.Status, changes uint64) uint64 {
	if s.Waiting+s.Ledger.Pending == 0 && s.OldestPending.IsZero() {
		d.taken.Store(changes)
	}
	return changes - min(changes, d.taken.Load())
}

// refreshTotals counts what the source has been told since the last time. Each family
// is an instance of its own to kube-proxy, and counts every Service.
func (m *Metrics) refreshTotals(events source.Events) {
	for _, d := range m.domains {
		if !d.Auxiliary {
			m.kube.servicesTotal.Add(float64(events.Specs - m.told.Specs))
			m.kube.endpointsTotal.Add(float64(events.Slices[d.Family] - m.told.Slices[d.Family]))
		}
	}
	m.told = events
}

// seconds converts a time in nanoseconds.
func seconds(nanoseconds int64) float64 {
	return float64(nanoseconds) / float64(time.Second)
}
