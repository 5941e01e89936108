package nft

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/dataplane/memory"
	"github.com/sluice-proxy/sluice/service"
)

// Trace follows a packet. Chance is decided by choose, and what sets learn of the
// packet stays.
func (k *Kernel) Trace(p memory.Packet, choose memory.Choice) memory.Trace {
	k.mu.Lock()
	defer k.mu.Unlock()
	b := k.walk(p, func(modulus uint32) []uint32 { return []uint32{pick(modulus, choose)} })[0]
	b.lessons.keep()
	return b.trace()
}

// pick decides on a number below a modulus by halves.
func pick(modulus uint32, choose memory.Choice) uint32 {
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

// keep puts what was learned into the sets, the oldest first.
func (l *lesson) keep() {
	if l != nil {
		l.before.keep()
		l.set.elements[l.element.id()] = l.element
	}
}

// Outcomes gives every way in which the packet can end, most probable first, then
// by destination. Nothing is remembered of it.
func (k *Kernel) Outcomes(p memory.Packet) []memory.Outcome {
	k.mu.Lock()
	defer k.mu.Unlock()
	type end struct {
		verdict     memory.Verdict
		to          netip.AddrPort
		masqueraded bool
	}
	at := make(map[end]int)
	var outcomes []memory.Outcome
	for _, b := range k.walk(p, every) {
		t := b.trace()
		e := end{t.Verdict, t.To, t.Masqueraded}
		i, ok := at[e]
		if !ok {
			i = len(outcomes)
			at[e] = i
			outcomes = append(outcomes, memory.Outcome{Trace: t})
		}
		outcomes[i].Probability += b.probability
	}
	slices.SortFunc(outcomes, func(a, b memory.Outcome) int {
		return cmp.Or(cmp.Compare(b.Probability, a.Probability), a.To.Compare(b.To), cmp.Compare(a.Verdict, b.Verdict))
	})
	return outcomes
}

// every gives all numbers below a modulus.
func every(modulus uint32) []uint32 {
	all := make([]uint32, modulus)
	for i := range all {
		all[i] = uint32(i)
	}
	return all
}

// walk gives the ways of a packet to its end. It needs the lock.
func (k *Kernel) walk(p memory.Packet, draw draw) []branch {
	family := service.FamilyOf(p.Dst.Addr())
	if !p.Src.Addr().IsValid() || service.FamilyOf(p.Src.Addr()) != family {
		panic(fmt.Sprintf("nft: a packet from %v to %v", p.Src, p.Dst))
	}
	w := &walker{kernel: k, family: unix.NFPROTO_IPV4, draw: draw, now: k.now(), calls: make(map[call]*call)}
	if family == service.IPv6 {
		w.family = unix.NFPROTO_IPV6
	}
	start := branch{state: state{src: p.Src, dst: p.Dst, protocol: p.Protocol.Number()}, probability: 1}
	return w.follow(start, p.In, p.Out)
}

// trace says how a way has ended.
func (b *branch) trace() memory.Trace {
	t := memory.Trace{To: b.dst, Masqueraded: b.masqueraded, Mark: b.mark, RulesVisited: b.visited}
	switch {
	case b.fate == dropped:
		t.Verdict = memory.Dropped
	case b.fate == rejected:
		t.Verdict = memory.Rejected
	case b.delivered:
		t.Verdict = memory.Delivered
	}
	for s := b.steps; s != nil; s = s.before {
		t.Steps = append(t.Steps, s.rule.step())
	}
	slices.Reverse(t.Steps)
	return t
}
