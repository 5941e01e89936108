// SPDX-License-Identifier: Apache-2.0

// Package render turns Services into iptables rules. It defines everything that iptables mode owns in the
// tables: the names of chains (names.go), the tables (tables.go), the hooks and the owned chains (hooks.go),
// the objects of one Service (renderer.go) and of one service port (ports.go, refusals.go), the chains that
// belong to no Service (scaffold.go), the rules whose counters are used (counts.go), and the text of one
// rule (rule.go; package rules reads it). Package tree composes elements into chains.
package render

import (
	"context"
	"fmt"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/tree"
	"github.com/sluice-proxy/sluice/service"
)

// Options are the settings that rules depend on. They never change while the process runs.
type Options struct {
	// MasqueradeBit is the bit, 0 to 31, of the packet mark that asks for source NAT.
	// kube-proxy's default is 14.
	MasqueradeBit uint
	// RandomFully lets the kernel choose masqueraded source ports at random. It needs
	// iptables 1.6.2.
	RandomFully bool
	// InvalidDropOmitted leaves out the rule that drops packets in conntrack state INVALID,
	// because net.netfilter.nf_conntrack_tcp_be_liberal is on.
	InvalidDropOmitted bool
	// Accounting makes rules count in AccountInvalid and AccountLocalhost; see Exec.Accounting of
	// package kernel. The field Accounting of its WriterConfig must be set, too.
	Accounting bool
}

// Renderer implements dataplane.Renderer for one family. Rendered rules equal the output of
// iptables-save byte for byte, so an audit compares texts. It is immutable.
//
// A Service becomes, per port:
//
//	nat/KUBE-SERVICES     one element per ClusterIP, external IP, load balancer VIP
//	nat/KUBE-NODEPORTS    one element per node port
//	KUBE-FW-H ─► KUBE-EXT-H ─► KUBE-SVC-H or KUBE-SVL-H: one DNAT rule per endpoint
//	nat/KUBE-SVC-HAIRPIN  one element per endpoint that may reach itself
//	filter/…              one element per frontend that is rejected
//
// H is portHash. With ClientIP affinity, the DNAT rules move into separate chains,
// KUBE-SEP-HE, which remember the client.
type Renderer struct {
	family  service.Family
	options Options
	// mark is "0x4000/0x4000" for bit 14.
	mark string
	// reject is the target that rejects with "port unreachable".
	reject string
	// recentMask is the mask that iptables-save prints for whole addresses.
	recentMask string
}

var _ dataplane.Renderer = (*Renderer)(nil)

// NewRenderer returns a renderer of one family.
func NewRenderer(family service.Family, options Options) *Renderer {
	bit := uint32(1) << options.MasqueradeBit
	r := &Renderer{
		family:     family,
		options:    options,
		mark:       fmt.Sprintf("%#x/%#x", bit, bit),
		reject:     "REJECT --reject-with icmp-port-unreachable",
		recentMask: "255.255.255.255",
	}
	if family == service.IPv6 {
		r.reject = "REJECT --reject-with icmp6-port-unreachable"
		r.recentMask = "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"
	}
	return r
}

// Service renders one Service. If two ports claim the same element, both appear;
// dataplane.NewFragment keeps the first.
func (r *Renderer) Service(ctx context.Context, view *service.View, facts *service.NodeFacts) []dataplane.Object {
	ports := view.Ports[r.family]
	if len(ports) == 0 {
		return nil
	}
	d := newDraft(ports)
	for i := range ports { // one poll per port is enough: a port costs its frontends plus its endpoints
		if ctx.Err() != nil {
			return nil
		}
		p := newPortDraft(d, r, facts, view.Key, &ports[i])
		p.renderDispatch()
		p.renderExternal()
		p.renderBalancing()
		p.renderHairpins()
		p.renderRejections()
	}
	d.renderHealth(view.Key, view.HealthPort(r.family))
	return d.objects
}

// Node renders the scaffold: the fixed chains, the hooks, and the tail rules of the dispatch
// chains.
func (r *Renderer) Node(facts *service.NodeFacts) []dataplane.Object {
	objects := r.fixedChains(facts)
	for _, hook := range HookRows() {
		objects = append(objects, hook.Object())
	}
	objects = append(objects, r.nodePortTails(facts)...)
	return append(objects, externalTail())
}

// draft gathers the objects of one Service. It lives for one call of Renderer.Service.
type draft struct {
	objects []dataplane.Object
	// text is the body under construction.
	text []byte
}

func newDraft(ports []service.PortView) *draft {
	objects, widest := 2, 0
	for i := range ports {
		p := &ports[i]
		objects += 4 + len(p.ExternalIPs) + 2*len(p.LoadBalancerVIPs) + len(p.Local)
		widest = max(widest, len(p.Cluster), len(p.Local))
	}
	// A balancing rule takes about a hundred bytes.
	return &draft{objects: make([]dataplane.Object, 0, objects), text: make([]byte, 0, 256+100*widest)}
}

// begin empties the text for the next body.
func (d *draft) begin() { d.text = d.text[:0] }

// line begins a new line of the body.
func (d *draft) line() {
	if len(d.text) > 0 {
		d.text = append(d.text, '\n')
	}
}

// rule adds a line to the body.
func (d *draft) rule(r rule) {
	d.line()
	d.text = r.appendTo(d.text)
}

// endChain makes the text a chain of table nat.
func (d *draft) endChain(name string, refs ...dataplane.ID) { d.end(natChain(name), refs...) }

// end makes the text a chain.
func (d *draft) end(chain dataplane.ID, refs ...dataplane.ID) {
	d.objects = append(d.objects, dataplane.Object{
		ID: chain, Kind: dataplane.Owned, Body: string(d.text), Links: dataplane.LinkTo(refs...),
	})
}

// element adds one dispatch rule. If its target is a chain of ours, refs name it.
func (d *draft) element(container tree.Container, key string, r rule, refs ...dataplane.ID) {
	d.begin()
	d.rule(r)
	d.objects = append(d.objects, dataplane.Object{
		ID:    dataplane.ID{Container: container.Name(), Name: key},
		Kind:  dataplane.Element,
		Body:  string(d.text),
		Links: dataplane.LinkTo(refs...),
	})
}

// renderHealth accepts connections to the health-check node port, with or without endpoints.
// Port 0 means that there is none.
func (d *draft) renderHealth(key service.Key, port uint16) {
	if port == 0 {
		return
	}
	d.element(filterHealth, tree.PortKey(service.TCP, port), rule{
		protocol: service.TCP.String(),
		port:     port,
		comment:  comment{subject: key.String(), after: " health check node port"},
		target:   "ACCEPT",
	})
}

// portDraft renders one service port into a draft. The methods that begin with "render" add
// objects. Each handles one aspect and reads nothing that another wrote.
type portDraft struct {
	*draft
	*service.PortView
	renderer *Renderer
	facts    *service.NodeFacts
	// subject names the port in comments, for example "ns1/svc1:p80".
	subject  string
	protocol string
	// The names of the port's chains. Not all of them exist.
	cluster, local, external, ranges string
}

func newPortDraft(
	d *draft, r *Renderer, facts *service.NodeFacts, key service.Key, port *service.PortView,
) portDraft {
	subject := key.PortString(port.Name)
	hash := portHash(subject, port.Protocol)
	return portDraft{
		draft: d, PortView: port, renderer: r, facts: facts,
		subject:  subject,
		protocol: port.Protocol.String(),
		cluster:  prefixCluster + hash,
		local:    prefixLocal + hash,
		external: prefixExternal + hash,
		ranges:   prefixSourceRanges + hash,
	}
}

// hasCluster and hasLocal report whether the balancing chains exist.
func (p *portDraft) hasCluster() bool { return p.UsesCluster() && len(p.Cluster) > 0 }
func (p *portDraft) hasLocal() bool   { return p.UsesLocal() && len(p.Local) > 0 }

// filtered reports whether source ranges filter load balancer traffic.
func (p *portDraft) filtered() bool {
	return p.HasAny && len(p.LoadBalancerVIPs) > 0 && len(p.SourceRanges) > 0
}

// frontend returns a rule that matches a frontend of the port.
func (p *portDraft) frontend(f service.Frontend) rule {
	r := rule{protocol: p.protocol, port: f.Port}
	if !f.IsNodePort() {
		r.destination = host(f.Addr)
	}
	return r
}

func (p *portDraft) key(f service.Frontend) string {
	if f.IsNodePort() {
		return tree.PortKey(f.Protocol, f.Port)
	}
	return tree.DestinationKey(f.Addr, f.Protocol, f.Port)
}

// about returns a comment that begins with the name of the port.
func (p *portDraft) about(after string) comment { return comment{subject: p.subject, after: after} }
