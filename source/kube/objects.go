package kube

import (
	"net/netip"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"

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

func reduceService(policy reduce.Policy, object *corev1.Service) reducedService {
	spec, warnings := policy.Service(object)
	key := service.Key{Namespace: object.Namespace, Name: object.Name}
	return reducedService{key: key, spec: spec, warnings: warnings}
}

// serviceStore feeds Services to the cache.
func (s *Source) serviceStore() *store[reducedService] {
	return &store[reducedService]{
		reduce: reduceAs(func(o *corev1.Service) reducedService { return reduceService(s.cache.Policy(), o) }),
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
		known: func(item reducedService) reducedService {
			if item.spec != nil {
				item.spec = s.cache.KnownSpec(item.spec)
			}
			return item
		},
		heard: s.heard(services),
	}
}

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

func reduceSlice(policy reduce.Policy, object *discoveryv1.EndpointSlice) reducedSlice {
	slice, warnings := policy.EndpointSlice(object)
	return reducedSlice{namespace: object.Namespace, name: object.Name, slice: slice, warnings: warnings}
}

// endpointSliceStore feeds EndpointSlices to the cache.
func (s *Source) endpointSliceStore() *store[reducedSlice] {
	return &store[reducedSlice]{
		reduce: reduceAs(func(o *discoveryv1.EndpointSlice) reducedSlice { return reduceSlice(s.cache.Policy(), o) }),
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
		known: func(item reducedSlice) reducedSlice {
			if item.slice != nil {
				item.slice = s.cache.KnownSlice(item.slice)
			}
			return item
		},
		heard: s.heard(endpointSlices),
	}
}

const nodes = "nodes"

// reducedNode is this node's Node on its way to the cache.
type reducedNode struct {
	name     string
	node     *service.NodeObject
	warnings []service.Warning
}

func reduceNode(object *corev1.Node) reducedNode {
	node, warnings := reduce.Node(object)
	return reducedNode{name: object.Name, node: node, warnings: warnings}
}

// nodeStore feeds this node's Node to the cache. When the Node is deleted the
// last one stays in use: pods still run here until someone stops them.
func (s *Source) nodeStore() *store[reducedNode] {
	set := func(item reducedNode) {
		s.cache.Warn("Node", item.name, item.warnings)
		if item.node != nil {
			s.cache.SetNode(item.node)
		}
	}
	return &store[reducedNode]{
		reduce: reduceAs(reduceNode),
		set:    set,
		remove: func(item reducedNode) { s.nodeGone(item.name) },
		replace: func(items []reducedNode) {
			for _, item := range items {
				set(item)
			}
			if len(items) == 0 {
				s.nodeGone(s.config.NodeName)
			}
		},
		heard: s.heard(nodes),
	}
}

func (s *Source) nodeGone(name string) {
	if s.cache.Node() == nil {
		s.log.Info("Node is not registered yet", zap.String("node", name))
		return
	}
	s.log.Warn("Node was deleted; its last state stays in use", zap.String("node", name))
}

const serviceCIDRs = "servicecidrs"

// reducedCIDR is a ServiceCIDR on its way to the cache.
type reducedCIDR struct {
	name     string
	ranges   []netip.Prefix
	warnings []service.Warning
}

func reduceCIDR(object *networkingv1.ServiceCIDR) reducedCIDR {
	ranges, warnings := reduce.ServiceCIDR(object)
	return reducedCIDR{name: object.Name, ranges: ranges, warnings: warnings}
}

// serviceCIDRStore feeds ServiceCIDRs to the cache.
func (s *Source) serviceCIDRStore() *store[reducedCIDR] {
	return &store[reducedCIDR]{
		reduce: reduceAs(reduceCIDR),
		set: func(item reducedCIDR) {
			s.cache.Warn("ServiceCIDR", item.name, item.warnings)
			s.cache.SetServiceCIDR(item.name, item.ranges)
		},
		remove: func(item reducedCIDR) {
			s.cache.Warn("ServiceCIDR", item.name, nil)
			s.cache.RemoveServiceCIDR(item.name)
		},
		replace: func(items []reducedCIDR) {
			ranges := make(map[string][]netip.Prefix, len(items))
			warnings := make(map[string][]service.Warning)
			for _, item := range items {
				ranges[item.name] = item.ranges
				if len(item.warnings) > 0 {
					warnings[item.name] = item.warnings
				}
			}
			s.cache.WarnAll("ServiceCIDR", warnings)
			s.cache.ReplaceServiceCIDRs(ranges)
			s.cache.Listed(serviceCIDRs)
		},
		heard: s.heard(serviceCIDRs),
	}
}
