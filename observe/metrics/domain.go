package metrics

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-proxy/sluice/dataplane"
)

// domain is one domain with its metrics looked up, so that an event costs no
// more than counting.
type domain struct {
	Domain
	metrics *Metrics
	// family is the value of the label ip_family.
	family string

	programming, networkProgramming, writeSeconds, auditSeconds prometheus.Observer
	repairSeconds                                               prometheus.Observer
	batchServices, batchObjects, batchLines, batchBytes         prometheus.Observer
	writes                                                      [len(outcomes)]prometheus.Counter
	audits                                                      [len(auditResults)]prometheus.Counter
	missing, different, unwanted, repairs                       prometheus.Counter
	quarantines, nodeFaults, late                               prometheus.Counter
	gauges                                                      statusGauges

	// settled is set once the kernel has been brought to what was wanted for the
	// first time, adopted once it has been read for the first time; rules counts
	// the iptables rules per table. The domain's aggregator owns all three.
	settled, adopted bool
	rules            map[string]int
	// opened is when the gate opened, landed when something was last found or
	// brought into the kernel as wanted; both in nanoseconds since 1970, 0
	// before that.
	opened, landed atomic.Int64
	// taken is the number of slice changes that the source had seen when a batch
	// last landed, or when nothing was pending.
	taken atomic.Uint64
}

// outcomes are those of a write, as the label's values are.
var outcomes = [...]dataplane.Outcome{dataplane.Landed, dataplane.Busy, dataplane.Unknown, dataplane.Rejected, dataplane.Unsupported}

// auditResult is how an audit ended.
type auditResult int

const (
	auditClean auditResult = iota
	auditDrift
	auditFailed
	auditAdopted
)

var auditResults = [...]string{auditClean: "clean", auditDrift: "drift", auditFailed: "failed", auditAdopted: "adopted"}

func newDomain(config Domain, m *Metrics) *domain {
	of, name := &m.own.ofDomain, config.Name
	d := &domain{
		Domain: config, metrics: m, family: config.Family.String(),
		programming:        of.programming.WithLabelValues(name),
		networkProgramming: of.networkProgramming.WithLabelValues(name),
		writeSeconds:       of.writeSeconds.WithLabelValues(name),
		repairSeconds:      of.repairSeconds.WithLabelValues(name),
		auditSeconds:       of.auditSeconds.WithLabelValues(name),
		batchServices:      of.batchServices.WithLabelValues(name),
		batchObjects:       of.batchObjects.WithLabelValues(name),
		batchLines:         of.batchLines.WithLabelValues(name),
		batchBytes:         of.batchBytes.WithLabelValues(name),
		missing:            of.drift.WithLabelValues(name, "missing"),
		different:          of.drift.WithLabelValues(name, "different"),
		unwanted:           of.drift.WithLabelValues(name, "unwanted"),
		repairs:            of.repairs.WithLabelValues(name),
		quarantines:        of.quarantines.WithLabelValues(name),
		nodeFaults:         of.nodeFaults.WithLabelValues(name),
		late:               of.late.WithLabelValues(name),
		gauges:             newStatusGauges(of, name),
		rules:              map[string]int{},
	}
	for i, outcome := range outcomes {
		d.writes[i] = of.writes.WithLabelValues(name, outcome.String())
	}
	for i, result := range auditResults {
		d.audits[i] = of.audits.WithLabelValues(name, result)
	}
	return d
}
