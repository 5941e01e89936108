package ipvs

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/kernel"
	"github.com/sluice-proxy/sluice/service"
)

// swapName is the name of a set while it takes the place of another one.
func swapName(family service.Family) string { return setName(family, "KUBE-SLUICE-SWAP") }

// entry parses the identity of an entry.
func (a *attempt) entry(id dataplane.ID) (kernel.EntryChange, error) {
	name, _ := EntrySet(id)
	spec, known := a.sets[name]
	if !known {
		return kernel.EntryChange{}, fmt.Errorf("object %q in %q is not an entry of a set of ours", id.Name, id.Container)
	}
	e, err := kernel.ParseEntry(spec.Type, id.Name)
	if m := a.misfits[name]; m != nil && !m.home {
		name = m.beside.Name
	}
	return kernel.EntryChange{Set: name, Entry: e}, err
}

// makeRoom enlarges the sets that are too small for what comes. It returns the errors by
// set. They explain a refusal for want of room, and whether a retry may succeed.
func (a *attempt) makeRoom(ctx context.Context, edits []kernel.EntryChange, about []*dataplane.Change) (failed map[string]error) {
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
			a.lost = a.lost || kernel.Unknown(err)
		}
	}
	return failed
}

// replace turns a set that exists in another form into the wanted one. A set with too
// little room keeps its entries, and rules that look it up find them at any time. A set of
// another type is a *misfitError.
func (a *attempt) replace(ctx context.Context, wanted kernel.SetSpec) error {
	a.count(1, 0)
	sets := a.kernel.sets
	found, err := sets.Get(ctx, wanted.Name)
	switch {
	case errors.Is(err, kernel.ErrNoSet):
		return sets.Create(ctx, []kernel.SetSpec{wanted})[0]
	case err != nil:
		return err
	case found.String() == wanted.String() && holds(found, wanted):
		a.levels.made(found.SetSpec, int(found.Count))
		return nil
	case found.String() == wanted.String() && wanted.Type != kernel.BitmapPort:
		return a.enlarge(ctx, found, wanted)
	}
	return &misfitError{found, wanted}
}

// holds reports whether a set has as much room as is wanted.
func holds(found kernel.Set, wanted kernel.SetSpec) bool {
	if wanted.Type == kernel.BitmapPort {
		return found.FirstPort == 0 && found.LastPort == 1<<16-1
	}
	return found.MaxElem >= wanted.MaxElem
}

// enlarge puts a larger set in the place of another one, with its entries.
func (a *attempt) enlarge(ctx context.Context, found kernel.Set, wanted kernel.SetSpec) error {
	sets := a.kernel.sets
	spare := wanted
	spare.Name = swapName(a.family)
	entries := make([]kernel.EntryChange, len(found.Entries))
	for i, e := range found.Entries {
		entries[i] = kernel.EntryChange{Set: spare.Name, Entry: e}
	}
	a.count(len(entries), 0)
	steps := []func() error{
		func() error { return sets.Destroy(ctx, []string{spare.Name})[0] }, // of an enlargement that was killed
		func() error { return sets.Create(ctx, []kernel.SetSpec{spare})[0] },
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

// SetLevel says how full a set is. A Service whose entries do not fit is not served.
type SetLevel struct {
	// Set is the kernel's name.
	Set string
	// Entries is how many there are, Capacity how many fit into the set at its largest.
	Entries, Capacity int
}

// nearlyFullPercent is the part of its capacity at which a set counts as nearly full.
const nearlyFullPercent = 80

func (s *SetLevel) nearlyFull() bool { return s.Entries*100 >= s.Capacity*nearlyFullPercent }

// level is how full a set is, and how many entries fit as it is now.
type level struct {
	SetLevel
	room int
}

// levels keep account of how full the sets of a family are, so that nothing has to be
// listed to know it. The next Read finds what others do to sets.
type levels struct {
	report func(SetLevel)
	// most is how far sets can grow.
	most uint32
	// sets holds those that can be full: of a hash type.
	sets map[string]*level
}

func newLevels(family service.Family, report func(SetLevel)) levels {
	l := levels{report: report, most: mostEntries, sets: make(map[string]*level)}
	for _, s := range Sets(family) {
		l.made(s, 0)
	}
	return l
}

// made notes that a set has so many entries. A bitmap has room for every port.
func (l *levels) made(s kernel.SetSpec, entries int) {
	if s.Type != kernel.BitmapPort {
		l.sets[s.Name] = &level{
			SetLevel: SetLevel{Set: s.Name, Entries: entries, Capacity: int(max(s.MaxElem, l.most))},
			room:     int(s.MaxElem),
		}
	}
}

// found notes what the kernel says.
func (l *levels) found(s *kernel.Set) {
	l.made(s.SetSpec, int(s.Count))
	if level := l.sets[s.Name]; level != nil && level.nearlyFull() {
		l.report(level.SetLevel)
	}
}

// fits reports whether so many more entries fit into a set as it is.
func (l *levels) fits(set string, more int) bool {
	level := l.sets[set]
	return level == nil || level.Entries+more <= level.room
}

// changed notes that an entry that existed or not exists now or not.
func (l *levels) changed(set string, was, is bool) {
	level := l.sets[set]
	if level == nil || was == is {
		return
	}
	before := level.nearlyFull()
	if is {
		level.Entries++
	} else {
		level.Entries--
	}
	if level.nearlyFull() && !before {
		l.report(level.SetLevel)
	}
}
