package memory

import (
	"slices"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
)

// hookSet is a set of netfilter hooks.
type hookSet uint8

const (
	prerouting hookSet = 1 << iota
	input
	forward
	output
	postrouting

	anyHook = prerouting | input | forward | output | postrouting
)

// builtin names the chains that each table is born with, in the order in which
// iptables-save prints them. The hook of a chain follows from its name.
var builtin = map[iptables.Table][]string{
	iptables.Mangle: {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
	iptables.Filter: {"INPUT", "FORWARD", "OUTPUT"},
	iptables.NAT:    {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
}

// hookOf gives the hook of a built-in chain.
var hookOf = map[string]hookSet{
	"PREROUTING":  prerouting,
	"INPUT":       input,
	"FORWARD":     forward,
	"OUTPUT":      output,
	"POSTROUTING": postrouting,
}

// chain is a list of rules. Once its table has committed it is never changed
// again: a stage works on a copy.
type chain struct {
	name string
	// policy is what happens at the end of a built-in chain, "ACCEPT" or
	// "DROP"; empty for all others.
	policy string
	rules  []*rule
}

func (c *chain) clone() *chain {
	copied := *c
	copied.rules = slices.Clone(c.rules)
	return &copied
}

// table is the committed state of one table.
//
// Invariant: callers and rules say the same: callers[t][c] is the number of
// rules of chain c that jump to t, and never 0.
type table struct {
	name    iptables.Table
	chains  map[string]*chain
	callers map[string]map[string]int
}

func newTable(name iptables.Table) *table {
	t := &table{
		name:    name,
		chains:  make(map[string]*chain),
		callers: make(map[string]map[string]int),
	}
	for _, c := range builtin[name] {
		t.chains[c] = &chain{name: c, policy: "ACCEPT"}
	}
	return t
}

// isBuiltin tells whether the table was born with the chain.
func (t *table) isBuiltin(name string) bool { return slices.Contains(builtin[t.name], name) }

// userChains gives the names of all other chains, sorted, as both variants of
// iptables-save 1.8 print them.
func (t *table) userChains() []string {
	names := make([]string, 0, len(t.chains))
	for name := range t.chains {
		if !t.isBuiltin(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// put replaces a chain, nil to remove it, and keeps callers right.
func (t *table) put(name string, c *chain) {
	if old := t.chains[name]; old != nil {
		for _, r := range old.rules {
			t.count(r, name, -1)
		}
	}
	if c == nil {
		delete(t.chains, name)
		return
	}
	t.chains[name] = c
	for _, r := range c.rules {
		t.count(r, name, 1)
	}
}

func (t *table) count(r *rule, caller string, n int) {
	to := r.jump()
	if to == "" {
		return
	}
	callers := t.callers[to]
	if callers == nil {
		callers = make(map[string]int)
		t.callers[to] = callers
	}
	if callers[caller] += n; callers[caller] == 0 {
		delete(callers, caller)
	}
	if len(callers) == 0 {
		delete(t.callers, to)
	}
}
