package memory

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/service"
)

// Kernel is one family's packet filter of one node. Its method set is that of
// [iptables.Tool], next to methods that follow packets, do damage and make
// commands fail. It is safe for concurrent use: one command runs at a time, as
// under the lock of the real tools.
type Kernel struct {
	family service.Family

	mu     sync.Mutex
	tables map[iptables.Table]*table
	recent *recentBook
	// names counts the rules that name a list of the recent match.
	names map[string]int
	// gone are lists that may have lost their last rule in this commit.
	gone     map[string]bool
	accounts map[string]bool
	locals   map[netip.Addr]bool
	now      func() time.Time
	faults   Faults
	counters Counters
}

var _ iptables.Tool = (*Kernel)(nil)

// tableOrder is the order in which the tables exist for people.
var tableOrder = []iptables.Table{iptables.Mangle, iptables.Filter, iptables.NAT}

// NewKernel gives a kernel with empty tables, no addresses but the loopback
// ones, the clock of package time (which is virtual inside a testing/synctest
// bubble) and no faults.
func NewKernel(family service.Family) *Kernel {
	k := &Kernel{
		family:   family,
		tables:   make(map[iptables.Table]*table),
		recent:   newRecentBook(),
		names:    make(map[string]int),
		gone:     make(map[string]bool),
		accounts: make(map[string]bool),
		locals:   make(map[netip.Addr]bool),
		now:      time.Now,
	}
	for _, name := range tableOrder {
		k.tables[name] = newTable(name)
	}
	return k
}

// SetLocal says which addresses are the node's own, besides the loopback ones.
func (k *Kernel) SetLocal(addrs ...netip.Addr) {
	k.mu.Lock()
	defer k.mu.Unlock()
	clear(k.locals)
	for _, a := range addrs {
		k.locals[a] = true
	}
}

// SetClock replaces the clock by which the recent match counts.
func (k *Kernel) SetClock(now func() time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.now = now
}

// CreateAccount creates an accounting object that rules may name with -m nfacct.
func (k *Kernel) CreateAccount(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.accounts[name] = true
}

// EnsureHook implements [iptables.Tool].
func (k *Kernel) EnsureHook(ctx context.Context, table iptables.Table, chain string, rule []string) error {
	return k.hook(ctx, table, func(s *stage) error {
		parsed, err := parseRule(s.dialect, rule)
		if err != nil {
			return err
		}
		if c := s.chain(chain); c != nil && c.holds(parsed) {
			return nil
		}
		return s.insert(chain, 0, parsed)
	})
}

// RemoveHook implements [iptables.Tool].
func (k *Kernel) RemoveHook(ctx context.Context, table iptables.Table, chain string, rule []string) error {
	return k.hook(ctx, table, func(s *stage) error {
		parsed, err := parseRule(s.dialect, rule)
		if err != nil {
			return err
		}
		for c := s.chain(chain); c != nil && c.holds(parsed); c = s.chain(chain) {
			if err := s.delete(chain, parsed); err != nil {
				return err
			}
		}
		return nil
	})
}

// hook changes a table by one command on the iptables program itself.
func (k *Kernel) hook(ctx context.Context, name iptables.Table, change func(*stage) error) error {
	fault, err := k.begin(ctx, Call{Command: k.program(""), Table: name})
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.counters.Hooks++
	if err := k.inject(fault, k.program("")); err != nil {
		return err
	}
	t := k.tables[name]
	if t == nil {
		return k.refuse(k.program(""), 0, noTable(name))
	}
	s := newStage(k, t)
	if err := change(s); err != nil {
		return k.refuse(k.program(""), 0, err)
	}
	if err := s.commit(); err != nil {
		return k.refuse(k.program(""), 0, err)
	}
	return nil
}

// holds tells whether a rule of the same text is in the chain.
func (c *chain) holds(r *rule) bool {
	for _, other := range c.rules {
		if other.text == r.text {
			return true
		}
	}
	return false
}

// local tells whether an address is the node's own.
func (k *Kernel) local(a netip.Addr) bool { return a.IsLoopback() || k.locals[a] }

// accounted tells whether the accounting objects that a rule names exist.
func (k *Kernel) accounted(r *rule) bool {
	for _, m := range r.matches {
		if account, ok := m.(*accountMatch); ok && !k.accounts[account.name] {
			return false
		}
	}
	return true
}

// named counts the recent lists that the rules of a chain (nil: none) name.
func (k *Kernel) named(c *chain, n int) {
	if c == nil {
		return
	}
	for _, r := range c.rules {
		for _, m := range r.matches {
			if recent, ok := m.(*recentMatch); ok {
				k.names[recent.name] += n
				k.gone[recent.name] = true
			}
		}
	}
}

// forget drops the recent lists that no rule names any more. It is called after
// a commit only: a list survives that its rules are replaced.
func (k *Kernel) forget() {
	for name := range k.gone {
		if k.names[name] == 0 {
			delete(k.names, name)
			delete(k.recent.lists, name)
		}
	}
	clear(k.gone)
}

// program gives the name of one of the family's programs, for example
// "ip6tables-save" for the suffix "-save".
func (k *Kernel) program(suffix string) string {
	if k.family == service.IPv6 {
		return "ip6tables" + suffix
	}
	return "iptables" + suffix
}
