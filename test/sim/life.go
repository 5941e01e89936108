// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"errors"
	"sync"

	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/nftables/wire"
	"github.com/sluice-proxy/sluice/service"
)

// life is how far a process is from its end: kill -9 ends it between two requests to the
// kernel, whatever it does otherwise.
type life struct {
	mu sync.Mutex
	// dead is set once nothing of the process reaches the kernel any more. Ended is closed
	// then.
	dead  bool
	ended chan struct{}
	fuse  *fuse
	// thawed, when set, is closed once requests go on.
	thawed chan struct{}
	// sockets counts those that are open.
	sockets int
	// known are the domains in which the process has read the kernel.
	known map[string]bool
}

// fuse ends a process at one of its requests, before or after the kernel serves it.
type fuse struct {
	family     service.Family
	ask, after bool
	skip       int
}

func newLife() *life { return &life{ended: make(chan struct{}), known: map[string]bool{}} }

// end ends the process for the kernel.
func (l *life) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endLocked()
}

func (l *life) endLocked() {
	if !l.dead {
		l.dead = true
		close(l.ended)
	}
}

// errKilled is what a request ends with whose process is no more.
var errKilled = errors.New("the process is dead")

// begin asks whether a request may begin. Last is set if it is the last one.
func (l *life) begin(family service.Family, ask bool) (last bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.thawed != nil {
		thawed := l.thawed
		l.mu.Unlock()
		<-thawed
		l.mu.Lock()
	}
	if l.dead {
		return false, errKilled
	}
	f := l.fuse
	if f == nil || f.family != family || f.ask != ask {
		return false, nil
	}
	if f.skip > 0 {
		f.skip--
		return false, nil
	}
	if !f.after {
		l.endLocked()
		return false, errKilled
	}
	return true, nil
}

func (l *life) burn(f *fuse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fuse = f
}

// freeze holds all requests until thaw.
func (l *life) freeze() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.thawed = make(chan struct{})
}

func (l *life) thaw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.thawed)
	l.thawed = nil
}

func (l *life) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// audited notes that the process has read the kernel.
func (l *life) audited(domain string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[domain] = true
}

// knows reports whether the process has read the kernel in a domain.
func (l *life) knows(domain string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.known[domain]
}

func (l *life) count(by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sockets += by
}

// mortal is a socket of a process that may be killed.
type mortal struct {
	nftkernel.Socket
	life   *life
	family service.Family
}

// Commit implements nftkernel.Socket.
func (s *mortal) Commit(t *wire.Transaction) ([]*wire.Rejection, error) {
	last, err := s.life.begin(s.family, false)
	if err != nil {
		return nil, err
	}
	if last {
		defer s.life.end()
	}
	return s.Socket.Commit(t)
}

// Ask implements nftkernel.Socket.
func (s *mortal) Ask(ctx context.Context, kind uint16, family uint8, all bool, attrs []byte, each func(wire.Message)) error {
	last, err := s.life.begin(s.family, true)
	if err != nil {
		return err
	}
	if last {
		defer s.life.end()
	}
	return s.Socket.Ask(ctx, kind, family, all, attrs, each)
}

// Close implements nftkernel.Socket.
func (s *mortal) Close() error {
	s.life.count(-1)
	return s.Socket.Close()
}
