// SPDX-License-Identifier: Apache-2.0

package web

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"

	"golang.org/x/sys/unix"
)

// connectionsMax returns how many connections a server has at a time. Two servers and the listeners
// of one Limit take three eighths of the descriptors at most, so that clients cannot keep the
// process from running programs and opening sockets, which changes of rules may need.
func connectionsMax() int {
	const least, most = 16, 2000
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return least
	}
	return int(min(max(limit.Cur/8, least), most))
}

// WaitingMax returns how many requests of one server may wait for long: a quarter of its connections. Requests in
// progress keep their places, so more of them would leave few for probes.
func WaitingMax() int { return connectionsMax() / 4 }

// Limit bounds the connections of many listeners: together as many as one Server has, and each a
// part of them, so that the clients of one listener leave room for the others. An eighth of the
// places is reserved for loopback clients. A new connection never waits: where no place is free, it
// takes the place of the connection that has been idle for longest. It is rejected if every
// connection has a request in progress.
//
// Concurrency: all methods are safe for concurrent use. The lock guards the places and the held
// connections, and nothing blocks while it is held.
type Limit struct {
	each int

	mu  sync.Mutex
	all places
	// turns counts how often a connection became idle.
	turns uint64
}

// NewLimit makes a limit. It reads the process's limit of descriptors.
func NewLimit() *Limit {
	const share, least = 16, 16
	all := connectionsMax()
	return newLimit(all, max(all/share, least))
}

func newLimit(all, each int) *Limit { return &Limit{each: each, all: places{most: all}} }

// Bound returns a listener whose connections are limited, for a server that has not started. It
// changes the server's handler and context: a connection is idle unless the handler runs.
func (l *Limit) Bound(server *http.Server, listener net.Listener) net.Listener {
	next := server.Handler
	server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if held, ok := r.Context().Value(heldKey{}).(*held); ok {
			held.busy()
			defer held.idle()
		}
		next.ServeHTTP(w, r)
	})
	server.ConnContext = func(ctx context.Context, conn net.Conn) context.Context {
		if encrypted, ok := conn.(*tls.Conn); ok {
			conn = encrypted.NetConn()
		}
		return context.WithValue(ctx, heldKey{}, conn)
	}
	return &bounded{Listener: listener, limit: l, own: &places{most: l.each}}
}

// heldKey is the key of a request's connection in its context.
type heldKey struct{}

// bounded is a listener with places in a Limit.
type bounded struct {
	net.Listener
	limit *Limit
	own   *places
}

// Accept returns the next connection that has a place.
func (b *bounded) Accept() (net.Conn, error) {
	for {
		conn, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		held := &held{Conn: conn, limit: b.limit, in: [2]*places{b.own, &b.limit.all}, from: far}
		if OnLoopback(conn.RemoteAddr().String()) {
			held.from = near
		}
		if b.limit.admit(held) {
			return held, nil
		}
		_ = conn.Close() // nothing was read
	}
}

// OnLoopback reports whether an address with a port is one of the loopback device, which only this host reaches.
func OnLoopback(address string) bool {
	at, err := netip.ParseAddrPort(address)
	return err == nil && at.Addr().Unmap().IsLoopback()
}

// origin is where the client of a connection is.
type origin int

const (
	far  origin = iota // on another host, or at an address of this one
	near               // at a loopback address
)

// places are what the connections of one listener may take, or those of all listeners of a Limit.
type places struct {
	most  int
	taken [2]int
	// idle has the connections without a request in progress, the one that has been idle for longest
	// first.
	idle [2]list.List
}

// reserve is the number of places that far clients leave free.
func (p *places) reserve() int { return (p.most + 7) / 8 }

func (p *places) room(from origin) bool {
	return p.taken[far]+p.taken[near] < p.most && (from == near || p.taken[far] < p.most-p.reserve())
}

// oldest returns the connection to close for a new one; nil if there is none.
func (p *places) oldest(from origin) *held {
	first, second := front(&p.idle[far]), front(&p.idle[near])
	if from == far && p.taken[near] <= p.reserve() {
		return first // the others are the reserve
	}
	if first == nil || second != nil && second.turn < first.turn {
		return second
	}
	return first
}

func front(l *list.List) *held {
	if element := l.Front(); element != nil {
		return element.Value.(*held)
	}
	return nil
}

// admit takes a place for a connection, if need be that of an idle one.
func (l *Limit) admit(c *held) bool {
	var closed []*held
	defer func() {
		for _, victim := range closed {
			_ = victim.Conn.Close() // its client waits for nothing
		}
	}()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range c.in {
		if p.room(c.from) {
			continue
		}
		victim := p.oldest(c.from)
		if victim == nil {
			return false
		}
		victim.leave()
		closed = append(closed, victim)
	}
	for _, p := range c.in {
		p.taken[c.from]++
	}
	c.placed = true
	c.rest()
	return true
}

// held is a connection that has a place.
type held struct {
	net.Conn
	limit *Limit
	in    [2]*places
	from  origin

	// The limit's lock guards the following. turn says since when the connection is idle.
	placed bool
	turn   uint64
	at     [2]*list.Element
}

// busy notes that a request is in progress.
func (h *held) busy() {
	h.limit.mu.Lock()
	defer h.limit.mu.Unlock()
	h.rise()
}

// idle notes that no request is in progress.
func (h *held) idle() {
	h.limit.mu.Lock()
	defer h.limit.mu.Unlock()
	if h.placed {
		h.rest()
	}
}

// rest enters the connection as the last idle one. The caller holds the lock.
func (h *held) rest() {
	h.limit.turns++
	h.turn = h.limit.turns
	for i, p := range h.in {
		h.at[i] = p.idle[h.from].PushBack(h)
	}
}

// rise removes the connection from the idle ones. The caller holds the lock.
func (h *held) rise() {
	for i, p := range h.in {
		if h.at[i] != nil {
			p.idle[h.from].Remove(h.at[i])
			h.at[i] = nil
		}
	}
}

// leave gives the place back. The caller holds the lock.
func (h *held) leave() {
	h.rise()
	if !h.placed {
		return
	}
	h.placed = false
	for _, p := range h.in {
		p.taken[h.from]--
	}
}

// Close closes the connection and gives its place back.
func (h *held) Close() error {
	err := h.Conn.Close()
	h.limit.mu.Lock()
	defer h.limit.mu.Unlock()
	h.leave()
	return err
}
