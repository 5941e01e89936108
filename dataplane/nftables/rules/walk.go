// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/service"
)

// Ruleset is the table of one family. All its base chains are of type nat.
type Ruleset struct {
	Family service.Family
	Chains map[string]*Chain
	Sets   map[string]*Set
	// Local reports whether an address is the node's own.
	Local func(netip.Addr) bool
}

// Set is a set or map with its elements.
type Set struct {
	KeyBytes int
	// Ranges is set if the last field of a key is a range. The key of an element is its first value followed by
	// its last one.
	Ranges   bool
	Elements map[string]*Element
}

// Element is an element of a set. In a map, it has Data or a Verdict.
type Element struct {
	Key     string
	Data    string
	Verdict *Verdict
}

// find returns the element with a key, or nil.
func (s *Set) find(key string) *Element {
	if !s.Ranges {
		return s.Elements[key]
	}
	for _, e := range s.Elements {
		if half := len(e.Key) / 2; e.Key[:half] <= key && key <= e.Key[half:] {
			return e
		}
	}
	return nil
}

// Packet is the first packet of a connection.
type Packet struct {
	Src, Dst netip.AddrPort
	Protocol service.Protocol
	// AnyPort means that the port of Src is not known.
	AnyPort bool
	// In is the interface through which the packet arrived. It is empty for a packet of a process of the node.
	In string
}

// End is how a packet ends.
type End uint8

const (
	// Untouched: the packet continues to its original destination.
	Untouched End = iota
	// Delivered: the packet got another destination.
	Delivered
	// Rejected: the sender gets an error.
	Rejected
	// Dropped: the sender gets no answer.
	Dropped
)

// Outcome is one way in which a packet can end.
type Outcome struct {
	End End
	// To is the final destination. Masqueraded is set if the receiver sees an address of the node as the source.
	To          netip.AddrPort
	Masqueraded bool
	// Probability is above 0. Those of all outcomes sum to 1.
	Probability float64
	// Steps are the rules that matched on one of the paths to this end.
	Steps []Step
}

// Step is a rule that matched.
type Step struct {
	Base  *Base
	Chain *Chain
	// Rule is the number of the rule in the chain, from 1.
	Rule int
	// Set and Element are the last element that the rule found; nil for none.
	Set     string
	Element *Element
}

// Hook returns the name of the hook at which the kernel called the rule.
func (s *Step) Hook() string { return s.Base.HookName() }

// state is the state of a packet on its path. Two paths that reach the same state are merged.
type state struct {
	dst  netip.AddrPort
	mark uint32
	// end is Untouched as long as no rule has stopped the packet.
	end End
	// delivered is set once a rule has chosen the destination, and translated if that differs from the original.
	delivered, translated, masqueraded bool
	// chain and rule identify the next rule; caller is where to continue after the chain.
	chain  *Chain
	rule   int
	caller call
}

// call is the stack of places to return to. Sluice's rules nest fewer than maxDepth jumps.
type call struct {
	depth int
	back  [maxDepth]place
}

type place struct {
	chain *Chain
	rule  int
}

const maxDepth = 4

// branch is one path of a packet so far.
type branch struct {
	state
	probability float64
	steps       *steps
}

// steps is a linked list, the newest step first.
type steps struct {
	Step
	before *steps
}

// walk is the evaluation of one packet.
type walk struct {
	*Ruleset
	header *Header
	packet Packet
	// base is the base chain in progress. at are the paths inside it, done those that have left it.
	base     *Chain
	at, done front
}

// Outcomes returns all ways in which a packet can end. It returns an error if the rules contain something that this
// evaluation does not support.
func (r *Ruleset) Outcomes(p Packet) ([]Outcome, error) {
	w := &walk{Ruleset: r, header: &Headers[r.Family], packet: p}
	first := uint32(unix.NF_INET_LOCAL_OUT)
	if p.In != "" {
		first = unix.NF_INET_PRE_ROUTING
	}
	branches, err := w.hook(first, []branch{{state: state{dst: p.Dst}, probability: 1}})
	if err != nil {
		return nil, err
	}
	// Chains of type nat see a packet of the node once, even if its destination is the node itself.
	var here, others []branch
	for _, b := range branches {
		if p.In != "" && r.Local(b.dst.Addr()) {
			here = append(here, b)
		} else {
			others = append(others, b)
		}
	}
	here, errHere := w.hook(unix.NF_INET_LOCAL_IN, here)
	others, errOthers := w.hook(unix.NF_INET_POST_ROUTING, others)
	return outcomes(append(here, others...)), cmp.Or(errHere, errOthers)
}

// hook runs the base chains at a hook, by priority.
func (w *walk) hook(number uint32, branches []branch) ([]branch, error) {
	var list []*Chain
	for _, c := range w.Chains {
		if c.Base == nil || c.Base.Hook != number {
			continue
		}
		if c.Base.Kind != "nat" {
			return nil, fmt.Errorf("chain %s is of type %s", c.Name, c.Base.Kind)
		}
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *Chain) int {
		return cmp.Or(cmp.Compare(a.Base.Priority, b.Base.Priority), cmp.Compare(a.Name, b.Name))
	})
	for _, c := range list {
		var err error
		if branches, err = w.chain(c, branches); err != nil {
			return nil, err
		}
	}
	return branches, nil
}

// chain runs one base chain over all packets that no rule has stopped and no earlier chain has translated.
func (w *walk) chain(c *Chain, branches []branch) ([]branch, error) {
	w.base, w.at, w.done = c, front{}, front{}
	destination := c.Base.Hook == unix.NF_INET_PRE_ROUTING || c.Base.Hook == unix.NF_INET_LOCAL_OUT
	for _, b := range branches {
		if b.end != Untouched || destination && b.delivered || !destination && b.masqueraded {
			w.done.add(b)
			continue
		}
		b.chain, b.rule = c, 0
		w.at.add(b)
	}
	for len(w.at.list) > 0 {
		if err := w.next(w.at.take()); err != nil {
			return nil, fmt.Errorf("base chain %s: %w", c.Name, err)
		}
	}
	return w.done.list, nil
}

// next runs the next rule of a path. After the last rule it returns to the caller.
func (w *walk) next(b branch) error {
	if b.rule == len(b.chain.Rules) {
		w.back(b)
		return nil
	}
	r := &b.chain.Rules[b.rule]
	b.rule++
	return w.exprs(b, r.Exprs, registers{})
}

// exprs runs the remaining expressions of a rule.
func (w *walk) exprs(b branch, left []Expr, r registers) error {
	var end result
	for i, e := range left {
		if to, modulus := w.drawn(e); modulus > 0 {
			return w.draw(b, to, modulus, left[i+1:], r)
		}
		var err error
		if end, err = w.eval(e, &b.state, &r); err != nil {
			return fmt.Errorf("rule %d of %s: %w", b.rule, b.chain.Name, err)
		}
		if end.mismatch {
			w.at.add(b)
			return nil
		}
		if end.verdict != nil {
			break
		}
	}
	b.steps = &steps{Step{w.base.Base, b.chain, b.rule, r.set, r.found}, b.steps}
	return w.decide(b, end.verdict)
}

// drawn returns the register and the modulus of an expression that can load any number below the modulus, and 0 for
// others. The hash of an unknown port is such an expression, too.
func (w *walk) drawn(e Expr) (to, modulus uint32) {
	switch e := e.(type) {
	case *Number:
		return e.To, e.Modulus
	case *Hash:
		if w.packet.AnyPort && int(e.Size) > w.header.AddrBytes {
			return e.To, e.Modulus
		}
	}
	return 0, 0
}

// draw continues with each number.
func (w *walk) draw(b branch, to, modulus uint32, left []Expr, r registers) error {
	b.probability /= float64(modulus)
	for n := range modulus {
		if err := r.store(to, word(n)); err != nil {
			return err
		}
		if err := w.exprs(b, left, r); err != nil {
			return err
		}
	}
	return nil
}

// decide carries out the verdict with which a rule ended.
func (w *walk) decide(b branch, v *Verdict) error {
	if v == nil {
		w.at.add(b)
		return nil
	}
	switch v.Code {
	case Jump, Goto:
		target := w.Chains[v.Chain]
		if target == nil || b.caller.depth == maxDepth {
			return fmt.Errorf("%s %s: no such chain, or too many jumps", b.chain.Name, v.Text())
		}
		if v.Code == Jump {
			b.caller.back[b.caller.depth] = place{b.chain, b.rule}
			b.caller.depth++
		}
		b.chain, b.rule = target, 0
		w.at.add(b)
	case Return:
		w.back(b)
	default:
		if v.Code == Drop && b.end == Untouched {
			b.end = Dropped
		}
		w.leave(b)
	}
	return nil
}

// back returns to the caller, or ends the base chain.
func (w *walk) back(b branch) {
	if b.caller.depth == 0 {
		w.leave(b)
		return
	}
	b.caller.depth--
	at := &b.caller.back[b.caller.depth]
	b.chain, b.rule, *at = at.chain, at.rule, place{}
	w.at.add(b)
}

// leave ends the base chain.
func (w *walk) leave(b branch) {
	b.chain, b.rule, b.caller = nil, 0, call{}
	w.done.add(b)
}

// front has paths. It merges paths with the same state, so that their number does not grow with each random
// number.
type front struct {
	list []branch
	at   map[state]int
}

func (f *front) add(b branch) {
	if f.at == nil {
		f.at = make(map[state]int)
	}
	if i, ok := f.at[b.state]; ok {
		f.list[i].probability += b.probability
		return
	}
	f.at[b.state] = len(f.list)
	f.list = append(f.list, b)
}

// take removes and returns the newest path.
func (f *front) take() branch {
	last := len(f.list) - 1
	b := f.list[last]
	f.list = f.list[:last]
	delete(f.at, b.state)
	return b
}

// outcomes groups the paths by their end.
func outcomes(branches []branch) []Outcome {
	type end struct {
		end         End
		to          netip.AddrPort
		masqueraded bool
	}
	at := make(map[end]int)
	var all []Outcome
	for _, b := range branches {
		if b.end == Untouched && b.delivered {
			b.end = Delivered
		}
		e := end{b.end, b.dst, b.masqueraded}
		i, ok := at[e]
		if !ok {
			i = len(all)
			at[e] = i
			all = append(all, Outcome{End: b.end, To: b.dst, Masqueraded: b.masqueraded, Steps: b.list()})
		}
		all[i].Probability += b.probability
	}
	return all
}

// list returns the steps, the oldest first.
func (b *branch) list() []Step {
	var list []Step
	for s := b.steps; s != nil; s = s.before {
		list = append(list, s.Step)
	}
	slices.Reverse(list)
	return list
}
