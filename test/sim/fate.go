package sim

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/memory"
	"github.com/sluice-proxy/sluice/service"
)

// fate is what has to become of a packet.
type fate struct {
	verdict memory.Verdict
	// either tells that being dropped is as good as being rejected: several
	// Services claim the frontend, and none of them serves this sender.
	either bool
	// endpoints are equally likely; set when delivered.
	endpoints []service.Endpoint
	// masquerade tells that all of them see the node's address; those in
	// hairpins see it when they are the sender.
	masquerade bool
	hairpins   map[netip.Addr]bool
}

var (
	untouched = fate{verdict: memory.Untouched}
	rejected  = fate{verdict: memory.Rejected}
	dropped   = fate{verdict: memory.Dropped}
)

func deliver(endpoints []service.Endpoint, masquerade bool) fate {
	if len(endpoints) == 0 {
		return dropped
	}
	return fate{verdict: memory.Delivered, endpoints: endpoints, masquerade: masquerade}
}

// check compares with what the rules make of the packet.
func (f fate) check(p memory.Packet, outcomes []memory.Outcome) error {
	want := f.outcomes(p)
	got := map[string]float64{}
	for _, o := range outcomes {
		if o.Mark != 0 && o.Verdict == memory.Delivered {
			return fmt.Errorf("packet %v to %v/%v leaves with mark %#x", p.Src, p.Dst, p.Protocol, o.Mark)
		}
		verdict := o.Verdict
		if f.either && verdict == memory.Dropped {
			verdict = memory.Rejected
		}
		got[end(verdict, o.To, o.Masqueraded)] += o.Probability
	}
	for e, probability := range want {
		// Probabilities stand in rules with ten decimals.
		if math.Abs(got[e]-probability) > 1e-6 {
			return fmt.Errorf("packet %v from %q to %v/%v\nends\n%s\nwant\n%s%s", p.Src, p.In, p.Dst, p.Protocol,
				table(got), table(want), steps(outcomes))
		}
	}
	return nil
}

// outcomes gives the probability of each end.
func (f fate) outcomes(p memory.Packet) map[string]float64 {
	verdict := f.verdict
	if f.either && verdict == memory.Dropped {
		verdict = memory.Rejected
	}
	if verdict != memory.Delivered {
		return map[string]float64{end(verdict, p.Dst, false): 1}
	}
	ends := map[string]float64{}
	for _, e := range f.endpoints {
		self := e.AddrPort.Addr() == p.Src.Addr() && f.hairpins[p.Src.Addr()]
		ends[end(verdict, e.AddrPort, f.masquerade || self)] += 1 / float64(len(f.endpoints))
	}
	return ends
}

func end(verdict memory.Verdict, to netip.AddrPort, masqueraded bool) string {
	text := fmt.Sprintf("%v at %v", verdict, to)
	if masqueraded && verdict != memory.Dropped && verdict != memory.Rejected {
		text += ", masqueraded"
	}
	return text
}

func table(ends map[string]float64) string {
	var lines []string
	for e, probability := range ends {
		lines = append(lines, fmt.Sprintf("\t%.6f %s", probability, e))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func steps(outcomes []memory.Outcome) string {
	if len(outcomes) == 0 {
		return ""
	}
	return "\nfor example by\n" + indent(outcomes[0].Steps)
}
