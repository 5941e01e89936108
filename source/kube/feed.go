// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/sluice-proxy/sluice/service"
)

// feed is the store that a reflector of Os writes to. It keeps nothing: every object is reduced to
// a T and passed on. Its methods are called by the reflector's goroutine, except Resync, which does
// nothing, and Transformer, which is pure.
//
// A watch-list collects its objects in a store of client-go's own and gives them to Replace in the
// end. That store applies Transformer first, so that it collects reduced objects; a plain list gives
// API objects. Both are accepted.
type feed[O metav1.Object, T comparable] struct {
	// kind is the kind of O in warnings.
	kind    string
	contact *contact
	// reduce returns the zero T for an object that is not proxied.
	reduce func(O) (T, []service.Warning)
	set    func(T)
	remove func(namespace, name string)
	// replace gets every object that exists.
	replace func([]T)
	// known exchanges a value of a list for an equal one that is there already; optional.
	known func(T) T
	// warn and warnAll take the warnings about one object and about all objects.
	warn    func(kind, object string, warnings []service.Warning)
	warnAll func(kind string, all map[string][]service.Warning)
}

// reduced is an object on its way to the cache.
type reduced[T comparable] struct {
	namespace, name string
	// value is the zero value if the object is not proxied.
	value    T
	warnings []service.Warning
}

func (r reduced[T]) id() string {
	if r.namespace == "" {
		return r.name
	}
	return r.namespace + "/" + r.name
}

var (
	_ cache.TransformingStore      = (*feed[*metav1.ObjectMeta, int])(nil)
	_ cache.ReflectorBookmarkStore = (*feed[*metav1.ObjectMeta, int])(nil)
)

// Add implements cache.ReflectorStore.
func (f *feed[O, T]) Add(object any) error {
	f.heard()
	item, err := f.item(object)
	if err != nil {
		return err
	}
	f.warn(f.kind, item.id(), item.warnings)
	var none T
	if item.value == none {
		f.remove(item.namespace, item.name)
	} else {
		f.set(item.value)
	}
	return nil
}

// Update implements cache.ReflectorStore.
func (f *feed[O, T]) Update(object any) error { return f.Add(object) }

// Delete implements cache.ReflectorStore.
func (f *feed[O, T]) Delete(object any) error {
	f.heard()
	item, err := f.item(object)
	if err != nil {
		return err
	}
	f.warn(f.kind, item.id(), nil)
	f.remove(item.namespace, item.name)
	return nil
}

// Replace implements cache.ReflectorStore. If one object cannot be understood
// nothing is replaced: a list with a hole would look like a deletion.
func (f *feed[O, T]) Replace(objects []any, _ string) error {
	f.heard()
	var none T
	values := make([]T, 0, len(objects))
	warnings := make(map[string][]service.Warning)
	for _, object := range objects {
		item, err := f.listed(object)
		if err != nil {
			return err
		}
		if item.value != none {
			values = append(values, item.value)
		}
		if len(item.warnings) > 0 {
			warnings[item.id()] = item.warnings
		}
	}
	f.warnAll(f.kind, warnings)
	f.replace(values)
	return nil
}

// Resync implements cache.ReflectorStore. It would offer the cache the values
// that the cache holds.
func (f *feed[O, T]) Resync() error { return nil }

// Bookmark implements cache.ReflectorBookmarkStore: a quiet watch is alive.
func (f *feed[O, T]) Bookmark(string) error {
	f.heard()
	return nil
}

// Transformer implements cache.TransformingStore.
func (f *feed[O, T]) Transformer() cache.TransformFunc {
	return func(object any) (any, error) { return f.listed(object) }
}

func (f *feed[O, T]) heard() { f.contact.answered(time.Now()) }

func (f *feed[O, T]) item(object any) (reduced[T], error) {
	switch object := object.(type) {
	case reduced[T]:
		return object, nil
	case O:
		value, warnings := f.reduce(object)
		return reduced[T]{object.GetNamespace(), object.GetName(), value, warnings}, nil
	default:
		var want O
		return reduced[T]{}, fmt.Errorf("expected a %T, got a %T", want, object)
	}
}

// listed is item for an object of a list.
func (f *feed[O, T]) listed(object any) (reduced[T], error) {
	if item, ok := object.(reduced[T]); ok {
		return item, nil // Transformer has seen it
	}
	item, err := f.item(object)
	var none T
	if err == nil && f.known != nil && item.value != none {
		item.value = f.known(item.value)
	}
	return item, err
}

// Stores returns what reflectors of Services and of EndpointSlices write to, for a program that gets watch events from
// elsewhere and does not call Run: the stores handle what it writes like objects from a reflector. The cache is primed
// once Replace of both has been called. Each store is for one goroutine.
func (s *Source) Stores() (ofServices, ofSlices cache.TransformingStore) {
	s.cache.Await(services, endpointSlices)
	return s.serviceFeed(), s.endpointSliceFeed()
}

// awaitLists names what the cache needs to be complete. The ranges of ClusterIPs are
// part of it, or the answer that there are none: rules depend on them, and a restart
// without them would remove those rules for a moment.
func (s *Source) awaitLists() { s.cache.Await(services, endpointSlices, serviceCIDRs) }
