package metrics

import "github.com/prometheus/client_golang/prometheus"

// Dropped counts reports that were not made, since the start of the proxy.
type Dropped struct {
	// Events are Kubernetes events.
	Events uint64
	// Warnings are lines of the log about API objects.
	Warnings uint64
	// Lines are lines of the log.
	Lines uint64
	// Flows are records of connections.
	Flows uint64
	// Traces are sampled changes whose spans were not exported.
	Traces uint64
}

var eventsDroppedDesc = prometheus.NewDesc("sluice_events_dropped_total",
	"Kubernetes events that were not sent, because the queue was full or no node reports them.", nil, nil)

var warningsDroppedDesc = prometheus.NewDesc("sluice_warnings_dropped_total",
	"Warnings about API objects that exceeded the log's rate limit.", nil, nil)

var linesDroppedDesc = prometheus.NewDesc("sluice_log_lines_dropped_total",
	"Log lines that were not written because the reader was too slow.", nil, nil)

var flowsDroppedDesc = prometheus.NewDesc("sluice_flows_dropped_total",
	"Records of connections that a flow log or an observer did not get: at least as many are missing.", nil, nil)

var tracesDroppedDesc = prometheus.NewDesc("sluice_traces_dropped_total",
	"Sampled changes whose spans were not exported, because the receiver of spans was too slow or failed.", nil, nil)

func (m *Metrics) collectDropped(to chan<- prometheus.Metric) {
	dropped := m.config.Dropped()
	sendTotal(to, eventsDroppedDesc, float64(dropped.Events), m.began)
	sendTotal(to, warningsDroppedDesc, float64(dropped.Warnings), m.began)
	sendTotal(to, linesDroppedDesc, float64(dropped.Lines), m.began)
	sendTotal(to, flowsDroppedDesc, float64(dropped.Flows), m.began)
	sendTotal(to, tracesDroppedDesc, float64(dropped.Traces), m.began)
}
