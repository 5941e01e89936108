// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// SetSlice creates or replaces an EndpointSlice per family. Words of the form key=value set fields
// of it, all others are endpoints.
//
//	of=SERVICE        the Service it belongs to; default s, and none for no label
//	ports=name:port[/protocol],…   default: each port of the Service, at its target port
//	families=ipv4     default: both
//	type=FQDN         the address type
//	labels=key:value,…
//	annotations=key:value,…
//	trigger=-1h       the change was caused so long from now: last-change-trigger-time
//	more=1000         so many endpoints on n2 besides, where nothing answers
//
// An endpoint is a name (a), T(a) for one that is ready=false, serving=true and terminating=true,
// or a name with conditions, hints and node: a(ready=false), a(zones=za+zb), a(nodes=n1),
// a(node=none), or several of these separated by commas.
func (c *Cluster) SetSlice(name string, words []string) error {
	d, err := draftOf(words)
	if err != nil {
		return err
	}
	for _, family := range service.Families {
		full := sliceName(d.of, name, family)
		if !slices.Contains(d.families, family) {
			c.server.Remove(apitest.EndpointSlices, Namespace, full)
			continue
		}
		slice, err := c.slice(d, family)
		if err != nil {
			return err
		}
		slice.Name = full
		c.server.Set(apitest.EndpointSlices, slice)
	}
	return nil
}

// DeleteSlice deletes a slice of a Service in both families.
func (c *Cluster) DeleteSlice(of, name string) {
	for _, family := range service.Families {
		c.server.Remove(apitest.EndpointSlices, Namespace, sliceName(of, name, family))
	}
}

func sliceName(of, name string, family service.Family) string {
	return fmt.Sprintf("%s-%s-%s", ObjectName(of), name, strings.ToLower(family.String()))
}

// draft is what a statement says about slices of both families.
type draft struct {
	of, ports, kind     string
	families            []service.Family
	labels, annotations map[string]string
	endpoints           []string
	more                int
}

func draftOf(words []string) (draft, error) {
	d := draft{of: Main, families: service.Families[:]}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || strings.Contains(key, "(") {
			d.endpoints = append(d.endpoints, word)
			continue
		}
		switch key {
		case "of":
			d.of = value
		case "ports":
			d.ports = value
		case "type":
			d.kind = value
		case "labels":
			_ = setPairs(&d.labels, value) // which takes everything
		case "annotations":
			_ = setPairs(&d.annotations, value)
		case "trigger":
			ago, err := time.ParseDuration(value)
			if err != nil {
				return d, fmt.Errorf("trigger: %w", err)
			}
			if d.annotations == nil {
				d.annotations = make(map[string]string)
			}
			d.annotations[corev1.EndpointsLastChangeTriggerTime] = time.Now().Add(ago).Format(time.RFC3339Nano)
		case "more":
			var err error
			if d.more, err = strconv.Atoi(value); err != nil {
				return d, fmt.Errorf("more: %w", err)
			}
		case "families":
			d.families = nil
			for family := range strings.SplitSeq(value, ",") {
				at := slices.Index([]string{"ipv4", "ipv6"}, family)
				if at < 0 {
					return d, fmt.Errorf("families: %q: want ipv4 or ipv6", family)
				}
				d.families = append(d.families, service.Families[at])
			}
		default:
			return d, fmt.Errorf("slice: %q: want of, ports, type, labels, annotations, trigger, more or families", word)
		}
	}
	return d, nil
}

func (c *Cluster) slice(d draft, family service.Family) (*discoveryv1.EndpointSlice, error) {
	labels := map[string]string{discoveryv1.LabelServiceName: ObjectName(d.of)}
	if d.of == "none" {
		labels = map[string]string{}
	}
	for key, value := range d.labels {
		labels[key] = value
	}
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: Namespace, Labels: labels, Annotations: d.annotations},
		AddressType: discoveryv1.AddressType(apiFamilies[family]),
	}
	if d.kind != "" {
		s.AddressType = discoveryv1.AddressType(d.kind)
	}
	var err error
	if s.Ports, err = c.slicePorts(d); err != nil {
		return nil, err
	}
	for _, word := range d.endpoints {
		e, err := endpoint(word, family)
		if err != nil {
			return nil, err
		}
		if d.kind == string(discoveryv1.AddressTypeFQDN) {
			e.Addresses = []string{"host.example"}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	s.Endpoints = append(s.Endpoints, crowd(d.more, family)...)
	return s, nil
}

// crowd are endpoints on n2, to make a Service large.
func crowd(n int, family service.Family) []discoveryv1.Endpoint {
	var all []discoveryv1.Endpoint
	address := netip.MustParseAddr([]string{"10.244.128.0", "fd00:10:244:80::"}[family])
	for range n {
		address = address.Next()
		all = append(all, discoveryv1.Endpoint{Addresses: []string{address.String()}, NodeName: ptr.To(fixture.OtherNodeName)})
	}
	return all
}

// slicePorts returns the given ports, or those of the Service. A name or a port "nil" is left out
// of the object.
func (c *Cluster) slicePorts(d draft) ([]discoveryv1.EndpointPort, error) {
	var ports []discoveryv1.EndpointPort
	if d.ports == "" {
		s := c.services[d.of]
		if s == nil {
			s = c.newService(d.of)
		}
		for _, p := range s.Spec.Ports {
			target := int32(p.TargetPort.IntValue())
			if target == 0 {
				target = fixture.EndpointPort
			}
			ports = append(ports, discoveryv1.EndpointPort{Name: ptr.To(p.Name), Protocol: ptr.To(p.Protocol), Port: ptr.To(target)})
		}
		return ports, nil
	}
	for word := range strings.SplitSeq(d.ports, ",") {
		named, protocol, ok := strings.Cut(word, "/")
		if !ok {
			protocol = string(corev1.ProtocolTCP)
		}
		name, number, _ := strings.Cut(named, ":")
		p := discoveryv1.EndpointPort{Protocol: ptr.To(corev1.Protocol(protocol))}
		if name != "nil" {
			p.Name = ptr.To(name)
		}
		if number != "nil" {
			n, err := strconv.ParseInt(number, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("ports: %s: %w", word, err)
			}
			p.Port = ptr.To(int32(n))
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// endpoint reads one endpoint.
func endpoint(word string, family service.Family) (discoveryv1.Endpoint, error) {
	name, details := word, ""
	if inner, ok := strings.CutPrefix(word, "T("); ok {
		name, details = strings.TrimSuffix(inner, ")"), "ready=false,serving=true,terminating=true"
	}
	if before, inside, ok := strings.Cut(name, "("); ok {
		name, details = before, strings.TrimSuffix(inside, ")")+","+details
	}
	address, err := fixture.Address(family, name)
	if err != nil {
		return discoveryv1.Endpoint{}, err
	}
	e := discoveryv1.Endpoint{Addresses: []string{address.String()}, NodeName: ptr.To(fixture.NodeOf(name))}
	for detail := range strings.SplitSeq(details, ",") {
		if detail == "" {
			continue
		}
		if err := detailOf(&e, detail); err != nil {
			return e, fmt.Errorf("endpoint %s: %w", word, err)
		}
	}
	return e, nil
}

func detailOf(e *discoveryv1.Endpoint, detail string) error {
	key, value, _ := strings.Cut(detail, "=")
	yes := ptr.To(value == "true")
	switch key {
	case "ready":
		e.Conditions.Ready = yes
	case "serving":
		e.Conditions.Serving = yes
	case "terminating":
		e.Conditions.Terminating = yes
	case "node":
		if e.NodeName = ptr.To(value); value == "none" {
			e.NodeName = nil
		}
	case "zones":
		hints(e)
		for zone := range strings.SplitSeq(value, "+") {
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: zone})
		}
	case "nodes":
		hints(e)
		for node := range strings.SplitSeq(value, "+") {
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: node})
		}
	default:
		return fmt.Errorf("%q: want ready, serving, terminating, node, zones or nodes", detail)
	}
	return nil
}

func hints(e *discoveryv1.Endpoint) {
	if e.Hints == nil {
		e.Hints = &discoveryv1.EndpointHints{}
	}
}
