// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	clientgo "k8s.io/client-go/tools/metrics"
	kube "k8s.io/component-base/metrics"

	"github.com/sluice-proxy/sluice/dataplane/conntrack/cleaner"
	"github.com/sluice-proxy/sluice/service"
)

// gathered returns the metric families of a Metrics, without those of the process.
func gathered(t testing.TB, m *Metrics) []*dto.MetricFamily {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// samples are values by name and labels, as the text format writes them; of a
// histogram the number of samples, under its name and _count.
type samples map[string]float64

func scraped(t testing.TB, m *Metrics) samples {
	t.Helper()
	all := samples{}
	for _, f := range gathered(t, m) {
		for _, metric := range f.GetMetric() {
			name, value := f.GetName(), 0.0
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				value = metric.GetCounter().GetValue()
			case dto.MetricType_GAUGE:
				value = metric.GetGauge().GetValue()
			case dto.MetricType_HISTOGRAM:
				name, value = name+"_count", float64(metric.GetHistogram().GetSampleCount())
			default:
				t.Fatalf("%s: a %v is not expected", name, f.GetType())
			}
			all[name+labelText(metric)] = value
		}
	}
	return all
}

// labelText returns the labels in the order of their names.
func labelText(metric *dto.Metric) string {
	var words []string
	for _, l := range metric.GetLabel() {
		words = append(words, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
	}
	if len(words) == 0 {
		return ""
	}
	slices.Sort(words)
	return "{" + strings.Join(words, ",") + "}"
}

// expect compares some samples; absent means that there must be none.
func (s samples) expect(t *testing.T, want samples) {
	t.Helper()
	var names []string
	for name := range want {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		got, there := s[name]
		switch {
		case want[name] == absent:
			if there {
				t.Errorf("%s is %v, want none", name, got)
			}
		case !there:
			t.Errorf("%s is missing, want %v", name, want[name])
		case got != want[name]:
			t.Errorf("%s is %v, want %v", name, got, want[name])
		}
	}
}

// absent is a value that no sample has.
const absent = -4711.0

// serve asks for /metrics.
func serve(t *testing.T, m *Metrics, accept string) *http.Response {
	t.Helper()
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept", accept)
	answer := httptest.NewRecorder()
	m.Handler().ServeHTTP(answer, request)
	if answer.Code != http.StatusOK {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	return answer.Result()
}

func TestMetrics_BuildInfo(t *testing.T) {
	m, err := New(Config{Mode: modeNFTables, Build: Build{Version: "v1.2.3", Revision: "abc"}})
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(serve(t, m, "").Body)
	if err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("\nsluice_build_info{go_version=%q,platform=\"%s/%s\",revision=\"abc\",version=\"v1.2.3\"} 1\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH)
	if !strings.Contains(string(body), want) {
		t.Errorf("%q is missing", want)
	}
}

// TestHandler_TextWithProcessMetrics: the text format also contains the metrics of Go, the process and client-go.
func TestHandler_TextWithProcessMetrics(t *testing.T) {
	m := listedMetrics(t, 3)
	// What client-go reports.
	clientgo.RequestResult.Increment(context.Background(), "200", "GET", "apiserver:6443")
	clientgo.RequestLatency.Observe(context.Background(), "GET", url.URL{Scheme: "https", Host: "apiserver:6443"}, time.Millisecond)
	answer := serve(t, m, "")
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n# TYPE go_goroutines gauge\n", "\nprocess_start_time_seconds ", "\nkubernetes_build_info{",
		"\nrest_client_requests_total{code=\"200\",host=\"apiserver:6443\",method=\"GET\"} ",
		"\nrest_client_request_duration_seconds_bucket{host=\"apiserver:6443\",verb=\"GET\",le=\"0.005\"} ",
		"\nsluice_actors{state=\"running\"} ", "\nkubeproxy_sync_proxy_rules_service_changes_total 0\n",
	} {
		if !strings.Contains("\n"+string(body), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if answer.Header.Get("Process-Start-Time-Unix") == "" {
		t.Error("the header with the start of the process is missing")
	}
}

// TestHandler_NativeHistograms: the protobuf format contains a histogram in its native and its classic form.
func TestHandler_NativeHistograms(t *testing.T) {
	m := listedMetrics(t, 0)
	m.domains[domain4].programming.observe(time.Now(), serviceKey(0), 100*time.Microsecond)
	answer := serve(t, m, "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	decoder := expfmt.NewDecoder(answer.Body, expfmt.ResponseFormat(answer.Header))
	for {
		var family dto.MetricFamily
		if err := decoder.Decode(&family); err != nil {
			t.Fatalf("the histogram is missing: %v", err)
		}
		if family.GetName() == "sluice_programming_duration_seconds" {
			if h := family.GetMetric()[0].GetHistogram(); len(h.GetPositiveSpan()) == 0 || len(h.GetBucket()) == 0 {
				t.Errorf("not in both forms: %v", h)
			}
			return
		}
	}
}

// native reports whether kube-proxy's own histograms have the native form.
func native(t *testing.T, gate bool) bool {
	t.Helper()
	m, err := New(Config{Mode: modeIPTables, Process: Process{NativeHistograms: gate}})
	if err != nil {
		t.Fatal(err)
	}
	m.Conntrack(cleaner.Swept{Family: service.IPv4, Took: time.Second})
	for _, f := range gathered(t, m) {
		if f.GetName() == "kubeproxy_conntrack_reconciler_sync_duration_seconds" {
			return len(f.GetMetric()[0].GetHistogram().GetPositiveSpan()) > 0
		}
	}
	t.Fatal("the histogram is missing")
	return false
}

// TestHandler_NativeHistogramsFeatureGate: the feature gate enables and disables native histograms.
func TestHandler_NativeHistogramsFeatureGate(t *testing.T) {
	if !native(t, true) {
		t.Error("the gate is on, and the native form is missing")
	}
	if native(t, false) {
		t.Error("the gate is off, and the native form is there")
	}
}

// TestMetrics_ShowHidden: ShowHidden enables hidden metrics.
func TestMetrics_ShowHidden(t *testing.T) {
	if _, err := New(Config{Mode: modeIPTables, Process: Process{ShowHidden: true}}); err != nil {
		t.Fatal(err)
	}
	if !kube.ShouldShowHidden() {
		t.Error("hidden metrics stay hidden")
	}
}

// TestMetrics_SampledReadAtEachScrape: sampled metrics are read at each scrape.
func TestMetrics_SampledReadAtEachScrape(t *testing.T) {
	m, err := New(Config{Mode: modeNFTables})
	if err != nil {
		t.Fatal(err)
	}
	now := 1.0
	m.Register(Sampled{
		Of: []Definition{{Name: "part_gauge", Labels: []string{"of"}}, {Name: "part_counter_total", Kind: Counter}},
		Read: func(send Send) {
			send("part_gauge", now, "a")
			send("part_gauge", -now, "b")
			send("part_counter_total", now)
		},
	})
	m.Register(Sampled{}) // a part without metrics
	m.Register(One("part_total", "", Total, func() float64 { return now }))
	for ; now < 3; now++ {
		scraped(t, m).expect(t, samples{`part_gauge{of="a"}`: now, `part_gauge{of="b"}`: -now, "part_counter_total": now, "part_total": now})
	}
	for _, f := range gathered(t, m) {
		if f.GetName() == "part_total" && f.GetMetric()[0].GetCounter().GetCreatedTimestamp() == nil {
			t.Error("part_total does not say since when it counts")
		}
	}
}

// TestMetrics_ConntrackCleanups: clean-ups of conntrack are counted by family, with their failures.
func TestMetrics_ConntrackCleanups(t *testing.T) {
	m := listedMetrics(t, 1)
	m.Conntrack(cleaner.Swept{Family: service.IPv6, Flows: 10, Deleted: 2, Took: time.Second})
	m.Conntrack(cleaner.Swept{Family: service.IPv6, Flows: 5, Deleted: 1, Err: errors.New("interrupted")})
	scraped(t, m).expect(t, samples{
		in("IPv6", "kubeproxy_conntrack_reconciler_sync_duration_seconds_count"): 1,
		in("IPv6", "kubeproxy_conntrack_reconciler_deleted_entries_total"):       3,
		in("IPv6", "sluice_conntrack_flows_seen_total"):                          15,
		in("IPv6", "sluice_conntrack_failures_total"):                            1,
		in("IPv4", "sluice_conntrack_failures_total"):                            0,
		in("IPv4", "kubeproxy_conntrack_reconciler_deleted_entries_total"):       absent,
	})
}

// TestMetrics_ProbeAnswersByCode: answers to probes are counted by code.
func TestMetrics_ProbeAnswersByCode(t *testing.T) {
	m := listedMetrics(t, 0)
	m.Healthz(200)
	m.Healthz(200)
	m.Healthz(503)
	m.Livez(200)
	scraped(t, m).expect(t, samples{
		`kubeproxy_proxy_healthz_total{code="200"}`: 2,
		`kubeproxy_proxy_healthz_total{code="503"}`: 1,
		`kubeproxy_proxy_livez_total{code="200"}`:   1,
		`kubeproxy_proxy_livez_total{code="503"}`:   absent,
	})
}
