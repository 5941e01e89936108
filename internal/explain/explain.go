// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package explain predicts what happens to a connection: which Service it is for, which rules and elements decide at
// each hook, which endpoints can get it and with what probability, whether its source is translated, or which rule
// rejects it. It evaluates the rules that the backend's renderer produces (docs/adr/0043-rules-are-data.md).
package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/localport"
	"github.com/sluice-proxy/sluice/internal/render"
	"github.com/sluice-proxy/sluice/service"
)

// The modes whose rules can be evaluated.
const (
	NFTables = "nftables"
	IPTables = "iptables"
	IPVS     = "ipvs"
)

// State contains everything on which the rules of a node depend.
type State struct {
	Mode     string
	Services Services
	// Node is the Node object; nil if it is unknown.
	Node  *service.NodeObject
	Facts *service.NodeFacts
	// Addresses are the node's addresses, without loopback addresses.
	Addresses []netip.Addr
	// Domain returns the renderer of a family, and a new layout or nil. The renderer is nil for
	// a family that is not served.
	Domain func(service.Family) (dataplane.Renderer, dataplane.Layout)
	// ForwardsLocalhost is set in families in which the proxy itself answers at node ports on localhost
	// in nftables mode.
	ForwardsLocalhost service.PerFamily[bool]
	// Towards returns the interface through which the node reaches an address, or ""; nil if
	// that is unknown.
	Towards func(netip.Addr) string
	// Unserved returns why no node serves an address that Services list; nil if that is unknown.
	Unserved func(netip.Addr) []string
	// Memory reads the kernel's affinity entries of clients; nil if they are unknown.
	Memory Memory
}

// Services gives access to all Services of a source. source.Cache implements it.
type Services interface {
	Keys() []service.Key
	Snapshot(service.Key) service.Snapshot
}

// Explain explains a connection. It returns an error if the flow is invalid, if the proxy does not serve its family or
// has no rules in this mode, and for a rule that this package does not support.
func Explain(s *State, q Flow) (*Answer, error) {
	if err := q.Check(); err != nil {
		return nil, err
	}
	e := &explanation{State: s, Flow: q, family: service.FamilyOf(q.To.Addr())}
	e.find()
	e.guess()
	switch to := e.forwarded(); {
	case len(to) == 1 && to[0].Port() == q.To.Port() && e.local(to[0].Addr()):
		return explainForwarded(s, q, to[0])
	case len(to) > 0:
		return e.answerDirectly(to), nil
	}
	ways, err := e.evaluate()
	if err != nil {
		return nil, err
	}
	return e.answer(ways), nil
}

// explanation is the state of one call of Explain.
type explanation struct {
	*State
	Flow
	family service.Family
	// concerned are the Services on which the outcome can depend, sorted by key. Their views lack the frontends that
	// other Services own.
	concerned []concerned
	frontends []frontend
	origin    Origin
	in        string
	assumed   []string
	// forgot is the error of reading the kernel's affinity entry of the client.
	forgot error
	// unbound is set if the client is a process of the node that binds to no address, so that
	// the kernel gives it the destination as its source.
	unbound bool
}

// concerned is a Service on which the outcome can depend.
type concerned struct {
	view     service.View
	snapshot service.Snapshot
}

// local reports whether an address is the node's own.
func (e *explanation) local(a netip.Addr) bool {
	return a.IsLoopback() || slices.Contains(e.Addresses, a)
}

// find picks the Services that have the destination among their addresses, or its port among
// their node ports, and those of which the client is an endpoint.
func (e *explanation) find() {
	for _, key := range e.Services.Keys() {
		found := e.Services.Snapshot(key)
		if found.Spec == nil || !e.concerns(found) {
			continue
		}
		view := service.Resolve(key, found.Spec, found.Slices, e.Facts)
		e.concerned = append(e.concerned, concerned{view, found})
	}
	slices.SortFunc(e.concerned, func(a, b concerned) int {
		return a.view.Key.Compare(b.view.Key)
	})
	for i := range e.concerned {
		e.frontends = append(e.frontends, e.frontendsOf(&e.concerned[i])...)
	}
	// An address takes precedence over a node port.
	slices.SortStableFunc(e.frontends, func(a, b frontend) int {
		return cmp.Compare(b2i(a.Kind == service.NodePort), b2i(b.Kind == service.NodePort))
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (e *explanation) concerns(found service.Snapshot) bool {
	spec, to := found.Spec, e.To.Addr()
	if spec.ClusterIPs[e.family] == to || slices.Contains(spec.ExternalIPs[e.family], to) ||
		slices.Contains(spec.LoadBalancerVIPs[e.family], to) || spec.HealthCheckNodePort == e.To.Port() {
		return true
	}
	if slices.ContainsFunc(spec.Ports, func(p service.Port) bool { return p.NodePort == e.To.Port() }) {
		return true
	}
	return slices.ContainsFunc(found.Slices, func(s *service.Slice) bool {
		return slices.ContainsFunc(s.Endpoints, func(p service.SliceEndpoint) bool { return p.Addr == e.From.Addr() })
	})
}

// evaluate follows the packet through the rules of the concerned Services and of the node.
func (e *explanation) evaluate() ([]way, error) {
	views := func(yield func(*service.View) bool) {
		for i := range e.concerned {
			if !yield(&e.concerned[i].view) {
				return
			}
		}
	}
	renderer, layout := e.Domain(e.family)
	if renderer == nil {
		return nil, fmt.Errorf("the proxy does not serve %s on this node", e.family)
	}
	objects := render.Objects(renderer, layout, views, e.Facts)
	rules, err := e.rules(objects)
	if err != nil {
		return nil, err
	}
	const anyPort = 40000
	from := e.From
	if from.Port() == 0 {
		from = netip.AddrPortFrom(e.sourceAt(rules), anyPort)
	}
	ways, err := rules.ways(packet{AnyPort: e.From.Port() == 0, Src: from, Dst: e.To, Protocol: e.Protocol, In: e.in})
	slices.SortFunc(ways, func(a, b way) int {
		return cmp.Or(cmp.Compare(b.Probability, a.Probability),
			cmp.Compare(b2i(b.Verdict == Delivered), b2i(a.Verdict == Delivered)), a.To.Compare(b.To), cmp.Compare(a.Verdict, b.Verdict))
	})
	return ways, err
}

// answersOnLocalhost reports whether the proxy itself listens at node ports on the destination.
func (e *explanation) answersOnLocalhost() bool {
	return e.Mode == NFTables && e.ForwardsLocalhost[e.family] && e.To.Addr().IsLoopback()
}

// forwarded returns where the proxy forwards connections to a node port on localhost: to the node port
// at an address of the node, or to the endpoints. It is nil for other connections.
func (e *explanation) forwarded() []netip.AddrPort {
	if !e.answersOnLocalhost() || e.origin != FromNode {
		return nil
	}
	renderer := localport.NewRenderer(e.family)
	for i := range e.concerned { // sorted by key
		objects := renderer.Service(context.Background(), &e.concerned[i].view, e.Facts)
		if to := localport.Targets(objects, e.Protocol, e.To); to != nil {
			return to
		}
	}
	return nil
}

// answerDirectly explains a connection for which the proxy chooses the endpoint. The proxy also implements session
// affinity, and no rule is involved.
func (e *explanation) answerDirectly(endpoints []netip.AddrPort) *Answer {
	forgetful := *e.State
	forgetful.Memory = nil
	e.State = &forgetful
	var ways []way
	for _, at := range endpoints {
		ways = append(ways, way{Verdict: Delivered, To: at, Probability: 1 / float64(len(endpoints))})
	}
	a := e.answer(ways)
	a.Reasons = append([]string{"the proxy itself listens at node ports on localhost, and connects to the endpoint for the client"}, a.Reasons...)
	return a
}

// explainForwarded explains the connection that the proxy makes for the client.
func explainForwarded(s *State, q Flow, target netip.AddrPort) (*Answer, error) {
	from := q.From
	if own := s.Facts.NodeIPs[service.FamilyOf(target.Addr())]; own.IsValid() {
		from = netip.AddrPortFrom(own, 0)
	}
	a, err := Explain(s, Flow{From: from, To: target, Protocol: q.Protocol})
	if err != nil {
		return nil, err
	}
	a.From, a.To = q.From.Addr().String(), q.To.String()
	a.Reasons = append([]string{fmt.Sprintf(
		"the proxy itself listens at node ports on localhost, and connects to %s for the client; the rules are for that connection", target)}, a.Reasons...)
	return a, nil
}

// rules returns the rules of the mode, with the kernel's affinity entries of the client.
func (e *explanation) rules(objects []dataplane.Object) (ruleset, error) {
	switch e.Mode {
	case NFTables:
		rules, err := newNFTRules(e.family, objects, e.local)
		if err == nil && e.Memory != nil {
			err = e.recallMaps(rules)
		}
		return rules, err
	case IPTables:
		rules := newIPTRules(objects, e.Addresses)
		if e.Memory != nil {
			rules.seen = e.recallList
		}
		return rules, nil
	case IPVS:
		return newIPVSRules(objects, e.Addresses)
	case "userspace":
		return nil, errors.New("in userspace mode, no rules can be explained: the proxy accepts connections and chooses endpoints; " +
			"sluice describe service NAMESPACE/NAME shows the endpoints, and ss -tnp the connections")
	default:
		return nil, fmt.Errorf("the rules of mode %q cannot be explained: must be nftables, iptables or ipvs", e.Mode)
	}
}
