package metrics

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// namesOf gives the Services that have metrics of their own at /metrics, sorted.
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

// TestAsManyServicesAsAreWantedAreAtMetrics: the slowest, and no other.
func TestAsManyServicesAsAreWantedAreAtMetrics(t *testing.T) {
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

// TestMetricsOfServicesAreTheSameInBothPlaces.
func TestMetricsOfServicesAreTheSameInBothPlaces(t *testing.T) {
	inWorld(t, func(w *world) {
		w.refuse("172.30.0.1/32")
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
			if !strings.HasPrefix(family.GetName(), "sluice_service") || strings.HasPrefix(family.GetName(), "sluice_services_refused") {
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

func TestServicesMaxMustNotBeNegative(t *testing.T) {
	if m, err := New(Config{Mode: modeNFTables, ServicesMax: -1}); err == nil {
		t.Errorf("got %v", m)
	}
}
