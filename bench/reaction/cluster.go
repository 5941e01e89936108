// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/service"
)

// nodeName is the node that the proxy runs on, one of nodeCount.
const (
	nodeName  = "node-0000"
	nodeCount = 1000
)

// perSlice is the largest number of endpoints in a slice, the default of the endpoint slice
// controller (kube-controller-manager, max-endpoints-per-slice).
const perSlice = 100

// cluster makes API objects as a watch delivers them. It keeps none: a Service is made from its
// number, and only what differs from the plan is remembered.
type cluster struct {
	// services have the numbers from 0, with this many endpoints each.
	services, endpoints int
	// oneChain says that all endpoints of a Service are one object in the kernel.
	oneChain bool
	// changed holds the endpoints, by number, of Services that were changed.
	changed map[int][]int
	// fresh is an endpoint that was never used, and version the newest resource version.
	fresh, version int
}

func newCluster(services, endpoints int) *cluster {
	return &cluster{services: services, endpoints: endpoints, changed: map[int][]int{}, fresh: services * endpoints}
}

// created is the creation time of every object. API times have whole seconds.
var created = metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))

func serviceKey(i int) service.Key {
	return service.Key{Namespace: fmt.Sprintf("ns-%03d", i%200), Name: fmt.Sprintf("service-%05d", i)}
}

// clusterIPs are behind the addresses of firsts.
var clusterIPs, endpointIPs = netip.MustParseAddr("10.96.1.0"), netip.MustParseAddr("10.128.0.0")

// endpointsOf returns the numbers of the endpoints of a Service.
func (c *cluster) endpointsOf(i int) []int {
	if changed, ok := c.changed[i]; ok {
		return changed
	}
	numbers := make([]int, c.endpoints)
	for e := range numbers {
		numbers[e] = i*c.endpoints + e
	}
	return numbers
}

// change changes the endpoints of a Service.
func (c *cluster) change(i int, change func([]int) []int) {
	c.changed[i] = change(slices.Clone(c.endpointsOf(i)))
}

// unused returns an endpoint that no Service has had.
func (c *cluster) unused() int {
	c.fresh++
	return c.fresh - 1
}

// meta returns an object's metadata in a new version.
func (c *cluster) meta(key service.Key, labels map[string]string) metav1.ObjectMeta {
	c.version++
	return metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, Labels: labels, CreationTimestamp: created,
		UID:             types.UID(fmt.Sprintf("8a1c9d3e-0000-4000-8000-%012d", c.version)),
		ResourceVersion: strconv.Itoa(c.version), Generation: 1,
	}
}

// service makes the Service with a number.
func (c *cluster) service(i int) *corev1.Service {
	key := serviceKey(i)
	return c.clusterIPService(key, rig.Address(clusterIPs, i).String(), corev1.ServicePort{
		Name: "http", Protocol: corev1.ProtocolTCP, Port: 80, TargetPort: intstr.FromInt32(8080),
	})
}

func (c *cluster) clusterIPService(key service.Key, address string, ports ...corev1.ServicePort) *corev1.Service {
	policy, families := corev1.ServiceInternalTrafficPolicyCluster, corev1.IPFamilyPolicySingleStack
	return &corev1.Service{
		ObjectMeta: c.meta(key, map[string]string{"app": key.Name, "team": key.Namespace}),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: address, ClusterIPs: []string{address},
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}, IPFamilyPolicy: &families,
			Selector: map[string]string{"app": key.Name}, SessionAffinity: corev1.ServiceAffinityNone,
			InternalTrafficPolicy: &policy, Ports: ports,
		},
	}
}

// slices makes all slices of the Service with a number.
func (c *cluster) slices(i int) []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for at := 0; at == 0 || at*perSlice < len(c.endpointsOf(i)); at++ {
		all = append(all, c.slice(i, at))
	}
	return all
}

// slice makes one slice of the Service with a number.
func (c *cluster) slice(i, at int) *discoveryv1.EndpointSlice {
	numbers := c.endpointsOf(i)
	numbers = numbers[at*perSlice : min((at+1)*perSlice, len(numbers))]
	endpoints := make([]discoveryv1.Endpoint, len(numbers))
	for e, n := range numbers {
		node := fmt.Sprintf("node-%04d", n%nodeCount)
		endpoints[e] = discoveryv1.Endpoint{
			Addresses: []string{rig.Address(endpointIPs, n).String()}, NodeName: &node, Zone: new("zone-" + strconv.Itoa(n%3)),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: serviceKey(i).Namespace, Name: fmt.Sprintf("%s-%07d", serviceKey(i).Name, n),
			},
		}
	}
	port := discoveryv1.EndpointPort{Name: new("http"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(8080))}
	return c.endpointSlice(serviceKey(i), at, []discoveryv1.EndpointPort{port}, endpoints)
}

func (c *cluster) endpointSlice(owner service.Key, at int, ports []discoveryv1.EndpointPort, endpoints []discoveryv1.Endpoint) *discoveryv1.EndpointSlice {
	key := service.Key{Namespace: owner.Namespace, Name: owner.Name + "-" + strconv.Itoa(at)}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: c.meta(key, map[string]string{
			discoveryv1.LabelServiceName: owner.Name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io", "app": owner.Name,
		}),
		AddressType: discoveryv1.AddressTypeIPv4, Ports: ports, Endpoints: endpoints,
	}
	slice.Annotations = map[string]string{corev1.EndpointsLastChangeTriggerTime: created.Format(time.RFC3339)}
	slice.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: owner.Name, UID: slice.UID, Controller: new(true)}}
	return slice
}

// change is one change of a Service: its watch events, and what shows that they are in the kernel.
type change struct {
	key    service.Key
	events []watch.Event
	// objects of the Service have to be written until the change is complete. It is more than 1
	// where the events may arrive in one batch or in several.
	objects int
}

// kind is a kind of change. service returns the Service to change for the number of an event, a
// different one each time as long as there are enough.
type kind struct {
	name    string
	service func(c *cluster, event int) int
	change  func(c *cluster, i int) change
}

// kinds are in an order in which each finds the Services that it needs.
var kinds = []kind{
	{"endpoint replaced", spread, (*cluster).replaceEndpoint},
	{"scaled up by one", spread, (*cluster).scaleUp},
	{"scaled down by one", spread, (*cluster).scaleDown},
	{"Service added", behind, (*cluster).addService},
	{"Service removed", behind, (*cluster).removeService},
}

// spread goes over the Services in large steps. The step is a prime, so that no Service comes again
// before every other has had its turn.
func spread(c *cluster, event int) int {
	const step = 7919
	return event * step % c.services
}

// behind returns Services that are not part of the cluster at first.
func behind(c *cluster, event int) int { return c.services + event }

// replaceEndpoint exchanges one endpoint, another one each time.
func (c *cluster) replaceEndpoint(i int) change {
	at := 0
	c.change(i, func(numbers []int) []int {
		at = c.fresh % len(numbers)
		numbers[at] = c.unused()
		return numbers
	})
	return c.modified(i, at/perSlice)
}

func (c *cluster) scaleUp(i int) change {
	c.change(i, func(numbers []int) []int { return append(numbers, c.unused()) })
	return c.modified(i, (len(c.endpointsOf(i))-1)/perSlice)
}

func (c *cluster) scaleDown(i int) change {
	c.change(i, func(numbers []int) []int { return numbers[:len(numbers)-1] })
	return c.modified(i, (len(c.endpointsOf(i))-1)/perSlice)
}

// modified returns the change of one slice.
func (c *cluster) modified(i, at int) change {
	return change{key: serviceKey(i), events: []watch.Event{{Type: watch.Modified, Object: c.slice(i, at)}}}
}

// addService delivers a Service first and its slices right after. The proxy may see the Service
// without its slices, so the change is complete once there is an object for each endpoint. In mode
// iptables, which has one chain for all endpoints, the slices come first.
func (c *cluster) addService(i int) change {
	ch := change{key: serviceKey(i)}
	for _, slice := range c.slices(i) {
		ch.events = append(ch.events, watch.Event{Type: watch.Added, Object: slice})
	}
	added := watch.Event{Type: watch.Added, Object: c.service(i)}
	if c.oneChain {
		ch.events = append(ch.events, added)
		return ch
	}
	ch.objects = len(c.endpointsOf(i))
	ch.events = slices.Insert(ch.events, 0, added)
	return ch
}

// removeService deletes a Service first, because its slices are collected after it.
func (c *cluster) removeService(i int) change {
	ch := change{key: serviceKey(i)}
	ch.events = append(ch.events, watch.Event{Type: watch.Deleted, Object: c.service(i)})
	for _, slice := range c.slices(i) {
		ch.events = append(ch.events, watch.Event{Type: watch.Deleted, Object: slice})
	}
	return ch
}
