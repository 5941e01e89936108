// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
)

// attempt is one Write.
type attempt struct {
	*Writer
	batch *dataplane.Batch
	plan  *plan
	// failed has the objects that did not reach their desired state.
	failed map[dataplane.ID]failure
	// order is the order in which objects failed.
	order []*dataplane.Change
	// rules are the receipts of writes of rules that did not land.
	rules   []dataplane.Receipt
	written dataplane.Written
	// lost is set if an answer of the kernel was lost.
	lost bool
}

// failure describes an object that did not reach its desired state.
type failure struct {
	err error
	// found is the object in the kernel, if known: nil if it is certainly absent.
	found *dataplane.Object
	known bool
}

func newAttempt(w *Writer, batch *dataplane.Batch) *attempt {
	_ = w.kernel.changes.Written() // resets the numbers: earlier requests are not part of this write
	return &attempt{
		Writer: w, batch: batch, plan: newPlan(batch.Changes, w.ranks), failed: make(map[dataplane.ID]failure),
	}
}

func (a *attempt) carryOut(ctx context.Context) {
	p := a.plan
	a.createSets(ctx, p.setsCome)
	// Sets are filled before rules look them up. Otherwise a rule could use a half-filled set of
	// a previous process, and reject packets that another set admits.
	a.changeEntries(ctx, p.entriesStale, false)
	a.changeEntries(ctx, p.entriesCome[plain], true)
	a.changeEntries(ctx, p.entriesCome[guarding], true)
	a.writeRules(ctx, p.rulesCome)
	if p.device != nil && p.device.After != nil {
		a.note(p.device, a.device.Ensure())
	}
	a.changeEntries(ctx, p.entriesGo[shaping], false)
	a.changeAddresses(ctx, p.addressesCome, true)
	a.changeServers(ctx, p.servers)
	a.changeEntries(ctx, p.entriesCome[shaping], true)
	a.changeAddresses(ctx, p.addressesGo, false)
	a.changeEntries(ctx, p.entriesGo[guarding], false)
	a.changeEntries(ctx, p.entriesGo[plain], false)
	a.writeRules(ctx, p.rulesGo)
	a.destroySets(ctx, p.setsGo)
	if p.device != nil && p.device.After == nil {
		a.note(p.device, a.device.Delete())
	}
}

// note records the outcome of a change. After an error the object is as it was before, if that is
// known.
func (a *attempt) note(c *dataplane.Change, err error) {
	if err == nil {
		a.written.Objects++
		return
	}
	a.fail(c, failure{err: err, found: c.Before, known: !c.Unsure && !wire.Unknown(err) && !contradicts(err)})
}

func (a *attempt) fail(c *dataplane.Change, f failure) {
	a.lost = a.lost || wire.Unknown(f.err)
	a.failed[c.ID] = f
	a.order = append(a.order, c)
}

// possible leaves out the changes that refer to failed objects. These objects stay as they were; the
// error of the batch is that of the objects to which they refer.
func (a *attempt) possible(changes []*dataplane.Change) []*dataplane.Change {
	if len(a.failed) == 0 {
		return changes
	}
	failed := func(id dataplane.ID) bool {
		_, failed := a.failed[id]
		return failed
	}
	for {
		// Earlier changes may refer to those that were just left out.
		left := slices.DeleteFunc(slices.Clone(changes), func(c *dataplane.Change) bool {
			if c.After == nil || !slices.ContainsFunc(c.After.Refs(), failed) {
				return false
			}
			a.failed[c.ID] = failure{found: c.Before, known: !c.Unsure}
			return true
		})
		if len(left) == len(changes) {
			return left
		}
		changes = left
	}
}

func (a *attempt) createSets(ctx context.Context, changes []*dataplane.Change) {
	specs := make([]wire.SetSpec, 0, len(changes))
	var about []*dataplane.Change
	for _, c := range changes {
		spec, err := render.ParseSet(c.After)
		if err != nil {
			a.note(c, err)
			continue
		}
		specs, about = append(specs, spec), append(about, c)
	}
	if len(specs) == 0 {
		return
	}
	a.count(len(specs), 0)
	for i, err := range a.kernel.sets.Create(ctx, specs) {
		a.note(about[i], err)
	}
}

func (a *attempt) destroySets(ctx context.Context, changes []*dataplane.Change) {
	if len(changes) == 0 {
		return
	}
	names := make([]string, len(changes))
	for i, c := range changes {
		names[i] = c.ID.Name
	}
	a.count(len(names), 0)
	for i, err := range a.kernel.sets.Destroy(ctx, names) {
		for try := 0; errors.Is(err, wire.ErrInUse) && try < freedTries && ctx.Err() == nil; try++ {
			time.Sleep(freedPause)
			err = a.kernel.sets.Destroy(ctx, names[i:i+1])[0]
		}
		a.note(changes[i], err)
	}
}

// Destroy is repeated, because Linux takes a while to release the sets of deleted rules.
const (
	freedTries = 100
	freedPause = 10 * time.Millisecond
)

// changeEntries adds or removes entries. Adding an existing entry, or removing a missing one, succeeds,
// so it does not matter if the previous state is unknown.
func (a *attempt) changeEntries(ctx context.Context, changes []*dataplane.Change, add bool) {
	edits := make([]wire.EntryChange, 0, len(changes))
	var about []*dataplane.Change
	bytes := 0
	for _, c := range a.possible(changes) {
		e, err := a.entry(c.ID)
		if err != nil {
			a.note(c, err)
			continue
		}
		edits, about = append(edits, e), append(about, c)
		bytes += len(c.ID.Name)
	}
	if len(edits) == 0 {
		return
	}
	a.count(len(edits), bytes)
	results := a.kernel.sets.Delete
	if add {
		results = a.kernel.sets.Add
	}
	for i, err := range results(ctx, edits) {
		if !add && contradicts(err) {
			err = nil // the entry was removed with its set
		}
		if err == nil && !about[i].Unsure {
			a.levels.changed(edits[i].Set, about[i].Before != nil, add)
		}
		a.note(about[i], err)
	}
}

// changeAddresses adds or removes addresses. It succeeds like changeEntries.
func (a *attempt) changeAddresses(ctx context.Context, changes []*dataplane.Change, add bool) {
	addresses := make([]netip.Addr, 0, len(changes))
	var about []*dataplane.Change
	bytes := 0
	for _, c := range a.possible(changes) {
		addr, err := render.ParseAddress(c.ID)
		if err != nil {
			a.note(c, err)
			continue
		}
		addresses, about = append(addresses, addr), append(about, c)
		bytes += len(c.ID.Name)
	}
	if len(addresses) == 0 {
		return
	}
	a.count(len(addresses), bytes)
	results := a.device.Remove
	if add {
		results = a.device.Add
	}
	for i, err := range results(ctx, addresses) {
		a.note(about[i], err)
	}
}

// count counts a step as one call, with the names of the objects as its bytes. It is not used for
// virtual servers, because kernel.changes counts those.
func (a *attempt) count(lines, bytes int) {
	a.written = a.written.Add(dataplane.Written{Lines: lines, Bytes: bytes, Calls: 1})
}

// writeRules passes chains and hooks to their writer.
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
