// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	kube "k8s.io/component-base/metrics"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe/book"
)

// The backends, as kube-proxy's --proxy-mode names them. Which of its metrics exist depends on the
// mode.
const (
	modeIPTables = "iptables"
	modeNFTables = "nftables"
	modeIPVS     = "ipvs"
)

// The buckets of kube-proxy v1.37, in seconds.
var (
	syncBuckets = kube.ExponentialBuckets(0.001, 2, 15)
	// The library puts a bucket that ends at 0 in front of merged ones. That counts changes that were applied before
	// their cause by the clock of the control plane, because clocks differ.
	networkProgrammingBuckets = kube.MergeBuckets(
		[]float64{0.25, 0.5},
		kube.LinearBuckets(1, 1, 59),
		kube.LinearBuckets(60, 5, 12),
		kube.LinearBuckets(120, 30, 7),
	)
)

// kubeProxy are the metrics of kube-proxy v1.37. Names, types, labels, buckets and help texts are
// an interface that others rely on; a test compares them with testdata/kubeproxy.txt.
//
// They are made with the library of Kubernetes, which gives them their stability class and the gate
// NativeHistograms, and counts them in registered_metrics_total. A metric that does not exist in
// the mode is not registered, and ignores what it counts: no caller needs to ask for the mode.
type kubeProxy struct {
	syncSeconds, fullSeconds, partialSeconds *kube.HistogramVec
	networkProgramming, conntrackSeconds     *kube.HistogramVec
	healthz, livez, conntrackDeleted         *kube.CounterVec
	restoreFailures, partialRestoreFailures  *kube.CounterVec
	nftSyncFailures, nftCleanupFailures      *kube.CounterVec
	rulesTotal, rulesLast                    *kube.GaugeVec

	// The following are computed at each scrape.
	lastTimestamp, lastQueued, noLocalEndpoints *prometheus.Desc
	endpointsPending, endpointsTotal            *prometheus.Desc
	servicesPending, servicesTotal              *prometheus.Desc
	// accounted are the metrics behind accounting objects, by the name of the object.
	// listeners and listenerFailures exist only with [Config.LocalhostListeners].
	listeners, listenerFailures *prometheus.Desc
	accounted                   map[string]*prometheus.Desc
}

func newKubeProxy(registry prometheus.Registerer, mode string) *kubeProxy {
	in := func(modes ...string) kubeDefiner {
		if slices.Contains(modes, mode) {
			return kubeDefiner{registry}
		}
		return kubeDefiner{}
	}
	all, full := kubeDefiner{registry}, in(modeIPTables, modeNFTables)
	iptables, nftables, restoring := in(modeIPTables), in(modeNFTables), in(modeIPTables, modeIPVS)
	return &kubeProxy{
		syncSeconds:            all.histogram("sync_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds", syncBuckets),
		fullSeconds:            full.histogram("sync_full_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for full resyncs", syncBuckets),
		partialSeconds:         full.histogram("sync_partial_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for partial resyncs", syncBuckets),
		networkProgramming:     all.histogram("network_programming_duration_seconds", "In Cluster Network Programming Latency in seconds", networkProgrammingBuckets),
		conntrackSeconds:       all.histogram("conntrack_reconciler_sync_duration_seconds", "ReconcileConntrackFlowsLatency latency in seconds", syncBuckets),
		healthz:                all.counters("proxy_healthz_total", "Cumulative proxy healthz HTTP status", "code"),
		livez:                  all.counters("proxy_livez_total", "Cumulative proxy livez HTTP status", "code"),
		conntrackDeleted:       all.counters("conntrack_reconciler_deleted_entries_total", "Cumulative conntrack flows deleted by conntrack reconciler", labelFamily),
		restoreFailures:        restoring.counters("sync_proxy_rules_iptables_restore_failures_total", "Cumulative proxy iptables restore failures", labelFamily),
		partialRestoreFailures: iptables.counters("sync_proxy_rules_iptables_partial_restore_failures_total", "Cumulative proxy iptables partial restore failures", labelFamily),
		nftSyncFailures:        nftables.counters("sync_proxy_rules_nftables_sync_failures_total", "Cumulative proxy nftables sync failures", labelFamily),
		nftCleanupFailures:     nftables.counters("sync_proxy_rules_nftables_cleanup_failures_total", "Cumulative proxy nftables cleanup failures", labelFamily),
		rulesTotal:             iptables.gauges("sync_proxy_rules_iptables_total", "Total number of iptables rules owned by kube-proxy", "table", labelFamily),
		rulesLast:              iptables.gauges("sync_proxy_rules_iptables_last", "Number of iptables rules written by kube-proxy in last sync", "table", labelFamily),

		lastTimestamp:    kubeDesc("sync_proxy_rules_last_timestamp_seconds", "The last time proxy rules were successfully synced", labelFamily),
		lastQueued:       kubeDesc("sync_proxy_rules_last_queued_timestamp_seconds", "The last time a sync of proxy rules was queued", labelFamily),
		noLocalEndpoints: kubeDesc("sync_proxy_rules_no_local_endpoints_total", "Number of services with a Local traffic policy and no endpoints", "traffic_policy", labelFamily),
		endpointsPending: kubeDesc("sync_proxy_rules_endpoint_changes_pending", "Pending proxy rules Endpoint changes"),
		endpointsTotal:   kubeDesc("sync_proxy_rules_endpoint_changes_total", "Cumulative proxy rules Endpoint changes"),
		servicesPending:  kubeDesc("sync_proxy_rules_service_changes_pending", "Pending proxy rules Service changes"),
		servicesTotal:    kubeDesc("sync_proxy_rules_service_changes_total", "Cumulative proxy rules Service changes"),
		listeners:        kubeDesc("nftables_localhost_nodeport_listeners", "Number of active localhost NodePort userspace proxy listeners.", labelFamily),
		listenerFailures: kubeDesc("nftables_localhost_nodeport_listener_creation_failures_total", "Number of localhost NodePort userspace proxy listener creation failures.", labelFamily),
		accounted: map[string]*prometheus.Desc{
			"ct_state_invalid_dropped_pkts": kubeDesc("iptables_ct_state_invalid_dropped_packets_total", "packets dropped by iptables to work around conntrack problems"),
			"localhost_nps_accepted_pkts":   kubeDesc("iptables_localhost_nodeports_accepted_packets_total", "Number of packets accepted on nodeports of loopback interface"),
		},
	}
}

// descs returns what collectKubeProxy collects.
func (k *kubeProxy) descs() []*prometheus.Desc {
	descs := []*prometheus.Desc{k.lastTimestamp, k.lastQueued, k.noLocalEndpoints,
		k.endpointsPending, k.endpointsTotal, k.servicesPending, k.servicesTotal}
	descs = append(descs, k.listeners, k.listenerFailures)
	return slices.AppendSeq(descs, maps.Values(k.accounted))
}

const subsystem = "kubeproxy"

// kubeDefiner makes kube-proxy's metrics with the library of Kubernetes. Without a registry they
// are never created.
type kubeDefiner struct{ registry prometheus.Registerer }

func (d kubeDefiner) register(metric kube.Registerable) {
	if d.registry != nil {
		metric.Create(nil) // without a version to hide by: none of them is deprecated
		d.registry.MustRegister(metric)
	}
}

func (d kubeDefiner) histogram(name, help string, buckets []float64) *kube.HistogramVec {
	h := kube.NewHistogramVec(&kube.HistogramOpts{
		Subsystem: subsystem, Name: name, Help: help, Buckets: buckets, StabilityLevel: kube.ALPHA,
	}, []string{labelFamily})
	d.register(h)
	return h
}

func (d kubeDefiner) gauges(name, help string, labels ...string) *kube.GaugeVec {
	opts := kube.GaugeOpts{Subsystem: subsystem, Name: name, Help: help, StabilityLevel: kube.ALPHA}
	g := kube.NewGaugeVec(&opts, labels)
	d.register(g)
	return g
}

func (d kubeDefiner) counters(name, help, label string) *kube.CounterVec {
	opts := kube.CounterOpts{Subsystem: subsystem, Name: name, Help: help, StabilityLevel: kube.ALPHA}
	c := kube.NewCounterVec(&opts, []string{label})
	d.register(c)
	return c
}

// kubeDesc describes a metric that is computed at each scrape. The library of Kubernetes makes the
// description, and counts the metric, as it does with the others.
func kubeDesc(name, help string, labels ...string) *prometheus.Desc {
	opts := kube.GaugeOpts{Subsystem: subsystem, Name: name, Help: help, StabilityLevel: kube.ALPHA}
	metric := kube.NewGaugeVec(&opts, labels)
	metric.Create(nil)
	desc := make(chan *prometheus.Desc, 1)
	metric.Describe(desc)
	return <-desc
}

// Healthz counts one answer to /healthz, by its HTTP status code.
func (m *Metrics) Healthz(code int) { m.kube.healthz.WithLabelValues(strconv.Itoa(code)).Inc() }

// Livez counts one answer to /livez, by its HTTP status code.
func (m *Metrics) Livez(code int) { m.kube.livez.WithLabelValues(strconv.Itoa(code)).Inc() }

// collectKubeProxy collects what depends on the state of the domains and of the source.
func (m *Metrics) collectKubeProxy(to chan<- prometheus.Metric) {
	events := m.config.Events() // before the status, so that nothing in between seems settled
	var servicesPending int
	var endpointsPending, servicesTotal, endpointsTotal uint64
	for _, s := range m.config.Book.Status() {
		switch d := m.domains[s.Domain]; {
		case d == nil:
		case !d.Auxiliary:
			d.collectTimes(to, &s)
			servicesPending = max(servicesPending, s.Waiting+s.Ledger.Pending)
			endpointsPending = max(endpointsPending, d.untaken(&s, events.SliceChanges))
		case m.config.LocalhostListeners:
			send(to, m.kube.listeners, prometheus.GaugeValue, float64(s.Ledger.Objects-s.Ledger.Dirty), d.Family.String())
			send(to, m.kube.listenerFailures, prometheus.CounterValue, valueOf(d.quarantines), d.Family.String())
		}
	}
	totals := m.config.Book.Totals()
	for _, d := range m.domains {
		if !d.Auxiliary {
			d.collectUnserved(to, &totals)
			// To kube-proxy each family is a separate instance, which counts every Service.
			servicesTotal += events.Specs
			endpointsTotal += events.Slices[d.Family]
		}
	}
	send(to, m.kube.servicesPending, prometheus.GaugeValue, float64(servicesPending))
	send(to, m.kube.endpointsPending, prometheus.GaugeValue, float64(endpointsPending))
	sendTotal(to, m.kube.servicesTotal, float64(servicesTotal), m.began)
	sendTotal(to, m.kube.endpointsTotal, float64(endpointsTotal), m.began)
	m.collectAccounted(to)
}

// valueOf returns the value of a counter.
func valueOf(c prometheus.Counter) float64 {
	var m dto.Metric
	_ = c.Write(&m) // never fails for a counter
	return m.GetCounter().GetValue()
}

// collectAccounted collects what the kernel has counted in accounting objects. One that does not
// exist, or cannot be read, has no sample, as in kube-proxy.
func (m *Metrics) collectAccounted(to chan<- prometheus.Metric) {
	if m.config.Accounted == nil {
		return
	}
	packets, err := m.config.Accounted()
	if err != nil {
		return
	}
	for name, desc := range m.kube.accounted {
		if count, exists := packets[name]; exists {
			send(to, desc, prometheus.CounterValue, float64(count))
		}
	}
}

// collectUnserved collects the counts of ports without local endpoints, from the first success on.
func (d *domain) collectUnserved(to chan<- prometheus.Metric, t *book.Totals) {
	if d.landed.Load() == 0 {
		return
	}
	desc := d.metrics.kube.noLocalEndpoints
	send(to, desc, prometheus.GaugeValue, float64(t.Internal[d.Family]), "internal", d.family)
	send(to, desc, prometheus.GaugeValue, float64(t.External[d.Family]), "external", d.family)
}

// collectTimes collects when a fragment was last submitted, and when the kernel was last in step. A
// fragment that needs no write, or is quarantined, leaves nothing pending: the domain is in step
// since the fragment came, and the difference of the two times, which alerts watch, does not grow.
func (d *domain) collectTimes(to chan<- prometheus.Metric, s *aggregator.Status) {
	seconds := func(nanoseconds int64) float64 { return float64(nanoseconds) / float64(time.Second) }
	var submitted int64
	if !s.Submitted.IsZero() {
		submitted = s.Submitted.UnixNano()
	}
	if queued := max(d.opened.Load(), submitted); queued > 0 {
		send(to, d.metrics.kube.lastQueued, prometheus.GaugeValue, seconds(queued), d.family)
	}
	landed := d.landed.Load()
	if landed == 0 {
		return
	}
	if s.Waiting == 0 && s.OldestPending.IsZero() {
		landed = max(landed, submitted)
	}
	send(to, d.metrics.kube.lastTimestamp, prometheus.GaugeValue, seconds(landed), d.family)
}

// untaken returns the number of slice changes that no batch of the domain has taken yet. Changes
// that left nothing pending made no visible difference in the kernel: they are done, too.
func (d *domain) untaken(s *aggregator.Status, changes uint64) uint64 {
	if s.Waiting+s.Ledger.Pending == 0 && s.OldestPending.IsZero() {
		d.taken.Store(changes)
	}
	return changes - min(changes, d.taken.Load())
}

// synced counts one write, which is what kube-proxy calls a sync.
func (d *domain) synced(e aggregator.BatchWritten) {
	k, full := d.metrics.kube, !d.settled
	took := e.Receipt.Took.Seconds()
	k.syncSeconds.WithLabelValues(d.family).Observe(took)
	if full {
		k.fullSeconds.WithLabelValues(d.family).Observe(took)
	} else {
		k.partialSeconds.WithLabelValues(d.family).Observe(took)
	}
	if d.metrics.config.Mode == modeIPTables {
		d.countWritten(e)
	}
	if e.Receipt.Outcome == dataplane.Landed {
		return
	}
	k.restoreFailures.WithLabelValues(d.family).Inc()
	if !full {
		k.partialRestoreFailures.WithLabelValues(d.family).Inc()
	}
	if removesOnly(e.Batch) {
		k.nftCleanupFailures.WithLabelValues(d.family).Inc()
	} else {
		k.nftSyncFailures.WithLabelValues(d.family).Inc()
	}
}

// removesOnly reports whether a batch adds and changes nothing.
func removesOnly(batch *dataplane.Batch) bool {
	adds := func(c dataplane.Change) bool { return c.After != nil }
	return len(batch.Changes) > 0 && !slices.ContainsFunc(batch.Changes, adds)
}

// ruleTables are the tables whose rules kube-proxy counts. A chain is an object in a container with
// the table's name; its body has one rule per line. The jumps from built-in chains are in other
// containers, and kube-proxy does not count them either.
var ruleTables = [...]string{"nat", "filter"}

// rulesOf counts the rules of a chain; nil has none.
func rulesOf(chain *dataplane.Object) int {
	if chain == nil || chain.Body == "" {
		return 0
	}
	return strings.Count(chain.Body, "\n") + 1
}

// countRead counts the rules that the kernel holds.
func (d *domain) countRead(chains []dataplane.Object) {
	clear(d.rules)
	for i := range chains {
		d.rules[chains[i].ID.Container] += rulesOf(&chains[i])
	}
	for _, table := range ruleTables {
		d.metrics.kube.rulesTotal.WithLabelValues(table, d.family).Set(float64(d.rules[table]))
	}
}

// countWritten counts the rules of one batch, and updates the total. After a failure only what is
// certain counts; the next audit corrects the rest.
func (d *domain) countWritten(e aggregator.BatchWritten) {
	written := map[string]int{}
	for i := range e.Batch.Changes {
		c := &e.Batch.Changes[i]
		written[c.ID.Container] += rulesOf(c.After)
		after := c.After
		if e.Receipt.Outcome != dataplane.Landed {
			var certain bool
			if after, certain = e.Receipt.Certain[c.ID]; !certain {
				continue
			}
		}
		d.rules[c.ID.Container] += rulesOf(after) - rulesOf(c.Before)
	}
	for _, table := range ruleTables {
		d.metrics.kube.rulesLast.WithLabelValues(table, d.family).Set(float64(written[table]))
		d.metrics.kube.rulesTotal.WithLabelValues(table, d.family).Set(float64(max(0, d.rules[table])))
	}
}
