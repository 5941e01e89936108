// SPDX-License-Identifier: Apache-2.0

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

// SetLevel describes how full a set is. A Service whose entries do not fit is not served.
type SetLevel struct {
	// Set is the kernel's name.
	Set string
	// Entries is the number of entries, Capacity how many fit.
	Entries, Capacity int
}

// nearlyFullPercent is the percentage of its capacity at which a set counts as nearly full.
const nearlyFullPercent = 80

func (s *SetLevel) nearlyFull() bool { return s.Entries*100 >= s.Capacity*nearlyFullPercent }

// levels track how full the sets of a family are, so that no set has to be listed for it. The next
// Read updates them after changes by other programs.
type levels struct {
	report func(SetLevel)
	// sets has the sets that can be full: those of a hash type.
	sets map[string]*SetLevel
}

func newLevels(family service.Family, report func(SetLevel)) levels {
	l := levels{report: report, sets: make(map[string]*SetLevel)}
	for _, s := range render.Sets(family) {
		l.made(s, 0)
	}
	return l
}

// made notes the number of a set's entries. It ignores bitmaps, which have room for every port.
func (l *levels) made(s wire.SetSpec, entries int) {
	if s.Type != wire.BitmapPort {
		l.sets[s.Name] = &SetLevel{Set: s.Name, Entries: entries, Capacity: int(s.MaxElem)}
	}
}

// found notes a set as read from the kernel.
func (l *levels) found(s *wire.Set) {
	l.made(s.SetSpec, int(s.Count))
	if level := l.sets[s.Name]; level != nil && level.nearlyFull() {
		l.report(*level)
	}
}

// changed notes whether an entry existed before a write, and whether it exists after it.
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
