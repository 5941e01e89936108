// SPDX-License-Identifier: Apache-2.0

package rendertest

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane"
	iptables "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	"github.com/sluice-proxy/sluice/service"
)

// IPTablesNode folds elements into chains, and adds the parts of the usual scaffold that are missing
// in the objects.
func IPTablesNode(family service.Family, objects []dataplane.Object) []dataplane.Object {
	layout := iptables.NewLayout(family)
	owned := map[dataplane.ID]dataplane.Object{}
	scaffold := iptables.NewRenderer(family, iptables.Options{MasqueradeBit: 14}).Node(WorldOf(family).Facts())
	for _, o := range append(scaffold, objects...) {
		if o.Kind == dataplane.Element {
			layout.Put(&o, service.Node)
			continue
		}
		owned[o.ID] = o
	}
	for _, c := range layout.Flush() {
		owned[c.ID] = *c.Object
	}
	return slices.Collect(maps.Values(owned))
}

// IPTablesTrees fills every container, so that jumps by prefix, by protocol and by port range occur.
func IPTablesTrees(family service.Family) []dataplane.Object {
	w := WorldOf(family)
	renderer, facts := iptables.NewRenderer(family, iptables.Options{MasqueradeBit: 14}), w.Facts()
	base := w.Services.Addr().As16()
	var objects []dataplane.Object
	for i := range 400 {
		addr := base
		addr[15] = byte(i * 7)
		p := w.OpenPort()
		p.Name, p.NodePort = fmt.Sprintf("p%d", i), uint16(30000+i)
		p.Protocol = []service.Protocol{service.TCP, service.UDP, service.SCTP}[i%3]
		if i%2 == 0 {
			// Half of them share one address and differ in the port.
			addr[15], p.Port = 1, uint16(1000+97*i)
		}
		p.ClusterIP = netip.AddrFrom16(addr).Unmap()
		endpoint := w.EndpointAddrs[0].As16()
		endpoint[15] = byte(i)
		p.Cluster = []service.Endpoint{{AddrPort: netip.AddrPortFrom(netip.AddrFrom16(endpoint).Unmap(), 80), Local: true}}
		if i%5 == 0 {
			p.HasAny, p.Cluster = false, nil
		} else if i%5 == 1 {
			p.SourceRanges = []netip.Prefix{w.Allowed}
		}
		view := w.View(p)
		view.HealthCheckNodePort = uint16(20000 + i)
		objects = append(objects, renderer.Service(context.Background(), view, facts)...)
	}
	return objects
}

// IPTablesPlace returns the table and the chain whose rules an object holds. Hooks are in "table/CHAIN".
func IPTablesPlace(o dataplane.Object) (table, chain string) {
	if table, chain, hook := strings.Cut(o.ID.Container, "/"); hook {
		return table, chain
	}
	return o.ID.Container, o.ID.Name
}
