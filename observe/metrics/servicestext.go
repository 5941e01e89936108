package metrics

import (
	"bufio"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// serviceMetric is one metric of /metrics/services.
type serviceMetric struct {
	name, kind, help string
	// each gives the samples of one Service: values, with labels beyond
	// namespace and name. What is not known has no sample.
	each func(s *services, l *line, sample func(labels string, value float64))
}

const (
	kindGauge   = "gauge"
	kindCounter = "counter"
)

// serviceMetrics are written by hand, sample by sample, since an answer may hold all
// Services of a large cluster.
var serviceMetrics = []serviceMetric{
	{"sluice_service_last_commit_timestamp_seconds", kindGauge, "When the kernel last got a revision of the Service.",
		func(_ *services, l *line, sample func(string, float64)) {
			if l.committed != 0 {
				sample("", float64(l.committed)/float64(time.Second))
			}
		}},
	{"sluice_service_commits_total", kindCounter, "Revisions that the kernel got, over all families.",
		func(_ *services, l *line, sample func(string, float64)) { sample("", float64(l.commits)) }},
	{"sluice_service_revision_incarnation", kindGauge, "Incarnation of the actor that made the newest revision in the kernel.",
		func(_ *services, l *line, sample func(string, float64)) { sample("", float64(l.revision.Incarnation)) }},
	{"sluice_service_revision_sequence", kindGauge, "Number of the newest revision in the kernel within its incarnation.",
		func(_ *services, l *line, sample func(string, float64)) { sample("", float64(l.revision.Sequence)) }},
	{"sluice_service_programming_last_seconds", kindGauge, "Time that the last change took from its receipt to the kernel.",
		func(_ *services, l *line, sample func(string, float64)) {
			sampleLatency(l.received, l.received.last, sample)
		}},
	{"sluice_service_programming_longest_seconds", kindGauge, "Longest time that a change took from its receipt to the kernel.",
		func(_ *services, l *line, sample func(string, float64)) {
			sampleLatency(l.received, l.received.longest, sample)
		}},
	{"sluice_service_network_programming_last_seconds", kindGauge, "Time that the last change took from its cause, by the cluster's clock, to the kernel.",
		func(_ *services, l *line, sample func(string, float64)) {
			sampleLatency(l.triggered, l.triggered.last, sample)
		}},
	{"sluice_service_network_programming_longest_seconds", kindGauge, "Longest time that a change took from its cause, by the cluster's clock, to the kernel.",
		func(_ *services, l *line, sample func(string, float64)) {
			sampleLatency(l.triggered, l.triggered.longest, sample)
		}},
	{"sluice_service_actor_restarts_total", kindCounter, "Times that the Service's actor was started again after a failure.",
		func(_ *services, l *line, sample func(string, float64)) { sample("", float64(l.restarts)) }},
	{"sluice_service_actor_state", kindGauge, "1 for the state that the Service's actor is in: running, waiting or parked.",
		func(_ *services, l *line, sample func(string, float64)) { sample(`,state="`+l.state()+`"`, 1) }},
	{"sluice_service_quarantined", kindGauge, "1 while a domain holds the Service back, with the class of the reason.",
		func(s *services, l *line, sample func(string, float64)) {
			for _, h := range s.held[l.key] {
				sample(`,domain="`+escape(h.domain)+`",reason="`+reasonClass(h.reason)+`"`, 1)
			}
		}},
	{"sluice_service_endpoints", kindGauge, "Endpoints by kind: local and remote ones get new connections, established and draining ones keep the flows that they have.",
		sampleEndpoints},
	{"sluice_service_conntrack_deleted_entries_total", kindCounter, "Stale conntrack entries that were removed.",
		func(_ *services, l *line, sample func(string, float64)) { sample("", float64(l.flowsDeleted)) }},
}

func sampleLatency(l latency, value float32, sample func(string, float64)) {
	if l.measured() {
		sample("", float64(value))
	}
}

// sampleEndpoints leaves out the families in which the Service is not served.
func sampleEndpoints(_ *services, l *line, sample func(string, float64)) {
	for _, family := range service.Families {
		e := l.endpoints[family]
		if !l.served[family] {
			continue
		}
		label := `,ip_family="` + family.String() + `",kind="`
		sample(label+`local"`, float64(e.local))
		sample(label+`remote"`, float64(e.remote))
		sample(label+`established"`, float64(e.established))
		if draining := l.draining[family]; draining > 0 {
			sample(label+`draining"`, float64(draining))
		}
	}
}

// writeText writes the answer in the text format of Prometheus, version 0.0.4. The
// answer's reader is gone if it cannot be written; there is nobody to tell.
func (s *services) writeText(to io.Writer) {
	w := bufio.NewWriterSize(to, 64<<10)
	defer func() { _ = w.Flush() }()
	head(w, "sluice_services_omitted", kindGauge, "Services that were asked for and did not fit the limit of this answer.")
	writeSample(w, "sluice_services_omitted", "", float64(s.omitted))
	for _, metric := range slices.Concat(serviceMetrics, trafficMetrics) {
		begun := false
		for j := range s.lines {
			l := &s.lines[j]
			metric.each(s, l, func(labels string, value float64) {
				if !begun {
					head(w, metric.name, metric.kind, metric.help)
					begun = true
				}
				writeSample(w, metric.name,
					`{namespace="`+escape(l.key.Namespace)+`",name="`+escape(l.key.Name)+`"`+labels+"}", value)
			})
		}
	}
}

func head(w *bufio.Writer, name, kind, help string) {
	for _, part := range [...]string{"# HELP ", name, " ", help, "\n# TYPE ", name, " ", kind, "\n"} {
		_, _ = w.WriteString(part) // the writer remembers its error
	}
}

func writeSample(w *bufio.Writer, name, labels string, value float64) {
	_, _ = w.WriteString(name)
	_, _ = w.WriteString(labels)
	_ = w.WriteByte(' ')
	_, _ = w.Write(strconv.AppendFloat(w.AvailableBuffer(), value, 'g', -1, 64))
	_ = w.WriteByte('\n')
}

var labelEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// escape makes a label's value. Names from an API server need no escape; those of
// manifests have been checked likewise.
func escape(value string) string { return labelEscapes.Replace(value) }
