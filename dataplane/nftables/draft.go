package nftables

import "github.com/sluice-proxy/sluice/dataplane"

// draft gathers the objects of one Service. The bytes of all elements are in one
// buffer, which becomes one string that they share: a Service costs a few
// allocations, not two per endpoint and frontend.
type draft struct {
	bytes    []byte
	elements []elementDraft
	owned    []dataplane.Object
}

// span is a part of the buffer.
type span struct{ from, to int }

// elementDraft is an element whose bytes are still in the buffer.
type elementDraft struct {
	container string
	name      span
	body      span
	refs      []dataplane.ID
}

func newDraft() *draft { return &draft{} }

// put adds bytes to the buffer.
func (d *draft) put(fill func([]byte) []byte) span {
	from := len(d.bytes)
	d.bytes = fill(d.bytes)
	return span{from, len(d.bytes)}
}

// element adds an element of a set.
func (d *draft) element(container string, name, body span, refs []dataplane.ID) {
	d.elements = append(d.elements, elementDraft{container, name, body, refs})
}

// own adds objects that are whole already.
func (d *draft) own(objects ...dataplane.Object) { d.owned = append(d.owned, objects...) }

// objects gives everything.
func (d *draft) objects() []dataplane.Object {
	text := string(d.bytes)
	objects := make([]dataplane.Object, 0, len(d.elements)+len(d.owned))
	for _, e := range d.elements {
		objects = append(objects, dataplane.Object{
			ID:   dataplane.ID{Container: e.container, Name: text[e.name.from:e.name.to]},
			Kind: dataplane.Element,
			Body: text[e.body.from:e.body.to],
			Refs: e.refs,
		})
	}
	return append(objects, d.owned...)
}
