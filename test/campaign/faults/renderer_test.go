// SPDX-License-Identifier: Apache-2.0

package faults

import (
	"context"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/internal/netlink"
	"github.com/sluice-proxy/sluice/service"
)

// spoilingRenderer spoils the objects of some Services, and remembers what it has rendered last for
// each.
type spoilingRenderer struct {
	dataplane.Renderer

	mu       sync.Mutex
	spoil    map[service.Key]func([]dataplane.Object) []dataplane.Object
	rendered map[service.Key][]dataplane.Object
	// external holds the objects of the Service external, those of the former process until this
	// one has rendered them: addOverlap may run before.
	external []dataplane.Object
	// good is the last rendering that was not spoiled, changed when it replaced another.
	good    map[service.Key][]dataplane.Object
	changed map[service.Key]time.Time
}

func newSpoilingRenderer(r dataplane.Renderer) *spoilingRenderer {
	return &spoilingRenderer{
		Renderer: r, spoil: map[service.Key]func([]dataplane.Object) []dataplane.Object{},
		rendered: map[service.Key][]dataplane.Object{},
		good:     map[service.Key][]dataplane.Object{}, changed: map[service.Key]time.Time{},
	}
}

// Node implements dataplane.Renderer.
func (r *spoilingRenderer) Node(facts *service.NodeFacts) []dataplane.Object {
	objects := r.Renderer.Node(facts)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rendered[service.Node] = slices.Clone(objects)
	r.noteGood(service.Node, r.rendered[service.Node])
	return objects
}

// Service implements dataplane.Renderer.
func (r *spoilingRenderer) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	objects := r.Renderer.Service(ctx, view, facts)
	r.mu.Lock()
	defer r.mu.Unlock()
	if spoil := r.spoil[view.Key]; spoil != nil {
		objects = spoil(objects)
		r.rendered[view.Key] = slices.Clone(objects)
		return objects
	}
	r.rendered[view.Key] = slices.Clone(objects)
	if view.Key == external.key() {
		r.external = r.rendered[view.Key]
	}
	r.noteGood(view.Key, r.rendered[view.Key])
	return objects
}

// contents returns what was rendered last for some Services.
func (r *spoilingRenderer) contents(of func(service.Key) bool) contents {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := contents{}
	for key, objects := range r.rendered {
		if of(key) {
			maps.Copy(all, contentsOf(objects))
		}
	}
	return all
}

// knows reports whether all of some Services have been rendered.
func (r *spoilingRenderer) knows(keys map[service.Key]bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for key := range keys {
		if _, ok := r.rendered[key]; !ok {
			return false
		}
	}
	return true
}

// forget forgets what was rendered for a Service that is gone.
func (r *spoilingRenderer) forget(key service.Key) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.rendered, key)
	delete(r.good, key)
}

// set spoils a Service from its next rendering on; nil mends it.
func (r *spoilingRenderer) set(key service.Key, spoil func([]dataplane.Object) []dataplane.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.spoil[key] = spoil
}

// defect spoils the objects of a Service so that the kernel rejects them.
type defect struct {
	name string
	// errno is the kernel's reason.
	errno syscall.Errno
	spoil func(p *spoilingRenderer, family service.Family, objects []dataplane.Object) []dataplane.Object
}

var defects = []defect{
	{"an interval that overlaps another one", unix.EEXIST, addOverlap},
	{"an element with a flag that no kernel knows", unix.EOPNOTSUPP, addFlag},
	{"a rule with an expression that no kernel knows", unix.ENOENT, addExpression},
}

var allowedSources, frontends = "@" + nftrender.SetName("allowed-sources"), "@" + nftrender.SetName("frontends")

// addOverlap adds two ranges of sources at a frontend of the Service: those of the Service external, and
// one that begins inside and ends outside of it.
func addOverlap(p *spoilingRenderer, family service.Family, objects []dataplane.Object) []dataplane.Object {
	of := func(objects []dataplane.Object, container string) dataplane.Object {
		return objects[slices.IndexFunc(objects, func(o dataplane.Object) bool { return o.ID.Container == container })]
	}
	frontend, one := of(objects, frontends).ID.Name, of(p.external, allowedSources)
	name := []byte(one.ID.Name) // the first and the last value, each a frontend and the source's address
	half := len(name) / 2
	copy(name, frontend)
	copy(name[half:], frontend)
	another := one
	one.ID.Name = string(name)
	name[half-1] += 0x80
	name[len(name)-family.Bits()/8]++
	another.ID.Name = string(name)
	return append(objects, one, another)
}

// addFlag spoils the element that leads to the Service.
func addFlag(_ *spoilingRenderer, _ service.Family, objects []dataplane.Object) []dataplane.Object {
	for i := range objects {
		if objects[i].ID.Container == frontends {
			const unknown = 0x80
			objects[i].Body += string(netlink.AppendUint32(nil, unix.NFTA_SET_ELEM_FLAGS, unknown))
			return objects
		}
	}
	panic("a Service without a frontend cannot be spoiled like this")
}

// addExpression adds a chain whose rule has an expression that no kernel knows.
func addExpression(_ *spoilingRenderer, _ service.Family, objects []dataplane.Object) []dataplane.Object {
	c := rules.Chain{Rules: []rules.Rule{{Exprs: []rules.Expr{&rules.Unknown{Name: "telepathy"}}}}}
	return append(objects, dataplane.Object{
		ID: dataplane.ID{Container: "chain", Name: "endpoint-unheard-of"}, Kind: dataplane.Owned, Body: string(c.Encode()),
	})
}
