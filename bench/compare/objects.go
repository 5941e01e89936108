// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// class says what kind of Service a number has. Each has a share of the cluster.
type class string

const (
	plain     class = "ClusterIP, TCP"
	udp       class = "ClusterIP, UDP"
	nodePorts class = "node port"
	affinity  class = "client affinity"
	empty     class = "without endpoints"
	// single has one endpoint, so that the first answer after its replacement can be told.
	single    class = "one endpoint, TCP"
	singleUDP class = "one endpoint, UDP"
	// zoned has one endpoint in each zone, of which the node uses one.
	zoned class = "one endpoint per zone"
)

const (
	// endpointsEach is how many endpoints a Service has, unless its class says otherwise.
	endpointsEach = 10
	// singlesMax and zonedMax are how many Services of these classes a large cluster has.
	singlesMax, zonedMax = 160, 100
	// servicePort is the port of every Service, endpointPort that of every endpoint, over TCP and UDP.
	servicePort, endpointPort = 80, 8080
	// nodePortFirst and nodePortsMax stay inside the range of node ports.
	nodePortFirst, nodePortsMax = 30000, 2000
	// addressesEach is the room for the endpoints of one Service.
	addressesEach = 16
)

// classOf returns the class of Service i of n.
func classOf(i, n int) class {
	switch {
	case i%max(5, n/singlesMax) == 0:
		if i/max(5, n/singlesMax)%4 == 3 {
			return singleUDP
		}
		return single
	case i%max(10, n/zonedMax) == 1:
		return zoned
	}
	switch i % 20 {
	case 2, 3:
		return udp
	case 4, 6, 7:
		return nodePorts
	case 8:
		return affinity
	case 9:
		return empty
	default:
		return plain
	}
}

// item is one Service as we last wrote it.
type item struct {
	namespace, name string
	class           class
	// number tells its addresses.
	number int
	// endpoints are the numbers of its endpoints.
	endpoints []int
	nodePort  int
	// dual says that the Service and its endpoints have both families.
	dual bool
}

// makeDual gives both families to a share of the Services of every large class.
func makeDual(items []*item) {
	for _, it := range items {
		switch it.class {
		case plain, udp, nodePorts, affinity:
			it.dual = it.number%5 == 3
		}
	}
}

// plan makes the Services of the cluster.
func plan(n int) []*item {
	items := make([]*item, n)
	ports := 0
	for i := range items {
		it := &item{namespace: fmt.Sprintf("team-%02d", i%20), name: fmt.Sprintf("service-%05d", i), class: classOf(i, n), number: i}
		if it.class == nodePorts {
			if ports++; ports <= nodePortsMax {
				it.nodePort = nodePortFirst + ports
			} else {
				it.class = plain
			}
		}
		count := endpointsEach
		switch it.class {
		case empty:
			count = 0
		case single, singleUDP:
			count = 1
		case zoned:
			count = 2
		}
		for e := range count {
			it.endpoints = append(it.endpoints, i*addressesEach+e)
		}
		items[i] = it
	}
	return items
}

// clusterIP is behind the addresses that the API server takes for itself.
func (it *item) clusterIP() netip.Addr { return rig.Address(serviceRange.Addr(), 256+it.number) }

// clusterIP6 has the same number.
func (it *item) clusterIP6() netip.Addr { return rig.Address(serviceRange6.Addr(), 256+it.number) }

// endpointAddress and endpointAddress6 are in podRange and podRange6.
func endpointAddress(n int) netip.Addr  { return rig.Address(podRange.Addr(), 256+n) }
func endpointAddress6(n int) netip.Addr { return rig.Address(podRange6.Addr(), 256+n) }

func (it *item) protocol() corev1.Protocol {
	if it.class == udp || it.class == singleUDP {
		return corev1.ProtocolUDP
	}
	return corev1.ProtocolTCP
}

// service returns the API object.
func (it *item) service() *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: it.namespace, Name: it.name, Labels: map[string]string{"app": it.name, "team": it.namespace}},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, ClusterIP: it.clusterIP().String(), Selector: map[string]string{"app": it.name},
			Ports: []corev1.ServicePort{{
				Name: "main", Protocol: it.protocol(), Port: servicePort, TargetPort: intstr.FromInt32(endpointPort), NodePort: int32(it.nodePort),
			}},
		},
	}
	if it.nodePort != 0 {
		s.Spec.Type = corev1.ServiceTypeNodePort
	}
	if it.dual {
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicyRequireDualStack)
		s.Spec.ClusterIPs = []string{s.Spec.ClusterIP, it.clusterIP6().String()}
	}
	if it.class == affinity {
		s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	return s
}

// The zones of the endpoints. The node is in the first, until its label changes.
var zones = []string{"zone-a", "zone-b"}

// perSlice is the largest number of endpoints in a slice, the default of the controller that
// writes them (max-endpoints-per-slice).
const perSlice = 100

// sliceCount returns how many slices the endpoints take.
func (it *item) sliceCount() int { return max(1, (len(it.endpoints)+perSlice-1)/perSlice) }

// slice returns the API object with the endpoints from at*perSlice.
func (it *item) slice(at int) *discoveryv1.EndpointSlice {
	port, protocol, number := "main", it.protocol(), int32(endpointPort)
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: it.namespace, Name: fmt.Sprintf("%s-%d", it.name, at),
			Labels: map[string]string{
				discoveryv1.LabelServiceName: it.name, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
				"app": it.name, "team": it.namespace,
			},
		},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{},
		Ports: []discoveryv1.EndpointPort{{Name: &port, Protocol: &protocol, Port: &number}},
	}
	for i, n := range it.endpoints[at*perSlice : min((at+1)*perSlice, len(it.endpoints))] {
		s.Endpoints = append(s.Endpoints, it.endpoint(i, n))
	}
	return s
}

// slices returns all API objects with endpoints.
func (it *item) slices() (all []*discoveryv1.EndpointSlice) {
	for at := range it.sliceCount() {
		all = append(all, it.slice(at))
	}
	if !it.dual {
		return all
	}
	for _, s := range all[:len(all):len(all)] {
		s6 := s.DeepCopy()
		s6.Name, s6.AddressType = s.Name+"-v6", discoveryv1.AddressTypeIPv6
		for i := range s6.Endpoints {
			s6.Endpoints[i].Addresses[0] = endpointAddress6(it.endpoints[i]).String()
		}
		all = append(all, s6)
	}
	return all
}

func (it *item) endpoint(i, n int) discoveryv1.Endpoint {
	node, zone := fmt.Sprintf("node-%03d", n%100), zones[i%len(zones)]
	// With hints for all zones, the node uses every endpoint.
	hinted := zones
	if it.class == zoned {
		hinted = zones[i : i+1]
	}
	hints := &discoveryv1.EndpointHints{}
	for _, z := range hinted {
		hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: z})
	}
	return discoveryv1.Endpoint{
		Addresses: []string{endpointAddress(n).String()}, NodeName: &node, Zone: &zone, Hints: hints,
		Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: it.namespace, Name: fmt.Sprintf("%s-%07d", it.name, n)},
	}
}
