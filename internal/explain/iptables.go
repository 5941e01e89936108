// SPDX-License-Identifier: Apache-2.0

//go:build linux

package explain

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables/rules"
	"github.com/sluice-proxy/sluice/service"
)

// iptRules follows packets through the rules of iptables mode. It understands only rules that the renderer makes. It
// parses the rules of a chain when the first packet enters the chain.
type iptRules struct {
	chains map[dataplane.ID]*iptChain
	locals map[netip.Addr]bool
	// sets are those that the match "set" can name.
	sets map[string]ipSet
	// seen returns how long ago a list of the match "recent" has last seen a client.
	seen func(list string, client netip.Addr) (time.Duration, bool)
}

// iptChain is a chain. Its rules are parsed when the first packet enters it.
type iptChain struct {
	table, name string
	texts       []string
	rules       []rules.Rule
}

func (c *iptChain) parse() {
	for len(c.rules) < len(c.texts) {
		c.rules = append(c.rules, rules.Parse(c.texts[len(c.rules)]))
	}
}

// newIPTRules takes the objects of one domain: chains, and hooks in built-in chains.
func newIPTRules(objects []dataplane.Object, locals []netip.Addr) *iptRules {
	r := &iptRules{
		chains: make(map[dataplane.ID]*iptChain), locals: make(map[netip.Addr]bool),
		seen: func(string, netip.Addr) (time.Duration, bool) { return 0, false },
	}
	for _, a := range locals {
		r.locals[a] = true
	}
	sorted := slices.SortedFunc(slices.Values(objects), func(a, b dataplane.Object) int { return a.ID.Compare(b.ID) })
	for _, o := range sorted {
		table, builtIn, isHook := strings.Cut(o.ID.Container, "/")
		if isHook {
			// The name begins with the row, so the hooks of one chain are in the order of their rows.
			_, text, _ := strings.Cut(o.ID.Name, " ")
			c := r.chain(table, builtIn)
			c.texts = append(c.texts, text)
			continue
		}
		if o.Body != "" {
			r.chain(table, o.ID.Name).texts = strings.Split(o.Body, "\n")
		} else {
			r.chain(table, o.ID.Name)
		}
	}
	return r
}

// chain returns a chain, and makes an empty one if there is none.
func (r *iptRules) chain(table, name string) *iptChain {
	id := dataplane.ID{Container: table, Name: name}
	if r.chains[id] == nil {
		r.chains[id] = &iptChain{table: table, name: name}
	}
	return r.chains[id]
}

func (r *iptRules) local(a netip.Addr) bool { return a.IsLoopback() || r.locals[a] }

// iptBranch is a packet on one of its possible ways.
type iptBranch struct {
	src, dst    netip.AddrPort
	protocol    service.Protocol
	in          string
	mark        uint32
	verdict     Verdict
	masqueraded bool
	// translated is set once the destination was changed.
	translated  bool
	probability float64
	// scheduler and how are the fields of way.
	scheduler, how string
	steps          []Step
}

func (b *iptBranch) ended() bool { return b.verdict == Refused || b.verdict == Dropped }

// iptCall is one call of a built-in chain by the kernel.
type iptCall struct{ hook, table, chain string }

const loopback = "lo"

// ways follows a packet through the hooks in the kernel's order. Translations are decided for the first packet of a
// connection only, so that a packet from the node to itself passes table nat once.
func (r *iptRules) ways(p packet) ([]way, error) {
	start := []iptBranch{{src: p.Src, dst: p.Dst, protocol: p.Protocol, in: p.In, verdict: Untouched, probability: 1}}
	w := iptWalk{rules: r}
	var here, others []iptBranch
	if p.In == "" {
		sent := w.calls(start, iptCall{"output", "nat", "OUTPUT"}, iptCall{"output", "filter", "OUTPUT"})
		sent = w.calls(sent, iptCall{"postrouting", "nat", "POSTROUTING"})
		here, others = r.route(sent)
		for i := range here {
			here[i].in = loopback
		}
	} else {
		here, others = r.route(w.calls(start, iptCall{"prerouting", "nat", "PREROUTING"}))
		others = w.calls(others, iptCall{"forward", "filter", "FORWARD"}, iptCall{"postrouting", "nat", "POSTROUTING"})
	}
	here = w.calls(here, iptCall{"input", "filter", "INPUT"})
	return merged(append(here, others...)), w.err
}

// route divides packets by whether their destination is the node itself.
func (r *iptRules) route(all []iptBranch) (here, others []iptBranch) {
	for _, b := range all {
		if r.local(b.dst.Addr()) {
			here = append(here, b)
		} else {
			others = append(others, b)
		}
	}
	return here, others
}

// merged joins ways that end alike, the most probable first.
func merged(all []iptBranch) []way {
	var ways []way
	for _, b := range all {
		w := way{
			Verdict: b.verdict, To: b.dst, Masqueraded: b.masqueraded, Probability: b.probability,
			Scheduler: b.scheduler, How: b.how, Steps: b.steps,
		}
		at := slices.IndexFunc(ways, func(o way) bool {
			return o.Verdict == w.Verdict && o.To == w.To && o.Masqueraded == w.Masqueraded
		})
		if at < 0 {
			ways = append(ways, w)
		} else {
			ways[at].Probability += w.Probability
		}
	}
	return ways
}

// iptWalk takes the branches of one packet through chains. After an error it does nothing.
type iptWalk struct {
	rules *iptRules
	err   error
	// passed counts the rules that branches were compared with; tests bound it.
	passed int
}

// depthMax bounds jumps; the kernel refuses loops.
const depthMax = 32

// calls runs built-in chains one after the other.
func (w *iptWalk) calls(all []iptBranch, calls ...iptCall) []iptBranch {
	for _, call := range calls {
		var next []iptBranch
		for _, b := range all {
			if b.ended() {
				next = append(next, b)
				continue
			}
			back, done := w.enter(call, w.rules.chain(call.table, call.chain), b, 0)
			next = append(append(next, done...), back...)
		}
		all = next
	}
	return all
}

// enter runs a chain, and returns the branches that come back to the caller and those that are
// done with this table.
func (w *iptWalk) enter(call iptCall, c *iptChain, b iptBranch, depth int) (back, done []iptBranch) {
	if w.err == nil && depth > depthMax {
		w.err = fmt.Errorf("chain %s of table %s: more than %d jumps", c.name, c.table, depthMax)
	}
	if w.err != nil {
		return nil, nil
	}
	c.parse()
	left := []iptBranch{b}
	for i := range c.rules {
		var next []iptBranch
		for _, b := range left {
			w.passed++
			chance, step, err := w.compare(call, c, i, &b)
			if err != nil {
				w.err = fmt.Errorf("table %s, chain %s: rule %q: %w", c.table, c.name, c.texts[i], err)
				return nil, nil
			}
			if chance < 1 {
				miss := b
				miss.probability *= 1 - chance
				next = append(next, miss)
			}
			if chance == 0 {
				continue
			}
			b.probability *= chance
			b.steps = append(slices.Clip(b.steps), step)
			on, up, end := w.apply(call, &c.rules[i].Target, b, depth)
			next, back, done = append(next, on...), append(back, up...), append(done, end...)
		}
		left = next
	}
	return append(back, left...), done
}

// compare returns the probability with which a rule of a chain matches, and the step for it.
func (w *iptWalk) compare(call iptCall, c *iptChain, at int, b *iptBranch) (chance float64, step Step, err error) {
	rule := &c.rules[at]
	if chance, err = w.rules.chance(rule, b); chance == 0 || err != nil {
		return 0, step, err
	}
	step = Step{Hook: call.hook, Table: c.table, Chain: c.name, Base: c.name == call.chain, Text: c.texts[at], recalls: recalls(rule)}
	if o := lookup(rule); o != nil {
		step.Set = o.Arg(0)
		step.Element, _, err = w.rules.findInSet(o, b)
	}
	return chance, step, errors.Join(err, checkTarget(&rule.Target))
}

// apply executes the target of a rule: the branches go on in the chain, return from it, or are done with the table.
func (w *iptWalk) apply(call iptCall, target *rules.Target, b iptBranch, depth int) (on, back, done []iptBranch) {
	switch target.Name {
	case "":
		return []iptBranch{b}, nil, nil
	case "RETURN":
		return nil, []iptBranch{b}, nil
	case "MARK":
		w.err = b.setMark(target)
		return []iptBranch{b}, nil, nil
	case "ACCEPT":
	case "DROP":
		b.verdict = Dropped
	case "REJECT":
		b.verdict = Refused
	case "DNAT":
		w.err = b.translate(target)
	case "MASQUERADE":
		b.masqueraded = true
	default:
		c := w.rules.chains[dataplane.ID{Container: call.table, Name: target.Name}]
		if c == nil {
			w.err = fmt.Errorf("there is no chain %s in table %s", target.Name, call.table)
			return nil, nil, nil
		}
		on, done = w.enter(call, c, b, depth+1)
		if target.Goto {
			return nil, on, done
		}
		return on, nil, done
	}
	return nil, nil, []iptBranch{b}
}

func (b *iptBranch) setMark(target *rules.Target) error {
	o := target.Option("--set-xmark")
	if o == nil {
		return errors.New("target MARK without a mark")
	}
	value, mask, err := o.Mark()
	b.mark = b.mark&^mask ^ value
	return err
}

func (b *iptBranch) translate(target *rules.Target) error {
	to, err := target.DNAT()
	b.translated = b.translated || to != b.dst
	b.dst, b.verdict = to, Delivered
	return err
}
