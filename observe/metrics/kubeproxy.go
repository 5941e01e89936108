package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	kube "k8s.io/component-base/metrics"
)

// kubeProxy are the metrics of kube-proxy v1.36: names, types, labels, buckets
// and help texts are an interface that others build on, and are checked against
// testdata/kubeproxy.txt.
//
// They are made with the library of Kubernetes because that is what gives them
// their stability class, the gate NativeHistograms and the counting in
// registered_metrics_total. They are not in a registry of the library, because it
// keeps each for the life of the process. A metric that is not registered swallows
// what it is told, so nobody who counts has to ask for the mode.
type kubeProxy struct {
	syncSeconds, fullSeconds, partialSeconds *kube.HistogramVec
	lastTimestamp, lastQueued                *kube.GaugeVec
	networkProgramming                       *kube.HistogramVec
	endpointsPending, servicesPending        *kube.Gauge
	endpointsTotal, servicesTotal            *kube.Counter
	noLocalEndpoints                         *kube.GaugeVec
	healthz, livez                           *kube.CounterVec
	restoreFailures, partialRestoreFailures  *kube.CounterVec
	rulesTotal, rulesLast                    *kube.GaugeVec
	nftSyncFailures, nftCleanupFailures      *kube.CounterVec
	conntrackSeconds                         *kube.HistogramVec
	conntrackDeleted                         *kube.CounterVec
}

const (
	labelFamily = "ip_family"
	labelPolicy = "traffic_policy"
	labelTable  = "table"
	labelCode   = "code"
)

func newKubeProxy() *kubeProxy {
	return &kubeProxy{
		syncSeconds:            kubeHistogram("sync_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds", syncBuckets),
		fullSeconds:            kubeHistogram("sync_full_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for full resyncs", syncBuckets),
		partialSeconds:         kubeHistogram("sync_partial_proxy_rules_duration_seconds", "SyncProxyRules latency in seconds for partial resyncs", syncBuckets),
		lastTimestamp:          kubeGauges("sync_proxy_rules_last_timestamp_seconds", "The last time proxy rules were successfully synced", labelFamily),
		lastQueued:             kubeGauges("sync_proxy_rules_last_queued_timestamp_seconds", "The last time a sync of proxy rules was queued", labelFamily),
		networkProgramming:     kubeHistogram("network_programming_duration_seconds", "In Cluster Network Programming Latency in seconds", networkProgrammingBuckets),
		endpointsPending:       kubeGauge("sync_proxy_rules_endpoint_changes_pending", "Pending proxy rules Endpoint changes"),
		endpointsTotal:         kubeCounter("sync_proxy_rules_endpoint_changes_total", "Cumulative proxy rules Endpoint changes"),
		servicesPending:        kubeGauge("sync_proxy_rules_service_changes_pending", "Pending proxy rules Service changes"),
		servicesTotal:          kubeCounter("sync_proxy_rules_service_changes_total", "Cumulative proxy rules Service changes"),
		noLocalEndpoints:       kubeGauges("sync_proxy_rules_no_local_endpoints_total", "Number of services with a Local traffic policy and no endpoints", labelPolicy, labelFamily),
		healthz:                kubeCounters("proxy_healthz_total", "Cumulative proxy healthz HTTP status", labelCode),
		livez:                  kubeCounters("proxy_livez_total", "Cumulative proxy livez HTTP status", labelCode),
		restoreFailures:        kubeCounters("sync_proxy_rules_iptables_restore_failures_total", "Cumulative proxy iptables restore failures", labelFamily),
		partialRestoreFailures: kubeCounters("sync_proxy_rules_iptables_partial_restore_failures_total", "Cumulative proxy iptables partial restore failures", labelFamily),
		rulesTotal:             kubeGauges("sync_proxy_rules_iptables_total", "Total number of iptables rules owned by kube-proxy", labelTable, labelFamily),
		rulesLast:              kubeGauges("sync_proxy_rules_iptables_last", "Number of iptables rules written by kube-proxy in last sync", labelTable, labelFamily),
		nftSyncFailures:        kubeCounters("sync_proxy_rules_nftables_sync_failures_total", "Cumulative proxy nftables sync failures", labelFamily),
		nftCleanupFailures:     kubeCounters("sync_proxy_rules_nftables_cleanup_failures_total", "Cumulative proxy nftables cleanup failures", labelFamily),
		conntrackSeconds:       kubeHistogram("conntrack_reconciler_sync_duration_seconds", "ReconcileConntrackFlowsLatency latency in seconds", syncBuckets),
		conntrackDeleted:       kubeCounters("conntrack_reconciler_deleted_entries_total", "Cumulative conntrack flows deleted by conntrack reconciler", labelFamily),
	}
}

// register lets exactly those metrics exist that kube-proxy has in a mode.
func (k *kubeProxy) register(registry prometheus.Registerer, mode string) {
	register := func(all ...kube.Registerable) {
		for _, each := range all {
			each.Create(nil) // without a version to hide by: none of them is deprecated
			registry.MustRegister(each)
		}
	}
	register(k.syncSeconds, k.lastQueued, k.lastTimestamp, k.networkProgramming,
		k.endpointsPending, k.endpointsTotal, k.servicesPending, k.servicesTotal,
		k.noLocalEndpoints, k.healthz, k.livez, k.conntrackSeconds, k.conntrackDeleted)
	switch mode {
	case modeIPTables:
		register(k.fullSeconds, k.partialSeconds, k.restoreFailures, k.partialRestoreFailures,
			k.rulesTotal, k.rulesLast)
	case modeNFTables:
		register(k.fullSeconds, k.partialSeconds, k.nftSyncFailures, k.nftCleanupFailures)
	case modeIPVS:
		register(k.restoreFailures)
	}
}

const subsystem = "kubeproxy"

func kubeHistogram(name, help string, buckets []float64) *kube.HistogramVec {
	return kube.NewHistogramVec(&kube.HistogramOpts{Subsystem: subsystem, Name: name, Help: help, Buckets: buckets,
		StabilityLevel: kube.ALPHA}, []string{labelFamily})
}

func kubeGauges(name, help string, labels ...string) *kube.GaugeVec {
	return kube.NewGaugeVec(&kube.GaugeOpts{Subsystem: subsystem, Name: name, Help: help, StabilityLevel: kube.ALPHA}, labels)
}

func kubeGauge(name, help string) *kube.Gauge {
	return kube.NewGauge(&kube.GaugeOpts{Subsystem: subsystem, Name: name, Help: help, StabilityLevel: kube.ALPHA})
}

func kubeCounters(name, help string, labels ...string) *kube.CounterVec {
	return kube.NewCounterVec(&kube.CounterOpts{Subsystem: subsystem, Name: name, Help: help, StabilityLevel: kube.ALPHA}, labels)
}

func kubeCounter(name, help string) *kube.Counter {
	return kube.NewCounter(&kube.CounterOpts{Subsystem: subsystem, Name: name, Help: help, StabilityLevel: kube.ALPHA})
}
