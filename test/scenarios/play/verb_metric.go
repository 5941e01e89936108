package play

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// Series of /metrics. A name stands for all series that have the labels, and its
// value is their sum; the value of a histogram is the number of its samples.
var _ = define("metric", verb{
	usage:  `metric sluice_writes_total{domain=nftables/IPv4,outcome=landed} above 0 (or is 3, below 9, present, absent)`,
	kernel: true, parse: parseMetric,
})

// metricWanted is what a statement asks of a metric.
type metricWanted struct {
	name     string
	labels   map[string]string
	relation string
	value    float64
}

func parseMetric(words []string) (statement, error) {
	want, err := metricOf(words)
	if err != nil {
		return nil, err
	}
	return settled(func(ctx context.Context, _ *Stage, w *network.World) error {
		return hold(ctx, func() error {
			families, err := scrape(ctx, w)
			if err != nil {
				return err
			}
			return want.judge(families)
		})
	}), nil
}

func metricOf(words []string) (metricWanted, error) {
	if len(words) < 2 {
		return metricWanted{}, errors.New("want NAME{LABEL=VALUE,…} and is, above, below, present or absent")
	}
	want := metricWanted{labels: make(map[string]string), relation: words[1]}
	name, labels, ok := strings.Cut(words[0], "{")
	want.name = name
	if ok {
		for pair := range strings.SplitSeq(strings.TrimSuffix(labels, "}"), ",") {
			label, value, ok := strings.Cut(pair, "=")
			if !ok {
				return want, fmt.Errorf("%q: want LABEL=VALUE", pair)
			}
			want.labels[label] = value
		}
	}
	switch {
	case len(words) == 2 && (want.relation == "present" || want.relation == "absent"):
		return want, nil
	case len(words) == 3 && (want.relation == "is" || want.relation == "above" || want.relation == "below"):
		var err error
		want.value, err = strconv.ParseFloat(words[2], 64)
		return want, err
	default:
		return want, fmt.Errorf("%q: want is N, above N, below N, present or absent", strings.Join(words[1:], " "))
	}
}

func (m metricWanted) judge(families map[string]*dto.MetricFamily) error {
	var sum float64
	found := 0
	for _, series := range families[m.name].GetMetric() {
		if m.fits(series) {
			found++
			sum += valueOf(series)
		}
	}
	what := fmt.Sprintf("%s%v", m.name, m.labels)
	switch {
	case m.relation == "absent" && found > 0:
		return fmt.Errorf("%s is there, %d series with the sum %v", what, found, sum)
	case m.relation != "absent" && found == 0:
		return fmt.Errorf("%s is not there; all series: %v", what, families[m.name].GetMetric())
	case m.relation == "is" && sum != m.value, m.relation == "above" && sum <= m.value, m.relation == "below" && sum >= m.value:
		return fmt.Errorf("%s is %v, want %s %v", what, sum, m.relation, m.value)
	default:
		return nil
	}
}

func (m metricWanted) fits(series *dto.Metric) bool {
	found := 0
	for _, label := range series.GetLabel() {
		if want, ok := m.labels[label.GetName()]; ok && want == label.GetValue() {
			found++
		}
	}
	return found == len(m.labels)
}

func valueOf(series *dto.Metric) float64 {
	switch {
	case series.Counter != nil:
		return series.Counter.GetValue()
	case series.Gauge != nil:
		return series.Gauge.GetValue()
	case series.Histogram != nil:
		return float64(series.Histogram.GetSampleCount())
	default:
		return series.GetUntyped().GetValue()
	}
}

// scrape reads /metrics at its usual address.
func scrape(ctx context.Context, w *network.World) (map[string]*dto.MetricFamily, error) {
	const url = "http://127.0.0.1:10249/metrics"
	got, fate, err := fetch(ctx, w.Node(), url, answerPatience)
	if err != nil {
		return nil, err
	}
	if fate != fixture.Answered || got.status != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %v", url, describe(got, fate))
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	return parser.TextToMetricFamilies(bytes.NewReader(got.body))
}
