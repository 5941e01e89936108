// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe/book"
)

// domain is one domain with its metrics, so that counting an event needs no lookup.
type domain struct {
	book.Domain
	metrics *Metrics
	// family is the value of the label ip_family.
	family string

	programming                                              slowest
	writeSeconds, auditSeconds, repairSeconds, batchServices prometheus.Histogram
	writes, audits, drift                                    *prometheus.CounterVec
	repairs, quarantines, nodeFaults, late                   prometheus.Counter

	// settled is set once the kernel has matched what is wanted for the first time, adopted once it
	// has been read for the first time; rules counts the iptables rules per table. The domain's
	// aggregator owns all three.
	settled, adopted bool
	rules            map[string]int
	// opened is when the gate opened, landed when something was last found or written in the kernel
	// as wanted. Both are in nanoseconds since 1970, and 0 before that.
	opened, landed atomic.Int64
	// taken is the number of slice changes that the source had seen when a batch last landed, or
	// when nothing was pending.
	taken atomic.Uint64
}

// The results of an audit.
const (
	auditClean   = "clean"
	auditDrift   = "drift"
	auditFailed  = "failed"
	auditAdopted = "adopted"
)

func newDomain(info book.Domain, m *Metrics) *domain {
	of := definer{m.registry, prometheus.Labels{labelDomain: info.Name}}
	var outcomes []string
	for outcome := dataplane.Landed; outcome <= dataplane.Unsupported; outcome++ {
		outcomes = append(outcomes, outcome.String())
	}
	return &domain{
		Domain: info, metrics: m, family: info.Family.String(), rules: map[string]int{},

		programming:   of.slowest("sluice_programming_duration_seconds", "Time from receipt of a change until it is in the kernel, per changed Service and batch.", finely),
		writeSeconds:  of.histogram("sluice_write_duration_seconds", "Duration of a write.", coarsely),
		repairSeconds: of.histogram("sluice_repair_duration_seconds", "Time from detection of an external change to its repair, including the delay of repeated repairs.", coarsely),
		auditSeconds:  of.histogram("sluice_audit_duration_seconds", "Duration of reading the kernel state.", coarsely),
		batchServices: of.histogram("sluice_batch_services", "Services whose changes share a batch.", counts),

		writes:      of.counters("sluice_writes_total", "Writes by outcome: landed, busy, unknown, rejected, unsupported.", "outcome", outcomes...),
		audits:      of.counters("sluice_audits_total", "Audits by result: adopted (the first one), clean, drift, failed.", "result", auditClean, auditDrift, auditFailed, auditAdopted),
		drift:       of.counters("sluice_drift_objects_total", "Objects that audits after the first found missing, different or unwanted, including leftovers of failed writes.", "kind", "missing", "different", "unwanted"),
		repairs:     of.counter("sluice_repairs_total", "Audits that found changes by other processes."),
		quarantines: of.counter("sluice_quarantines_total", "Quarantined fragments, including repeated rejections."),
		nodeFaults:  of.counter("sluice_node_faults_total", "Rejections of node-wide rules."),
		late:        of.counter("sluice_late_fragments_total", "Rejected late fragments of previous actor incarnations."),
	}
}

// Aggregator counts what happens in a domain.
func (m *Metrics) Aggregator(event aggregator.Event) {
	switch e := event.(type) {
	case aggregator.Applied:
		m.in(e.Domain, func(d *domain) { d.applied(e) })
	case aggregator.BatchWritten:
		m.in(e.Domain, func(d *domain) { d.written(e) })
	case aggregator.AuditDone:
		m.in(e.Domain, func(d *domain) { d.audited(e) })
	case aggregator.GateOpened:
		m.in(e.Domain, func(d *domain) { d.opened.Store(time.Now().UnixNano()) })
	case aggregator.RepairBegan:
		m.in(e.Domain, func(d *domain) { d.repairs.Inc() })
	case aggregator.Repaired:
		m.in(e.Domain, func(d *domain) { d.repairSeconds.Observe(e.Took.Seconds()) })
	case aggregator.Quarantined:
		m.in(e.Domain, func(d *domain) { d.quarantines.Inc() })
	case aggregator.NodeAtFault:
		m.in(e.Domain, func(d *domain) { d.nodeFaults.Inc() })
	case aggregator.LateRejected:
		m.in(e.Domain, func(d *domain) { d.late.Inc() })
	}
}

// in counts something in a domain, if it is one of ours.
func (m *Metrics) in(name string, count func(*domain)) {
	if d := m.domains[name]; d != nil {
		count(d)
	}
}

// written counts one write.
func (d *domain) written(e aggregator.BatchWritten) {
	r := e.Receipt
	d.writes.WithLabelValues(r.Outcome.String()).Inc()
	d.writeSeconds.Observe(r.Took.Seconds())
	d.batchServices.Observe(float64(len(e.Batch.Contributions)))
	if d.Auxiliary {
		return
	}
	d.synced(e)
	if r.Outcome != dataplane.Landed {
		return
	}
	d.inStep(time.Now())
	d.taken.Store(d.metrics.config.Events().SliceChanges)
}

// inStep records that the kernel, or a part of it, was found or made to match what is wanted.
func (d *domain) inStep(now time.Time) {
	d.settled = true
	d.landed.Store(now.UnixNano())
}

// applied measures how long a change took.
func (d *domain) applied(e aggregator.Applied) {
	triggered, received := d.metrics.config.Book.Took(&e)
	if received >= 0 {
		d.programming.observe(e.At, e.Key, received)
	}
	if d.Auxiliary {
		return
	}
	d.inStep(e.At)
	if triggered >= 0 {
		d.metrics.kube.networkProgramming.WithLabelValues(d.family).Observe(triggered.Seconds())
	}
}

// audited counts a comparison with the kernel. The first one adopts what is there: what it finds is
// not drift.
func (d *domain) audited(e aggregator.AuditDone) {
	d.auditSeconds.Observe(e.Took.Seconds())
	if e.Err != nil {
		d.audits.WithLabelValues(auditFailed).Inc()
		return
	}
	if !d.Auxiliary && d.metrics.config.Mode == modeIPTables {
		d.countRead(e.Objects)
	}
	switch {
	case !d.adopted:
		d.adopted = true
		d.audits.WithLabelValues(auditAdopted).Inc()
	case e.Drift.Any():
		d.audits.WithLabelValues(auditDrift).Inc()
		d.drift.WithLabelValues("missing").Add(float64(e.Drift.Missing))
		d.drift.WithLabelValues("different").Add(float64(e.Drift.Different))
		d.drift.WithLabelValues("unwanted").Add(float64(e.Drift.Unwanted))
	default:
		d.audits.WithLabelValues(auditClean).Inc()
	}
}

// statusGauge shows one value of an aggregator's Status.
type statusGauge struct {
	desc  *prometheus.Desc
	value func(s *aggregator.Status, now time.Time) float64
}

func statusOf(name, help string, value func(s *aggregator.Status, now time.Time) float64) statusGauge {
	return statusGauge{prometheus.NewDesc(name, help, []string{labelDomain}, nil), value}
}

var statusGauges = []statusGauge{
	statusOf("sluice_gate_open", "1 once the startup gate is open and the first write may start.",
		func(s *aggregator.Status, _ time.Time) float64 { return flag(s.Open) }),
	statusOf("sluice_gate_missing_services", "Services awaited by the first write.",
		func(s *aggregator.Status, _ time.Time) float64 { return float64(s.Missing) }),
	statusOf("sluice_waiting_fragments", "Fragments waiting for a batch.",
		func(s *aggregator.Status, _ time.Time) float64 { return float64(s.Waiting) }),
	statusOf("sluice_oldest_pending_seconds", "Age of the oldest fragment without a result; 0 if there is none.",
		func(s *aggregator.Status, now time.Time) float64 {
			if s.OldestPending.IsZero() {
				return 0
			}
			return max(0, now.Sub(s.OldestPending).Seconds())
		}),
	statusOf("sluice_failed_writes_in_a_row", "Failed writes since the last successful write.",
		func(s *aggregator.Status, _ time.Time) float64 { return float64(s.Failures) }),
	statusOf("sluice_node_at_fault", "1 while the kernel rejects node-wide rules.",
		func(s *aggregator.Status, _ time.Time) float64 { return flag(s.NodeAtFault) }),
	statusOf("sluice_quarantined_services", "Services quarantined because the kernel rejects their rules.",
		func(s *aggregator.Status, _ time.Time) float64 { return float64(len(s.Quarantined)) }),
	statusOf("sluice_ledger_services", "Services in the ledger, including the account of node-wide rules.",
		func(s *aggregator.Status, _ time.Time) float64 { return float64(s.Ledger.Keys) }),
	statusOf("sluice_ledger_objects", "Desired objects and objects known to be in the kernel.",
		func(s *aggregator.Status, _ time.Time) float64 { return float64(s.Ledger.Objects) }),
	statusOf("sluice_ledger_dirty_objects", "Objects not yet written.",
		func(s *aggregator.Status, _ time.Time) float64 { return float64(s.Ledger.Dirty) }),
	statusOf("sluice_ledger_pending_services", "Services that are not applied: their latest rules are not in the kernel, or some are known to be missing.",
		func(s *aggregator.Status, _ time.Time) float64 { return float64(s.Pending) }),
}

func statusDescs() (all []*prometheus.Desc) {
	for _, g := range statusGauges {
		all = append(all, g.desc)
	}
	return all
}

func (m *Metrics) collectStatus(to chan<- prometheus.Metric) {
	now := time.Now()
	for _, s := range m.config.Book.Status() {
		if m.domains[s.Domain] == nil {
			continue
		}
		for _, g := range statusGauges {
			send(to, g.desc, prometheus.GaugeValue, g.value(&s, now), s.Domain)
		}
	}
}
