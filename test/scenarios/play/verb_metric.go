// SPDX-License-Identifier: Apache-2.0

package play

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/sluice-proxy/sluice/test/scenarios/cluster"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
	"github.com/sluice-proxy/sluice/test/scenarios/network"
)

// Series of /metrics. A name stands for every series with the labels, and its value is their sum.
// The value of a histogram is the number of its samples.
var _ = define("metric", verb{
	usage:  `metric sluice_writes_total{domain=nftables/IPv4,outcome=landed} above 0 (or is 3, below 9, present, absent)`,
	kernel: true, parse: parseMetric,
})

// metricWanted is what a statement wants of a metric.
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

// scrape reads /metrics at its default address.
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

// How many writes changes cause within a time from the first change on, in the family with most
// writes, as the proxy counts them.
var _ = define("writes", verb{usage: `writes 1..3 in 2.5s of 500 changes in 1s (the Service's timeout of affinity changes), or
writes 0..0 in 1s of resync a b (the Service and its slice with these endpoints are sent again as they are)`, kernel: true, parse: parseWrites})

// writes is a parsed statement.
type writes struct {
	least, most int
	// within is the time in which writes count.
	within time.Duration
	// changes are made within during. 0 means a resync of endpoints.
	changes   int
	during    time.Duration
	endpoints []string
}

// writesMetric counts writes by domain and outcome.
const writesMetric = "sluice_writes_total"

func parseWrites(words []string) (statement, error) {
	const form = "want MIN..MAX in TIME of N changes in TIME, or of resync ENDPOINT…"
	if len(words) < 5 || words[1] != "in" || words[3] != "of" {
		return nil, errors.New(form)
	}
	var w writes
	var errs [5]error
	least, most, _ := strings.Cut(words[0], "..")
	w.least, errs[0] = strconv.Atoi(least)
	w.most, errs[1] = strconv.Atoi(most)
	w.within, errs[2] = time.ParseDuration(words[2])
	switch rest := words[4:]; {
	case rest[0] == "resync":
		w.endpoints = rest[1:]
	case len(rest) == 4 && rest[1] == "changes" && rest[2] == "in":
		w.changes, errs[3] = strconv.Atoi(rest[0])
		w.during, errs[4] = time.ParseDuration(rest[3])
	default:
		return nil, errors.New(form)
	}
	return settled(w.run), errors.Join(errs[:]...)
}

func (w writes) run(ctx context.Context, s *Stage, world *network.World) error {
	before, err := quiet(ctx, world)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := w.change(ctx, s, begin); err != nil {
		return err
	}
	if err := sleep(ctx, time.Until(begin.Add(w.within))); err != nil {
		return err
	}
	var tooMany error
	err = hold(ctx, func() error {
		after, err := writesByDomain(ctx, world)
		if err != nil {
			return err
		}
		written := 0
		for domain, n := range after {
			written = max(written, n-before[domain])
		}
		// A busy machine takes longer for the changes and for this reading. As many more writes are right.
		most := w.most * int((max(w.within, time.Since(begin))+w.within-1)/w.within)
		if written >= w.least && written <= most {
			return nil
		}
		err = fmt.Errorf("%d writes within %v, want %d to %d; in all %v, before %v", written, time.Since(begin), w.least, most, after, before)
		if written > most {
			tooMany, err = err, nil // later, more would be right
		}
		return err
	})
	return cmp.Or(err, tooMany)
}

// change makes the changes, evenly spread over their time.
func (w writes) change(ctx context.Context, s *Stage, begin time.Time) error {
	if w.changes == 0 {
		return errors.Join(s.ChangeService(cluster.Main, nil), s.SetSlice("main", w.endpoints))
	}
	s.changed = true
	for i := range w.changes {
		if err := s.ChangeService(cluster.Main, []string{fmt.Sprintf("affinity=%d", 1000+i)}); err != nil {
			return err
		}
		if err := sleep(ctx, time.Until(begin.Add(w.during*time.Duration(i+1)/time.Duration(w.changes)))); err != nil {
			return err
		}
	}
	return nil
}

// quiet waits until nothing has been written for a while, and returns the counts.
func quiet(ctx context.Context, world *network.World) (map[string]int, error) {
	// Longer than the longest pause between two writes in any scenario.
	const silence = 1500 * time.Millisecond
	var before map[string]int
	for range 20 {
		now, err := writesByDomain(ctx, world)
		if err != nil {
			return nil, err
		}
		if before != nil && maps.Equal(now, before) {
			return now, nil
		}
		before = now
		if err := sleep(ctx, silence); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the proxy keeps writing: %v", before)
}

// writesByDomain reads the proxy's counts of all outcomes.
func writesByDomain(ctx context.Context, world *network.World) (map[string]int, error) {
	families, err := scrape(ctx, world)
	if err != nil {
		return nil, err
	}
	counts := make(map[string]int)
	for _, series := range families[writesMetric].GetMetric() {
		for _, label := range series.GetLabel() {
			if label.GetName() == "domain" {
				counts[label.GetValue()] += int(valueOf(series))
			}
		}
	}
	if len(counts) == 0 {
		return nil, fmt.Errorf("the proxy has no metric %s", writesMetric)
	}
	return counts, nil
}
