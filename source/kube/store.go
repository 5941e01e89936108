package kube

import (
	"fmt"

	"k8s.io/client-go/tools/cache"
)

// store is what a reflector writes to. It keeps nothing: every object is reduced
// to a T and handed on. Its methods are called by the reflector's goroutine,
// except Resync, which does nothing, and Transformer, which is pure.
//
// A watch-list collects its objects in a store of client-go's own and gives them
// to Replace in the end. That store applies Transformer first, so that it
// collects Ts; a plain list gives API objects. item accepts both.
type store[T any] struct {
	// reduce turns an API object into a T; it fails on objects of another type.
	reduce func(object any) (T, error)
	set    func(T)
	remove func(T)
	// replace gets every object that exists.
	replace func([]T)
	// known exchanges a value of a list for an equal one that is there already; optional.
	known func(T) T
	// heard is called for everything that arrives from the server.
	heard func()
}

var (
	_ cache.TransformingStore      = (*store[int])(nil)
	_ cache.ReflectorBookmarkStore = (*store[int])(nil)
)

// Add implements cache.ReflectorStore.
func (s *store[T]) Add(object any) error {
	s.heard()
	item, err := s.item(object)
	if err != nil {
		return err
	}
	s.set(item)
	return nil
}

// Update implements cache.ReflectorStore.
func (s *store[T]) Update(object any) error { return s.Add(object) }

// Delete implements cache.ReflectorStore.
func (s *store[T]) Delete(object any) error {
	s.heard()
	item, err := s.item(object)
	if err != nil {
		return err
	}
	s.remove(item)
	return nil
}

// Replace implements cache.ReflectorStore. If one object cannot be understood
// nothing is replaced: a list with a hole would look like a deletion.
func (s *store[T]) Replace(objects []any, _ string) error {
	s.heard()
	items := make([]T, 0, len(objects))
	for _, object := range objects {
		item, err := s.listed(object)
		if err != nil {
			return err
		}
		items = append(items, item)
	}
	s.replace(items)
	return nil
}

// Resync implements cache.ReflectorStore. It would offer the cache the values
// that the cache holds.
func (s *store[T]) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore: a quiet watch is alive.
func (s *store[T]) Bookmark(string) error {
	s.heard()
	return nil
}

// Transformer implements cache.TransformingStore.
func (s *store[T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return s.listed(object) }
}

func (s *store[T]) item(object any) (T, error) {
	if item, ok := object.(T); ok {
		return item, nil
	}
	return s.reduce(object)
}

// listed is item for an object of a list.
func (s *store[T]) listed(object any) (T, error) {
	if item, ok := object.(T); ok {
		return item, nil // Transformer has seen it
	}
	item, err := s.reduce(object)
	if err == nil && s.known != nil {
		item = s.known(item)
	}
	return item, err
}

// reduceAs checks the type of an API object before reducing it.
func reduceAs[O, T any](reduce func(*O) T) func(any) (T, error) {
	return func(object any) (T, error) {
		typed, ok := object.(*O)
		if !ok {
			var none T
			return none, fmt.Errorf("expected a %T, got a %T", new(O), object)
		}
		return reduce(typed), nil
	}
}

// Stores returns what reflectors of Services and of EndpointSlices write to, for a
// program that has watch events from elsewhere and does not call Run: what it
// writes takes the same way as what a reflector has decoded.
// The cache is primed once Replace of both has been called. Each store is for one
// goroutine.
func (s *Source) Stores() (ofServices, ofSlices cache.TransformingStore) {
	s.cache.Await(services, endpointSlices)
	return s.serviceStore(), s.endpointSliceStore()
}

// awaitLists names what the cache needs to be complete. The ranges of ClusterIPs are
// part of it, or the answer that there are none: rules depend on them, and a restart
// without them would remove those rules for a moment.
func (s *Source) awaitLists() { s.cache.Await(services, endpointSlices, serviceCIDRs) }
