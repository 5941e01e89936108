// SPDX-License-Identifier: Apache-2.0

package apitest

import (
	"maps"
	"net/url"
	"slices"
	"strconv"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
)

// store holds the objects and their history. Its methods need the server's lock.
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

// clone returns a copy without the history.
func (s *store) clone() *store {
	c := &store{version: s.version, objects: make(map[string]map[string]runtime.Object)}
	for resource, objects := range s.objects {
		c.objects[resource] = maps.Clone(objects)
	}
	return c
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

// selected returns copies of the selected objects of a resource, by name.
func (s *store) selected(resource string, sel selection) []runtime.Object {
	var all []runtime.Object
	for _, id := range slices.Sorted(maps.Keys(s.objects[resource])) {
		if object := s.objects[resource][id]; sel.has(object) {
			all = append(all, object.DeepCopyObject())
		}
	}
	return all
}

// notice is a change as watchers of a selection see it.
type notice struct {
	version int
	kind    watch.EventType
	object  runtime.Object
}

// since returns copies of the changes of a selection after a version. For its watchers, an object
// that leaves the selection is deleted.
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

// accessorOf panics if the object is no API object: a bug in the test.
func accessorOf(object runtime.Object) metav1.Object {
	accessor, err := meta.Accessor(object)
	if err != nil {
		panic(err)
	}
	return accessor
}

// selection is what a request selects from a resource.
type selection struct {
	labels labels.Selector
	fields fields.Selector
	// of returns the fields of an object besides its name, or is nil.
	of func(runtime.Object) fields.Set
}

func selectionOf(name string, query url.Values) (selection, error) {
	byLabel, err := labels.Parse(query.Get("labelSelector"))
	if err != nil {
		return selection{}, err
	}
	byField, err := fields.ParseSelector(query.Get("fieldSelector"))
	return selection{byLabel, byField, resources[name].fields}, err
}

func (s selection) has(object runtime.Object) bool {
	accessor := accessorOf(object)
	set := fields.Set{"metadata.name": accessor.GetName(), "metadata.namespace": accessor.GetNamespace()}
	if s.of != nil {
		for key, value := range s.of(object) {
			set[key] = value
		}
	}
	return s.labels.Matches(labels.Set(accessor.GetLabels())) && s.fields.Matches(set)
}

// The resources that are served, by the last part of their path.
const (
	Services       = "services"
	EndpointSlices = "endpointslices"
	Nodes          = "nodes"
	ServiceCIDRs   = "servicecidrs"
	Pods           = "pods"
	// events can only be created; Server.Events returns them.
	events = "events"
)

// resource describes a resource that can be listed.
type resource struct {
	version schema.GroupVersion
	list    runtime.Object
	single  runtime.Object
	// fields returns what field selectors can select by besides the name.
	fields func(runtime.Object) fields.Set
}

var resources = map[string]resource{
	Services:       {corev1.SchemeGroupVersion, &corev1.ServiceList{}, &corev1.Service{}, serviceFields},
	Nodes:          {corev1.SchemeGroupVersion, &corev1.NodeList{}, &corev1.Node{}, nil},
	Pods:           {corev1.SchemeGroupVersion, &corev1.PodList{}, &corev1.Pod{}, podFields},
	EndpointSlices: {discoveryv1.SchemeGroupVersion, &discoveryv1.EndpointSliceList{}, &discoveryv1.EndpointSlice{}, nil},
	ServiceCIDRs:   {networkingv1.SchemeGroupVersion, &networkingv1.ServiceCIDRList{}, &networkingv1.ServiceCIDR{}, nil},
}

// serviceFields are those that the API supports (k8s.io/kubernetes,
// pkg/registry/core/service/strategy.go).
func serviceFields(object runtime.Object) fields.Set {
	spec := object.(*corev1.Service).Spec // the map above pairs them
	return fields.Set{"spec.clusterIP": spec.ClusterIP, "spec.type": string(spec.Type)}
}

// podFields are those of pods that are used here.
func podFields(object runtime.Object) fields.Set {
	return fields.Set{"spec.nodeName": object.(*corev1.Pod).Spec.NodeName}
}

var codecs = serializer.NewCodecFactory(newScheme())

func newScheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, discoveryv1.AddToScheme, networkingv1.AddToScheme, eventsv1.AddToScheme,
		authenticationv1.AddToScheme, authorizationv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}
