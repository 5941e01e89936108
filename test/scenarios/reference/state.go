// Package reference says where a packet has to end, from what the API says and the
// flags of the proxy: a plain reading of the rules for node proxies that shares
// nothing with the proxy but the names of families and protocols. Where the rules
// leave a choice it says so, and says nothing else.
package reference

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-proxy/sluice/test/apitest"
)

// Options are what is known beside the API.
type Options struct {
	// Mode is iptables or nftables.
	Mode string
	// Flags are those of the proxy, without dashes; those that are not given are
	// as in every scenario.
	Flags map[string]string
	// PodPort is the name of the node's interface to p1; "" is the usual one.
	PodPort string
}

// State is what the API says now. It is a server that objects are given to. One
// goroutine at a time.
type State struct {
	options  Options
	services map[string]*corev1.Service
	slices   map[string]*discoveryv1.EndpointSlice
	cidrs    map[string][]string
	// node stays when the object is deleted, as the proxy keeps what it knew.
	node *corev1.Node
}

// New is a cluster without objects.
func New(options Options) *State {
	if options.PodPort == "" {
		options.PodPort = "veth-p1"
	}
	return &State{
		options: options, services: make(map[string]*corev1.Service),
		slices: make(map[string]*discoveryv1.EndpointSlice), cidrs: make(map[string][]string),
	}
}

// Set creates or replaces an object. What a proxy does not ask for does not exist.
func (s *State) Set(resource string, object runtime.Object) {
	switch o := object.(type) {
	case *corev1.Service:
		if s.services[nameOf(o)] = o; has(o.Labels, "service.kubernetes.io/service-proxy-name") {
			delete(s.services, nameOf(o))
		}
	case *discoveryv1.EndpointSlice:
		if s.slices[nameOf(o)] = o; has(o.Labels, corev1.IsHeadlessService) {
			delete(s.slices, nameOf(o))
		}
	case *networkingv1.ServiceCIDR:
		s.cidrs[nameOf(o)] = o.Spec.CIDRs
	case *corev1.Node:
		s.node = o
	default:
		panic(fmt.Sprintf("%s: there are no objects %T", resource, object)) // package cluster makes these four
	}
}

// Remove deletes an object, if it is there.
func (s *State) Remove(resource, namespace, name string) {
	id := namespace + "/" + name
	switch resource {
	case apitest.Services:
		delete(s.services, id)
	case apitest.EndpointSlices:
		delete(s.slices, id)
	case apitest.ServiceCIDRs:
		delete(s.cidrs, id)
	}
}

func nameOf(o metav1.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func has(labels map[string]string, key string) bool {
	_, ok := labels[key]
	return ok
}
