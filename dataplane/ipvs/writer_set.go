package ipvs

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/ipset"
	"github.com/sluice-proxy/sluice/service"
)

// swapName is the name that a set has while it takes the place of another one.
func swapName(family service.Family) string { return setName(family, "KUBE-SLUICE-SWAP") }

// entry reads the identity of an entry.
func (a *attempt) entry(id dataplane.ID) (ipset.Change, error) {
	name, _ := EntrySet(id)
	spec, known := a.sets[name]
	if !known {
		return ipset.Change{}, fmt.Errorf("object %q in %q is no entry of a set of ours", id.Name, id.Container)
	}
	e, err := ipset.ParseEntry(spec.Type, id.Name)
	if m := a.misfits[name]; m != nil && !m.home {
		name = m.beside.Name
	}
	return ipset.Change{Set: name, Entry: e}, err
}

// makeRoom enlarges the sets that are too small for what comes, and gives the errors
// by set: why the kernel refuses what does not fit then, and whether it may later.
func (a *attempt) makeRoom(ctx context.Context, edits []ipset.Change, about []*dataplane.Change) (failed map[string]error) {
	coming := make(map[string]int)
	for i := range edits {
		if about[i].Before == nil || about[i].Unsure {
			coming[edits[i].Set]++
		}
	}
	for set, more := range coming {
		if a.levels.fits(set, more) {
			continue
		}
		wanted := a.sets[set]
		wanted.MaxElem = a.levels.most
		if err := a.replace(ctx, wanted); err != nil {
			if failed == nil {
				failed = make(map[string]error)
			}
			failed[set] = err
			a.lost = a.lost || isLost(err)
		}
	}
	return failed
}

// replace makes a set that exists in another form into the wanted one. One that has
// room for too few entries keeps those it has, and rules that ask it find them at any
// time. One of another type is a *misfitError.
func (a *attempt) replace(ctx context.Context, wanted ipset.Spec) error {
	a.count(1, 0)
	sets := a.kernel.sets
	found, err := sets.Get(ctx, wanted.Name)
	switch {
	case errors.Is(err, ipset.ErrNoSet):
		return sets.Create(ctx, []ipset.Spec{wanted})[0]
	case err != nil:
		return err
	case found.String() == wanted.String() && holds(found, wanted):
		a.levels.made(found.Spec, int(found.Count))
		return nil
	case found.String() == wanted.String() && wanted.Type != ipset.BitmapPort:
		return a.enlarge(ctx, found, wanted)
	}
	return &misfitError{found, wanted}
}

// holds reports whether as much fits into a set as is to.
func holds(found ipset.Set, wanted ipset.Spec) bool {
	if wanted.Type == ipset.BitmapPort {
		return found.FirstPort == 0 && found.LastPort == 1<<16-1
	}
	return found.MaxElem >= wanted.MaxElem
}

// enlarge puts a larger set in the place of another one, with its entries.
func (a *attempt) enlarge(ctx context.Context, found ipset.Set, wanted ipset.Spec) error {
	sets := a.kernel.sets
	spare := wanted
	spare.Name = swapName(a.family)
	entries := make([]ipset.Change, len(found.Entries))
	for i, e := range found.Entries {
		entries[i] = ipset.Change{Set: spare.Name, Entry: e}
	}
	a.count(len(entries), 0)
	steps := []func() error{
		func() error { return sets.Destroy(ctx, []string{spare.Name})[0] }, // of an enlargement that was killed
		func() error { return sets.Create(ctx, []ipset.Spec{spare})[0] },
		func() error { return errors.Join(sets.Add(ctx, entries)...) },
		func() error { return sets.Swap(ctx, wanted.Name, spare.Name) },
		func() error { return sets.Destroy(ctx, []string{spare.Name})[0] },
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("enlarge %s: %w", wanted.Name, err)
		}
	}
	a.levels.made(wanted, len(entries))
	return nil
}
