package kernel

import (
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// entry parses the identity of an entry.
func (a *attempt) entry(id dataplane.ID) (wire.EntryChange, error) {
	name, _ := render.EntrySet(id)
	spec, known := a.sets[name]
	if !known {
		return wire.EntryChange{}, fmt.Errorf("object %q in %q is not an entry of a set of Sluice", id.Name, id.Container)
	}
	e, err := wire.ParseEntry(spec.Type, id.Name)
	return wire.EntryChange{Set: name, Entry: e}, err
}

// SetLevel says how full a set is. A Service whose entries do not fit is not served.
type SetLevel struct {
	// Set is the kernel's name.
	Set string
	// Entries is how many there are, Capacity how many fit.
	Entries, Capacity int
}

// nearlyFullPercent is the part of its capacity at which a set counts as nearly full.
const nearlyFullPercent = 80

func (s *SetLevel) nearlyFull() bool { return s.Entries*100 >= s.Capacity*nearlyFullPercent }

// levels keep account of how full the sets of a family are, so that nothing has to be
// listed to know it. The next Read finds what others do to sets.
type levels struct {
	report func(SetLevel)
	// sets holds those that can be full: of a hash type.
	sets map[string]*SetLevel
}

func newLevels(family service.Family, report func(SetLevel)) levels {
	l := levels{report: report, sets: make(map[string]*SetLevel)}
	for _, s := range render.Sets(family) {
		l.made(s, 0)
	}
	return l
}

// made notes that a set has so many entries. A bitmap has room for every port.
func (l *levels) made(s wire.SetSpec, entries int) {
	if s.Type != wire.BitmapPort {
		l.sets[s.Name] = &SetLevel{Set: s.Name, Entries: entries, Capacity: int(s.MaxElem)}
	}
}

// found notes what the kernel says.
func (l *levels) found(s *wire.Set) {
	l.made(s.SetSpec, int(s.Count))
	if level := l.sets[s.Name]; level != nil && level.nearlyFull() {
		l.report(*level)
	}
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
		l.report(*level)
	}
}
