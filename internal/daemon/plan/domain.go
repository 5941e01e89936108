// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// Domain is what a report needs to know of one domain.
type Domain struct {
	Name string
	// Layout is nil if the domain can change single elements.
	Layout dataplane.Layout
	// Origin interprets objects that were read. It may be nil.
	Origin dataplane.Origin
	// Lines describes an object in text; see render.Lines of nftables mode.
	Lines func(o *dataplane.Object) (where string, lines []string)
	// LeavesOut reports whether the writer leaves a change out. It may be nil.
	LeavesOut func(c *dataplane.Change) bool
}

// Add files the changes of a domain's first batch.
func (r *Report) Add(d Domain, changes []dataplane.Change) {
	r.Domains = append(r.Domains, d.Name)
	s := sorter{Domain: d, report: r, changes: changes}
	s.attribute()
	for i := range changes {
		c := &changes[i]
		switch {
		case d.LeavesOut != nil && d.LeavesOut(c):
			r.Unchanged++
		case s.composed(c):
			s.addComposed(c)
		default:
			s.add(c)
		}
	}
	r.sort()
}

// sorter sorts the changes of one domain.
type sorter struct {
	Domain
	report  *Report
	changes []dataplane.Change
	// owners are the Services of those objects in the kernel that the batch changes or removes. An object to which
	// several refer belongs to the first.
	owners map[dataplane.ID]service.Key
	// lines are the Services of the lines of composed objects in the kernel.
	lines map[line]service.Key
}

type line struct {
	object dataplane.ID
	text   string
}

// attribute determines the Services of the objects in the kernel. Some objects name their Service. The others belong to
// the Service whose objects refer to them.
func (s *sorter) attribute() {
	s.owners, s.lines = map[dataplane.ID]service.Key{}, map[line]service.Key{}
	if s.Origin == nil {
		return
	}
	there := make(map[dataplane.ID]*dataplane.Object, len(s.changes))
	for i := range s.changes {
		if c := &s.changes[i]; c.Before != nil {
			there[c.ID] = c.Before
		}
	}
	var queue []dataplane.ID
	claim := func(id dataplane.ID, key service.Key) {
		if _, known := s.owners[id]; !known && there[id] != nil {
			s.owners[id] = key
			queue = append(queue, id)
		}
	}
	for i := range s.changes {
		before := s.changes[i].Before
		if before == nil {
			continue
		}
		if s.composed(&s.changes[i]) {
			s.attributeLines(before, claim)
		} else if key, named := s.Origin.Owner(before); named {
			claim(before.ID, key)
		}
	}
	for ; len(queue) > 0; queue = queue[1:] {
		for _, ref := range s.refs(there[queue[0]]) {
			claim(ref, s.owners[queue[0]])
		}
	}
}

// attributeLines determines the Services of the lines of a composed object.
func (s *sorter) attributeLines(before *dataplane.Object, claim func(dataplane.ID, service.Key)) {
	elements, _ := s.Layout.Recover([]*dataplane.Object{before})
	for _, e := range elements {
		key, named := s.Origin.Owner(e)
		if !named {
			continue
		}
		s.lines[line{before.ID, e.Body}] = key
		for _, ref := range e.Refs() {
			claim(ref, key)
		}
	}
}

// refs returns the objects to which an object refers, without the container of an element: all Services share it, or it
// belongs to one Service, whose other objects refer to it.
func (s *sorter) refs(o *dataplane.Object) []dataplane.ID {
	refs := s.Origin.Refs(o)
	if o.Kind == dataplane.Element && len(refs) > 0 {
		return refs[1:]
	}
	return refs
}

// composed reports whether a change is of an object that the layout composes of elements.
func (s *sorter) composed(c *dataplane.Change) bool {
	if s.Layout == nil {
		return false
	}
	if c.After != nil {
		return c.After.Parts() != nil
	}
	_, others := s.Layout.Recover([]*dataplane.Object{c.Before})
	return len(others) == 0
}

// add files the change of one object.
func (s *sorter) add(c *dataplane.Change) {
	o := Object{Domain: s.Name, Change: changeOf(c)}
	if c.Before != nil {
		o.Where, o.Before = s.Lines(c.Before)
	}
	if c.After != nil {
		o.Where, o.After = s.Lines(c.After)
	}
	o.Before, o.After = differing(o.Before, o.After)
	kind, key := s.ownerOf(c)
	s.report.add(kind, key, o)
}

func changeOf(c *dataplane.Change) Change {
	switch {
	case c.Before == nil:
		return Added
	case c.After == nil:
		return Removed
	default:
		return Changed
	}
}

func (s *sorter) ownerOf(c *dataplane.Change) (Kind, service.Key) {
	key, known := s.owners[c.ID]
	switch {
	case c.After != nil && c.Owner == service.Node:
		return OfNode, key
	case c.After != nil:
		return OfService, c.Owner
	case known:
		return OfService, key
	default:
		return OfNobody, key
	}
}

// addComposed files the lines of a composed object that differ, each under its Service.
func (s *sorter) addComposed(c *dataplane.Change) {
	where, gone, come, owners := s.linesOf(c)
	byOwner := map[service.Key]*Object{}
	var order []service.Key
	of := func(key service.Key) *Object {
		if key == (service.Key{}) {
			key = service.Node // it names no Service
		}
		if byOwner[key] == nil {
			byOwner[key] = &Object{Domain: s.Name, Where: where}
			order = append(order, key)
		}
		return byOwner[key]
	}
	for _, text := range gone {
		o := of(s.lines[line{c.ID, text}])
		o.Before = append(o.Before, text)
	}
	for _, text := range come {
		o := of(owners[text])
		o.After = append(o.After, text)
	}
	if len(order) == 0 || c.Before == nil || c.After == nil {
		of(service.Node) // the chain itself, or the order of its lines
	}
	for _, key := range order {
		o, kind := byOwner[key], OfService
		o.Change = changeOf(&dataplane.Change{Before: present(o.Before), After: present(o.After)})
		if key == service.Node {
			kind, o.Change = OfNode, changeOf(c)
		}
		s.report.add(kind, key, *o)
	}
}

// linesOf returns where the lines of a composed object are, the removed and the added lines, and the owners of the new
// ones.
func (s *sorter) linesOf(c *dataplane.Change) (where string, gone, come []string, owners map[string]service.Key) {
	var before, after []string
	owners = map[string]service.Key{}
	if c.Before != nil {
		where, before = s.Lines(c.Before)
	}
	if c.After != nil {
		where, after = s.Lines(c.After)
		for i, text := range after {
			if i < len(c.After.Parts()) {
				owners[text] = c.After.Parts()[i].Owner
			}
		}
	}
	gone, come = differing(before, after)
	return where, gone, come, owners
}

func present(lines []string) *dataplane.Object {
	if len(lines) == 0 {
		return nil
	}
	return &dataplane.Object{}
}

// differing returns the lines that are only before, and those that are only after.
func differing(before, after []string) (gone, come []string) {
	count := map[string]int{}
	for _, text := range before {
		count[text]++
	}
	for _, text := range after {
		if count[text] > 0 {
			count[text]--
			continue
		}
		come = append(come, text)
	}
	for _, text := range before {
		if count[text] > 0 {
			count[text]--
			gone = append(gone, text)
		}
	}
	return gone, come
}

// TextLines describes an object whose body is text: where it is, and the body's lines. An element without a body, such
// as an address, is its name.
func TextLines(o *dataplane.Object) (where string, lines []string) {
	switch {
	case o.Body != "":
		return o.ID.Container + " " + o.ID.Name, strings.Split(o.Body, "\n")
	case o.Kind == dataplane.Element:
		return o.ID.Container, []string{o.ID.Name}
	default:
		return o.ID.Container + " " + o.ID.Name, nil
	}
}
