// SPDX-License-Identifier: Apache-2.0

// Package expect says how a question of a scenario has to end, from what the API says and
// the flags of the proxy: a plain reading of the rules for node proxies, which takes the
// choice of endpoints from test/reference and nothing of the proxy but the names of families
// and protocols. Where the rules leave a choice it says so, and nothing else.
package expect

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/apitest"
	"github.com/sluice-proxy/sluice/test/scenarios/fixture"
)

// Options are what is known in addition to the API.
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

// Unsure is the reason why the reference does not say how a question ends.
type Unsure struct{ reason string }

func (u Unsure) Error() string { return "not laid down: " + u.reason }

func unsuref(format string, args ...any) error { return Unsure{fmt.Sprintf(format, args...)} }

// Wanted is how a question has to end.
type Wanted struct {
	Fate fixture.Fate
	// Sources has those who answer, each with whom it takes for the client; "" if
	// that is not laid down.
	Sources map[string]fixture.Source
	// Sticky is set if one client sees only one of them.
	Sticky bool
}

// Names returns those who answer, sorted.
func (w Wanted) Names() []string { return slices.Sorted(maps.Keys(w.Sources)) }

// Source is whom all of them take for the client, "" if they differ.
func (w Wanted) Source() fixture.Source {
	var common fixture.Source
	for i, name := range w.Names() {
		if source := w.Sources[name]; i == 0 {
			common = source
		} else if source != common {
			return ""
		}
	}
	return common
}

// String writes it as a scenario does.
func (w Wanted) String() string {
	switch w.Fate {
	case fixture.Refused:
		return "refused"
	case fixture.Silent:
		return "silence"
	}
	text := strings.Join(w.Names(), " ")
	if source := w.Source(); source != "" {
		text += " as " + string(source)
	}
	return text
}

// address reads an address as leniently as the API once took it: octets with
// zeros in front are decimal, and IPv4 inside IPv6 is IPv4.
func address(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		octets := strings.Split(text, ".")
		for i, octet := range octets {
			if octets[i] = strings.TrimLeft(octet, "0"); octets[i] == "" && octet != "" {
				octets[i] = "0"
			}
		}
		a, err = netip.ParseAddr(strings.Join(octets, "."))
	}
	return a.Unmap(), err == nil && a.Zone() == ""
}

// prefix reads a range and returns its network.
func prefix(text string) (netip.Prefix, bool) {
	host, length, _ := strings.Cut(strings.TrimSpace(text), "/")
	a, ok := address(host)
	if !ok {
		return netip.Prefix{}, false
	}
	p, err := netip.ParsePrefix(a.String() + "/" + length)
	return p.Masked(), err == nil
}

// prefixes returns the ranges of a family among texts.
func prefixes(texts []string, family service.Family) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		if p, ok := prefix(text); ok && service.FamilyOf(p.Addr()) == family {
			all = append(all, p)
		}
	}
	return all
}

// contains reports whether one of the ranges has an address.
func contains(ranges []netip.Prefix, a netip.Addr) bool {
	for _, r := range ranges {
		if r.Contains(a) {
			return true
		}
	}
	return false
}
