// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/conntrack/cleaner"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
	"github.com/sluice-proxy/sluice/test/doctest"
)

// described is a metric as a catalogue describes it.
type described struct {
	name, kind, labels, help string
	meaning                  string // of a metric with a name of kube-proxy
	modes                    string
	buckets                  []float64
}

// catalogue reads a file of testdata: lines that define buckets, and lines that
// describe metrics in columns.
func catalogue(t *testing.T, file string) []described {
	t.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	buckets := map[string][]float64{"-": nil}
	var all []described
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		columns := strings.Split(line, " | ")
		if len(columns) == 1 {
			words := strings.Fields(line)
			for _, word := range words[1:] {
				bound, err := strconv.ParseFloat(word, 64)
				if err != nil {
					t.Fatal(err)
				}
				buckets[words[0]] = append(buckets[words[0]], bound)
			}
			continue
		}
		d := described{name: columns[0], kind: columns[1], labels: columns[2], buckets: buckets[columns[3]]}
		if d.labels == "-" {
			d.labels = ""
		}
		if len(columns) > 4 {
			d.modes, d.help = columns[4], columns[5]
		}
		if len(columns) > 6 {
			d.meaning = columns[6]
		}
		all = append(all, d)
	}
	return all
}

// everything makes a Metrics that has received each event, so that every metric has a value.
func everything(t *testing.T, mode string) *Metrics {
	t.Helper()
	var accounted func() (map[string]uint64, error)
	if mode == modeIPTables {
		accounted = func() (map[string]uint64, error) {
			return map[string]uint64{"ct_state_invalid_dropped_pkts": 1, "localhost_nps_accepted_pkts": 2}, nil
		}
	}
	var relayed func() Relay
	if mode == modeUserspace {
		relayed = func() Relay {
			return Relay{Connects: cumulative(), Open: map[string]uint64{"tcp": 1}, Refused: map[string]uint64{"limit": 2}}
		}
	}
	counted, err := New(Config{
		Mode: mode, Refusals: refusals[mode], LocalhostListeners: mode == modeNFTables, Accounted: accounted, Relay: relayed,
		Book: book.New(book.Config{
			Domains: []book.Domain{{Name: "main", Family: service.IPv4}, {Name: "aux", Family: service.IPv4, Auxiliary: true}},
			Status:  func() []aggregator.Status { return []aggregator.Status{{Domain: "main"}, {Domain: "aux"}} },
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	m := watched{counted}
	key := service.Key{Namespace: "ns", Name: "a"}
	put := &dataplane.Batch{Changes: []dataplane.Change{{After: &dataplane.Object{}}}}
	take := &dataplane.Batch{Changes: []dataplane.Change{{Before: &dataplane.Object{}}}}
	for _, domain := range []string{"main", "aux"} {
		for _, event := range []aggregator.Event{
			aggregator.GateOpened{Domain: domain},
			aggregator.AuditDone{Domain: domain},
			aggregator.AuditDone{Domain: domain, Drift: ledger.Drift{Missing: 1}},
			aggregator.RepairBegan{Domain: domain},
			aggregator.BatchWritten{Domain: domain, Batch: put},
			aggregator.Repaired{Domain: domain, Repairs: 1, Took: time.Second},
			aggregator.BatchWritten{Domain: domain, Batch: put, Receipt: dataplane.Receipt{Outcome: dataplane.Rejected}},
			aggregator.BatchWritten{Domain: domain, Batch: take, Receipt: dataplane.Receipt{Outcome: dataplane.Rejected}},
			aggregator.Applied{Domain: domain, At: time.Now(), Contribution: dataplane.Contribution{Key: key, Trigger: time.Now(), Received: time.Now()}},
			aggregator.Quarantined{Domain: domain, Key: key},
			aggregator.Freed{Domain: domain, Key: key},
			aggregator.NodeAtFault{Domain: domain},
			aggregator.LateRejected{Domain: domain, Key: key},
		} {
			m.Aggregator(event)
		}
	}
	for _, event := range []supervisor.Event[service.Key]{
		supervisor.Event[service.Key]{Child: service.Key{Namespace: "ns", Name: "a"}, What: supervisor.Started{}}, supervisor.Event[service.Key]{Child: service.Key{Namespace: "ns", Name: "a"}, What: supervisor.Failed{Err: errors.New("x")}},
		supervisor.Event[service.Key]{Child: service.Key{Namespace: "ns", Name: "a"}, What: supervisor.Started{Again: true}}, supervisor.Event[service.Key]{Child: service.Key{Namespace: "ns", Name: "a"}, What: supervisor.Stuck{Abandoned: 1}},
	} {
		m.Supervisor(event)
	}
	m.Actors(actors.TooLarge{Key: key})
	m.Conntrack(cleaner.Swept{Family: service.IPv4, Flows: 3, Deleted: 1})
	m.Healthz(200)
	m.Livez(503)
	return counted
}

// cumulative is a histogram without observations.
func cumulative() map[float64]uint64 {
	all := map[float64]uint64{}
	for _, bound := range finely {
		all[bound] = 0
	}
	return all
}

// TestMetrics_MatchCatalogues: in each mode, the exported metrics are those of the catalogues.
func TestMetrics_MatchCatalogues(t *testing.T) {
	for letter, mode := range map[string]string{"I": modeIPTables, "V": modeIPVS, "N": modeNFTables, "U": modeUserspace} {
		t.Run(mode, func(t *testing.T) {
			want := map[string]described{}
			for _, d := range slices.Concat(catalogue(t, "kubeproxy.txt"), catalogue(t, "sluice.txt")) {
				if d.modes == "" || strings.Contains(d.modes, letter) {
					want[d.name] = d
				}
			}
			if len(want) < 40 {
				t.Fatalf("the catalogues hold %d metrics only", len(want))
			}
			for _, family := range gathered(t, everything(t, mode)) {
				d, known := want[family.GetName()]
				if !known {
					t.Errorf("%s is not in a catalogue, or not in this mode", family.GetName())
					continue
				}
				delete(want, d.name)
				compareFamily(t, d, family)
			}
			for name := range want {
				t.Errorf("%s is missing", name)
			}
		})
	}
}

func compareFamily(t *testing.T, d described, family *dto.MetricFamily) {
	t.Helper()
	if kind := strings.ToLower(family.GetType().String()); kind != d.kind {
		t.Errorf("%s is a %s, want a %s", d.name, kind, d.kind)
	}
	if d.help != "" && family.GetHelp() != d.help {
		t.Errorf("%s has help %q, want %q", d.name, family.GetHelp(), d.help)
	}
	for _, metric := range family.GetMetric() {
		var labels []string
		for _, l := range metric.GetLabel() {
			labels = append(labels, l.GetName())
		}
		slices.Sort(labels)
		if got := strings.Join(labels, " "); got != d.labels {
			t.Errorf("%s has labels %q, want %q", d.name, got, d.labels)
		}
		if d.kind == "histogram" {
			compareBuckets(t, d, metric.GetHistogram())
		}
	}
}

func compareBuckets(t *testing.T, d described, h *dto.Histogram) {
	t.Helper()
	var bounds []float64
	for _, b := range h.GetBucket() {
		if !math.IsInf(b.GetUpperBound(), 1) {
			bounds = append(bounds, b.GetUpperBound())
		}
	}
	same := func(a, b float64) bool { return math.Abs(a-b) <= 1e-9*b }
	if !slices.EqualFunc(bounds, d.buckets, same) {
		t.Errorf("%s has buckets\n%v, want\n%v", d.name, bounds, d.buckets)
	}
	if native := len(h.GetPositiveSpan())+len(h.GetNegativeSpan()) > 0 || h.GetZeroThreshold() > 0; native != (d.modes == "") {
		t.Errorf("%s has the native form: %t", d.name, native)
	}
}

// Two of kube-proxy's gauges are called a total.
var lintExceptions = []string{
	`kubeproxy_sync_proxy_rules_iptables_total: non-counter metrics should not have "_total" suffix`,
	`kubeproxy_sync_proxy_rules_no_local_endpoints_total: non-counter metrics should not have "_total" suffix`,
}

// TestMetrics_NamesPassLint: promlint accepts the names of all metrics, with few exceptions.
func TestMetrics_NamesPassLint(t *testing.T) {
	problems, err := promlint.NewWithMetricFamilies(gathered(t, everything(t, modeIPTables))).Lint()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, fmt.Sprintf("%s: %s", p.Metric, p.Text))
	}
	slices.Sort(got)
	if !slices.Equal(got, lintExceptions) {
		t.Errorf("got\n%s\nwant only\n%s", strings.Join(got, "\n"), strings.Join(lintExceptions, "\n"))
	}
}

// TestMetrics_Process: the metrics of the process are exported.
func TestMetrics_Process(t *testing.T) {
	m, err := New(Config{Mode: modeNFTables, Process: Process{Features: []Feature{
		{Name: "NativeHistograms", Stage: "alpha"}, {Name: "AllowServiceExternalIPs", Stage: "GA", Enabled: true},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("testdata/process.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		seen++
		at := slices.IndexFunc(families, func(f *dto.MetricFamily) bool { return f.GetName() == words[0] })
		if at < 0 {
			t.Errorf("%s is missing", words[0])
			continue
		}
		compareFamily(t, described{name: words[0], kind: words[1], labels: strings.Join(words[2:], " ")}, families[at])
		if words[0] == "kubernetes_feature_enabled" {
			all := samples{}
			for _, metric := range families[at].GetMetric() {
				all[labelText(metric)] = metric.GetGauge().GetValue()
			}
			all.expect(t, samples{`{name="NativeHistograms",stage="ALPHA"}`: 0, `{name="AllowServiceExternalIPs",stage=""}`: 1})
		}
	}
	if seen < 10 {
		t.Errorf("only %d metrics were looked for", seen)
	}
}

// TestMetrics_Reference compares the tables of docs/metrics.md with the catalogues and with the metrics of
// Services.
func TestMetrics_Reference(t *testing.T) {
	const page = "../../docs/metrics.md"
	modes := strings.NewReplacer("I", "iptables ", "V", "ipvs ", "N", "nftables ", "U", "userspace ")
	var rows [][]string
	for _, d := range catalogue(t, "kubeproxy.txt") {
		only := strings.ReplaceAll(strings.TrimSpace(modes.Replace(d.modes)), " ", ", ")
		if strings.Count(only, ",") == 3 {
			only = "all"
		}
		rows = append(rows, []string{"`" + d.name + "`", d.kind, labelCell(d.labels), only, d.meaning})
	}
	doctest.Generated(t, page, "metrics with kube-proxy's names", doctest.Table([]string{"Name", "Type", "Labels", "Modes", "Meaning in Sluice"}, rows))
	rows = nil
	help := map[string]string{}
	for _, mode := range []string{modeNFTables, modeUserspace} {
		for _, family := range gathered(t, everything(t, mode)) {
			help[family.GetName()] = family.GetHelp()
		}
	}
	parts := catalogue(t, "parts.txt") // TestPartMetrics_MatchCatalogue compares them with the parts
	for _, d := range parts {
		help[d.name] = d.help
	}
	for _, d := range append(catalogue(t, "sluice.txt"), parts...) {
		rows = append(rows, []string{"`" + d.name + "`", d.kind, labelCell(d.labels), help[d.name]})
	}
	doctest.Generated(t, page, "Sluice's metrics", doctest.Table([]string{"Name", "Type", "Labels", "Meaning"}, rows))
	rows = [][]string{
		{"`" + omittedName + "`", "gauge", "", omittedHelp},
		{"`" + countedSinceName + "`", "gauge", labelCell(labelFamily), countedSinceHelp},
		{"`" + unallocatedName + "`", "counter", labelCell(labelFamily), unallocatedHelp},
	}
	for _, s := range serviceMetrics {
		kind := map[prometheus.ValueType]string{prometheus.GaugeValue: "gauge", prometheus.CounterValue: "counter"}[s.kind]
		rows = append(rows, []string{"`" + s.name + "`", kind, labelCell(strings.Join(s.labels, " ")), s.help})
	}
	doctest.Generated(t, page, "metrics of Services", doctest.Table([]string{"Name", "Type", "Further labels", "Meaning"}, rows))
}

// labelCell returns labels as a cell of a table.
func labelCell(labels string) string {
	if labels == "" {
		return ""
	}
	return "`" + strings.Join(strings.Fields(labels), "`, `") + "`"
}
