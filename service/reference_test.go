// SPDX-License-Identifier: Apache-2.0

package service

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/test/reference"
)

// expected is what the reference selects for one port of a view, as text.
type expected struct {
	cluster, local, serving []string
	any                     bool
	// chances are those of the endpoints in cluster.
	chances map[string]float64
}

// refer asks the reference about one port of the view. Sets that the port does not need are
// left out.
func refer(spec *Spec, port *PortView, family Family, from []*Slice, node *NodeFacts) expected {
	var listed []reference.Endpoint
	o := observedOf(from)
	for _, s := range slices.SortedFunc(slices.Values(from), func(a, b *Slice) int { return strings.Compare(a.Name, b.Name) }) {
		for _, p := range s.Ports {
			if s.Family != family || p.Name != port.Name || p.Protocol != port.Protocol {
				continue
			}
			for _, e := range s.Endpoints {
				where := e.Where()
				at := netip.AddrPortFrom(e.Addr, p.Port)
				known, is := o.Of(at)
				percent := int(known.Percent)
				if o != nil && !is && spec.Adaptation.SlowStart > 0 {
					percent = 10
				}
				listed = append(listed, reference.Endpoint{
					At: netip.AddrPortFrom(e.Addr, p.Port), Ready: e.Ready, Serving: e.Serving, Terminating: e.Terminating,
					Local: where.NodeName == node.Name, ForNodes: where.ForNodes, ForZones: where.ForZones,
					Weight: int(s.Weight), Drains: s.Drains, Percent: percent, Suspect: known.Suspect,
				})
			}
		}
	}
	distinct, _ := reference.Distinct(listed)
	s := reference.Select(distinct, node.Name, node.Zone, reference.Zones{Min: int(spec.Zones.MinEndpoints), Share: int(spec.Zones.Share)})
	want := expected{any: s.Any}
	if !port.InternalLocal || port.ExternallyAccessible() {
		want.cluster = referenceTexts(s.Cluster)
		want.chances = map[string]float64{}
		for _, e := range s.Cluster {
			want.chances[e.At.String()] = e.Chance
		}
	}
	if port.InternalLocal || (port.ExternalLocal && port.ExternallyAccessible()) {
		want.local = referenceTexts(s.Local)
	}
	if port.Protocol == UDP {
		want.serving = referenceTexts(s.Serving)
	}
	return want
}

func referenceTexts(set []reference.Endpoint) (list []string) {
	for _, e := range set {
		list = append(list, e.At.String())
	}
	return list
}

// texts formats a set as the reference's is.
func texts(set []Endpoint) (list []string) {
	for _, e := range set {
		list = append(list, e.String())
	}
	return list
}

func (e expected) String() string {
	return "cluster " + strings.Join(e.cluster, " ") +
		", local " + strings.Join(e.local, " ") +
		", serving " + strings.Join(e.serving, " ")
}
