package dispatch

import (
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// chain is one composed chain as of the last flush.
type chain struct {
	id dataplane.ID
	// object is what was handed out last, nil before the first time.
	object *dataplane.Object
	// parent is the chain that jumps here, nil for the root and for a chain
	// that has lost its place.
	parent   *chain
	children []*chain
}

// draft gathers the lines of a chain while it is composed.
type draft struct {
	body     []byte
	refs     []dataplane.ID
	parts    []dataplane.Part
	children []*chain
}

func (d *draft) reset() {
	d.body = d.body[:0]
	d.refs = d.refs[:0]
	d.parts = d.parts[:0]
	// The old slice has been handed to a chain.
	d.children = nil
}

func (d *draft) addElement(e *element) {
	d.addLine(e.object.Body, e.owner)
	for _, ref := range e.object.Refs {
		d.addRef(ref)
	}
}

func (d *draft) addLine(line string, owner service.Key) {
	if len(d.parts) > 0 {
		d.body = append(d.body, '\n')
	}
	d.body = append(d.body, line...)
	d.parts = append(d.parts, dataplane.Part{Owner: owner})
}

// addRef keeps the first of equal references. Chains are short.
func (d *draft) addRef(id dataplane.ID) {
	if !slices.Contains(d.refs, id) {
		d.refs = append(d.refs, id)
	}
}

// object gives what the draft amounts to, or the old object when that is the
// same in every respect.
func (d *draft) object(id dataplane.ID, old *dataplane.Object) *dataplane.Object {
	if old != nil && old.Body == string(d.body) &&
		slices.Equal(old.Parts, d.parts) && slices.Equal(old.Refs, d.refs) {
		return old
	}
	return &dataplane.Object{
		ID:    id,
		Kind:  dataplane.Owned,
		Body:  string(d.body),
		Refs:  append([]dataplane.ID(nil), d.refs...),
		Parts: append([]dataplane.Part(nil), d.parts...),
	}
}
