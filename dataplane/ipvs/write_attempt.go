package ipvs

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/kernel"
)

// attempt is one Write.
type attempt struct {
	*Writer
	batch *dataplane.Batch
	plan  *plan
	// failed holds what was not done for certain, by object.
	failed map[dataplane.ID]failure
	// order is that in which objects failed.
	order []*dataplane.Change
	// rules are the receipts of what the rules' writer was given, and did not land.
	rules   []dataplane.Receipt
	written dataplane.Written
	// misfits are sets on their way to another type, by name; moved are the rules that
	// were led to the sets beside them.
	misfits map[string]*misfit
	moved   []*dataplane.Change
	// lost says that an answer of the kernel is missing.
	lost bool
}

// failure is what became of an object that was not brought to what is wanted.
type failure struct {
	err error
	// found is what the kernel has, if known: nil when the object is certainly
	// absent.
	found *dataplane.Object
	known bool
}

func newAttempt(w *Writer, batch *dataplane.Batch) *attempt {
	_ = w.kernel.changes.Written() // what others asked for is no part of this
	return &attempt{
		Writer: w, batch: batch, plan: newPlan(batch.Changes, w.ranks), failed: make(map[dataplane.ID]failure),
	}
}

func (a *attempt) carryOut(ctx context.Context) {
	p := a.plan
	a.createSets(ctx, p.setsCome)
	// Filled before rules ask them: what a predecessor has left half done is enough for
	// a rule to refuse what another set is to let through.
	a.changeEntries(ctx, p.entriesCome[plain], true)
	a.changeEntries(ctx, p.entriesCome[guarding], true)
	a.writeRules(ctx, a.ledAside(ctx, p.rulesCome))
	a.bringHome(ctx)
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
	a.dropBeside(ctx)
	a.destroySets(ctx, p.setsGo)
	if p.device != nil && p.device.After == nil {
		a.note(p.device, a.device.Delete())
	}
}

// note takes down what became of a change. After an error, there is what was, if that
// is known.
func (a *attempt) note(c *dataplane.Change, err error) {
	if err == nil {
		a.written.Objects++
		return
	}
	a.fail(c, failure{err: err, found: c.Before, known: !c.Unsure && !kernel.Unknown(err) && !contradicts(err)})
}

func (a *attempt) fail(c *dataplane.Change, f failure) {
	a.lost = a.lost || kernel.Unknown(f.err)
	a.failed[c.ID] = f
	a.order = append(a.order, c)
}

// possible leaves out the changes that refer to what has failed: they are as they
// were, and it is for what they refer to that the batch has failed.
func (a *attempt) possible(changes []*dataplane.Change) []*dataplane.Change {
	if len(a.failed) == 0 {
		return changes
	}
	stands := func(id dataplane.ID) bool {
		_, failed := a.failed[id]
		return !failed
	}
	for {
		// What was left out may itself be referred to by what came before it.
		left := slices.DeleteFunc(slices.Clone(changes), func(c *dataplane.Change) bool {
			if c.After == nil || !slices.ContainsFunc(c.After.Refs, func(id dataplane.ID) bool { return !stands(id) }) {
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
	specs := make([]kernel.SetSpec, 0, len(changes))
	var about []*dataplane.Change
	for _, c := range changes {
		spec, err := ParseSet(c.After)
		switch {
		case err != nil:
			a.note(c, err)
		case !c.Unsure && c.Before != nil:
			a.made(ctx, c, spec, a.replace(ctx, spec))
		default:
			specs, about = append(specs, spec), append(about, c)
		}
	}
	if len(specs) == 0 {
		return
	}
	a.count(len(specs), 0)
	for i, err := range a.kernel.sets.Create(ctx, specs) {
		if errors.Is(err, kernel.ErrDifferent) {
			err = a.replace(ctx, specs[i])
		}
		a.made(ctx, about[i], specs[i], err)
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
		a.note(changes[i], err)
	}
}

// changeEntries adds entries or removes them. What is there already, or gone already,
// is success, so that it does not matter whether that is known.
func (a *attempt) changeEntries(ctx context.Context, changes []*dataplane.Change, add bool) {
	edits := make([]kernel.EntryChange, 0, len(changes))
	var about []*dataplane.Change
	bytes := 0
	for _, c := range a.possible(changes) {
		e, err := a.entry(c.ID)
		if set, _ := EntrySet(c.ID); err != nil && !add && a.misfits[set] != nil {
			err = nil // it went with the set that it fitted
			a.note(c, err)
			continue
		}
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
	var small map[string]error
	if add {
		small = a.makeRoom(ctx, edits, about)
		results = a.kernel.sets.Add
	}
	for i, err := range results(ctx, edits) {
		if err != nil {
			err = errors.Join(err, small[edits[i].Set])
		}
		if !add && contradicts(err) {
			err = nil // it went with its set
		}
		if err == nil && !about[i].Unsure {
			a.levels.changed(edits[i].Set, about[i].Before != nil, add)
		}
		a.note(about[i], err)
	}
}

// changeAddresses is as changeEntries.
func (a *attempt) changeAddresses(ctx context.Context, changes []*dataplane.Change, add bool) {
	addresses := make([]netip.Addr, 0, len(changes))
	var about []*dataplane.Change
	bytes := 0
	for _, c := range a.possible(changes) {
		addr, err := ParseAddress(c.ID)
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

// count counts a step that is not about virtual servers, whose socket counts for
// itself: a call, and the names of the objects as its bytes.
func (a *attempt) count(lines, bytes int) {
	a.written = a.written.Add(dataplane.Written{Lines: lines, Bytes: bytes, Calls: 1})
}

// writeRules hands what is not ours to the rules' writer.
func (a *attempt) writeRules(ctx context.Context, changes []*dataplane.Change) {
	changes = a.possible(changes)
	if len(changes) == 0 {
		return
	}
	batch := &dataplane.Batch{Number: a.batch.Number, Control: a.batch.Control}
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
