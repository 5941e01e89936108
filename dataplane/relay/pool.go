package relay

import (
	"container/list"
	"net/netip"
	"sync"
	"time"
)

// Limits are those of a Pool. Zero means no limit.
type Limits struct {
	// Total is how many slots there are, and PerBudget how many of them one budget may have.
	Total, PerBudget int
	// PerClient is how many one client address may have over all budgets. The addresses of an IPv6
	// /64 may have prefixFactor times as many together: a host may use all of them, and the pods of
	// a node share one. All loopback addresses count as one.
	PerClient int
}

const (
	// prefixFactor is how many times the slots of one address those of its IPv6 /64 may have.
	prefixFactor = 8
	// A budget with fewer than fewMax slots, or a fewPart of what it may have, may take the last
	// reservePart of all slots.
	fewMax, fewPart, reservePart = 16, 16, 10
	// candidatesMax bounds how many slots are looked at to find the one to replace.
	candidatesMax = 16
)

// Pool bounds what is open at the same time: in all, for each Budget, and for each client address. A slot
// is for something that stays until it ends, or for an occupant, which a new one may replace. Any
// goroutine may use it.
//
// The lock guards the fields of the pool, its budgets and slots, never a call that can block. No
// operation walks over slots or clients; the number of budgets counts with its logarithm.
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

// Budget is the part of a pool of one holder: a Service, or a listener. Any goroutine may use it.
type Budget struct {
	pool *Pool
	group
	// rank is where it is in the ranking, as long as it has slots.
	rank int
}

// group counts the slots of a budget or a client.
type group struct {
	used int
	// recent has the slots with an occupant, in the order of their last move to the front, the
	// latest first.
	recent list.List
}

// Slot is one place in a pool. The zero value is not taken.
type Slot struct {
	// pool is nil until the slot is taken, and budget unless it is.
	pool   *Pool
	budget *Budget
	by     occupant
	in     []seat
}

// seat is where a slot is in one group. The prefix of a client is zero if it is the group of the
// budget.
type seat struct {
	prefix netip.Prefix
	group  *group
	at     *list.Element
}

// occupant is what a new one may replace.
type occupant interface {
	// lastActive is called under the lock of the pool.
	lastActive() time.Time
	// evict ends it. Its slot is another's already.
	evict()
}

// NewPool returns a pool without slots taken.
func NewPool(limits Limits) *Pool {
	return &Pool{limits: limits, clients: make(map[netip.Prefix]*group)}
}

// Budget returns a part of the pool for another holder.
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

// takeFor takes a slot for an occupant. At a limit it replaces the least active occupant of the
// same client, or of the same budget, or of the budget that has most. The caller evicts those. It
// reports false if there is none to replace.
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
		met = l.group // more than one only if the limit was lowered: the others stay
	}
	p.put(s, b, prefixes, by)
	return replaced, true
}

// Release returns a slot. One that is not taken stays so.
func (s *Slot) Release() {
	if s.pool == nil {
		return
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	s.pool.remove(s)
}

// Move makes a slot that is taken count for another budget of its pool, even if that one is full.
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

// Limit is a limit that a client has met.
type Limit struct {
	// Why is ClientFull, PartFull or TotalFull.
	Why Refusal
	// There are Open of Most slots.
	Open, Most int
	// group has the slots; nil if no limit is met.
	group *group
}

// Met returns the limit that the next client would meet, or the pool's if that is none.
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

// full returns the first limit that leaves no slot to a client of a budget. With reserve, it keeps
// the last slots for budgets with few.
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

// prefixesOf returns what an address counts for, the narrow prefix first.
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
	if s.pool == nil { // Give reads it without the lock
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

// leastActive returns the slot whose occupant was active last, of those at the end of the list;
// nil if the group has none with an occupant.
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
