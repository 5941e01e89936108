// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
)

// TestServiceMetrics_PassLint: promlint accepts the names of the metrics of Services.
func TestServiceMetrics_PassLint(t *testing.T) {
	inWorld(t, func(w *world) {
		w.reject("172.30.0.1/32")
		w.cache.SetSpec(spec(1))
		w.prime()
		s := slice4(1, 1, 1)
		s.Trigger = time.Now()
		w.cache.SetSlice(s)
		w.reject("")
		time.Sleep(time.Minute)
		synctest.Wait()
		w.reject("10.0.1.9") // so that there is a quarantine, too
		w.cache.SetSlice(slice4(1, 1, 9))
		w.settle()
		w.count(&traffic.Reading{Frontends: map[service.Frontend]traffic.At{at("10.9.0.1", 80): connected(1)}})
		w.inMode(modeUserspace)
		w.relay()
		w.Source(source.Shadowed{Key: serviceKey(1), By: serviceKey(2), Frontends: make(service.Frontends, 1)})
		families := parse(t, ask(t, w.Metrics, ""))
		for _, metric := range serviceMetrics {
			if families[metric.name] == nil {
				t.Errorf("%s is missing", metric.name)
			}
		}
		if len(families) != len(serviceMetrics)+1 {
			t.Errorf("%d metrics, want %d", len(families), len(serviceMetrics)+1)
		}
		var list []*dto.MetricFamily
		for _, f := range families {
			list = append(list, f)
		}
		problems, err := promlint.NewWithMetricFamilies(list).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("%v %v", problems, err)
		}
	})
}

// namesOf returns the Services that have metrics of their own at /metrics, sorted.
func namesOf(t *testing.T, m *Metrics) []string {
	t.Helper()
	families, err := m.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if strings.HasPrefix(family.GetName(), "sluice_service_") && label.GetName() == "name" {
					names[label.GetValue()] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// TestServiceMetrics_ServicesMax: /metrics contains the slowest Services only, up to ServicesMax.
func TestServiceMetrics_ServicesMax(t *testing.T) {
	m := listedMetrics(t, 5)
	for servicesMax, want := range map[int][]string{
		0: nil, 2: {"s3", "s4"}, 5: {"s0", "s1", "s2", "s3", "s4"}, 1000: {"s0", "s1", "s2", "s3", "s4"},
	} {
		m.config.ServicesMax = servicesMax
		if got := namesOf(t, m); !slices.Equal(got, want) {
			t.Errorf("servicesMax %d: %v, want %v", servicesMax, got, want)
		}
	}
}

// TestServiceMetrics_SameAtBothPaths: /metrics and /metrics/services contain the same metrics of a Service.
func TestServiceMetrics_SameAtBothPaths(t *testing.T) {
	inWorld(t, func(w *world) {
		w.reject("172.30.0.1/32")
		for n := range 3 {
			w.cache.SetSpec(spec(n))
			w.cache.SetSlice(slice4(n, 1, 1, 2))
		}
		w.prime()
		w.config.ServicesMax = 2
		families, err := w.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := samples{}
		for _, family := range families {
			if !strings.HasPrefix(family.GetName(), "sluice_service") || strings.HasPrefix(family.GetName(), "sluice_services_rejected") {
				continue
			}
			for _, metric := range family.GetMetric() {
				got[family.GetName()+labelText(metric)] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
			}
		}
		if want := askText(t, w.Metrics, "top=2"); !maps.Equal(got, want) || len(want) < 20 || want["sluice_services_omitted"] != 1 {
			t.Errorf("got  %v\nwant %v", got, want)
		}
	})
}

// TestServiceMetrics_SamplesShareLabels: an answer about all Services of a node allocates little per Service, because
// its samples share their labels.
func TestServiceMetrics_SamplesShareLabels(t *testing.T) {
	const services, most = 500, 100
	m := listedMetrics(t, services)
	request := httptest.NewRequest(http.MethodGet, "/metrics/services", nil)
	handler := m.ServicesHandler()
	perAnswer := testing.AllocsPerRun(3, func() { handler.ServeHTTP(&sized{header: http.Header{}}, request) })
	if got := perAnswer / services; got > most {
		t.Errorf("%.0f allocations per Service, want at most %d", got, most)
	}
}
