package apitest

import (
	"net/url"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
)

// selection is what a request selects of a resource.
type selection struct {
	labels labels.Selector
	fields fields.Selector
	// of gives the fields of an object besides its name, or is nil.
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
