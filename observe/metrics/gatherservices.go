package metrics

import (
	"bytes"
	"context"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// gatherServices gives the metrics of the few Services that have some at /metrics:
// the answer of /metrics/services?top=N, read back, so that the two are the same.
func (m *Metrics) gatherServices() ([]*dto.MetricFamily, error) {
	q := query{top: m.config.ServicesMax}
	answer := m.answer(context.Background(), &q)
	var text bytes.Buffer
	answer.writeText(&text)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	byName, err := parser.TextToMetricFamilies(&text)
	families := make([]*dto.MetricFamily, 0, len(byName))
	for _, family := range byName {
		for _, metric := range family.Metric {
			// As a registry would have them.
			slices.SortFunc(metric.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
		}
		families = append(families, family)
	}
	return families, err
}
