package main

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/apitest"
)

const (
	nodeName  = "node"
	namespace = "campaign"
	// refusedName is the Service that the kernel refuses: number 0, a live one.
	refusedName   = "s0"
	refusedNumber = 0
)

func serviceName(n int) string { return fmt.Sprintf("s%d", n) }

// podPort is the port on which pods serve Service n.
func podPort(n int) uint16 { return uint16(8000 + n) }

// nodePort returns the node port of Service n. Every third has one.
func nodePort(n int) uint16 {
	if n%3 != 0 {
		return 0
	}
	return uint16(30000 + n)
}

// The ports of every Service.
const (
	webPort = 80
	askPort = 53
)

// cluster is what the API says. The first Services are live, with two of their three pods as
// endpoints. The others have endpoints that do not exist.
type cluster struct {
	api            *apitest.Server
	services, live int
	// turn counts the changes of endpoints.
	turn int
}

func (c *cluster) fill() {
	c.api.Set(apitest.Nodes, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: nodeName},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: nodeAddress[service.IPv4].String()},
			{Type: corev1.NodeInternalIP, Address: nodeAddress[service.IPv6].String()},
		}},
	})
	c.api.Set(apitest.ServiceCIDRs, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.96.0.0/16", "fd00:10:96::/112"}},
	})
	for n := range c.services {
		c.setService(n)
		c.setEndpoints(n, 0)
	}
}

func (c *cluster) setService(n int) {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: serviceName(n), UID: "1"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			Ports: []corev1.ServicePort{
				{Name: "web", Protocol: corev1.ProtocolTCP, Port: webPort, NodePort: int32(nodePort(n))},
				{Name: "ask", Protocol: corev1.ProtocolUDP, Port: askPort},
			},
		},
	}
	if nodePort(n) != 0 {
		s.Spec.Type = corev1.ServiceTypeNodePort
	}
	for _, family := range service.Families {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, clusterIP(family, 256+n).String())
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	c.api.Set(apitest.Services, s)
}

// setEndpoints makes all pods of Service n but one its endpoints for TCP, and all of them for UDP,
// where the clean-up of a flow may overtake an answer.
func (c *cluster) setEndpoints(n, but int) {
	for _, family := range service.Families {
		c.setSlice(family, n, "web", corev1.ProtocolTCP, but%podsPerService)
		c.setSlice(family, n, "ask", corev1.ProtocolUDP, -1)
	}
}

func (c *cluster) setSlice(family service.Family, n int, port string, protocol corev1.Protocol, but int) {
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s-%s-%d", serviceName(n), port, family),
			Labels: map[string]string{discoveryv1.LabelServiceName: serviceName(n)},
		},
		AddressType: service.PerFamily[discoveryv1.AddressType]{
			service.IPv4: discoveryv1.AddressTypeIPv4, service.IPv6: discoveryv1.AddressTypeIPv6,
		}[family],
		Ports: []discoveryv1.EndpointPort{
			{Name: &port, Protocol: &protocol, Port: ptr.To(int32(podPort(n)))},
		},
	}
	for pod := range podsPerService {
		if pod == but {
			continue
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{podAddress(family, pod).String()}, NodeName: ptr.To(nodeName),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true)},
		})
	}
	c.api.Set(apitest.EndpointSlices, slice)
}

// change changes the endpoints of the next Service. The refused one stays as it was when the kernel
// last took it.
func (c *cluster) change() {
	c.turn++
	n := 1 + c.turn%(c.services-1)
	c.setEndpoints(n, 1+c.turn/(c.services-1))
}

// target is one frontend of a live Service.
type target struct {
	service  int
	protocol string // "tcp" or "udp"
	addr     netip.AddrPort
}

// String names the target for messages.
func (t target) String() string {
	return fmt.Sprintf("%s at %s/%s", serviceName(t.service), t.addr, t.protocol)
}

// targets are the frontends of the live Services.
func (c *cluster) targets() (all []target) {
	for _, family := range service.Families {
		for n := range c.live {
			all = append(all,
				target{n, "tcp", netip.AddrPortFrom(clusterIP(family, 256+n), webPort)},
				target{n, "udp", netip.AddrPortFrom(clusterIP(family, 256+n), askPort)})
			if nodePort(n) != 0 {
				all = append(all, target{n, "tcp", netip.AddrPortFrom(nodeAddress[family], nodePort(n))})
			}
		}
	}
	return all
}
