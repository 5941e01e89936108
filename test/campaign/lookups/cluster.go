// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/apitest"
)

const namespace = "lookups"

// cluster is what the API says: the Service that is probed, and others that come and go.
type cluster struct {
	api     *apitest.Server
	exists  []bool
	present int
}

func newCluster(node *netns.Namespace, services int) (*cluster, error) {
	api, err := apitest.New(node.Listen)
	if err != nil {
		return nil, err
	}
	c := &cluster{api: api, exists: make([]bool, services)}
	api.Set(apitest.Nodes, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node"},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "203.0.113.1"}, {Type: corev1.NodeInternalIP, Address: "2001:db8:3::1"},
		}},
	})
	probed := c.service("probed", 1)
	probed.Spec.Type = corev1.ServiceTypeLoadBalancer
	probed.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	for _, family := range service.Families {
		probed.Status.LoadBalancer.Ingress = append(probed.Status.LoadBalancer.Ingress,
			corev1.LoadBalancerIngress{IP: vip[family].String()})
		c.api.Set(apitest.EndpointSlices, slice("probed", family, pod[family]))
	}
	c.api.Set(apitest.Services, probed)
	for range services / 2 {
		c.change()
	}
	return c, nil
}

func (c *cluster) service(name string, n int) *corev1.Service {
	ips := []string{fmt.Sprintf("10.96.%d.%d", 1+n>>8, n&255), fmt.Sprintf("fd00:10:96::%x", 256+n)}
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "1"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeClusterIP, IPFamilyPolicy: ptr.To(corev1.IPFamilyPolicyRequireDualStack),
			IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol},
			ClusterIP:  ips[0], ClusterIPs: ips,
			Ports: []corev1.ServicePort{
				{Name: "web", Protocol: corev1.ProtocolTCP, Port: webPort}, {Name: "ask", Protocol: corev1.ProtocolUDP, Port: askPort},
			},
		},
	}
}

func slice(name string, family service.Family, endpoints ...netip.Addr) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", name, family),
			Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: service.PerFamily[discoveryv1.AddressType]{
			service.IPv4: discoveryv1.AddressTypeIPv4, service.IPv6: discoveryv1.AddressTypeIPv6}[family],
		Ports: []discoveryv1.EndpointPort{
			{Name: ptr.To("web"), Protocol: ptr.To(corev1.ProtocolTCP), Port: ptr.To[int32](8080)},
			{Name: ptr.To("ask"), Protocol: ptr.To(corev1.ProtocolUDP), Port: ptr.To[int32](8053)},
		},
	}
	for _, e := range endpoints {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{e.String()}, NodeName: ptr.To("node"),
			Conditions: discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(true)}})
	}
	return s
}

// wave is how long it takes from few Services to all, and back.
const wave = 20 * time.Second

// change makes or deletes a Service where the wave asks for it, and else changes the endpoints of
// one.
func (c *cluster) change() {
	n := rand.IntN(len(c.exists))
	name := fmt.Sprint("other", n)
	rising := time.Since(epoch)/wave%2 == 0
	switch {
	case c.exists[n] && (rising || rand.IntN(3) > 0):
		endpoints := 1 + rand.IntN(5)
		for _, family := range service.Families {
			c.api.Set(apitest.EndpointSlices, slice(name, family, others(family, endpoints)...))
		}
	case c.exists[n]:
		c.exists[n], c.present = false, c.present-1
		c.api.Remove(apitest.Services, namespace, name)
		for _, family := range service.Families {
			c.api.Remove(apitest.EndpointSlices, namespace, fmt.Sprintf("%s-%d", name, family))
		}
	case rising || c.present < len(c.exists)/10:
		c.exists[n], c.present = true, c.present+1
		for _, family := range service.Families {
			c.api.Set(apitest.EndpointSlices, slice(name, family, others(family, 2)...))
		}
		c.api.Set(apitest.Services, c.service(name, 2+n))
	}
}

// others returns endpoints that get no traffic.
func others(family service.Family, count int) (all []netip.Addr) {
	base := service.PerFamily[netip.Addr]{
		service.IPv4: netip.MustParseAddr("10.244.2.0"), service.IPv6: netip.MustParseAddr("fd00:10:244:2::"),
	}[family]
	for range count {
		at := base
		for range 1 + rand.IntN(20) {
			at = at.Next()
		}
		all = append(all, at)
	}
	return all
}
