// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/apitest"
)

const (
	nodeName  = "node"
	namespace = "bench"
	// perSlice is the default of the endpoint slice controller.
	perSlice = 100
	// affinityMany is the number of endpoints of the largest Service, which has affinity.
	affinityMany = 1000
)

// kind is what a Service is there for.
type kind string

const (
	plain        kind = "plain"         // TCP by ClusterIP
	datagrams    kind = "datagrams"     // UDP by ClusterIP
	nodePort     kind = "node-port"     // TCP, with a node port
	empty        kind = "empty"         // TCP, without endpoints
	sourceRanges kind = "source-ranges" // TCP, with a load balancer's address for some clients
	affinity     kind = "affinity"      // TCP, with affinity
	affinityBig  kind = "affinity-big"  // the same with affinityMany endpoints: the last Service
)

// servicesMin is the number of Services from which on there is one of each kind.
const servicesMin = 12

// cluster is a number of Services, each made from its number. The last one is affinityBig.
type cluster struct {
	services, endpoints int
	families            []service.Family
}

// kindOf is the mix of a cluster: one Service in ten has a node port, one in ten UDP, and one in
// fifty each has no endpoints, source ranges, and affinity.
func (c cluster) kindOf(i int) kind {
	switch {
	case i == c.services:
		return affinityBig
	case i%50 == 7:
		return empty
	case i%50 == 9:
		return sourceRanges
	case i%50 == 11:
		return affinity
	case i%10 == 1:
		return nodePort
	case i%10 == 2:
		return datagrams
	default:
		return plain
	}
}

// numbers returns the Services of a kind.
func (c cluster) numbers(k kind) []int {
	var found []int
	for i := range c.services + 1 {
		if c.kindOf(i) == k {
			found = append(found, i)
		}
	}
	return found
}

// The ports of every Service and every endpoint.
const (
	portTCP, targetTCP = 80, 8080
	portUDP, targetUDP = 53, 8053
	nodePortsFrom      = 30000
)

func (c cluster) isUDP(i int) bool { return c.kindOf(i) == datagrams }

func (c cluster) clusterIP(f service.Family, i int) netip.Addr {
	return rig.Address(clusterIPs[f], 256+i)
}

// loadBalancerIP is the address of a Service with source ranges.
func (c cluster) loadBalancerIP(f service.Family, i int) netip.Addr {
	return rig.Address(loadBalancerIPs[f], i)
}

// nodePort is the port of a Service of that kind.
func (c cluster) nodePort(i int) uint16 { return uint16(nodePortsFrom + i/10) }

// endpointsOf returns the addresses of a Service's endpoints. No two Services share one.
func (c cluster) endpointsOf(f service.Family, i int) []netip.Addr {
	count := c.endpoints
	switch c.kindOf(i) {
	case empty:
		count = 0
	case affinityBig:
		count = affinityMany
	}
	all := make([]netip.Addr, count)
	for e := range all {
		all[e] = rig.Address(podsRange[f].Addr(), 256+i*c.endpoints+e)
	}
	return all
}

// fill puts the node and all Services into an API server.
func (c cluster) fill(api *apitest.Server) {
	api.Set(apitest.Nodes, c.node())
	for i := range c.services + 1 {
		for _, slice := range c.slices(i) {
			api.Set(apitest.EndpointSlices, slice)
		}
		api.Set(apitest.Services, c.service(i))
	}
}

func meta(name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: labels,
		UID: types.UID("uid-of-" + name), CreationTimestamp: metav1.Now(),
	}
}

func (c cluster) node() *corev1.Node {
	node := &corev1.Node{ObjectMeta: meta(nodeName, nil)}
	node.Namespace = ""
	for _, f := range service.Families {
		node.Status.Addresses = append(node.Status.Addresses,
			corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: nodeAddress[f].String()})
	}
	return node
}

func serviceName(i int) string { return fmt.Sprintf("service-%05d", i) }

func (c cluster) service(i int) *corev1.Service {
	policy := corev1.ServiceInternalTrafficPolicyCluster
	port := corev1.ServicePort{Name: "main", Protocol: corev1.ProtocolTCP, Port: portTCP}
	port.TargetPort = intstr.FromInt32(targetTCP)
	if c.isUDP(i) {
		port.Protocol, port.Port, port.TargetPort = corev1.ProtocolUDP, portUDP, intstr.FromInt32(targetUDP)
	}
	svc := &corev1.Service{
		ObjectMeta: meta(serviceName(i), map[string]string{"app": serviceName(i)}),
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": serviceName(i)},
			SessionAffinity: corev1.ServiceAffinityNone, InternalTrafficPolicy: &policy,
			IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
		},
	}
	for _, f := range c.families {
		svc.Spec.ClusterIPs = append(svc.Spec.ClusterIPs, c.clusterIP(f, i).String())
		svc.Spec.IPFamilies = append(svc.Spec.IPFamilies, corev1.IPFamily(f.String()))
	}
	svc.Spec.ClusterIP = svc.Spec.ClusterIPs[0]
	switch c.kindOf(i) {
	case nodePort:
		svc.Spec.Type, port.NodePort = corev1.ServiceTypeNodePort, int32(c.nodePort(i))
		svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	case sourceRanges:
		c.restrict(svc, i)
	case affinity, affinityBig:
		svc.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
		clientIP := &corev1.ClientIPConfig{TimeoutSeconds: new(int32(10800))}
		svc.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: clientIP}
	}
	svc.Spec.Ports = []corev1.ServicePort{port}
	return svc
}

// restrict gives a Service a load balancer's address for the clients of this network, who are in the
// last of four ranges.
func (c cluster) restrict(svc *corev1.Service, i int) {
	svc.Spec.Type, svc.Spec.AllocateLoadBalancerNodePorts = corev1.ServiceTypeLoadBalancer, new(false)
	svc.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	for _, f := range c.families {
		ranges := service.PerFamily[[]string]{
			service.IPv4: {"192.0.2.0/25", "192.0.2.128/26"}, service.IPv6: {"2001:db8:1::/64", "2001:db8:2::/64"},
		}[f]
		svc.Spec.LoadBalancerSourceRanges = append(svc.Spec.LoadBalancerSourceRanges, append(ranges,
			netip.PrefixFrom(nodeAddress[f], nodeAddress[f].BitLen()).String(),
			netip.PrefixFrom(clientAddress[f], clientAddress[f].BitLen()).String())...)
		svc.Status.LoadBalancer.Ingress = append(svc.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{
			IP: c.loadBalancerIP(f, i).String(), IPMode: new(corev1.LoadBalancerIPModeVIP),
		})
	}
}

func (c cluster) slices(i int) []*discoveryv1.EndpointSlice {
	var all []*discoveryv1.EndpointSlice
	for _, f := range c.families {
		addresses := c.endpointsOf(f, i)
		for at := 0; at < len(addresses); at += perSlice {
			all = append(all, c.slice(f, i, at/perSlice, addresses[at:min(at+perSlice, len(addresses))]))
		}
	}
	return all
}

func (c cluster) slice(f service.Family, i, at int, addresses []netip.Addr) *discoveryv1.EndpointSlice {
	port := discoveryv1.EndpointPort{Name: new("main"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(targetTCP))}
	if c.isUDP(i) {
		port.Protocol, port.Port = new(corev1.ProtocolUDP), new(int32(targetUDP))
	}
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: meta(fmt.Sprintf("%s-%s-%d", serviceName(i), []string{"a", "b"}[f], at), map[string]string{
			discoveryv1.LabelServiceName: serviceName(i), discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}),
		AddressType: discoveryv1.AddressType(f.String()), Ports: []discoveryv1.EndpointPort{port},
	}
	for n, a := range addresses {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{a.String()}, NodeName: new("node-" + strconv.Itoa(n)),
			Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
		})
	}
	return slice
}
