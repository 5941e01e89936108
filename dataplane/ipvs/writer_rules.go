package ipvs

import (
	"context"

	"github.com/sluice-proxy/sluice/dataplane"
)

// writeRules hands what is not ours to the rules' writer.
func (a *attempt) writeRules(ctx context.Context, changes []*dataplane.Change) {
	changes = a.possible(changes)
	if len(changes) == 0 {
		return
	}
	batch := &dataplane.Batch{Number: a.batch.Number}
	batch.Changes = make([]dataplane.Change, len(changes))
	for i, c := range changes {
		batch.Changes[i] = *c
	}
	receipt := a.config.Rules.Write(ctx, batch)
	a.written = a.written.Add(receipt.Written)
	if receipt.Outcome == dataplane.Landed {
		return
	}
	a.rules = append(a.rules, receipt)
	for _, c := range changes {
		if found, known := receipt.Certain[c.ID]; !known || !dataplane.Same(found, c.After) {
			a.failed[c.ID] = failure{found: found, known: known}
		}
	}
}
