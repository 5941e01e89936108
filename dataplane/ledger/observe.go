package ledger

import (
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Drift counts what an audit found: the kernel's own account against what is
// wanted.
type Drift struct {
	// Equal objects are in the kernel as wanted.
	Equal int
	// Missing objects are wanted and not there; Different ones are there with
	// other content; Unwanted ones are ours, there, and wanted by nobody.
	Missing, Different, Unwanted int
	// Undone is the part of it that was known to be as wanted before; nil when
	// there is none, as in the first audit, before which nothing is known.
	Undone *Undone
}

// Any reports whether anything has to be written.
func (d Drift) Any() bool { return d.Missing+d.Different+d.Unwanted > 0 }

// Undone is what was in the kernel as wanted and is not any more: what somebody else
// has done. What a write of our own has left, or has yet to do, is not part of it.
type Undone struct {
	Missing, Different, Unwanted int
	// Services counts those that an object which is missing or different belongs
	// to. What belongs to the node as a whole is not counted.
	Services int
	// Objects has all of them, or the first UndoneMax that were found.
	Objects []UndoneObject
}

// Count is the number of objects.
func (u *Undone) Count() int { return u.Missing + u.Different + u.Unwanted }

// UndoneObject is one of them.
type UndoneObject struct {
	ID dataplane.ID
	// Frontend is what the object is for; zero for none.
	Frontend dataplane.Frontend
	// Owner is service.Node for what belongs to no Service, or to several.
	Owner service.Key
	// Missing, or else Unwanted, or else different.
	Missing, Unwanted bool
}

// UndoneMax bounds the list of objects.
const UndoneMax = 1024

// Observe replaces everything that is known by what was read back, so that the
// next plan repairs what differs and sweeps what is unwanted. It walks all
// objects: it belongs to the audit, never to the path of one change.
func (l *Ledger) Observe(read []dataplane.Object) Drift {
	l.compose()
	var drift Drift
	var undone undoing
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
		}
		if stood && e.differs() {
			undone.note(object.ID, e)
		}
		l.touch(object.ID, e)
	}
	for id, e := range l.entries.all() {
		if e.seen {
			e.seen = false
			continue
		}
		stood := !e.differs()
		undone.knew = undone.knew || e.known != nil
		e.known, e.unsure = nil, false
		if e.wanted != nil {
			drift.Missing++
			if stood {
				undone.note(id, e)
			}
		}
		l.touch(id, e)
	}
	if drift.Undone = undone.all(); drift.Undone != nil {
		for i := range drift.Undone.Objects {
			o := &drift.Undone.Objects[i]
			o.Frontend, _ = l.naming.Frontend(o.ID)
		}
	}
	return drift
}

// undoing collects what is Undone.
type undoing struct {
	// knew is set once an object was known before.
	knew     bool
	found    *Undone
	services map[service.Key]struct{}
}

// note takes in an entry that differs since the audit.
func (u *undoing) note(id dataplane.ID, e *entry) {
	if u.found == nil {
		u.found, u.services = &Undone{}, map[service.Key]struct{}{}
	}
	object := UndoneObject{ID: id, Owner: e.owner(), Missing: e.known == nil, Unwanted: e.wanted == nil}
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
	for _, part := range e.wanted.Parts {
		u.services[part.Owner] = struct{}{}
	}
}

func (u *undoing) all() *Undone {
	if u.found == nil || !u.knew {
		return nil
	}
	delete(u.services, service.Node)
	u.found.Services = len(u.services)
	return u.found
}
