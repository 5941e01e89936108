package metrics

import (
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Aggregator counts what happens in a domain.
func (m *Metrics) Aggregator(event aggregator.Event) {
	switch e := event.(type) {
	case aggregator.GateOpened:
		if d := m.domains[e.Domain]; d != nil {
			d.opened.Store(time.Now().UnixNano())
		}
	case aggregator.BatchWritten:
		if d := m.domains[e.Domain]; d != nil {
			d.written(e)
		}
	case aggregator.Applied:
		if d := m.domains[e.Domain]; d != nil {
			d.applied(e)
		}
	case aggregator.AuditDone:
		if d := m.domains[e.Domain]; d != nil {
			d.audited(e)
		}
	case aggregator.RepairBegan:
		if d := m.domains[e.Domain]; d != nil {
			d.repairs.Inc()
		}
	case aggregator.Repaired:
		if d := m.domains[e.Domain]; d != nil {
			d.repairSeconds.Observe(e.Took.Seconds())
		}
	case aggregator.Quarantined:
		if d := m.domains[e.Domain]; d != nil {
			d.quarantines.Inc()
		}
	case aggregator.NodeAtFault:
		if d := m.domains[e.Domain]; d != nil {
			d.nodeFaults.Inc()
		}
	case aggregator.LateRefused:
		if d := m.domains[e.Domain]; d != nil {
			d.late.Inc()
		}
	}
}

// written counts one write, which is what a sync is to kube-proxy.
func (d *domain) written(e aggregator.BatchWritten) {
	r := e.Receipt
	if int(r.Outcome) < len(d.writes) {
		d.writes[r.Outcome].Inc()
	}
	d.writeSeconds.Observe(r.Took.Seconds())
	d.batchServices.Observe(float64(len(e.Batch.Contributions)))
	d.batchObjects.Observe(float64(r.Written.Objects))
	d.batchLines.Observe(float64(r.Written.Lines))
	d.batchBytes.Observe(float64(r.Written.Bytes))
	if d.Auxiliary {
		return
	}
	k, full := d.metrics.kube, !d.settled
	k.syncSeconds.WithLabelValues(d.family).Observe(r.Took.Seconds())
	if full {
		k.fullSeconds.WithLabelValues(d.family).Observe(r.Took.Seconds())
	} else {
		k.partialSeconds.WithLabelValues(d.family).Observe(r.Took.Seconds())
	}
	if d.metrics.config.Mode == modeIPTables {
		d.countWritten(e)
	}
	if r.Outcome != dataplane.Landed {
		d.failed(e.Batch, full)
		return
	}
	d.inStep(time.Now())
	if s := d.metrics.sources.Load(); s != nil {
		d.taken.Store(s.events().SliceChanges)
	}
}

// failed counts a write that did not land, in whichever mode.
func (d *domain) failed(batch *dataplane.Batch, full bool) {
	k := d.metrics.kube
	k.restoreFailures.WithLabelValues(d.family).Inc()
	if !full {
		k.partialRestoreFailures.WithLabelValues(d.family).Inc()
	}
	if removesOnly(batch) {
		k.nftCleanupFailures.WithLabelValues(d.family).Inc()
	} else {
		k.nftSyncFailures.WithLabelValues(d.family).Inc()
	}
}

// removesOnly reports whether a batch adds and changes nothing.
func removesOnly(batch *dataplane.Batch) bool {
	for i := range batch.Changes {
		if batch.Changes[i].After != nil {
			return false
		}
	}
	return len(batch.Changes) > 0
}

// inStep takes note that the kernel was found or brought to what is wanted, in whole
// or in part.
func (d *domain) inStep(now time.Time) {
	d.settled = true
	d.landed.Store(now.UnixNano())
}

// applied measures how long a change took.
func (d *domain) applied(e aggregator.Applied) {
	m := d.metrics
	triggered, received := since(e.Trigger, e.At), since(e.Received, e.At)
	if e.Trigger.Before(m.began) {
		triggered = unknown // kube-proxy does not measure what is older than the process
	}
	if received >= 0 {
		d.programming.Observe(received.Seconds())
	}
	if triggered >= 0 {
		d.networkProgramming.Observe(triggered.Seconds())
	}
	if d.Auxiliary {
		return
	}
	d.inStep(e.At)
	if triggered >= 0 {
		m.kube.networkProgramming.WithLabelValues(d.family).Observe(triggered.Seconds())
	}
	if e.Key == service.Node {
		return
	}
	m.roster.update(e.Key, func(r *record) { r.applied(e.At, e.Revision, triggered, received) })
}

// unknown is a duration that cannot be told.
const unknown = time.Duration(-1)

// since is the time between two moments. The trigger comes from another clock: what
// it puts into the future took no time.
func since(start, end time.Time) time.Duration {
	if start.IsZero() {
		return unknown
	}
	return max(0, end.Sub(start))
}

// audited counts a comparison with the kernel. The first one takes over what is
// there: what it finds is no drift.
func (d *domain) audited(e aggregator.AuditDone) {
	d.auditSeconds.Observe(e.Took.Seconds())
	if e.Err != nil {
		d.audits[auditFailed].Inc()
		return
	}
	if !d.Auxiliary && d.metrics.config.Mode == modeIPTables {
		d.countRead(e.Objects)
	}
	switch {
	case !d.adopted:
		d.adopted = true
		d.audits[auditAdopted].Inc()
	case e.Drift.Any():
		d.audits[auditDrift].Inc()
		d.missing.Add(float64(e.Drift.Missing))
		d.different.Add(float64(e.Drift.Different))
		d.unwanted.Add(float64(e.Drift.Unwanted))
	default:
		d.audits[auditClean].Inc()
	}
}
