// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-proxy/sluice/service"
)

// Packet is the first packet of a new connection. Its addresses are of the
// kernel's family.
type Packet struct {
	Src, Dst netip.AddrPort
	Protocol service.Protocol
	// In is the interface through which the packet arrived; empty for one that
	// a process of the node sends.
	In string
	// Out is the interface through which routing sends it in the end; needed
	// only where rules look at it.
	Out string
}

// Choice decides something that is true with the given probability.
type Choice func(probability float64) bool

// Verdict is what became of a packet.
type Verdict uint8

const (
	// Untouched: it goes on to the destination it was sent to.
	Untouched Verdict = iota
	// Delivered: it was given another destination.
	Delivered
	// Rejected: its sender is told that the port is unreachable.
	Rejected
	// Dropped: it is gone, and its sender is not told.
	Dropped
)

// String names the verdict.
func (v Verdict) String() string {
	return [...]string{"untouched", "delivered", "rejected", "dropped"}[v]
}

// Trace is the way of one packet.
type Trace struct {
	Verdict Verdict
	// To is the destination when the packet left the rules, for whatever
	// verdict.
	To netip.AddrPort
	// Masqueraded is set when the receiver sees an address of the node instead
	// of the sender's.
	Masqueraded bool
	// Mark is the packet's mark in the end.
	Mark uint32
	// Steps are the rules that matched.
	Steps []Step
	// RulesVisited counts the rules that were asked, matching or not.
	RulesVisited int
}

// Step is a rule that matched a packet.
type Step struct {
	// Hook is where the kernel called the rules, such as "prerouting", and Kind the type of
	// the base chain: "filter" or "nat".
	Hook, Kind string
	// Base is set if Chain is that base chain.
	Base   bool
	Family service.Family
	// Table, Chain and Rule say which rule; the first of a chain is 1.
	Table, Chain string
	Rule         int
	// Element is the last element of a set or map that the rule found; zero for none.
	Element Name
}

// String returns "FAMILY TABLE CHAIN #NUMBER".
func (s Step) String() string {
	family := "ip"
	if s.Family == service.IPv6 {
		family = "ip6"
	}
	return fmt.Sprintf("%s %s %s #%d", family, s.Table, s.Chain, s.Rule)
}

// Outcome is one way in which a packet can end.
type Outcome struct {
	// Trace is one of the ways to this end.
	Trace
	// Probability is above 0; those of all outcomes sum to 1.
	Probability float64
}

// Trace follows a packet. Choose decides chances, and what the packet adds to sets
// stays.
func (k *Kernel) Trace(p Packet, choose Choice) Trace {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.walk(p, func(modulus uint32) []uint32 { return []uint32{pick(modulus, choose)} }, nil, nil)[0]
	b.added.keep()
	return b.trace()
}

// pick decides on a number below a modulus by halves.
func pick(modulus uint32, choose Choice) uint32 {
	low, high := uint64(0), uint64(modulus)
	for high-low > 1 {
		middle := low + (high-low)/2
		if choose(float64(middle-low) / float64(high-low)) {
			high = middle
		} else {
			low = middle
		}
	}
	return uint32(low)
}

// keep changes the sets, the oldest change first.
func (a *addition) keep() {
	if a != nil {
		a.before.keep()
		a.set.drop(a.key)
		if a.element != nil {
			a.set.add(a.element)
		}
	}
}

// Outcomes returns every way in which the packet can end, most probable first, then
// by destination. Nothing is remembered of it.
func (k *Kernel) Outcomes(p Packet) []Outcome {
	k.mu.Lock()
	defer k.mu.Unlock()
	return outcomes(k.walk(p, every, nil, nil))
}

// Explore is Outcomes, and lists the parts of the tables that decided: as long as none of
// them changes, and no base chain comes or goes, the outcomes stay the same.
func (k *Kernel) Explore(p Packet) ([]Outcome, map[Name]bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	reads := map[Name]bool{{Family: service.FamilyOf(p.Dst.Addr())}: true}
	return outcomes(k.walk(p, every, reads, nil)), reads
}

func outcomes(branches []branch) []Outcome {
	type end struct {
		verdict     Verdict
		to          netip.AddrPort
		masqueraded bool
	}
	at := make(map[end]int)
	var outcomes []Outcome
	for _, b := range branches {
		t := b.trace()
		e := end{t.Verdict, t.To, t.Masqueraded}
		i, ok := at[e]
		if !ok {
			i = len(outcomes)
			at[e] = i
			outcomes = append(outcomes, Outcome{Trace: t})
		}
		outcomes[i].Probability += b.probability
	}
	slices.SortFunc(outcomes, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(b.Probability, a.Probability), a.To.Compare(b.To), cmp.Compare(a.Verdict, b.Verdict))
	})
	return outcomes
}

// every returns all numbers below a modulus.
func every(modulus uint32) []uint32 {
	all := make([]uint32, modulus)
	for i := range all {
		all[i] = uint32(i)
	}
	return all
}

// walk returns the ways of a packet to its end, also through deleted base chains that are
// leaving. It needs the lock.
func (k *Kernel) walk(p Packet, draw draw, reads map[Name]bool, leaving []*chain) []branch {
	family := service.FamilyOf(p.Dst.Addr())
	if !p.Src.Addr().IsValid() || service.FamilyOf(p.Src.Addr()) != family {
		panic(fmt.Sprintf("nftmodel: a packet from %v to %v", p.Src, p.Dst))
	}
	w := &walker{kernel: k, family: protocolOf(family), draw: draw, now: k.now(), calls: make(map[call]*call), reads: reads, leaving: leaving}
	start := branch{state: state{src: p.Src, dst: p.Dst, known: p.Dst, asked: p.Dst.Addr(), protocol: p.Protocol.Number()}, probability: 1}
	return w.follow(start, p.In, p.Out)
}

// trace says how a way has ended.
func (b *branch) trace() Trace {
	t := Trace{To: b.dst, Masqueraded: b.masqueraded, Mark: b.mark, RulesVisited: b.visited}
	switch {
	case b.fate == dropped:
		t.Verdict = Dropped
	case b.fate == rejected:
		t.Verdict = Rejected
	case b.delivered:
		t.Verdict = Delivered
	}
	for s := b.steps; s != nil; s = s.before {
		t.Steps = append(t.Steps, s.describe())
	}
	slices.Reverse(t.Steps)
	return t
}

// hookNames are the hooks by their numbers.
var hookNames = [...]string{"prerouting", "input", "forward", "output", "postrouting"}

// describe returns the step for readers outside.
func (s *step) describe() Step {
	c := s.rule.chain
	d := Step{
		Hook: hookNames[s.from.hook], Kind: s.from.kind, Base: c.base == s.from, Family: familyOf(c.table.family),
		Table: c.table.name, Chain: c.name, Rule: slices.Index(c.rules, s.rule) + 1,
	}
	if s.found != nil {
		d.Element = s.in.element(s.found.id())
	}
	return d
}

// Remember adds an element to a set or a map for a time, as packets do, and reports whether the
// set exists.
func (k *Kernel) Remember(name Name, data string, left time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.tables {
		if s := t.sets[name.Set]; s != nil && familyOf(t.family) == name.Family && t.name == name.Table {
			e := &element{key: name.Key, data: data, timeout: left, expires: expiryOf(k.now().Add(left))}
			(&addition{set: s, key: e.key, element: e}).keep()
			return true
		}
	}
	return false
}
