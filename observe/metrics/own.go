package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-proxy/sluice/service"
)

// own are the metrics that only Sluice has. No label grows with the number of
// Services.
type own struct {
	ofDomain ofDomain

	actors    *prometheus.GaugeVec
	abandoned prometheus.Gauge
	restarts  prometheus.Counter
	failures  *prometheus.CounterVec
	parks     prometheus.Counter
	refused   prometheus.Counter

	flowsSeen         *prometheus.CounterVec
	conntrackFailures *prometheus.CounterVec
}

// ofDomain are those with the label "domain".
type ofDomain struct {
	programming, networkProgramming, writeSeconds, auditSeconds *prometheus.HistogramVec
	repairSeconds                                               *prometheus.HistogramVec
	batchServices, batchObjects, batchLines, batchBytes         *prometheus.HistogramVec
	writes, audits, drift, repairs                              *prometheus.CounterVec
	quarantines, nodeFaults, late                               *prometheus.CounterVec

	gateOpen, gateMissing, waiting, oldest, failing, atFault, quarantined *prometheus.GaugeVec
	keys, objects, dirty, pending, shadowed                               *prometheus.GaugeVec
}

const labelDomain = "domain"

func newOwn() *own {
	return &own{
		ofDomain:  newOfDomain(),
		actors:    gaugeOf("sluice_actors", "Actors by state: running, waiting to be started again, or parked after too many failures.", "state"),
		abandoned: prometheus.NewGauge(prometheus.GaugeOpts{Name: "sluice_actors_abandoned", Help: "Goroutines of stuck actors that have been given up and have not returned."}),
		restarts:  prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_actor_restarts_total", Help: "Actors that were started again after a failure."}),
		failures:  counterOf("sluice_actor_failures_total", "Failures of actors by kind: panic, error, or stuck with one message.", "kind"),
		parks:     prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_actor_parks_total", Help: "Actors that were parked because they failed too often."}),
		refused:   prometheus.NewCounter(prometheus.CounterOpts{Name: "sluice_services_refused_total", Help: "Services that were refused because there are too many."}),

		flowsSeen:         counterOf("sluice_conntrack_flows_seen_total", "UDP flows that the kernel has shown to the conntrack clean-up.", labelFamily),
		conntrackFailures: counterOf("sluice_conntrack_failures_total", "Conntrack clean-ups that failed and were repeated.", labelFamily),
	}
}

func newOfDomain() ofDomain {
	d := labelDomain
	return ofDomain{
		programming:        histogramOf("sluice_programming_duration_seconds", "Time from the receipt of a change to the moment at which the kernel has it, per Service changed.", finely, d),
		networkProgramming: histogramOf("sluice_network_programming_duration_seconds", "Time from what caused an endpoint change, by the cluster's clock, to the moment at which the kernel has it, per Service changed.", finely, d),
		writeSeconds:       histogramOf("sluice_write_duration_seconds", "Duration of one write to the kernel.", finely, d),
		repairSeconds:      histogramOf("sluice_repair_duration_seconds", "Time from noticing that somebody else has changed rules to the moment at which they are in the kernel again.", finely, d),
		auditSeconds:       histogramOf("sluice_audit_duration_seconds", "Time to read back what the kernel holds.", finely, d),
		batchServices:      histogramOf("sluice_batch_services", "Services whose changes share one batch.", counts, d),
		batchObjects:       histogramOf("sluice_batch_objects", "Kernel objects created, replaced or removed by one batch.", counts, d),
		batchLines:         histogramOf("sluice_batch_lines", "Rules and elements in the input of one batch.", counts, d),
		batchBytes:         histogramOf("sluice_batch_size_bytes", "Size of the input of one batch.", sizes, d),

		writes:      counterOf("sluice_writes_total", "Writes to the kernel by outcome.", d, "outcome"),
		audits:      counterOf("sluice_audits_total", "Comparisons with the kernel by result: adopted is the first one, which takes over what is there.", d, "result"),
		drift:       counterOf("sluice_drift_objects_total", "Objects that an audit found missing, different or unwanted.", d, "kind"),
		repairs:     counterOf("sluice_repairs_total", "Audits that found what somebody else had changed.", d),
		quarantines: counterOf("sluice_quarantines_total", "Fragments held back because the kernel refuses them.", d),
		nodeFaults:  counterOf("sluice_node_faults_total", "Refusals of rules that belong to no Service.", d),
		late:        counterOf("sluice_late_fragments_total", "Fragments of former incarnations that came late and were refused.", d),

		gateOpen:    gaugeOf("sluice_gate_open", "1 once the first write may start.", d),
		gateMissing: gaugeOf("sluice_gate_missing_services", "Services that the first write waits for.", d),
		waiting:     gaugeOf("sluice_waiting_fragments", "Fragments handed over that no batch has taken yet.", d),
		oldest:      gaugeOf("sluice_oldest_pending_seconds", "Age of the oldest fragment without a verdict; 0 when nothing is pending.", d),
		failing:     gaugeOf("sluice_failed_writes_in_a_row", "Writes that have failed since the last one that landed.", d),
		atFault:     gaugeOf("sluice_node_at_fault", "1 while the kernel refuses rules that belong to no Service.", d),
		quarantined: gaugeOf("sluice_quarantined_services", "Services held back because the kernel refuses them.", d),
		keys:        gaugeOf("sluice_ledger_services", "Services with an account in the ledger, the node itself included.", d),
		objects:     gaugeOf("sluice_ledger_objects", "Objects wanted or known to be in the kernel.", d),
		dirty:       gaugeOf("sluice_ledger_dirty_objects", "Objects that differ from what is known to be in the kernel.", d),
		pending:     gaugeOf("sluice_ledger_pending_services", "Services whose newest fragment awaits a verdict.", d),
		shadowed:    gaugeOf("sluice_ledger_shadowed_claims", "Addresses and ports that another Service holds.", d),
	}
}

func (o *own) register(registry prometheus.Registerer) {
	d := &o.ofDomain
	registry.MustRegister(
		o.actors, o.abandoned, o.restarts, o.failures, o.parks, o.refused, o.flowsSeen, o.conntrackFailures,
		d.programming, d.networkProgramming, d.writeSeconds, d.auditSeconds, d.repairSeconds,
		d.batchServices, d.batchObjects, d.batchLines, d.batchBytes,
		d.writes, d.audits, d.drift, d.repairs, d.quarantines, d.nodeFaults, d.late,
		d.gateOpen, d.gateMissing, d.waiting, d.oldest, d.failing, d.atFault, d.quarantined,
		d.keys, d.objects, d.dirty, d.pending, d.shadowed,
	)
	// A counter that starts at 0 lets rate() see its first step.
	for _, kind := range []string{failPanic, failError, failStuck} {
		o.failures.WithLabelValues(kind)
	}
	for _, family := range service.Families {
		o.flowsSeen.WithLabelValues(family.String())
		o.conntrackFailures.WithLabelValues(family.String())
	}
}
