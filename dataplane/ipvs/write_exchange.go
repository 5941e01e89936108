package ipvs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/kernel"
	"github.com/sluice-proxy/sluice/service"
)

// The kernel swaps only sets of the same type, and renames or destroys none that a rule
// looks up. So a set of another type, left by another release or another program, is
// exchanged with the help of one beside it:
//
//	make the set beside, with all entries ► rules look it up ► delete the set and make it
//	as wanted, with all entries ► rules look it up again ► delete the set beside
//
// Invariant: no rule looks up a set that is missing or lacks wanted entries.

// misfitError means that a set exists with another type or family.
type misfitError struct {
	found  kernel.Set
	wanted kernel.SetSpec
}

// Error names both.
func (e *misfitError) Error() string {
	return fmt.Sprintf("%s is %s and has to be %s", e.wanted.Name, e.found.SetSpec, e.wanted)
}

// misfit is such a set while it is exchanged.
type misfit struct {
	change         *dataplane.Change
	wanted, beside kernel.SetSpec
	// home is set when the set is as wanted.
	home bool
}

// besidePrefix begins the names of sets beside others. The number of the set in kinds
// follows.
const besidePrefix = "KUBE-SLUICE-BESIDE-"

func besideName(family service.Family, set string) string {
	at := slices.IndexFunc(Sets(family), func(s kernel.SetSpec) bool { return s.Name == set })
	return setName(family, fmt.Sprint(besidePrefix, at))
}

// isBeside reports whether a set is one that an exchange has left, in either family.
func isBeside(name string) bool {
	return strings.HasPrefix(name, besidePrefix) || strings.HasPrefix(name, setName(service.IPv6, besidePrefix))
}

// made records the outcome of a set that comes. One of another type is recorded when it has
// been exchanged.
func (a *attempt) made(ctx context.Context, c *dataplane.Change, wanted kernel.SetSpec, err error) {
	if m, ok := errors.AsType[*misfitError](err); ok {
		if err = a.buildBeside(ctx, c, m); err == nil {
			return
		}
		err = fmt.Errorf("exchange %s, which is %s: %w", wanted.Name, m.found.SetSpec, err)
	}
	a.note(c, err)
}

// buildBeside makes the set beside a misfit. It has those entries of the misfit that fit,
// and those of the batch.
func (a *attempt) buildBeside(ctx context.Context, c *dataplane.Change, e *misfitError) error {
	m := &misfit{change: c, wanted: e.wanted, beside: e.wanted}
	m.beside.Name = besideName(a.family, e.wanted.Name)
	if m.wanted.Type != kernel.BitmapPort {
		m.wanted.MaxElem = max(m.wanted.MaxElem, e.found.MaxElem)
		m.beside.MaxElem = m.wanted.MaxElem
	}
	leaving := make(map[string]bool)
	var names []string
	for i := range a.batch.Changes {
		c := &a.batch.Changes[i]
		switch set, _ := EntrySet(c.ID); {
		case set != e.wanted.Name:
		case c.After == nil:
			leaving[c.ID.Name] = true
		default:
			names = append(names, c.ID.Name)
		}
	}
	for _, found := range e.found.Entries {
		if !leaving[found.String()] {
			names = append(names, found.String())
		}
	}
	var entries []kernel.EntryChange
	for _, name := range names {
		if entry, err := kernel.ParseEntry(m.wanted.Type, name); err == nil {
			entries = append(entries, kernel.EntryChange{Set: m.beside.Name, Entry: entry})
		}
	}
	a.count(len(entries)+1, 0)
	sets := a.kernel.sets
	_ = sets.Destroy(ctx, []string{m.beside.Name})[0] // of an exchange that was killed
	err := sets.Create(ctx, []kernel.SetSpec{m.beside})[0]
	if err == nil {
		err = errors.Join(sets.Add(ctx, entries)...)
	}
	if err == nil {
		if a.misfits == nil {
			a.misfits = make(map[string]*misfit)
		}
		a.misfits[m.wanted.Name] = m
	}
	return err
}

// ledAside returns the changes of rules with the sets beside in the place of misfits. It
// adds the other rules that look up misfits.
func (a *attempt) ledAside(ctx context.Context, changes []*dataplane.Change) []*dataplane.Change {
	if len(a.misfits) == 0 {
		return changes
	}
	objects, err := a.config.Rules.Read(ctx)
	if err != nil {
		for _, m := range a.misfits {
			err := fmt.Errorf("read the rules that look up %s: %w", m.wanted.Name, err)
			a.fail(m.change, failure{err: err, found: m.change.Before, known: !m.change.Unsure})
		}
		return changes // possible leaves out those that look up the misfits
	}
	coming := make(map[dataplane.ID]bool, len(changes))
	for _, c := range changes {
		coming[c.ID] = true
	}
	going := make(map[dataplane.ID]bool, len(a.plan.rulesGo))
	for _, c := range a.plan.rulesGo {
		going[c.ID] = true
	}
	var led []*dataplane.Change
	for _, c := range changes {
		to := a.aside(c.After)
		if to == c.After {
			led = append(led, c)
			continue
		}
		a.moved = append(a.moved, &dataplane.Change{ID: c.ID, Before: to, After: c.After, Owner: c.Owner})
		led = append(led, &dataplane.Change{ID: c.ID, Before: c.Before, After: to, Owner: c.Owner, Unsure: c.Unsure})
	}
	for i := range objects {
		o := &objects[i]
		to := a.aside(o)
		if to == o || coming[o.ID] {
			continue
		}
		led = append(led, &dataplane.Change{ID: o.ID, Before: o, After: to, Owner: service.Node})
		if !going[o.ID] {
			a.moved = append(a.moved, &dataplane.Change{ID: o.ID, Before: to, After: o, Owner: service.Node})
		}
	}
	return led
}

// aside returns a chain with the sets beside in the place of misfits, or the same chain if
// it looks up no misfit. Its other references stay.
func (a *attempt) aside(o *dataplane.Object) *dataplane.Object {
	words := strings.Split(o.Body, " ")
	refs, changed := slices.Clone(o.Refs()), false
	for i := 1; i < len(words); i++ {
		m := a.misfits[words[i]]
		if m == nil || words[i-1] != "--match-set" {
			continue
		}
		for at, ref := range refs {
			if ref == SetID(words[i]) {
				refs[at] = SetID(m.beside.Name)
			}
		}
		words[i], changed = m.beside.Name, true
	}
	if !changed {
		return o
	}
	led := *o
	led.Body, led.Links = strings.Join(words, " "), dataplane.LinkTo(refs...)
	return &led
}

// bringHome replaces the misfits by the wanted sets, and leads the rules back.
func (a *attempt) bringHome(ctx context.Context) {
	if len(a.misfits) == 0 {
		return
	}
	stuck := slices.ContainsFunc(a.moved, func(c *dataplane.Change) bool {
		_, failed := a.failed[c.ID]
		return failed
	})
	for _, m := range a.misfits {
		if _, failed := a.failed[m.change.ID]; failed {
			continue
		}
		err := error(&misfitError{kernel.Set{SetSpec: m.beside}, m.wanted})
		if !stuck {
			err = a.rebuild(ctx, m)
		}
		if err != nil {
			// The next read shows what rules look up now.
			a.fail(m.change, failure{err: err})
			a.lost = a.lost || kernel.Unknown(err)
			continue
		}
		m.home = true
		a.note(m.change, nil)
	}
	a.writeRules(ctx, a.moved)
}

// exchanges returns a note for each set that has another type now.
func (a *attempt) exchanges() []string {
	var notes []string
	for _, name := range slices.Sorted(maps.Keys(a.misfits)) {
		if m := a.misfits[name]; m.home {
			note := "set %s was of another type than this release's: exchanged for one of %s"
			notes = append(notes, fmt.Sprintf(note, name, m.wanted))
		}
	}
	return notes
}

// dropBeside destroys the sets beside that no rule looks up any more.
func (a *attempt) dropBeside(ctx context.Context) {
	for _, m := range a.misfits {
		if m.home {
			_ = a.destroyFreed(ctx, m.beside.Name) // if it stays, the next exchange or clean-up removes it
		}
	}
}

// rebuild exchanges a misfit that no rule looks up any more.
func (a *attempt) rebuild(ctx context.Context, m *misfit) error {
	sets := a.kernel.sets
	beside, err := sets.Get(ctx, m.beside.Name)
	if err != nil {
		return err
	}
	entries := make([]kernel.EntryChange, len(beside.Entries))
	for i, e := range beside.Entries {
		entries[i] = kernel.EntryChange{Set: m.wanted.Name, Entry: e}
	}
	a.count(len(entries)+2, 0)
	if err := a.destroyFreed(ctx, m.wanted.Name); err != nil {
		return err
	}
	if err := sets.Create(ctx, []kernel.SetSpec{m.wanted})[0]; err != nil {
		return err
	}
	if err := errors.Join(sets.Add(ctx, entries)...); err != nil {
		return err
	}
	a.levels.made(m.wanted, len(entries))
	return nil
}

// How long Linux may take to release the sets of deleted rules.
const (
	freedTries = 100
	freedPause = 10 * time.Millisecond
)

// destroyFreed destroys a set that rules have looked up until now.
func (a *attempt) destroyFreed(ctx context.Context, name string) error {
	for try := 1; ; try++ {
		err := a.kernel.sets.Destroy(ctx, []string{name})[0]
		if !errors.Is(err, kernel.ErrInUse) || try == freedTries || ctx.Err() != nil {
			return err
		}
		time.Sleep(freedPause)
	}
}
