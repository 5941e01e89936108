package metrics

import (
	"strings"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
)

// ruleTables are the tables whose rules kube-proxy counts. A chain is an object in
// a container of the table's name, its body one rule per line; the jumps from
// built-in chains are in other containers, and not counted there either.
var ruleTables = [...]string{"nat", "filter"}

// rulesOf counts the rules of a chain; one that is absent has none.
func rulesOf(chain *dataplane.Object) int {
	if chain == nil || chain.Body == "" {
		return 0
	}
	return strings.Count(chain.Body, "\n") + 1
}

// countRead counts the rules that the kernel holds.
func (d *domain) countRead(chains []dataplane.Object) {
	clear(d.rules)
	for i := range chains {
		d.rules[chains[i].ID.Container] += rulesOf(&chains[i])
	}
	for _, table := range ruleTables {
		d.metrics.kube.rulesTotal.WithLabelValues(table, d.family).Set(float64(d.rules[table]))
	}
}

// countWritten counts the rules of one batch, and takes note of those that have come
// and gone. After a failure only what is certain counts; the next audit knows the
// rest.
func (d *domain) countWritten(e aggregator.BatchWritten) {
	written := map[string]int{}
	for i := range e.Batch.Changes {
		c := &e.Batch.Changes[i]
		written[c.ID.Container] += rulesOf(c.After)
		after := c.After
		if e.Receipt.Outcome != dataplane.Landed {
			var certain bool
			if after, certain = e.Receipt.Certain[c.ID]; !certain {
				continue
			}
		}
		d.rules[c.ID.Container] += rulesOf(after) - rulesOf(c.Before)
	}
	for _, table := range ruleTables {
		d.metrics.kube.rulesLast.WithLabelValues(table, d.family).Set(float64(written[table]))
		d.metrics.kube.rulesTotal.WithLabelValues(table, d.family).Set(float64(max(0, d.rules[table])))
	}
}
