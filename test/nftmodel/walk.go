// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// fate is what has become of a packet.
type fate uint8

const (
	onward fate = iota
	dropped
	rejected
)

// state is a packet on its way. It is comparable: two ways that lead to one state
// are one from there on.
type state struct {
	src, dst netip.AddrPort
	// known is the destination as the connection has it. A rule that writes the header
	// changes dst alone.
	known netip.AddrPort
	// asked is the address that the sender asked for.
	asked    netip.Addr
	protocol uint8
	mark     uint32
	fate     fate
	// delivered is set once a rule has decided on the destination, translated
	// if it is another one than before, masqueraded once the packet leaves with
	// another source.
	delivered, translated, masqueraded bool

	// at is the next rule, and caller is where to go on after the chain.
	at     place
	caller *call
	// added is what the packet has put into sets and removed, the newest first.
	added *addition
}

// place is a position in a chain.
type place struct {
	chain *chain
	rule  int
}

// call is a jump and the place to return to. Equal calls are one, so that states can be
// compared.
type call struct {
	back   place
	before *call
}

// addition is one element that the packet has put into a set, or removed; then the element is
// nil.
type addition struct {
	set     *set
	key     string
	element *element
	before  *addition
}

// branch is one way of a packet so far.
type branch struct {
	state
	probability float64
	// steps are the rules that matched, the newest first.
	steps   *step
	visited int
}

type step struct {
	rule *rule
	// from is the base chain through which the packet came here.
	from *base
	// found is the last element that the rule looked up, and in its set; nil for none.
	found  *element
	in     *set
	before *step
}

// draw returns the numbers that may be drawn below a modulus; all are as probable.
type draw func(modulus uint32) []uint32

// walker takes packets through the hooks.
type walker struct {
	kernel *Kernel
	family uint8
	draw   draw
	now    time.Time
	// in and out are the interfaces that the hook at hand can see.
	in, out string
	calls   map[call]*call
	// connected is set once the connection is known to nat chains, which are
	// not asked again on the loopback interface.
	connected bool
	// reads, when set, collects the parts of the tables that decide what becomes of the
	// packet.
	reads map[Name]bool
	// leaving are deleted base chains that are still called.
	leaving []*chain
	// branch and registers are those of the rule at hand.
	branch    branch
	registers registers
}

// enter puts a packet at the start of a chain.
func (w *walker) enter(c *chain) place {
	if w.reads != nil {
		w.reads[c.id()] = true
	}
	return place{chain: c}
}

const loopback = "lo"

// follow takes the packet through the hooks in the kernel's order:
//
//	arrived ─ prerouting ─ route ─┬─ input (an address of the node)
//	                              └─ forward ─ postrouting
//	process ─ output ─ postrouting ─ (loopback: prerouting ─ input)
func (w *walker) follow(from branch, in, out string) []branch {
	start := []branch{from}
	if in == "" {
		return w.send(start, out)
	}
	arrived := w.hook(start, unix.NF_INET_PRE_ROUTING, in, "")
	here, others := w.route(arrived)
	here = w.hook(here, unix.NF_INET_LOCAL_IN, in, "")
	others = w.hook(others, unix.NF_INET_FORWARD, in, out)
	return append(here, w.hook(others, unix.NF_INET_POST_ROUTING, in, out)...)
}

// send follows a packet of a process of the node.
func (w *walker) send(start []branch, out string) []branch {
	here, others := w.route(w.hook(start, unix.NF_INET_LOCAL_OUT, "", out))
	here = w.hook(here, unix.NF_INET_POST_ROUTING, "", loopback)
	others = w.hook(others, unix.NF_INET_POST_ROUTING, "", out)
	w.connected = true
	here = w.hook(here, unix.NF_INET_PRE_ROUTING, loopback, "")
	return append(w.hook(here, unix.NF_INET_LOCAL_IN, loopback, ""), others...)
}

// route divides packets by whether their destination is the node itself.
func (w *walker) route(branches []branch) (here, others []branch) {
	for _, b := range branches {
		if w.kernel.local(b.dst.Addr()) {
			here = append(here, b)
		} else {
			others = append(others, b)
		}
	}
	return here, others
}

// hook runs the base chains at a hook.
func (w *walker) hook(branches []branch, number uint32, in, out string) []branch {
	w.in, w.out = in, out
	for _, c := range w.baseChains(number) {
		branches = w.base(c, branches)
	}
	return branches
}

// Priorities at which translation has its place, whatever those of its chains,
// which say their order among each other.
const (
	priorityDNAT = -100 // NF_IP_PRI_NAT_DST
	prioritySNAT = 100  // NF_IP_PRI_NAT_SRC
)

// baseChains returns the base chains at a hook in the order in which they are
// called.
func (w *walker) baseChains(number uint32) []*chain {
	var list []*chain
	add := func(chains []*chain) {
		for _, c := range chains {
			if c.table.family == w.family && c.base != nil && c.base.hook == number && (c.base.kind != "nat" || !w.connected) {
				list = append(list, c)
			}
		}
	}
	for _, t := range w.kernel.tables {
		add(t.order)
	}
	add(w.leaving)
	slices.SortFunc(list, func(a, b *chain) int {
		return cmp.Or(cmp.Compare(a.base.called(), b.base.called()), cmp.Compare(a.base.kind, b.base.kind),
			cmp.Compare(a.base.priority, b.base.priority),
			-cmp.Compare(a.table.handle, b.table.handle), -cmp.Compare(a.base.registered, b.base.registered))
	})
	return list
}

// called is the priority at which the chain has its turn.
func (b *base) called() int32 {
	switch {
	case b.kind != "nat":
		return b.priority
	case b.hook == unix.NF_INET_PRE_ROUTING || b.hook == unix.NF_INET_LOCAL_OUT:
		return priorityDNAT
	default:
		return prioritySNAT
	}
}

// base runs one base chain over all packets that are still on their way.
func (w *walker) base(c *chain, branches []branch) []branch {
	done, at := &front{}, &front{}
	for _, b := range branches {
		if b.fate != onward || c.base.kind == "nat" && c.base.settled(&b.state) {
			done.add(b)
			continue
		}
		b.at = w.enter(c)
		at.add(b)
	}
	for at.len() > 0 {
		w.rule(at.take(), c.base, at, done)
	}
	return done.branches()
}

// settled reports whether a chain before has decided on the translation.
func (b *base) settled(s *state) bool {
	if b.called() == prioritySNAT {
		return s.masqueraded
	}
	return s.delivered
}

// rule runs one rule of a way, or goes back to the caller behind the last one.
func (w *walker) rule(b branch, from *base, at, done *front) {
	if b.at.rule < len(b.at.chain.rules) {
		r := b.at.chain.rules[b.at.rule]
		b.at.rule++
		b.visited++
		w.branch, w.registers = b, registers{verdict: verdict{code: unix.NFT_CONTINUE}}
		w.exprs(&w.branch, r, r.exprs, &w.registers, from, at, done)
		return
	}
	w.back(b, from, at, done)
}

// back goes on where the chain was called from, or ends with the policy.
func (w *walker) back(b branch, from *base, at, done *front) {
	if b.caller != nil {
		b.at, b.caller = b.caller.back, b.caller.before
		at.add(b)
		return
	}
	if from.drops {
		b.fate = dropped
	}
	b.end()
	done.add(b)
}

// end forgets where the packet was in the chains.
func (b *branch) end() { b.at, b.caller = place{}, nil }

// exprs runs the expressions of a rule that are left.
func (w *walker) exprs(b *branch, r *rule, left []expr, regs *registers, from *base, at, done *front) {
	for i, e := range left {
		if n, ok := e.(*numgen); ok {
			drawn := w.draw(n.modulus)
			b.probability /= float64(len(drawn))
			for _, number := range drawn {
				one, with := *b, *regs
				n.draw(&with, number)
				w.exprs(&one, r, left[i+1:], &with, from, at, done)
			}
			return
		}
		if !e.eval(w, &b.state, regs) || regs.verdict.code == unix.NFT_BREAK {
			at.add(*b)
			return
		}
		if regs.verdict.code != unix.NFT_CONTINUE {
			break
		}
	}
	b.steps = &step{rule: r, from: from, found: regs.found, in: regs.in, before: b.steps}
	w.decide(*b, regs.verdict, from, at, done)
}

// decide does what a rule has ended with.
func (w *walker) decide(b branch, v verdict, from *base, at, done *front) {
	switch v.code {
	case unix.NFT_CONTINUE:
		at.add(b)
	case unix.NFT_JUMP:
		b.caller = w.call(call{b.at, b.caller})
		b.at = w.enter(v.chain)
		at.add(b)
	case unix.NFT_GOTO:
		b.at = w.enter(v.chain)
		at.add(b)
	case unix.NFT_RETURN:
		w.back(b, from, at, done)
	default:
		if v.code == verdictDrop && b.fate == onward {
			b.fate = dropped
		}
		b.end()
		done.add(b)
	}
}

// call returns the one call that is equal to c.
func (w *walker) call(c call) *call {
	if w.calls[c] == nil {
		w.calls[c] = &c
	}
	return w.calls[c]
}

// find returns the element that a key is in, those that the packet has added included.
func (w *walker) find(s *state, in *set, key []byte) *element {
	if w.reads != nil {
		w.reads[in.id()] = true
		if !in.isRanges() {
			w.reads[in.element(string(key))] = true
		}
	}
	for m := s.added; m != nil; m = m.before {
		if m.set == in && m.key == string(key) {
			return m.element
		}
	}
	return in.find(key, expiryOf(w.now))
}

// remember puts a key into a set, and reports false when the set is full. An element that is
// there keeps its data.
func (w *walker) remember(s *state, in *set, key, data string, timeout time.Duration) bool {
	old := w.find(s, in, []byte(key))
	if old == nil && in.size > 0 && len(in.elements) >= int(in.size) {
		in.expel(expiryOf(w.now))
		if len(in.elements) >= int(in.size) {
			return false
		}
	}
	if old != nil {
		data = old.data
	}
	e := &element{key: key, data: data, timeout: timeout, expires: expiryOf(w.now.Add(timeout))}
	s.added = &addition{in, key, e, s.added}
	return true
}

// forget removes a key from a set.
func (w *walker) forget(s *state, in *set, key string) {
	if w.find(s, in, []byte(key)) != nil {
		s.added = &addition{in, key, nil, s.added}
	}
}

// expel drops what has expired, as the kernel does now and then.
func (s *set) expel(now expiry) {
	for id, e := range s.elements {
		if e.expired(now) {
			s.drop(id)
		}
	}
}
