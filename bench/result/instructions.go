package result

import (
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-proxy/sluice/bench/rig"
)

// Variants of a run of bench/packets in which no proxy made the rules, and the one with the offload.
const (
	Direct   = "direct link"
	NoRules  = "no rules"
	Offload  = "sluice with offload"
	floor    = "floor"
	policies = " and policies"
)

// WithPolicies returns the name of a variant whose node also has the chains of a policy engine.
func WithPolicies(variant string) string { return variant + policies }

// Instructions is a run of bench/packets on a machine whose clock counts executed instructions.
type Instructions struct {
	Services, Endpoints, Rounds int
	Family                      string
	Exchanges                   []Exchange
}

// Exchange is the cost of one exchange of a case: the instructions of client, node and pod.
type Exchange struct {
	Case, Variant string
	// Instructions is the median of the rounds, Spread the largest deviation from it.
	Instructions, Spread float64
}

// instructionCases are the columns of the table.
var instructionCases = []struct{ name, title string }{
	{"established", "established TCP, round trip"}, {"tcp", "new TCP connection"},
	{"udp", "UDP question and answer"}, {"one-way", "one-way datagram"},
}

// Goals of the offload: the largest share of Sluice's instructions on the node without it.
const (
	offloadedMax = 0.4
	newMax       = 1.1
)

// of returns the cost of a case. Variants without Services reach the pods themselves.
func (i *Instructions) of(name, variant string) (Exchange, bool) {
	at := slices.IndexFunc(i.Exchanges, func(e Exchange) bool {
		return e.Variant == variant && (e.Case == name+"-cluster-ip" || e.Case == name+"-pod" && isBare(variant))
	})
	if at < 0 {
		return Exchange{}, false
	}
	return i.Exchanges[at], true
}

func isBare(variant string) bool {
	return variant == Direct || variant == NoRules || variant == floor
}

// OnNode returns the node's instructions for a case: those beyond an exchange over a direct link.
func (i *Instructions) OnNode(name, variant string) (float64, bool) {
	all, ok := i.of(name, variant)
	direct, also := i.of(name, Direct)
	return all.Instructions - direct.Instructions, ok && also
}

// missed reports whether a variant with offload misses the goal of a case.
func (i *Instructions) missed(name, variant string) bool {
	without := map[string]string{Offload: Sluice, WithPolicies(Offload): WithPolicies(Sluice)}[variant]
	most := newMax
	if name == instructionCases[0].name {
		most = offloadedMax
	}
	ours, ok := i.OnNode(name, variant)
	off, also := i.OnNode(name, without)
	return ok && also && ours > most*off
}

// Table has a row for each variant with the node's instructions, after one for the whole exchange over a
// direct link. A missed goal is between marks.
func (i *Instructions) Table(mark string) rig.Table {
	t := rig.Table{Head: []string{"instructions of the node"}}
	direct := []string{"client and pod alone"}
	for _, c := range instructionCases {
		t.Head = append(t.Head, c.title)
		cell := ""
		if e, ok := i.of(c.name, Direct); ok {
			cell = thousands(e.Instructions)
		}
		direct = append(direct, cell)
	}
	t.Add(direct...)
	for _, v := range i.variants() {
		row := []string{v}
		for n, c := range instructionCases {
			cell := ""
			if cost, ok := i.OnNode(c.name, v); ok {
				cell = thousands(cost)
				if n < 2 && i.missed(c.name, v) {
					cell = mark + cell + mark
				}
			}
			row = append(row, cell)
		}
		t.Add(row...)
	}
	return t
}

// variants returns the variants of the table: without rules first, with policies last.
func (i *Instructions) variants() (all []string) {
	for _, e := range i.Exchanges {
		if e.Variant != Direct && !slices.Contains(all, e.Variant) {
			all = append(all, e.Variant)
		}
	}
	first := []string{NoRules, floor, KubeProxy, Sluice, Offload}
	slices.SortStableFunc(all, func(a, b string) int {
		at := func(v string) int {
			plain, found := strings.CutSuffix(v, policies)
			place := (slices.Index(first, plain) + len(first) + 1) % (len(first) + 1) // unknown ones after these
			if found {
				place += len(first) + 1
			}
			return place
		}
		return at(a) - at(b)
	})
	return all
}

// Print prints the table for people.
func (i *Instructions) Print(out io.Writer) error { return i.Table("!").Print(out) }

// thousands is a number with commas.
func thousands(v float64) string {
	text := strconv.FormatFloat(math.Round(v), 'f', 0, 64)
	for at := len(text) - 3; at > 0 && text[at-1] != '-'; at -= 3 {
		text = text[:at] + "," + text[at:]
	}
	return text
}
