// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"context"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
)

// Packet is the path of one packet through the hooks.
type Packet struct {
	Reply bool
	// First has the addresses with which the packet appeared, Last those with which it was last seen.
	First, Last Header
	// In and Out are the interfaces, as far as they are known.
	In, Out string
	// New is set for the first packet of a connection, and for all packets if connections are not tracked. Later
	// packets are translated like the first one, regardless of the rules.
	New   bool
	Steps []Step
	// Hook is the last hook of IPv4 or IPv6 that the packet reached. Passed is set if it passed all chains there.
	Hook   string
	Passed bool

	// marked is set if a rule of this trace selected the packet.
	marked bool
	// at is the hook of the last base chain of any family.
	at string
	// base is the last base chain, and behind is set once the packet passed it.
	base   place
	order  int64
	behind bool
}

// Step is a rule that matched, the policy of a base chain, or a translation.
type Step struct {
	Hook string `json:"hook"`
	// Table is the family and the name of the table. It is empty for a translation, which shows in the addresses
	// of the packet and not in a message.
	Table string `json:"table,omitempty"`
	Chain string `json:"chain,omitempty"`
	// Rule is the number of the rule in the chain, from 1. It is 0 for a policy, and for a removed rule.
	Rule   int    `json:"rule,omitempty"`
	Handle uint64 `json:"handle,omitempty"`
	// Verdict is nft's name of the verdict, or "reject"; empty for a translation.
	Verdict string `json:"verdict,omitempty"`
	Policy  bool   `json:"policy,omitempty"`
	// Text is the rule as nft prints it, the kinds of its expressions in parentheses, or the new addresses.
	Text string `json:"text,omitempty"`
}

// assembly assembles packets from messages.
type assembly struct {
	own    *table
	chains chainList
	rules  ruleLists
	// open are the packets for which more messages may follow, by the kernel's number.
	open  map[uint32]*Packet
	all   []*Packet
	links map[uint32]string
}

// kept returns the packets that this trace's rules selected. Another program may trace other packets.
func (a *assembly) kept() (all []Packet) {
	for _, p := range a.all {
		if p.marked {
			all = append(all, *p)
		}
	}
	return all
}

// add adds a message to its packet.
func (a *assembly) add(ctx context.Context, e *event) {
	own := a.own.has(e.at)
	if !own && strings.HasPrefix(e.at.table, tablePrefix) {
		return // the table of another trace, which runs at the same time
	}
	base, isBase := a.chains[e.at]
	if own {
		base, isBase = a.own.bases[e.at.chain]
	}
	routed := isBase && isRouted(e.at.family)
	p := a.open[e.id]
	if p == nil || routed && p.precedes(e.at, &base) || a.own.marks(e) && p.at != base.HookName() {
		p = a.begin(e)
	}
	p.see(e)
	if isBase {
		p.at = hookText(e.at, &base)
	}
	if routed {
		p.Hook, p.base, p.order, p.behind = p.at, e.at, order(&base), false
	}
	p.behind = p.behind || e.ends()
	switch {
	case own:
		p.marked = p.marked || a.own.marks(e)
		p.Reply = p.Reply || e.kind == kindRule && base.Priority == repliesPriority
		p.New = p.New || e.kind == kindRule && base.Priority == begunPriority || !a.own.replies
		p.Passed = base.Priority == lastPriority
	case e.kind != kindReturn || e.handle != 0: // the end of a chain is not a step
		p.Steps = append(p.Steps, a.step(ctx, p.at, e))
	}
	a.see(p, e)
	if e.drops() {
		delete(a.open, e.id)
	}
}

// see notes the interfaces of a packet.
func (a *assembly) see(p *Packet, e *event) {
	if p.In == "" {
		p.In = a.link(e.in)
	}
	if name := a.link(e.out); name != "" {
		p.Out = name
	}
}

// begin begins a packet. If it arrives through the loopback interface, it continues the path of one that left there.
func (a *assembly) begin(e *event) *Packet {
	p := &Packet{First: e.header, Last: e.header}
	for _, before := range a.all {
		if before.marked && before.Out == "lo" && a.link(e.in) == "lo" && before.Last == e.header {
			p.marked, p.Reply = true, before.Reply
		}
	}
	if a.open == nil {
		a.open = map[uint32]*Packet{}
	}
	a.open[e.id] = p
	a.all = append(a.all, p)
	return p
}

// precedes reports whether a message of a base chain is about a later packet: the chains of one packet are in
// the order of the hooks and priorities.
func (p *Packet) precedes(at place, base *rules.Base) bool {
	next := order(base)
	return next < p.order || p.base == at && p.behind
}

// order numbers base chains in the order in which packets pass them. Forwarded packets pass no output hook, but
// those that IPVS forwards pass input and output.
func order(base *rules.Base) int64 {
	hook := [...]int64{unix.NF_INET_PRE_ROUTING: 0, unix.NF_INET_LOCAL_IN: 1, unix.NF_INET_FORWARD: 1, unix.NF_INET_LOCAL_OUT: 2, unix.NF_INET_POST_ROUTING: 3}
	return hook[base.Hook%uint32(len(hook))]<<33 + int64(base.Priority)
}

// see notes the addresses of a packet. A change is a step.
func (p *Packet) see(e *event) {
	if e.header == (Header{}) || e.header == p.Last {
		return
	}
	if p.First == (Header{}) {
		p.First = e.header
	} else {
		p.Steps = append(p.Steps, Step{Hook: p.at, Text: e.header.Source() + " -> " + e.header.Destination()})
	}
	p.Last = e.header
}

// step describes a message of another table.
func (a *assembly) step(ctx context.Context, hook string, e *event) Step {
	s := Step{Hook: hook, Table: tableText(e.at), Chain: e.at.chain, Verdict: verdictText(&e.verdict)}
	if e.kind == kindPolicy {
		s.Policy = true
		return s
	}
	r := a.rules.rule(ctx, e.at, e.handle)
	s.Rule, s.Handle, s.Text = r.number, e.handle, r.text
	if e.drops() && r.rejects {
		s.Verdict = "reject"
	}
	return s
}

// hookText names the hook of a base chain.
func hookText(at place, base *rules.Base) string {
	switch {
	case at.family == unix.NFPROTO_NETDEV && base.Hook == unix.NF_NETDEV_INGRESS:
		return "ingress"
	case at.family == unix.NFPROTO_NETDEV:
		return "egress"
	default:
		return base.HookName()
	}
}

// link returns the name of an interface; "" for none.
func (a *assembly) link(index uint32) string {
	if index == 0 {
		return ""
	}
	name, known := a.links[index]
	if !known {
		if a.links == nil {
			a.links = map[uint32]string{}
		}
		if found, err := net.InterfaceByIndex(int(index)); err == nil {
			name = found.Name
		}
		a.links[index] = name
	}
	return name
}
