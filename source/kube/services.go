package kube

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

const services = "services"

// serviceSelectors leave out Services that belong to another proxy (any value of
// the label counts) and headless ones. A Service that gets the label while it
// lives is delivered as a deletion.
const (
	serviceLabels = "!service.kubernetes.io/service-proxy-name"
	serviceFields = "spec.clusterIP!=None"
)

// reducedService is a Service on its way to the cache. A nil spec means that it
// is not proxied.
type reducedService struct {
	key      service.Key
	spec     *service.Spec
	warnings []service.Warning
}

func reduceService(object *corev1.Service) reducedService {
	spec, warnings := reduce.Service(object)
	key := service.Key{Namespace: object.Namespace, Name: object.Name}
	return reducedService{key: key, spec: spec, warnings: warnings}
}

// serviceStore feeds Services to the cache.
func (s *Source) serviceStore() *store[reducedService] {
	return &store[reducedService]{
		reduce: reduceAs(reduceService),
		set: func(item reducedService) {
			s.cache.Warn("Service", item.key.String(), item.warnings)
			if item.spec == nil {
				s.cache.RemoveSpec(item.key)
				return
			}
			s.cache.SetSpec(item.spec)
		},
		remove: func(item reducedService) {
			s.cache.Warn("Service", item.key.String(), nil)
			s.cache.RemoveSpec(item.key)
		},
		replace: func(items []reducedService) {
			specs := make([]*service.Spec, 0, len(items))
			warnings := make(map[string][]service.Warning)
			for _, item := range items {
				if item.spec != nil {
					specs = append(specs, item.spec)
				}
				if len(item.warnings) > 0 {
					warnings[item.key.String()] = item.warnings
				}
			}
			s.cache.WarnAll("Service", warnings)
			s.cache.ReplaceSpecs(specs)
			s.cache.Listed(services)
		},
		heard: s.heard(services),
	}
}
