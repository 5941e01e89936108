package apitest

import (
	"fmt"
	"net/url"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// Local is a server without a network: it takes objects as [Server] does, and
// calls those who follow a resource at once, in the goroutine of the change. It is
// for simulations, in which nothing may wait for a socket.
type Local struct {
	mu        sync.Mutex
	store     *store
	followers map[string][]follower
}

type follower struct {
	sel  selection
	tell func(watch.EventType, runtime.Object)
}

// NewLocal makes a server without objects.
func NewLocal() *Local { return &Local{store: newStore(), followers: make(map[string][]follower)} }

// Follow tells a function of every object that a label selector and a field
// selector select, first of those that are there, then of changes. It owns the
// objects that it is given.
func (l *Local) Follow(resource, labels, fields string, tell func(watch.EventType, runtime.Object)) error {
	sel, err := selectionOf(resource, url.Values{"labelSelector": {labels}, "fieldSelector": {fields}})
	if err != nil {
		return fmt.Errorf("follow %s: %w", resource, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, object := range l.store.selected(resource, sel) {
		tell(watch.Added, object)
	}
	l.followers[resource] = append(l.followers[resource], follower{sel, tell})
	return nil
}

// Set creates or updates an object of a resource. The server owns the object from
// then on.
func (l *Local) Set(resource string, object runtime.Object) {
	l.change(resource, func() { l.store.set(resource, object) })
}

// Remove deletes an object, if it is there.
func (l *Local) Remove(resource, namespace, name string) {
	l.change(resource, func() { l.store.remove(resource, namespace+"/"+name) })
}

// change makes a change and tells the followers. The history before it is of no
// use to anybody.
func (l *Local) change(resource string, do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.store.version
	do()
	for _, f := range l.followers[resource] {
		for _, n := range l.store.since(resource, before, f.sel) {
			f.tell(n.kind, n.object)
		}
	}
	l.store.history = nil
}
