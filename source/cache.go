// SPDX-License-Identifier: Apache-2.0

package source

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// Options are the optional parts of a Cache.
type Options struct {
	// Warn receives each problem of an object once, and not again while the object
	// stays as it is. It must not block. Nil drops the warnings.
	Warn func(service.Warning)
	// Shadowed receives the frontends that a Service newly lost to another one, and those that it no
	// longer lacks. It must not block. Nil drops them.
	Shadowed func(Shadowed)
	// IgnoreExternalIPs ignores spec.externalIPs.
	IgnoreExternalIPs bool
	// ExternalIPsInServiceCIDR makes external IPs inside ServiceCIDRs no reason for a warning: they are
	// served; see service.NodeFacts.
	ExternalIPsInServiceCIDR bool
	// Policy says what objects may ask for. It is for the feeders, which reduce them.
	Policy reduce.Policy
}

// Cache owns the newest value of every API object that a proxy needs, and decides which Service has
// a frontend that several ask for (admission). Feeders write it, actors read it with Snapshot.
//
// Invariants: a slice is filed under exactly one Service; a change costs work in
// proportion to the objects it names, never a walk over all Services (Replace
// and Prime are the exceptions, and say so); the lock guards the maps only, and
// is never held while the sink or the warning function runs.
//
// All methods are safe for concurrent use, but one goroutine must feed all
// Services, and one each slice, or posts could overtake one another between lock and sink: a change of
// one Service also posts those that lose a frontend by it or get one.
type Cache struct {
	sink     Sink
	warn     func(service.Warning)
	shadowed func(Shadowed)
	// The fields of Options with these names.
	ignoreExternalIPs, externalIPsInServiceCIDR bool
	policy                                      reduce.Policy

	mu       sync.RWMutex
	specs    map[service.Key]*filed
	admitted admission
	slices   map[service.Key]sliceList
	owners   map[sliceID]service.Key
	node     *service.NodeObject
	cidrs    map[string][]netip.Prefix // by the name of the ServiceCIDR
	ranges   []netip.Prefix            // the union of cidrs, as last posted
	warnings warningBook
	awaited  map[string]bool // the lists that primed waits for
	primed   bool
	events   eventCounts
}

// sliceID names an EndpointSlice; the Service it belongs to can change.
type sliceID struct {
	namespace, name string
}

// slicePost is a call of Sink.PostSlice that is due after unlocking.
type slicePost struct {
	key   service.Key
	name  string
	slice *service.Slice
}

// NewCache makes an empty cache that posts to sink.
func NewCache(sink Sink, options Options) *Cache {
	return &Cache{
		sink:              sink,
		warn:              options.Warn,
		shadowed:          options.Shadowed,
		ignoreExternalIPs: options.IgnoreExternalIPs, externalIPsInServiceCIDR: options.ExternalIPsInServiceCIDR,
		policy:   options.Policy,
		specs:    make(map[service.Key]*filed),
		admitted: admission{owners: make(map[place]*filed), contests: make(map[place][]bid)},
		slices:   make(map[service.Key]sliceList),
		owners:   make(map[sliceID]service.Key),
		cidrs:    make(map[string][]netip.Prefix),
	}
}

// Policy returns Options.Policy.
func (c *Cache) Policy() reduce.Policy { return c.policy }

// SetSpec files what a Service is now, and posts it if that is a difference. Services that lose a
// frontend by it, or get one, are posted as well.
func (c *Cache) SetSpec(spec *service.Spec) {
	spec = c.without(spec)
	var n news
	c.mu.Lock()
	c.storeSpec(&n, spec)
	c.decide(&n)
	c.mu.Unlock()
	c.post(&n)
}

// RemoveSpec says that a Service is gone, or no longer one that is proxied. Its
// slices stay filed until they are removed themselves.
func (c *Cache) RemoveSpec(key service.Key) {
	var n news
	c.mu.Lock()
	c.dropSpec(&n, key)
	c.decide(&n)
	c.mu.Unlock()
	c.post(&n)
}

// SetSlice files what a slice is now. A slice that names another Service than
// before moves: it is posted as gone to the old owner and as new to the new one.
func (c *Cache) SetSlice(slice *service.Slice) {
	c.mu.Lock()
	posts := c.storeSlice(nil, slice)
	c.mu.Unlock()
	c.postSlices(posts)
}

// RemoveSlice says that a slice is gone, or belongs to no Service any more.
func (c *Cache) RemoveSlice(namespace, name string) {
	c.mu.Lock()
	posts := c.dropSlice(nil, sliceID{namespace, name})
	c.mu.Unlock()
	c.postSlices(posts)
}

// Observe files what this node has observed of the endpoints of a Service; nil for nothing. One goroutine must
// call it.
func (c *Cache) Observe(key service.Key, o *service.Observed) {
	slice := service.ObservedSlice(key, o)
	if o == nil {
		c.RemoveSlice(key.Namespace, slice.Name)
		return
	}
	c.SetSlice(slice)
}

// SetNode files what this node is now.
func (c *Cache) SetNode(node *service.NodeObject) {
	c.mu.Lock()
	changed := !nodeEqual(c.node, node)
	if changed {
		c.node = node
	}
	c.mu.Unlock()
	if changed {
		c.sink.PostNode(node)
	}
}

// RemoveNode marks the Node as deleted. Its last state stays in use for rules, because pods still run
// here. It reports whether the cache has a Node.
func (c *Cache) RemoveNode() bool {
	node := c.Node()
	if node == nil {
		return false
	}
	deleted := *node
	deleted.Deleted = true
	c.SetNode(&deleted)
	return true
}

// Node returns the last value of SetNode, nil before the first.
func (c *Cache) Node() *service.NodeObject {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.node
}

// Await names the lists without which the cache is not complete, for a feeder that
// gets several. It must be called before the first Listed.
func (c *Cache) Await(lists ...string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.awaited = make(map[string]bool, len(lists))
	for _, list := range lists {
		c.awaited[list] = true
	}
}

// Listed says that a list is in the cache. The last of those awaited primes the
// cache. Only the first call for a list counts.
func (c *Cache) Listed(list string) {
	c.mu.Lock()
	last := c.awaited[list] && len(c.awaited) == 1
	delete(c.awaited, list)
	c.mu.Unlock()
	if last {
		c.Prime()
	}
}

// Prime says that the cache is complete. Only the first call counts; it is passed
// on to the sink.
func (c *Cache) Prime() {
	c.mu.Lock()
	again := c.primed
	c.primed = true
	c.mu.Unlock()
	if !again {
		c.sink.Primed()
	}
}

// without returns the spec without ignored fields. It does not change its argument.
func (c *Cache) without(spec *service.Spec) *service.Spec {
	if !c.ignoreExternalIPs {
		return spec
	}
	kept := *spec
	kept.ExternalIPs = service.PerFamily[[]netip.Addr]{}
	return &kept
}

// spec returns what is filed of a Service; nil for nothing.
func (c *Cache) spec(key service.Key) *service.Spec {
	if f := c.specs[key]; f != nil {
		return f.spec
	}
	return nil
}

// storeSpec files a spec and notes what is to be posted.
func (c *Cache) storeSpec(n *news, spec *service.Spec) {
	c.events.specs.Add(1)
	f := c.specs[spec.Key]
	if f != nil && f.spec.Equal(spec) {
		return
	}
	n.warnings = append(n.warnings, c.warnOfRanges(spec)...)
	if f == nil {
		f = &filed{}
		c.specs[spec.Key] = f
	}
	f.received = time.Now().Unix()
	n.note(f)
	n.affected = append(n.affected, c.admitted.replace(f, spec)...)
}

// dropSpec removes a spec and notes what is to be posted.
func (c *Cache) dropSpec(n *news, key service.Key) {
	c.events.specs.Add(1)
	f := c.specs[key]
	if f == nil {
		return
	}
	delete(c.specs, key)
	c.warnOfRanges(&service.Spec{Key: key})
	n.note(f)
	n.affected = append(n.affected, c.admitted.replace(f, nil)...)
}

// storeSlice files a slice and appends the posts that follow from it.
func (c *Cache) storeSlice(posts []slicePost, slice *service.Slice) []slicePost {
	c.events.received(slice)
	id := sliceID{slice.Service.Namespace, slice.Name}
	owner, known := c.owners[id]
	if known && owner == slice.Service && c.slices[owner].get(slice.Name).Equal(slice) {
		return posts
	}
	c.events.changed(slice)
	if known && owner != slice.Service {
		posts = c.dropSlice(posts, id)
	}
	stored := *slice
	stored.Received = time.Now()
	c.slices[slice.Service] = c.slices[slice.Service].with(&stored)
	c.owners[id] = slice.Service
	return c.appendSlicePost(posts, slicePost{slice.Service, slice.Name, &stored})
}

// dropSlice removes a slice and appends the post that follows from it.
func (c *Cache) dropSlice(posts []slicePost, id sliceID) []slicePost {
	owner, known := c.owners[id]
	if !known {
		return posts
	}
	gone := c.slices[owner].get(id.name)
	c.events.received(gone)
	c.events.changed(gone)
	delete(c.owners, id)
	if left := c.slices[owner].without(id.name); len(left) > 0 {
		c.slices[owner] = left
	} else {
		delete(c.slices, owner)
	}
	return c.appendSlicePost(posts, slicePost{owner, id.name, nil})
}

// appendSlicePost leaves out slices of a Service without a spec, which needs no actor.
func (c *Cache) appendSlicePost(posts []slicePost, post slicePost) []slicePost {
	if c.spec(post.key) == nil {
		return posts
	}
	return append(posts, post)
}

func (c *Cache) postSlices(posts []slicePost) {
	for _, post := range posts {
		c.sink.PostSlice(post.key, post.name, post.slice)
	}
}

// nodeEqual compares field by field because a NodeObject holds a slice.
func nodeEqual(a, b *service.NodeObject) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Name == b.Name && a.Zone == b.Zone &&
		slices.Equal(a.Addresses, b.Addresses) && a.PodCIDRs == b.PodCIDRs &&
		a.Deleting == b.Deleting && a.AutoscalerTaint == b.AutoscalerTaint && a.Deleted == b.Deleted
}

// ReplaceSpecs takes the complete list of Services and posts the differences from what
// is stored; after an outage of the API server there are usually none. It walks all
// Services.
func (c *Cache) ReplaceSpecs(all []*service.Spec) {
	var n news
	c.mu.Lock()
	wanted := make(map[service.Key]bool, len(all))
	for _, spec := range all {
		spec = c.without(spec)
		wanted[spec.Key] = true
		c.storeSpec(&n, spec)
	}
	for key := range c.specs {
		if !wanted[key] {
			c.dropSpec(&n, key)
		}
	}
	c.decide(&n)
	c.mu.Unlock()
	c.post(&n)
}

// ReplaceSlices takes the complete list of slices and posts the differences. It walks
// all slices.
func (c *Cache) ReplaceSlices(all []*service.Slice) {
	c.mu.Lock()
	var posts []slicePost
	wanted := make(map[sliceID]bool, len(all))
	for _, slice := range all {
		wanted[sliceID{slice.Service.Namespace, slice.Name}] = true
		posts = c.storeSlice(posts, slice)
	}
	for id := range c.owners {
		if !wanted[id] && !service.IsObserved(id.name) {
			posts = c.dropSlice(posts, id)
		}
	}
	c.mu.Unlock()
	c.postSlices(posts)
}

// KnownSpec returns the stored value instead of an equal one, so that a list that is read
// again does not take the memory of all Services once more while it arrives.
func (c *Cache) KnownSpec(spec *service.Spec) *service.Spec {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if known := c.spec(spec.Key); known.Equal(spec) {
		return known
	}
	return spec
}

// KnownSlice does what KnownSpec does.
func (c *Cache) KnownSlice(slice *service.Slice) *service.Slice {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if known := c.slices[slice.Service].get(slice.Name); known.Equal(slice) {
		return known
	}
	return slice
}

// Snapshot returns the newest values of one Service. It may be newer than the
// last post that the caller has seen, never older.
func (c *Cache) Snapshot(key service.Key) service.Snapshot {
	c.mu.RLock()
	defer c.mu.RUnlock()

	known := service.Snapshot{Slices: slices.Clone(c.slices[key])}
	if f := c.specs[key]; f != nil {
		known.Spec, known.Changed = f.spec, time.Unix(f.received, 0)
	}
	for _, s := range known.Slices {
		if s.Received.After(known.Changed) && s.Observed == nil {
			known.Changed = s.Received
		}
	}
	return known
}

// Keys lists the Services that have a spec, sorted. It walks all of them: use it at
// start and in tests.
func (c *Cache) Keys() []service.Key {
	c.mu.RLock()
	defer c.mu.RUnlock()
	keys := make([]service.Key, 0, len(c.specs))
	for key := range c.specs {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, service.Key.Compare)
	return keys
}
