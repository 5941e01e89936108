// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func addr(text string) netip.Addr { return netip.MustParseAddr(text) }

// take takes slots for things that stay, and returns what the last one was refused for, "" for
// nothing.
func take(b *Budget, client string, times int) string {
	for range times {
		if why, ok := b.Acquire(&Slot{}, addr(client)); !ok {
			return why.String()
		}
	}
	return ""
}

// TestPool_ClientLimitFirst: the pool limits each client over all budgets, before the limit of a budget counts. All of
// 127.0.0.0/8 is one client.
func TestPool_ClientLimitFirst(t *testing.T) {
	p := NewPool(Limits{Total: 40, PerBudget: 10, PerClient: 3})
	web, db := p.Budget(), p.Budget()
	for i, c := range []struct {
		of     *Budget
		client string
		times  int
		want   string
	}{
		{web, "192.0.2.1", 2, ""},
		{db, "192.0.2.1", 1, ""},
		{db, "192.0.2.1", 1, "client_limit"}, // over all budgets
		{web, "192.0.2.2", 3, ""},
		{web, "127.0.0.1", 2, ""},
		{web, "127.1.2.3", 2, "client_limit"}, // any user of the host has all of 127/8
		{web, "192.0.2.3", 3, "service_limit"},
		{db, "192.0.2.1", 1, "client_limit"},
	} {
		if got := take(c.of, c.client, c.times); got != c.want {
			t.Errorf("step %d: %q, want %q", i, got, c.want)
		}
	}
	p.LimitClients(4)
	if got := take(db, "192.0.2.1", 2); got != "client_limit" {
		t.Errorf("with another limit: %q", got)
	}
	if met := db.Met(addr("192.0.2.1")); met.Why != ClientFull || met.Open != 4 || met.Most != 4 {
		t.Errorf("met %+v", met)
	}
}

// TestPool_IPv6PrefixLimit: the pool limits each IPv6 /64 as well as each address, because a host may use all addresses
// of its prefix.
func TestPool_IPv6PrefixLimit(t *testing.T) {
	b := NewPool(Limits{Total: 1000, PerClient: 2}).Budget()
	for i := range 2 * prefixFactor {
		if got := take(b, fmt.Sprintf("2001:db8::%x", i+1), 1); got != "" {
			t.Fatalf("address %d: %q", i, got)
		}
	}
	for client, want := range map[string]string{"2001:db8::ffff": "client_limit", "2001:db8:0:1::1": ""} {
		if got := take(b, client, 1); got != want {
			t.Errorf("%s: %q, want %q", client, got, want)
		}
	}
	if got := take(b, "2001:db8:0:1::2", 3); got != "client_limit" {
		t.Errorf("one address: %q", got)
	}
}

// TestPool_ReserveForSmallBudgets: the pool keeps a reserve for budgets that use few slots, so four full budgets do not
// take all slots.
func TestPool_ReserveForSmallBudgets(t *testing.T) {
	p := NewPool(Limits{Total: 400, PerBudget: 100})
	for range 4 {
		b := p.Budget()
		for i := range 100 {
			take(b, fmt.Sprintf("10.0.0.%d", i), 1)
		}
	}
	if p.used != 360 {
		t.Errorf("four budgets have %d of 400, want 360", p.used)
	}
	small := p.Budget()
	if got := take(small, "10.0.0.1", 6); got != "" {
		t.Errorf("a budget with few: %q", got)
	}
	if got := take(small, "10.0.0.1", 1); got != "process_limit" {
		t.Errorf("a budget that has its share of the reserve: %q", got)
	}
	for i := range 34 {
		if got := take(p.Budget(), "10.0.0.1", 1); got != "" {
			t.Errorf("budget %d without any: %q", i, got)
		}
	}
	if got := take(p.Budget(), "10.0.0.1", 1); got != "process_limit" || p.used != 400 {
		t.Errorf("with all taken: %q, %d", got, p.used)
	}
}

// flow is an occupant. It counts how often it was looked at.
type flow struct {
	name   string
	active time.Time
	slot   Slot
	looked *int
}

func (f *flow) lastActive() time.Time { *f.looked++; return f.active }
func (f *flow) evict()                {}

// flows makes occupants in one pool, each a second after the one before.
type flows struct {
	now    time.Time
	looked int
}

// open takes a slot and returns who was replaced.
func (f *flows) open(t *testing.T, b *Budget, client string) (opened *flow, replaced []string) {
	t.Helper()
	f.now = f.now.Add(time.Second)
	opened = &flow{name: client, active: f.now, looked: &f.looked}
	gone, ok := b.takeFor(&opened.slot, addr(client), opened)
	if !ok {
		t.Fatalf("no room for %s", client)
	}
	for _, o := range gone {
		replaced = append(replaced, o.(*flow).name)
		o.(*flow).slot.Release() // as a session does
	}
	return opened, replaced
}

// TestPool_FairReplacement: at a limit, the pool replaces the least active occupant of the same client, the same budget
// or the largest budget, whichever limit was reached.
func TestPool_FairReplacement(t *testing.T) {
	p := NewPool(Limits{Total: 6, PerBudget: 4, PerClient: 2})
	web, db, dns := p.Budget(), p.Budget(), p.Budget()
	f := &flows{}
	expect := func(b *Budget, client string, want ...string) *flow {
		t.Helper()
		opened, replaced := f.open(t, b, client)
		if !slices.Equal(replaced, want) {
			t.Errorf("%s replaces %v, want %v", client, replaced, want)
		}
		return opened
	}
	a := expect(web, "192.0.2.1")
	expect(web, "192.0.2.2")
	expect(web, "192.0.2.3")
	expect(web, "192.0.2.4")
	a.active = f.now.Add(time.Millisecond)
	a.slot.touch()
	expect(web, "192.0.2.5", "192.0.2.2") // the least active of the same budget
	expect(db, "192.0.2.5")
	expect(dns, "192.0.2.5", "192.0.2.5") // of the client's
	expect(dns, "192.0.2.6")
	expect(dns, "192.0.2.7", "192.0.2.3") // of the budget that has most, with three
	p.LimitClients(1)
	expect(web, "192.0.2.8", "192.0.2.5")
	p.LimitClients(2)
	expect(web, "192.0.2.8", "192.0.2.4")
	p.LimitClients(1)
	expect(web, "192.0.2.8", "192.0.2.8") // one for one: the others stay
	if web.used != 3 || db.used != 1 || dns.used != 2 || p.used != 6 {
		t.Errorf("used %d, %d, %d, together %d", web.used, db.used, dns.used, p.used)
	}
}

// TestPool_ConstantReplacementCost: the number of steps per replacement does not depend on the number of occupants. The
// test counts the steps of the pool and its calls to occupants.
func TestPool_ConstantReplacementCost(t *testing.T) {
	const clients = 1000
	cost := func(most int) (steps, looked int) {
		p := NewPool(Limits{Total: most, PerBudget: most, PerClient: 1})
		others := p.Budget()
		take(others, "192.0.2.1", 1) // so that there is a ranking
		b, f := p.Budget(), &flows{}
		var all []*flow
		for i := range most - 1 {
			opened, _ := f.open(t, b, fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255))
			all = append(all, opened)
		}
		for _, o := range all[:most/2] { // their slots do not know yet
			o.active = f.now
		}
		f.looked, p.steps = 0, 0
		for i := range clients {
			f.open(t, b, fmt.Sprintf("11.%d.%d.%d", i>>16, i>>8&255, i&255))
		}
		if len(p.clients) != most || b.recent.Len() != most-1 || len(p.ranking) != 2 {
			t.Errorf("%d clients, %d in order, %d ranked", len(p.clients), b.recent.Len(), len(p.ranking))
		}
		return p.steps, f.looked
	}
	steps, looked := cost(1 << 10)
	t.Logf("one of %d: %d steps, %d occupants looked at", 1<<10, steps/clients, looked/clients)
	if looked == 0 || steps < looked {
		t.Errorf("%d steps, %d occupants looked at: the pool does not count its steps", steps, looked)
	}
	for _, most := range []int{1 << 12, 1 << 14} {
		if s, l := cost(most); s != steps || l != looked {
			t.Errorf("%d replacements among %d take %d steps and %d looks, among %d %d and %d", clients, most, s, l, 1<<10, steps, looked)
		}
	}
}

// TestPool_UnderPressure: with many goroutines that acquire and release slots, the pool never exceeds its limit, and is
// empty at the end.
func TestPool_UnderPressure(t *testing.T) {
	const total = 3
	p := NewPool(Limits{Total: total, PerBudget: 2, PerClient: 2})
	var held, most atomic.Int64
	var running sync.WaitGroup
	for i := range 8 {
		part, client := p.Budget(), fmt.Sprintf("2001:db8::%x", i%3)
		running.Go(func() {
			for range 3000 {
				slot := &Slot{}
				if _, ok := part.Acquire(slot, addr(client)); !ok {
					continue
				}
				now := held.Add(1)
				for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
				}
				held.Add(-1)
				slot.Release()
				slot.Release() // as one that was replaced is
			}
		})
	}
	running.Wait()
	if most.Load() > total || most.Load() == 0 {
		t.Errorf("up to %d were held of %d", most.Load(), total)
	}
	if p.used != 0 || len(p.clients) != 0 || len(p.ranking) != 0 {
		t.Errorf("left: %d used, %d clients, %d ranked", p.used, len(p.clients), len(p.ranking))
	}
}

// TestPool_MoveToFullBudget: a slot can move to a budget that is full, and all counts are zero after its release.
func TestPool_MoveToFullBudget(t *testing.T) {
	p := NewPool(Limits{Total: 4, PerBudget: 1, PerClient: 4})
	from, to := p.Budget(), p.Budget()
	slot, other := &Slot{}, &Slot{}
	from.Acquire(slot, addr("10.0.0.1"))
	to.Acquire(other, addr("10.0.0.1"))
	slot.Move(to)
	if from.used != 0 || to.used != 2 || p.used != 2 || len(p.ranking) != 1 {
		t.Errorf("used %d, %d, together %d, ranked %d", from.used, to.used, p.used, len(p.ranking))
	}
	slot.Release()
	slot.Move(from) // it is free
	other.Release()
	if p.used != 0 || len(p.clients) != 0 || len(p.ranking) != 0 {
		t.Errorf("left: %d used, %d clients, %d ranked", p.used, len(p.clients), len(p.ranking))
	}
}

// TestPool_ReleaseDuringMove: a slot that is released while it moves is free afterwards. A listener may die while
// another Service takes it over.
func TestPool_ReleaseDuringMove(t *testing.T) {
	p := NewPool(Limits{})
	from, to := p.Budget(), p.Budget()
	for range 100 {
		var s Slot
		from.Acquire(&s, netip.Addr{})
		var given sync.WaitGroup
		given.Go(s.Release)
		s.Move(to)
		given.Wait()
		if p.used != 0 || from.used != 0 || to.used != 0 {
			t.Fatalf("%d slots are taken, %d and %d of the budgets", p.used, from.used, to.used)
		}
	}
}
