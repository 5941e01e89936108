// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// Limits are the limits of a Pool. Zero means no limit.
type Limits struct {
	// Total is how many slots there are, and PerBudget how many of them one budget may have.
	Total, PerBudget int
	// PerClient is how many slots one client address may have over all budgets. The addresses of an
	// IPv6 /64 may together have prefixFactor times as many: one host may use a whole /64, but the
	// pods of a node share one, too. All IPv4 loopback addresses count as one.
	PerClient int
}

const (
	// An IPv6 /64 may have prefixFactor times as many slots as one address.
	prefixFactor = 8
	// The last 1/reservePart of all slots is for budgets that have fewer than fewMax slots, and less
	// than 1/fewPart of their limit.
	fewMax, fewPart, reservePart = 16, 16, 10
	// candidatesMax limits how many slots leastActive compares.
	candidatesMax = 16
)

// Pool limits how many slots are taken at the same time: in total, by each Budget, and by each client address.
// A slot stays taken until Release, unless its holder is an occupant, which a new occupant may replace.
// Any goroutine may use it.
//
// The lock guards the fields of the pool, its budgets and slots; no call that can block is made under it.
// No operation iterates over all slots or clients; its cost grows with the logarithm of the number of budgets.
type Pool struct {
	mu      sync.Mutex
	limits  Limits
	used    int
	clients map[netip.Prefix]*group
	ranking ranking
	// steps counts the visited slots, groups and budgets. With it, a test proves that the cost of a
	// replacement is constant.
	steps int
}

// Budget counts the slots of one holder in a pool: a Service, or a listener. Any goroutine may use it.
type Budget struct {
	pool *Pool
	group
	// rank is the budget's index in the ranking, as long as it has slots.
	rank int
}

// group counts the slots of a budget or a client.
type group struct {
	used int
	// recent has the slots with an occupant. touch moves a slot to the front.
	recent list.List
}

// Slot is one place in a pool. The zero value is not taken.
type Slot struct {
	// pool is nil until the slot is first taken. budget is nil whenever the slot is not taken.
	pool   *Pool
	budget *Budget
	by     occupant
	in     []seat
}

// seat is the position of a slot in one group: that of its budget, for which the prefix is zero, or
// that of a prefix of its client.
type seat struct {
	prefix netip.Prefix
	group  *group
	at     *list.Element
}

// occupant is a holder of a slot that a new occupant may replace.
type occupant interface {
	// lastActive is called under the lock of the pool.
	lastActive() time.Time
	// evict ends the occupant. A new occupant already has its slot.
	evict()
}

// NewPool returns a pool without slots taken.
func NewPool(limits Limits) *Pool {
	return &Pool{limits: limits, clients: make(map[netip.Prefix]*group)}
}

// Budget returns a new budget of the pool, for one more holder.
func (p *Pool) Budget() *Budget { return &Budget{pool: p} }

// LimitClients changes how many slots one client may have. Slots that are taken stay.
func (p *Pool) LimitClients(most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits.PerClient = most
}

// PerClient returns how many slots one client may have.
func (p *Pool) PerClient() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limits.PerClient
}

// Most returns how many slots there are.
func (p *Pool) Most() int { return p.limits.Total }

// Acquire takes a slot, and returns false with the reason if that would exceed a limit. The client is
// the zero Addr if there is none.
func (b *Budget) Acquire(s *Slot, client netip.Addr) (why Refusal, ok bool) {
	p, prefixes := b.pool, prefixesOf(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.full(b, prefixes, true); l.group != nil {
		return l.Why, false
	}
	p.put(s, b, prefixes, nil)
	return 0, true
}

// takeFor takes a slot for an occupant. At a limit it replaces the least active occupant: of the client, of
// the budget, or, at the limit of the pool, of the budget with the most slots. The caller must evict the
// replaced occupants. It returns false if there is none to replace.
func (b *Budget) takeFor(s *Slot, client netip.Addr, by occupant) (replaced []occupant, ok bool) {
	p, prefixes := b.pool, prefixesOf(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	var met *group
	for l := p.full(b, prefixes, false); l.group != nil && l.group != met; l = p.full(b, prefixes, false) {
		least := p.leastActive(l.group)
		if least == nil {
			return replaced, false
		}
		replaced = append(replaced, least.by)
		p.remove(least)
		met = l.group // if it is still full, the limit was lowered: its other occupants stay
	}
	p.put(s, b, prefixes, by)
	return replaced, true
}

// Release frees a slot. It does nothing if the slot is not taken.
func (s *Slot) Release() {
	if s.pool == nil {
		return
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.pool.remove(s)
}

// Move makes a taken slot count for another budget of its pool, even if that budget is full.
func (s *Slot) Move(to *Budget) {
	p := to.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if s.budget == nil || s.budget == to {
		return
	}
	var prefixes []netip.Prefix
	for _, seat := range s.in[1:] {
		prefixes = append(prefixes, seat.prefix)
	}
	p.remove(s)
	p.put(s, to, prefixes, s.by)
}

// touch notes that the occupant is active.
func (s *Slot) touch() {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.budget == nil {
		return
	}
	for _, seat := range s.in {
		seat.group.recent.MoveToFront(seat.at)
	}
}

// Limit is a limit that a client reached.
type Limit struct {
	// Why is ClientFull, PartFull or TotalFull.
	Why Refusal
	// There are Open of Most slots.
	Open, Most int
	// group has the slots; nil if no limit is met.
	group *group
}

// Met returns the limit that the next client would reach; if it would reach none, that of the pool.
func (b *Budget) Met(client netip.Addr) Limit {
	p, prefixes := b.pool, prefixesOf(client)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.full(b, prefixes, true)
	if l.group == nil {
		l = Limit{Why: TotalFull, Open: p.used, Most: p.limits.Total}
	}
	return l
}

// full returns the first limit that leaves no slot to a client of a budget. With reserve, the last
// slots of the pool are for budgets with few slots.
func (p *Pool) full(b *Budget, client []netip.Prefix, reserve bool) Limit {
	most := p.limits.PerClient
	for _, prefix := range client {
		p.steps++
		if g := p.clients[prefix]; g != nil && most > 0 && g.used >= most {
			return Limit{ClientFull, g.used, most, g}
		}
		most *= prefixFactor
	}
	if part := p.limits.PerBudget; part > 0 && b.used >= part {
		return Limit{PartFull, b.used, part, &b.group}
	}
	total := p.limits.Total
	if reserve && b.used >= max(min(p.limits.PerBudget/fewPart, fewMax), 1) {
		total -= total / reservePart
	}
	if total > 0 && p.used >= total {
		return Limit{TotalFull, p.used, total, &p.ranking[0].group}
	}
	return Limit{}
}

var loopback4 = netip.PrefixFrom(netip.AddrFrom4([4]byte{127}), 8)

// prefixesOf returns the prefixes that an address counts for, the longest first.
func prefixesOf(client netip.Addr) []netip.Prefix {
	switch {
	case !client.IsValid():
		return nil
	case client.Is4() && client.IsLoopback():
		return []netip.Prefix{loopback4}
	case client.Is4():
		return []netip.Prefix{netip.PrefixFrom(client, 32)}
	default:
		client = client.WithZone("")
		return []netip.Prefix{netip.PrefixFrom(client, 128), netip.PrefixFrom(client, 64).Masked()}
	}
}

func (p *Pool) put(s *Slot, b *Budget, client []netip.Prefix, by occupant) {
	if s.pool == nil { // it never changes: Release reads it without the lock
		s.pool = p
	}
	s.budget, s.by = b, by
	s.in = append(s.in[:0], seat{group: &b.group})
	for _, prefix := range client {
		g := p.clients[prefix]
		if g == nil {
			g = &group{}
			p.clients[prefix] = g
		}
		s.in = append(s.in, seat{prefix: prefix, group: g})
	}
	for i := range s.in {
		p.steps++
		g := s.in[i].group
		g.used++
		if by != nil {
			s.in[i].at = g.recent.PushFront(s)
		}
	}
	p.used++
	p.ranking.update(b)
}

// remove frees a slot, unless it is free.
func (p *Pool) remove(s *Slot) {
	if s.budget == nil {
		return
	}
	for _, seat := range s.in {
		p.steps++
		seat.group.used--
		if seat.at != nil {
			seat.group.recent.Remove(seat.at)
		}
		if seat.prefix.IsValid() && seat.group.used == 0 {
			delete(p.clients, seat.prefix)
		}
	}
	p.used--
	p.ranking.update(s.budget)
	s.budget = nil
}

// leastActive returns the slot whose occupant was inactive longest, of the last candidatesMax in the
// list; nil if no slot of the group has an occupant.
func (p *Pool) leastActive(g *group) (least *Slot) {
	var since time.Time
	for e, n := g.recent.Back(), 0; e != nil && n < candidatesMax; e, n = e.Prev(), n+1 {
		p.steps++
		s := e.Value.(*Slot)
		if at := s.by.lastActive(); least == nil || at.Before(since) {
			least, since = s, at
		}
	}
	return least
}
