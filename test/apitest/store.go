package apitest

import (
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// store holds the objects and how they came about. Whoever has it holds the
// server's lock.
type store struct {
	version int // resource version of the newest change
	oldest  int // versions below it have been compacted away
	objects map[string]map[string]runtime.Object
	history []change
}

// change is one entry of the history. Before or after is nil.
type change struct {
	version       int
	resource      string
	before, after runtime.Object
}

func newStore() *store {
	s := &store{version: 100, objects: make(map[string]map[string]runtime.Object)}
	for resource := range resources {
		s.objects[resource] = make(map[string]runtime.Object)
	}
	return s
}

func (s *store) set(resource string, object runtime.Object) {
	id := idOf(object)
	s.record(change{resource: resource, before: s.objects[resource][id], after: object}, object)
	s.objects[resource][id] = object
}

func (s *store) remove(resource, id string) {
	before, ok := s.objects[resource][id]
	if !ok {
		return
	}
	delete(s.objects[resource], id)
	last := before.DeepCopyObject()
	s.record(change{resource: resource, before: last}, last)
}

func (s *store) record(c change, newest runtime.Object) {
	s.version++
	accessorOf(newest).SetResourceVersion(strconv.Itoa(s.version))
	c.version = s.version
	s.history = append(s.history, c)
}

func (s *store) compact() {
	s.version++
	s.oldest = s.version
	s.history = nil
}

func (s *store) rewind() { s.version, s.oldest, s.history = 10, 0, nil }

// selected returns copies of what a selection has of a resource, by name.
func (s *store) selected(resource string, sel selection) []runtime.Object {
	var all []runtime.Object
	for _, id := range slices.Sorted(maps.Keys(s.objects[resource])) {
		if object := s.objects[resource][id]; sel.has(object) {
			all = append(all, object.DeepCopyObject())
		}
	}
	return all
}

// notice is a change as those see it who watch a selection.
type notice struct {
	version int
	kind    watch.EventType
	object  runtime.Object
}

// since returns copies of what has happened to a selection after a version. An
// object that leaves the selection is deleted for those who watch it.
func (s *store) since(resource string, version int, sel selection) []notice {
	var seen []notice
	for _, c := range s.history {
		if c.resource != resource || c.version <= version {
			continue
		}
		was, is := c.before != nil && sel.has(c.before), c.after != nil && sel.has(c.after)
		switch {
		case was && is:
			seen = append(seen, notice{c.version, watch.Modified, c.after.DeepCopyObject()})
		case is:
			seen = append(seen, notice{c.version, watch.Added, c.after.DeepCopyObject()})
		case was:
			gone := c.before.DeepCopyObject()
			accessorOf(gone).SetResourceVersion(strconv.Itoa(c.version))
			seen = append(seen, notice{c.version, watch.Deleted, gone})
		}
	}
	return seen
}

func idOf(object runtime.Object) string {
	accessor := accessorOf(object)
	return accessor.GetNamespace() + "/" + accessor.GetName()
}

// accessorOf panics for what is no API object: a mistake of the test.
func accessorOf(object runtime.Object) metav1.Object {
	accessor, err := meta.Accessor(object)
	if err != nil {
		panic(err)
	}
	return accessor
}
