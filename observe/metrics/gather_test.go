package metrics

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
)

// gathered gives the metric families that a Metrics keeps itself, without those of
// the process.
func gathered(t testing.TB, m *Metrics) []*dto.MetricFamily {
	t.Helper()
	m.refresh()
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

// labelText gives the labels in the order of their names.
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

// expect compares some samples; one that is to be missing is given as absent.
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

// absent is no value that a sample has.
const absent = -4711.0
