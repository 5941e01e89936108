package ipvs

import (
	"github.com/sluice-proxy/sluice/dataplane/ipvs/ipset"
	"github.com/sluice-proxy/sluice/service"
)

// SetLevel says how full a set is. A Service whose entries do not fit is not served.
type SetLevel struct {
	// Set is the kernel's name.
	Set string
	// Entries is how many there are, Capacity how many fit when the set has grown to
	// the full.
	Entries, Capacity int
}

// level is how full a set is, and how many entries fit as it is now.
type level struct {
	SetLevel
	room int
}

// levels keep account of how full the sets of a family are, so that nothing has to be
// listed to know it. What others do to sets is found at the next Read.
type levels struct {
	tell func(SetLevel)
	// most is how far sets can grow.
	most uint32
	// sets holds those that can be full: of a hash type.
	sets map[string]*level
}

func newLevels(family service.Family, tell func(SetLevel)) levels {
	l := levels{tell: tell, most: mostEntries, sets: make(map[string]*level)}
	for _, s := range Sets(family) {
		l.made(s, 0)
	}
	return l
}

// made says that a set has so many entries.
func (l *levels) made(s ipset.Spec, entries int) {
	if s.Type != ipset.BitmapPort {
		l.sets[s.Name] = &level{
			SetLevel: SetLevel{Set: s.Name, Entries: entries, Capacity: int(max(s.MaxElem, l.most))}, room: int(s.MaxElem),
		}
	}
}

// found takes over what the kernel says.
func (l *levels) found(s *ipset.Set) {
	l.made(s.Spec, int(s.Count))
	if level := l.sets[s.Name]; level != nil && level.nearlyFull() {
		l.tell(level.SetLevel)
	}
}

// fits tells whether so many more entries fit into a set as it is.
func (l *levels) fits(set string, more int) bool {
	level := l.sets[set]
	return level == nil || level.Entries+more <= level.room
}

// changed says that an entry, which was there or was not, is there now or is not.
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
		l.tell(level.SetLevel)
	}
}

func (s *SetLevel) nearlyFull() bool {
	return ipset.Set{Spec: ipset.Spec{MaxElem: uint32(s.Capacity)}, Count: uint32(max(s.Entries, 0))}.NearlyFull()
}
