package memory

import (
	"github.com/sluice-proxy/sluice/dataplane/iptables"
)

// Flush empties every table, as an administrator's script would: all rules and
// all chains but the built-in ones are gone.
func (k *Kernel) Flush() {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, t := range k.tables {
		for name, c := range t.chains {
			k.named(c, -1)
			if t.isBuiltin(name) {
				t.put(name, &chain{name: name, policy: c.policy})
			} else {
				t.put(name, nil)
			}
		}
	}
	k.forget()
}

// DeleteChain removes a chain with its rules, and every rule that jumps to it.
// It gives false when there is no such chain.
func (k *Kernel) DeleteChain(table iptables.Table, name string) bool {
	return k.damage(table, func(s *stage) error {
		for caller := range s.base.callers[name] {
			for at := len(s.chain(caller).rules) - 1; at >= 0; at-- {
				if s.chain(caller).rules[at].jump() != name {
					continue
				}
				if err := s.deleteAt(caller, at); err != nil {
					return err
				}
			}
		}
		if err := s.flush(name); err != nil {
			return err
		}
		return s.remove(name)
	})
}

// FlushChain removes all rules of a chain. It gives false when there is no such
// chain.
func (k *Kernel) FlushChain(table iptables.Table, name string) bool {
	return k.damage(table, func(s *stage) error { return s.flush(name) })
}

// DeleteRule removes the rule at a position of a chain, counted from 1. It gives
// false when there is none.
func (k *Kernel) DeleteRule(table iptables.Table, chain string, position int) bool {
	return k.damage(table, func(s *stage) error { return s.deleteAt(chain, position-1) })
}

// damage changes a table behind everybody's back: no fault, no counter.
func (k *Kernel) damage(name iptables.Table, change func(*stage) error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tables[name]
	if t == nil {
		return false
	}
	s := newStage(k, t)
	return change(s) == nil && s.commit() == nil
}

// Chains gives the names of a table's chains, built-in ones first, the others
// sorted.
func (k *Kernel) Chains(name iptables.Table) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tables[name]
	if t == nil {
		return nil
	}
	return append(append([]string{}, builtin[name]...), t.userChains()...)
}

// Rules gives the canonical texts behind "-A CHAIN", and false when there is no
// such chain.
func (k *Kernel) Rules(table iptables.Table, name string) ([]string, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	t := k.tables[table]
	if t == nil || t.chains[name] == nil {
		return nil, false
	}
	return t.chains[name].texts(), true
}

func (c *chain) texts() []string {
	texts := make([]string, len(c.rules))
	for i, r := range c.rules {
		texts[i] = r.text
	}
	return texts
}
