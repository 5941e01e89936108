// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"net/netip"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

const (
	services       = "services"
	endpointSlices = "endpointslices"
	nodes          = "nodes"
	serviceCIDRs   = "servicecidrs"
)

// groups are the API groups of the watched resources.
var groups = map[string]schema.GroupVersion{
	services:       corev1.SchemeGroupVersion,
	endpointSlices: discoveryv1.SchemeGroupVersion,
	nodes:          corev1.SchemeGroupVersion,
	serviceCIDRs:   networkingv1.SchemeGroupVersion,
}

const (
	// serviceLabels and serviceFields leave out Services that belong to another proxy (any
	// value of the label counts) and headless ones. A Service that gets the label while it
	// lives is delivered as a deletion.
	serviceLabels = "!" + reduce.LabelServiceProxyName
	serviceFields = "spec.clusterIP!=None"
	// endpointSliceLabels leave out the slices of headless Services (any value of the label
	// counts).
	endpointSliceLabels = "!service.kubernetes.io/headless"
)

// serviceFeed feeds Services to the cache.
func (s *Source) serviceFeed() *feed[*corev1.Service, *service.Spec] {
	return &feed[*corev1.Service, *service.Spec]{
		kind: "Service", contact: s.contacts[services], warn: s.cache.Warn, warnAll: s.cache.WarnAll,
		reduce: s.cache.Policy().Service,
		set:    s.cache.SetSpec,
		remove: func(namespace, name string) { s.cache.RemoveSpec(service.Key{Namespace: namespace, Name: name}) },
		replace: func(all []*service.Spec) {
			s.cache.ReplaceSpecs(all)
			s.cache.Listed(services)
		},
		known: s.cache.KnownSpec,
	}
}

// endpointSliceFeed feeds EndpointSlices to the cache.
func (s *Source) endpointSliceFeed() *feed[*discoveryv1.EndpointSlice, *service.Slice] {
	return &feed[*discoveryv1.EndpointSlice, *service.Slice]{
		kind: "EndpointSlice", contact: s.contacts[endpointSlices], warn: s.cache.Warn, warnAll: s.cache.WarnAll,
		reduce: s.cache.Policy().EndpointSlice,
		set:    s.cache.SetSlice,
		remove: s.cache.RemoveSlice,
		replace: func(all []*service.Slice) {
			s.cache.ReplaceSlices(all)
			s.cache.Listed(endpointSlices)
		},
		known: s.cache.KnownSlice,
	}
}

// nodeFeed feeds this node's Node to the cache. When the Node is deleted, its last state stays in
// use for rules, because pods still run here, and is marked as deleted for health.
func (s *Source) nodeFeed() *feed[*corev1.Node, *service.NodeObject] {
	return &feed[*corev1.Node, *service.NodeObject]{
		kind: "Node", contact: s.contacts[nodes], warn: s.cache.Warn, warnAll: s.cache.WarnAll,
		reduce: reduce.Node,
		set:    s.cache.SetNode,
		remove: func(_, name string) { s.nodeGone(name) },
		replace: func(all []*service.NodeObject) {
			for _, node := range all {
				s.cache.SetNode(node)
			}
			if len(all) == 0 {
				s.nodeGone(s.config.NodeName)
			}
		},
	}
}

func (s *Source) nodeGone(name string) {
	if !s.cache.RemoveNode() {
		s.log.Info("Node object does not exist yet", zap.String("node", name))
		return
	}
	s.log.Warn("Node object deleted; using its last known state", zap.String("node", name))
}

// serviceCIDR is the reduced form of a ServiceCIDR.
type serviceCIDR struct {
	name   string
	ranges []netip.Prefix
}

// serviceCIDRFeed feeds ServiceCIDRs to the cache.
func (s *Source) serviceCIDRFeed() *feed[*networkingv1.ServiceCIDR, *serviceCIDR] {
	return &feed[*networkingv1.ServiceCIDR, *serviceCIDR]{
		kind: "ServiceCIDR", contact: s.contacts[serviceCIDRs], warn: s.cache.Warn, warnAll: s.cache.WarnAll,
		reduce: func(o *networkingv1.ServiceCIDR) (*serviceCIDR, []service.Warning) {
			ranges, warnings := reduce.ServiceCIDR(o)
			return &serviceCIDR{o.Name, ranges}, warnings
		},
		set:    func(c *serviceCIDR) { s.cache.SetServiceCIDR(c.name, c.ranges) },
		remove: func(_, name string) { s.cache.RemoveServiceCIDR(name) },
		replace: func(all []*serviceCIDR) {
			ranges := make(map[string][]netip.Prefix, len(all))
			for _, c := range all {
				ranges[c.name] = c.ranges
			}
			s.cache.ReplaceServiceCIDRs(ranges)
			s.cache.Listed(serviceCIDRs)
		},
	}
}
