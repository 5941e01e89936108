package faults

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
)

// poison is a renderer that spoils the objects of some Services, and remembers
// what it has rendered last for each.
type poison struct {
	dataplane.Renderer

	mu       sync.Mutex
	spoil    map[service.Key]func([]dataplane.Object) []dataplane.Object
	rendered map[service.Key][]dataplane.Object
	// external holds the objects of the Service external, from the former process until
	// this one has rendered them: addOverlap may run before.
	external []dataplane.Object
	// good is what was rendered last and not spoiled, changed when it took the place
	// of something else.
	good    map[service.Key][]dataplane.Object
	changed map[service.Key]time.Time
}

func newPoison(r dataplane.Renderer) *poison {
	return &poison{
		Renderer: r, spoil: map[service.Key]func([]dataplane.Object) []dataplane.Object{},
		rendered: map[service.Key][]dataplane.Object{},
		good:     map[service.Key][]dataplane.Object{}, changed: map[service.Key]time.Time{},
	}
}

// Node is for dataplane.Renderer.
func (p *poison) Node(facts *service.NodeFacts) []dataplane.Object {
	objects := p.Renderer.Node(facts)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rendered[service.Node] = slices.Clone(objects)
	p.promise(service.Node, p.rendered[service.Node])
	return objects
}

// Service is for dataplane.Renderer.
func (p *poison) Service(view *service.View, facts *service.NodeFacts) []dataplane.Object {
	objects := p.Renderer.Service(view, facts)
	p.mu.Lock()
	defer p.mu.Unlock()
	if spoil := p.spoil[view.Key]; spoil != nil {
		objects = spoil(objects)
		p.rendered[view.Key] = slices.Clone(objects)
		return objects
	}
	p.rendered[view.Key] = slices.Clone(objects)
	if view.Key == external.key() {
		p.external = p.rendered[view.Key]
	}
	p.promise(view.Key, p.rendered[view.Key])
	return objects
}

// picture gives what was rendered last for some Services.
func (p *poison) picture(of func(service.Key) bool) picture {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := picture{}
	for key, objects := range p.rendered {
		if of(key) {
			maps.Copy(all, pictureOf(objects))
		}
	}
	return all
}

// knows reports whether all of some Services have been rendered.
func (p *poison) knows(keys map[service.Key]bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range keys {
		if _, ok := p.rendered[key]; !ok {
			return false
		}
	}
	return true
}

// forget forgets what was rendered for a Service that is gone.
func (p *poison) forget(key service.Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.rendered, key)
	delete(p.good, key)
}

// set spoils a Service from its next rendering on; nil mends it.
func (p *poison) set(key service.Key, spoil func([]dataplane.Object) []dataplane.Object) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spoil[key] = spoil
}
