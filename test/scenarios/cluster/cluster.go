// SPDX-License-Identifier: Apache-2.0

// Package cluster makes API objects out of the statements of a scenario, and hands each change to a
// server. Package play calls it.
package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Namespace is the namespace of every Service.
const Namespace = "ns1"

// Main is the Service of statements that name none. Its object is ns1/svc1.
const Main = "s"

// Server takes objects; [apitest.Server] is one.
type Server interface {
	Set(resource string, object runtime.Object)
	Remove(resource, namespace, name string)
}

// Cluster holds the objects of one scenario. One goroutine uses it at a time.
type Cluster struct {
	server   Server
	services map[string]*corev1.Service
	// order numbers the Services. A Service's addresses follow from its number.
	order []string
	node  *corev1.Node
}

// New fills a server with the objects of every scenario: the Node, and the range of ClusterIPs.
func New(server Server) *Cluster {
	c := &Cluster{server: server, services: make(map[string]*corev1.Service), order: []string{Main}, node: newNode()}
	c.server.Set(apitest.Nodes, c.node.DeepCopy())
	c.SetServiceCIDRs("service-cidr")
	return c
}

// SetServiceCIDRs sets the ranges of ClusterIPs.
func (c *Cluster) SetServiceCIDRs(ranges ...string) {
	var texts []string
	for _, r := range ranges {
		texts = append(texts, fixture.Texts(r)...)
	}
	c.server.Set(apitest.ServiceCIDRs, &networkingv1.ServiceCIDR{
		ObjectMeta: metav1.ObjectMeta{Name: "kubernetes"},
		Spec:       networkingv1.ServiceCIDRSpec{CIDRs: texts},
	})
}

// ObjectName returns the name that a Service has in the API.
func ObjectName(name string) string {
	if name == Main {
		return "svc1"
	}
	return name
}

// ChangeService creates a Service, or changes fields of it. Words have the form key=value.
func (c *Cluster) ChangeService(name string, fields []string) error {
	s, known := c.services[name]
	if !known {
		s = c.newService(name)
	}
	s = s.DeepCopy()
	for _, word := range fields {
		key, value, ok := strings.Cut(word, "=")
		set := serviceFields[key]
		if !ok || set == nil {
			return fmt.Errorf("service: %q: want key=value with one of the keys %s", word, keysOf(serviceFields))
		}
		if err := set(s, value); err != nil {
			return fmt.Errorf("service: %s: %w", word, err)
		}
	}
	c.services[name] = s
	c.server.Set(apitest.Services, s.DeepCopy())
	return nil
}

// newService is a dual-stack Service of type ClusterIP with the port p80.
func (c *Cluster) newService(name string) *corev1.Service {
	number := slices.Index(c.order, name)
	if number < 0 {
		number = len(c.order)
		c.order = append(c.order, name)
	}
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: ObjectName(name),
			CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, number, 0, time.UTC)),
		},
		Spec: corev1.ServiceSpec{
			Type:  corev1.ServiceTypeClusterIP,
			Ports: []corev1.ServicePort{{Name: "p80", Protocol: corev1.ProtocolTCP, Port: fixture.ServicePort}},
		},
	}
	for _, family := range service.Families {
		s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, fixture.ClusterIP(family, number).String())
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, apiFamilies[family])
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	return s
}

// apiFamilies are the families as the API names them.
var apiFamilies = [...]corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}

// DeleteService deletes a Service. Its slices stay, as those of a real cluster do for a moment.
func (c *Cluster) DeleteService(name string) {
	delete(c.services, name)
	c.server.Remove(apitest.Services, Namespace, ObjectName(name))
}

// Service returns a Service as the API has it, or nil.
func (c *Cluster) Service(name string) *corev1.Service { return c.services[name] }

// Numbered returns the ClusterIP that belongs to a Service's number, even if the Service has
// another.
func (c *Cluster) Numbered(name string, family service.Family) (netip.Addr, error) {
	number := slices.Index(c.order, name)
	if number < 0 {
		return netip.Addr{}, fmt.Errorf("there was never a Service %q", name)
	}
	return fixture.ClusterIP(family, number), nil
}

func newNode() *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name: fixture.NodeName, Labels: map[string]string{corev1.LabelTopologyZone: fixture.Zone},
	}}
	for _, family := range service.Families {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{
			Type: corev1.NodeInternalIP, Address: fixture.MustAddress(family, "node").String(),
		})
		n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, fixture.MustPrefix(family, "pods").String())
	}
	n.Spec.PodCIDR = n.Spec.PodCIDRs[0]
	return n
}

// ChangeNode changes the Node:
//
//	zone=zb, zone=none      its zone label
//	taint=KEY, taint=none   its taints
//	cidrs=pods2, cidrs=none its pod ranges
//	addresses=192.168.0.2   its internal addresses
//	deleting=true           it has a deletion timestamp
func (c *Cluster) ChangeNode(words []string) error {
	for _, word := range words {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "zone":
			delete(c.node.Labels, corev1.LabelTopologyZone)
			if value != "none" {
				c.node.Labels[corev1.LabelTopologyZone] = value
			}
		case "taint":
			c.node.Spec.Taints = nil
			if value != "none" {
				c.node.Spec.Taints = []corev1.Taint{{Key: value, Effect: corev1.TaintEffectNoSchedule}}
			}
		case "cidrs":
			c.node.Spec.PodCIDRs, c.node.Spec.PodCIDR = list(value), ""
			if len(c.node.Spec.PodCIDRs) > 0 {
				c.node.Spec.PodCIDR = c.node.Spec.PodCIDRs[0]
			}
		case "addresses":
			c.node.Status.Addresses = nil
			for _, a := range list(value) {
				c.node.Status.Addresses = append(c.node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
			}
		case "deleting":
			c.node.DeletionTimestamp = nil
			if value == "true" {
				c.node.DeletionTimestamp = ptr.To(metav1.Now())
			}
		default:
			return fmt.Errorf("node: %q: want zone, taint, cidrs, addresses or deleting", word)
		}
	}
	c.server.Set(apitest.Nodes, c.node.DeepCopy())
	return nil
}

// DeleteNode deletes the Node object; ChangeNode brings it back.
func (c *Cluster) DeleteNode() { c.server.Remove(apitest.Nodes, "", fixture.NodeName) }
