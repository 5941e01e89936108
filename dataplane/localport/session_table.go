package localport

import (
	"net/netip"
	"sync"
)

// sessionTable finds the sessions of one listener by client. The lock guards
// the map, never a call. The zero value is ready.
type sessionTable struct {
	mu       sync.Mutex
	byClient map[netip.AddrPort]*session
}

// get gives a client's session, nil when there is none.
func (t *sessionTable) get(client netip.AddrPort) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byClient[client]
}

func (t *sessionTable) put(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byClient == nil {
		t.byClient = make(map[netip.AddrPort]*session)
	}
	t.byClient[s.client] = s
}

// remove forgets a session, unless its client has another one by now.
func (t *sessionTable) remove(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.byClient[s.client] == s {
		delete(t.byClient, s.client)
	}
}

// leastActive gives the session whose last datagram is the longest ago, nil when
// there is none. It walks over all; their number is bounded, and it is asked
// only at the bound.
func (t *sessionTable) leastActive() *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	var least *session
	for _, s := range t.byClient {
		if least == nil || s.active.Load() < least.active.Load() {
			least = s
		}
	}
	return least
}

// closeAll ends all sessions.
func (t *sessionTable) closeAll() {
	t.mu.Lock()
	all := t.byClient
	t.byClient = nil
	t.mu.Unlock()
	for _, s := range all {
		s.close()
	}
}
