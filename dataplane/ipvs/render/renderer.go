// SPDX-License-Identifier: Apache-2.0

// Package render turns Services into virtual servers, with the addresses, sets and iptables
// rules that they need. It defines everything that IPVS mode puts into the kernel.
//
// A Service consists of virtual servers, set entries and addresses, which are added and removed
// over netlink alone. The iptables rules look Services up in sets, so the rules are the same for
// all Services and change only with the node's facts.
package render

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// Options are settings of the rendering that do not change while the process runs.
type Options struct {
	// Scheduler is the kernel's name of the scheduler of Services that ask for none. Empty
	// means "rr".
	Scheduler string
	// MasqueradeBit is the bit, 0 to 31, of the packet mark that asks for source NAT.
	// kube-proxy's default is 14.
	MasqueradeBit uint
	// RandomFully lets the kernel choose masqueraded source ports at random. It needs
	// iptables 1.6.2.
	RandomFully bool
	// DrainDeadline is how long removed endpoints keep their connections, unless the Service specifies another time.
	DrainDeadline time.Duration
}

// Renderer implements dataplane.Renderer for one family. It is immutable.
//
// A Service becomes, per port:
//
//	address   one address per frontend, unless the node has it already
//	server    one virtual server per frontend, with the endpoints
//	set/…     entries by which the rules find frontends, endpoints and ranges
//
// The rules are the scaffold. They look up the sets, so that no Service changes a rule.
type Renderer struct {
	family  service.Family
	options Options
	// sets are those of the family, by the words in their names.
	sets map[string]setPlace
	// mark is "0x4000/0x4000" for bit 14.
	mark string
}

var _ dataplane.Renderer = (*Renderer)(nil)

// NewRenderer makes a renderer of one family.
func NewRenderer(family service.Family, options Options) *Renderer {
	if options.Scheduler == "" {
		options.Scheduler = "rr"
	}
	bit := uint32(1) << options.MasqueradeBit
	mark := fmt.Sprintf("%#x/%#x", bit, bit)
	return &Renderer{family: family, options: options, sets: placesOf(family), mark: mark}
}

// Family returns the family of what it renders.
func (r *Renderer) Family() service.Family { return r.family }

// Service renders one Service. Two ports that claim the same object both appear;
// dataplane.NewFragment keeps the first.
func (r *Renderer) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	ports := view.Ports[r.family]
	if len(ports) == 0 {
		return nil
	}
	d := &draft{renderer: r, facts: facts, ctx: ctx}
	for i := range ports {
		if ctx.Err() != nil {
			return nil
		}
		p := newPortDraft(d, view, &ports[i])
		p.renderFrontends()
		p.renderHairpins()
	}
	if port := view.HealthPort(r.family); port != 0 {
		d.entry(setHealthCheckPort, portEntry(port))
	}
	return d.objects
}

// Node renders the scaffold: the device, the sets, the chains and the hooks.
func (r *Renderer) Node(facts *service.NodeFacts) []dataplane.Object {
	objects := []dataplane.Object{{ID: DeviceID, Kind: dataplane.Owned}}
	for _, set := range Sets(r.family) {
		objects = append(objects, SetObject(set))
	}
	objects = append(objects, r.natChains(facts)...)
	objects = append(objects, r.filterChains(facts)...)
	for _, hook := range HookRows() {
		objects = append(objects, hook.Object())
	}
	return objects
}

// draft gathers the objects of one Service.
type draft struct {
	// ctx ends the rendering early; the loops over frontends poll it.
	ctx      context.Context
	renderer *Renderer
	facts    *service.NodeFacts
	objects  []dataplane.Object
}

// bind makes an address local to the node. Ports of one Service that share it make equal
// objects.
func (d *draft) bind(addr netip.Addr) {
	d.objects = append(d.objects, AddressObject(addr))
	d.entry(SetIPs, wire.Entry{Addr: addr})
}

// entry adds an entry to the set with a word in its name.
func (d *draft) entry(set string, e wire.Entry) {
	d.objects = append(d.objects, d.renderer.sets[set].object(e))
}

func portEntry(port uint16) wire.Entry { return wire.Entry{Port: port} }

// nodePortAddrs returns the addresses on which node ports answer. Loopback addresses cannot
// be among them, because answers cannot leave loopback, nor can link-local ones in IPv6,
// which mean nothing without an interface.
func (d *draft) nodePortAddrs() []netip.Addr {
	ports := d.facts.NodePorts[d.renderer.family]
	if ports.All {
		return ports.Host
	}
	var addrs []netip.Addr
	for _, a := range ports.Addresses {
		if !a.IsLoopback() && (a.Is4() || !a.IsLinkLocalUnicast()) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}
