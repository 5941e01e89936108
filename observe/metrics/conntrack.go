package metrics

import "github.com/prometheus/client_golang/prometheus"

var (
	entriesDesc = prometheus.NewDesc("sluice_conntrack_entries",
		"Entries in the kernel's connection table.", nil, nil)
	entriesLimitDesc = prometheus.NewDesc("sluice_conntrack_entries_limit",
		"Maximum number of entries in the kernel's connection table; 0 means no limit.", nil, nil)
	insertFailedDesc = prometheus.NewDesc("sluice_conntrack_insert_failed_total",
		"Entries that lost a race against another entry for the same packets.", nil, nil)
	dropDesc = prometheus.NewDesc("sluice_conntrack_drop_total",
		"Packets dropped because the table was full, or because of such a race.", nil, nil)
	earlyDropDesc = prometheus.NewDesc("sluice_conntrack_early_drop_total",
		"Entries of unanswered connections deleted to make room.", nil, nil)
	clashResolveDesc = prometheus.NewDesc("sluice_conntrack_clash_resolve_total",
		"Races between entries that cost no packet.", nil, nil)
)

func pressureDescs() []*prometheus.Desc {
	return []*prometheus.Desc{entriesDesc, entriesLimitDesc, insertFailedDesc, dropDesc, earlyDropDesc, clashResolveDesc}
}

// collectPressure shows the last reading of the connection table; nothing before the first one. The kernel counts
// since the network namespace exists.
func (m *Metrics) collectPressure(to chan<- prometheus.Metric) {
	p := m.config.Pressure()
	if p.At.IsZero() {
		return
	}
	send(to, entriesDesc, prometheus.GaugeValue, float64(p.Entries))
	send(to, entriesLimitDesc, prometheus.GaugeValue, float64(p.Limit))
	send(to, insertFailedDesc, prometheus.CounterValue, float64(p.InsertFailed))
	send(to, dropDesc, prometheus.CounterValue, float64(p.Dropped))
	send(to, earlyDropDesc, prometheus.CounterValue, float64(p.EarlyDropped))
	send(to, clashResolveDesc, prometheus.CounterValue, float64(p.ClashResolved))
}
