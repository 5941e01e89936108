package ledger

import (
	"github.com/sluice-proxy/sluice/dataplane"
)

// Drift counts what an audit found: the kernel's own account against what is
// wanted.
type Drift struct {
	// Equal objects are in the kernel as wanted.
	Equal int
	// Missing objects are wanted and not there; Different ones are there with
	// other content; Unwanted ones are ours, there, and wanted by nobody.
	Missing, Different, Unwanted int
}

// Any tells whether anything has to be written.
func (d Drift) Any() bool { return d.Missing+d.Different+d.Unwanted > 0 }

// Observe replaces everything that is known by what was read back, so that the
// next plan repairs what differs and sweeps what is unwanted. It walks all
// objects: it belongs to the audit, never to the path of one change.
func (l *Ledger) Observe(read []dataplane.Object) Drift {
	l.compose()
	var drift Drift
	for i := range read {
		object := &read[i]
		e := l.entries.demand(object.ID)
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
		l.touch(object.ID, e)
	}
	for id, e := range l.entries.all() {
		if e.seen {
			e.seen = false
			continue
		}
		e.known, e.unsure = nil, false
		if e.wanted != nil {
			drift.Missing++
		}
		l.touch(id, e)
	}
	return drift
}
