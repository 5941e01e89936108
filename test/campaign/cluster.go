// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

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
	// rejectedName is the Service that the kernel rejects: number 0, a live one.
	rejectedName   = "s0"
	rejectedNumber = 0
)

func serviceName(n int) string { return fmt.Sprintf("s%d", n) }

func podName(n, pod int) string { return fmt.Sprintf("%s-%d", serviceName(n), pod) }

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
	turn atomic.Int64
	// faulty gives some live Services a special role; see roles.
	faulty bool
	// shown is the one endpoint of the marker.
	shown int
}

// roles are the live Services with a special role during faults. The first half of the
// others never changes.
type roles struct{ marker, flows, victim int }

// roles returns the Service whose endpoints show which change is applied, the one whose UDP flows
// are cleaned up again and again, and the one that a rival edits; -1 without faults.
func (c *cluster) roles() roles {
	if !c.faulty {
		return roles{-1, -1, -1}
	}
	return roles{c.live - 1, c.live - 2, c.live - 3}
}

// special is how many Services have a special role.
const special = 3

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

// annotations has what Services ask for, in turn. Releases that do not know an annotation ignore it.
var annotations = []map[string]string{
	{"sluice.dev/balancing": "roundRobin"},
	{"sluice.dev/balancing": "sourceHash", "sluice.dev/slow-start": "5s"},
	{"sluice.dev/balancing": "connectionHash", "sluice.dev/drain": "1h"},
	{"sluice.dev/balancing": "leastConnections", "sluice.dev/deny-source-ranges": "198.51.100.0/24,2001:db8:dead::/48"},
	{"sluice.dev/balancing": "random", "sluice.dev/slow-start": "5s", "sluice.dev/no-endpoints": "drop"},
	{"sluice.dev/deny-source-ranges": "198.51.100.0/24", "sluice.dev/no-endpoints": "reject", "sluice.dev/drain": "1h"},
}

// annotated returns the annotations of Service n: half of the Services have some, unless a fault is tried.
func (c *cluster) annotated(n int) map[string]string {
	if c.faulty || n == rejectedNumber || n%2 != 0 {
		return nil
	}
	return annotations[n/2%len(annotations)]
}

func (c *cluster) setService(n int) {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: serviceName(n), UID: "1", CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0)),
			Annotations: c.annotated(n),
		},
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
	of := c.roles()
	asked := allPods
	if c.faulty && (n >= c.live || n == of.flows) {
		asked = allBut(but)
	}
	for _, family := range service.Families {
		c.setSlice(family, n, "web", corev1.ProtocolTCP, allBut(but))
		c.setSlice(family, n, "ask", corev1.ProtocolUDP, asked)
	}
}

// mark makes another pod the only endpoint of the marker, and returns its name.
func (c *cluster) mark() string {
	n := c.roles().marker
	c.shown = (c.shown + 1) % podsPerService
	for _, family := range service.Families {
		c.setSlice(family, n, "web", corev1.ProtocolTCP, []int{c.shown})
	}
	return podName(n, c.shown)
}

var allPods = allBut(-1)

// allBut returns the numbers of all pods of a Service but one.
func allBut(but int) (pods []int) {
	for pod := range podsPerService {
		if but < 0 || pod != but%podsPerService {
			pods = append(pods, pod)
		}
	}
	return pods
}

func (c *cluster) setSlice(family service.Family, n int, port string, protocol corev1.Protocol, pods []int) {
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
	for _, pod := range pods {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{podAddress(family, pod).String()}, NodeName: ptr.To(nodeName),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true)},
		})
	}
	c.api.Set(apitest.EndpointSlices, slice)
}

// change changes the endpoints of the next Service. The rejected one stays as it was when the kernel
// last took it.
func (c *cluster) change() {
	turn := int(c.turn.Add(1))
	n := 1 + turn%(c.services-1)
	if c.faulty && c.still(n) {
		n = c.live + n%(c.services-c.live)
	}
	c.setEndpoints(n, 1+turn/(c.services-1))
}

// still reports whether a live Service never changes during faults, or only on purpose.
func (c *cluster) still(n int) bool {
	return n < c.live && (n < c.live/2 || n >= c.live-special)
}

// clusterAddr is a port at the ClusterIP of Service n.
func clusterAddr(family service.Family, n int, port uint16) netip.AddrPort {
	return netip.AddrPortFrom(clusterIP(family, 256+n), port)
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
				target{n, "tcp", clusterAddr(family, n, webPort)},
				target{n, "udp", clusterAddr(family, n, askPort)})
			if nodePort(n) != 0 {
				all = append(all, target{n, "tcp", netip.AddrPortFrom(nodeAddress[family], nodePort(n))})
			}
		}
	}
	return all
}
