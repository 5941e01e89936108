// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Drift counts the differences that an audit found between the kernel and what is
// wanted.
type Drift struct {
	// Equal objects are in the kernel as wanted.
	Equal int
	// Missing objects are wanted and not there. Different objects have other content.
	// Unwanted objects are ours and no longer wanted.
	Missing, Different, Unwanted int
	// Bare is set if no Service can be served: no object of any Service is as wanted, or none that leads to them.
	// Emptied is set if this is so because objects were removed or emptied, and nothing was put in their place.
	Bare, Emptied bool
	// Undone is the part that was known to be as wanted before. It is nil if there is
	// none, and in the first audit.
	Undone *Undone
}

// Any reports whether anything has to be written.
func (d Drift) Any() bool { return d.Missing+d.Different+d.Unwanted > 0 }

// Undone describes the objects that were in the kernel as wanted and no longer are, because another program changed
// them. The results of our own writes, past or pending, are not part of it.
type Undone struct {
	Missing, Different, Unwanted int
	// Services counts the Services whose objects are missing or different. The node
	// itself does not count.
	Services int
	// Keys are these Services. Everyone is set if something is missing or different that belongs to no Service, or to
	// several: then all depend on it.
	Keys     map[service.Key]struct{}
	Everyone bool
	// Objects lists all of them, or the first UndoneMax.
	Objects []UndoneObject
}

// Count returns the number of objects.
func (u *Undone) Count() int { return u.Missing + u.Different + u.Unwanted }

// UndoneObject is one undone object.
type UndoneObject struct {
	ID dataplane.ID
	// Frontend is the object's frontend; zero for none.
	Frontend service.Frontend
	// Owner is service.Node if the object belongs to no Service, or to several.
	Owner service.Key
	// If neither is set, the object is different.
	Missing, Unwanted bool
}

// UndoneMax bounds the list of objects.
const UndoneMax = 1024

// Observe replaces everything that is known by what was read from the kernel, so that
// the next plan repairs differences and removes what is unwanted. It walks all objects:
// only audits call it.
func (l *Ledger) Observe(read []dataplane.Object) Drift {
	l.compose()
	var drift Drift
	var undone driftCollector
	standing := standing{naming: l.naming}
	for i := range read {
		object := &read[i]
		e := l.entries.demand(object.ID)
		stood := !e.differs()
		undone.knew = undone.knew || e.known != nil
		e.known, e.unsure, e.seen = object, false, true
		switch {
		case e.wanted == nil:
			drift.Unwanted++
		case dataplane.Same(e.wanted, object):
			drift.Equal++
			e.known = e.wanted // share the text
		default:
			drift.Different++
			standing.overwritten = standing.overwritten || !e.cut()
		}
		if stood && e.differs() {
			undone.note(object.ID, e)
		}
		standing.note(object.ID, e)
		l.touch(object.ID, e)
	}
	drift.Missing = l.observeMissing(&undone, &standing)
	drift.Bare = standing.bare()
	drift.Emptied = drift.Bare && !standing.overwritten
	if drift.Undone = undone.all(); drift.Undone != nil {
		for i := range drift.Undone.Objects {
			o := &drift.Undone.Objects[i]
			o.Frontend, _ = l.naming.Frontend(o.ID)
		}
	}
	return drift
}

// observeMissing notes that what was not seen is not in the kernel. It returns how much of that is wanted.
func (l *Ledger) observeMissing(undone *driftCollector, standing *standing) (missing int) {
	for id, e := range l.entries.all() {
		if e.seen {
			e.seen = false
			continue
		}
		stood := !e.differs()
		undone.knew = undone.knew || e.known != nil
		e.known, e.unsure = nil, false
		if e.wanted != nil {
			missing++
			if stood {
				undone.note(id, e)
			}
		}
		standing.note(id, e)
		l.touch(id, e)
	}
	return missing
}

// standing records for each stage whether any object is wanted, and whether the kernel has one. Overwritten is set if
// an object has content that another program wrote.
type standing struct {
	naming        dataplane.Naming
	wanted, found [dataplane.Stages]bool
	overwritten   bool
}

// note counts an entry that was just observed. An object of the node is found unless it is gone or cut: if another
// program added to it, it still leads to the Services. An object of a Service is found if it is as wanted.
func (s *standing) note(id dataplane.ID, e *entry) {
	if e.wanted == nil {
		return
	}
	stage := s.naming.Stage(id)
	node := e.owner() == service.Node
	if stage == dataplane.StageNone || s.found[stage] || node == (stage == dataplane.StageFrontend) {
		return
	}
	s.wanted[stage] = true
	s.found[stage] = !e.differs() || node && e.known != nil && !e.cut()
}

func (s *standing) bare() bool {
	for stage, wanted := range s.wanted {
		if wanted && !s.found[stage] {
			return true
		}
	}
	return false
}

// cut reports whether the kernel has only the beginning of what is wanted, or nothing: a flush leaves an empty chain.
func (e *entry) cut() bool { return strings.HasPrefix(e.wanted.Body, e.known.Body) }

// driftCollector collects Undone.
type driftCollector struct {
	// knew is set if any object was known before.
	knew     bool
	found    *Undone
	services map[service.Key]struct{}
}

// note adds an entry that differs now, and did not before the audit.
func (u *driftCollector) note(id dataplane.ID, e *entry) {
	if u.found == nil {
		u.found, u.services = &Undone{}, map[service.Key]struct{}{}
	}
	object := UndoneObject{ID: id, Owner: e.owner(),
		Missing: e.known == nil, Unwanted: e.wanted == nil}
	switch {
	case object.Missing:
		u.found.Missing++
	case object.Unwanted:
		u.found.Unwanted++
	default:
		u.found.Different++
	}
	if len(u.found.Objects) < UndoneMax {
		u.found.Objects = append(u.found.Objects, object)
	}
	if e.wanted == nil {
		return
	}
	u.services[object.Owner] = struct{}{}
	parts := e.wanted.Parts()
	u.found.Everyone = u.found.Everyone || e.claims.shared != nil || object.Owner == service.Node && len(parts) == 0
	for _, part := range parts {
		u.services[part.Owner] = struct{}{}
	}
}

func (u *driftCollector) all() *Undone {
	if u.found == nil || !u.knew {
		return nil
	}
	delete(u.services, service.Node)
	u.found.Services, u.found.Keys = len(u.services), u.services
	return u.found
}
