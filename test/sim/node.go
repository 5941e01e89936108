package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/memory"
	"github.com/sluice-proxy/sluice/service"
)

// node is one family's kernel with what goes wrong there, and what others have
// put there.
type node struct {
	// remains tells that somebody was held back when the process started.
	remains bool
	family  service.Family
	kernel  *memory.Kernel
	outage  *outage
	guard   *guard
	foreign map[place][]string
}

// place is a chain in a table.
type place struct {
	table iptables.Table
	chain string
}

func newNode(family service.Family, t *troubles, blame memory.Blame) *node {
	n := &node{
		family: family, kernel: memory.NewKernel(family),
		outage:  &outage{troubles: t, blame: blame},
		foreign: map[place][]string{},
	}
	n.guard = newGuard(family, n.kernel, n.outage)
	return n
}

// meddle does what somebody else does to the kernel. It gives an error when the
// simulation itself is wrong.
func (n *node) meddle(e event) error {
	return n.guard.stranger(func() error { return n.damage(e) })
}

func (n *node) damage(e event) error {
	d := newDice(e.shape, int(n.family))
	switch e.do {
	case flush:
		n.kernel.Flush()
		clear(n.foreign)
	case deleteChain:
		if at, ok := n.pick(d, n.ours()); ok {
			n.kernel.DeleteChain(at.table, at.chain)
		}
	case deleteRule:
		n.deleteRule(d)
	case plantRule:
		return n.plantRule(d)
	case plantChain:
		return n.plantChain(d)
	case meddle:
		if at, ok := n.pick(d, n.ours()); ok {
			return n.write(at.table, fmt.Sprintf("-I %s %d -s %v -j RETURN\n", at.chain, 1, outside(n.family, 240)))
		}
	case litter:
		return n.write(iptables.NAT, fmt.Sprintf(":KUBE-SEP-LITTER%d - [0:0]\n", d.IntN(1000)))
	}
	return nil
}

func (n *node) write(table iptables.Table, lines string) error {
	err := n.kernel.Restore(context.Background(), []byte(byHand+"*"+string(table)+"\n"+lines+"COMMIT\n"))
	if err != nil {
		return fmt.Errorf("the simulation's own rule: %w", err)
	}
	return nil
}

func (n *node) pick(d dice, places []place) (place, bool) {
	if len(places) == 0 {
		return place{}, false
	}
	return places[d.IntN(len(places))], true
}

// ours gives the chains of the proxy.
func (n *node) ours() []place {
	var all []place
	for _, table := range tables {
		for _, chain := range n.kernel.Chains(table) {
			if iptables.OwnsChain(table, chain) {
				all = append(all, place{table, chain})
			}
		}
	}
	return all
}

// deleteRule takes away one rule of the proxy, hooks included.
func (n *node) deleteRule(d dice) {
	type rule struct {
		place
		position int
	}
	var all []rule
	for _, table := range tables {
		for _, chain := range n.kernel.Chains(table) {
			at := place{table, chain}
			rules, _ := n.kernel.Rules(table, chain)
			for i, text := range rules {
				if iptables.OwnsChain(table, chain) || (!slices.Contains(n.foreign[at], text) && !foreignChain(chain)) {
					all = append(all, rule{at, i + 1})
				}
			}
		}
	}
	if len(all) > 0 {
		r := all[d.IntN(len(all))]
		n.kernel.DeleteRule(r.table, r.chain, r.position)
	}
}

const foreignPrefix = "SOMEBODY-"

func foreignChain(chain string) bool { return strings.HasPrefix(chain, foreignPrefix) }

// plantRule appends or inserts a rule in a built-in chain.
func (n *node) plantRule(d dice) error {
	at := []place{{iptables.Filter, "INPUT"}, {iptables.Filter, "FORWARD"}, {iptables.NAT, "PREROUTING"},
		{iptables.NAT, "POSTROUTING"}, {iptables.Mangle, "PREROUTING"}}[d.IntN(5)]
	text := n.foreignRule(d)
	if d.percent(50) {
		n.foreign[at] = append(n.foreign[at], text)
		return n.write(at.table, fmt.Sprintf("-A %s %s\n", at.chain, text))
	}
	n.foreign[at] = append([]string{text}, n.foreign[at]...)
	return n.write(at.table, fmt.Sprintf("-I %s 1 %s\n", at.chain, text))
}

// plantChain makes a chain with rules, and a jump to it.
func (n *node) plantChain(d dice) error {
	at := place{tables[d.IntN(3)], fmt.Sprintf("%s%d", foreignPrefix, d.IntN(1000))}
	if _, exists := n.foreign[at]; exists {
		return nil
	}
	n.foreign[at] = []string{n.foreignRule(d), n.foreignRule(d)}
	from := place{at.table, "OUTPUT"}
	jump := fmt.Sprintf("-s %v/%d -j %s", outside(n.family, 241), outside(n.family, 0).BitLen(), at.chain)
	n.foreign[from] = append(n.foreign[from], jump)
	return n.write(at.table, fmt.Sprintf(":%s - [0:0]\n-A %s %s\n-A %s %s\n-A OUTPUT %s\n",
		at.chain, at.chain, n.foreign[at][0], at.chain, n.foreign[at][1], jump))
}

// foreignRule gives a rule, in the kernel's own words, that none of the
// simulation's packets match.
func (n *node) foreignRule(d dice) string {
	return fmt.Sprintf("-s %v/%d -j ACCEPT", outside(n.family, 200+d.IntN(40)), outside(n.family, 0).BitLen())
}
