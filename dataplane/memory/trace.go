package memory

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/service"
)

// Trace follows a packet. Chance is decided by choose, and what rules remember
// of the packet (the recent match) stays.
func (k *Kernel) Trace(p Packet, choose Choice) Trace {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.trace(p, choose, k.recent)
}

// Outcomes gives every way in which the packet can end, most probable first,
// then by destination. Nothing is remembered of it.
func (k *Kernel) Outcomes(p Packet) []Outcome {
	k.mu.Lock()
	defer k.mu.Unlock()
	type end struct {
		verdict     Verdict
		to          netip.AddrPort
		masqueraded bool
	}
	ends := make(map[end]*Outcome)
	for d := (decisions{}); ; {
		d.begin()
		t := k.trace(p, d.choose, k.recent.fork())
		if d.probability > 0 {
			e := end{t.Verdict, t.To, t.Masqueraded}
			if ends[e] == nil {
				ends[e] = &Outcome{Trace: t}
			}
			ends[e].Probability += d.probability
		}
		if !d.next() {
			break
		}
	}
	var outcomes []Outcome
	for o := range maps.Values(ends) {
		outcomes = append(outcomes, *o)
	}
	slices.SortFunc(outcomes, func(a, b Outcome) int {
		return cmp.Or(cmp.Compare(b.Probability, a.Probability),
			a.To.Compare(b.To), cmp.Compare(a.Verdict, b.Verdict))
	})
	return outcomes
}

// decisions runs through all ways to decide a sequence of chances, whose length
// may depend on the decisions. Each way is one walk from the start.
type decisions struct {
	// taken are the decisions of the current way, each with its chance.
	taken []decision
	// at is how many of them have been asked for.
	at          int
	probability float64
}

type decision struct {
	yes         bool
	probability float64
}

func (d *decisions) begin() { d.at, d.probability = 0, 1 }

func (d *decisions) choose(probability float64) bool {
	if d.at == len(d.taken) {
		d.taken = append(d.taken, decision{yes: true, probability: probability})
	}
	now := d.taken[d.at]
	d.at++
	if now.yes {
		d.probability *= now.probability
	} else {
		d.probability *= 1 - now.probability
	}
	return now.yes
}

// next goes to the next way; false when there is none.
func (d *decisions) next() bool {
	for len(d.taken) > 0 {
		last := &d.taken[len(d.taken)-1]
		if last.yes {
			last.yes = false
			return true
		}
		d.taken = d.taken[:len(d.taken)-1]
	}
	return false
}

// trace needs the lock.
func (k *Kernel) trace(p Packet, choose Choice, recent *recentBook) Trace {
	for _, a := range []netip.Addr{p.Src.Addr(), p.Dst.Addr()} {
		if !a.IsValid() || service.FamilyOf(a) != k.family {
			panic(fmt.Sprintf("memory: %v packet with address %v", k.family, a))
		}
	}
	w := walk{
		kernel: k, recent: recent, choose: choose, now: k.now(),
		src: p.Src, dst: p.Dst, protocol: p.Protocol,
	}
	var verdict Verdict
	switch w.follow(p.In, p.Out) {
	case dropped:
		verdict = Dropped
	case rejected:
		verdict = Rejected
	default:
		if w.translated {
			verdict = Delivered
		}
	}
	return Trace{
		Verdict: verdict, To: w.dst, Masqueraded: w.masqueraded, Mark: w.mark,
		Steps: w.steps, RulesVisited: w.visited,
	}
}
