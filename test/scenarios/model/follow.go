package model

import (
	"errors"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/reduce"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Follow has a cache follow a server, with the selectors that source/kube asks
// with.
func Follow(server *apitest.Local, cache *source.Cache) error {
	return errors.Join(
		server.Follow(apitest.ServiceCIDRs, "", "", func(kind watch.EventType, object runtime.Object) {
			o := object.(*networkingv1.ServiceCIDR)
			if kind == watch.Deleted {
				cache.RemoveServiceCIDR(o.Name)
				return
			}
			ranges, _ := reduce.ServiceCIDR(o)
			cache.SetServiceCIDR(o.Name, ranges)
		}),
		server.Follow(apitest.Nodes, "", "metadata.name="+fixture.NodeName, func(kind watch.EventType, object runtime.Object) {
			// A Node that is deleted stays known.
			if node, _ := reduce.Node(object.(*corev1.Node)); node != nil && kind != watch.Deleted {
				cache.SetNode(node)
			}
		}),
		server.Follow(apitest.Services, "!service.kubernetes.io/service-proxy-name", "spec.clusterIP!=None", func(kind watch.EventType, object runtime.Object) {
			o := object.(*corev1.Service)
			spec, _ := reduce.Service(o)
			if kind == watch.Deleted || spec == nil {
				cache.RemoveSpec(service.Key{Namespace: o.Namespace, Name: o.Name})
				return
			}
			cache.SetSpec(spec)
		}),
		server.Follow(apitest.EndpointSlices, "!service.kubernetes.io/headless", "", func(kind watch.EventType, object runtime.Object) {
			o := object.(*discoveryv1.EndpointSlice)
			slice, _ := reduce.EndpointSlice(o)
			if kind == watch.Deleted || slice == nil {
				cache.RemoveSlice(o.Namespace, o.Name)
				return
			}
			cache.SetSlice(slice)
		}),
	)
}
