package kube

import (
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

const endpointSlices = "endpointslices"

// endpointSliceLabels leave out the slices of headless Services (any value of
// the label counts).
const endpointSliceLabels = "!service.kubernetes.io/headless"

// reducedSlice is an EndpointSlice on its way to the cache. A nil slice means
// that it carries no endpoints for any Service.
type reducedSlice struct {
	namespace, name string
	slice           *service.Slice
	warnings        []service.Warning
}

func (s reducedSlice) id() string { return s.namespace + "/" + s.name }

func reduceSlice(object *discoveryv1.EndpointSlice) reducedSlice {
	slice, warnings := reduce.EndpointSlice(object)
	return reducedSlice{namespace: object.Namespace, name: object.Name, slice: slice, warnings: warnings}
}

// endpointSliceStore feeds EndpointSlices to the cache.
func (s *Source) endpointSliceStore() *store[reducedSlice] {
	return &store[reducedSlice]{
		reduce: reduceAs(reduceSlice),
		set: func(item reducedSlice) {
			s.cache.Warn("EndpointSlice", item.id(), item.warnings)
			if item.slice == nil {
				s.cache.RemoveSlice(item.namespace, item.name)
				return
			}
			s.cache.SetSlice(item.slice)
		},
		remove: func(item reducedSlice) {
			s.cache.Warn("EndpointSlice", item.id(), nil)
			s.cache.RemoveSlice(item.namespace, item.name)
		},
		replace: func(items []reducedSlice) {
			slices := make([]*service.Slice, 0, len(items))
			warnings := make(map[string][]service.Warning)
			for _, item := range items {
				if item.slice != nil {
					slices = append(slices, item.slice)
				}
				if len(item.warnings) > 0 {
					warnings[item.id()] = item.warnings
				}
			}
			s.cache.WarnAll("EndpointSlice", warnings)
			s.cache.ReplaceSlices(slices)
			s.cache.Listed(endpointSlices)
		},
		heard: s.heard(endpointSlices),
	}
}
