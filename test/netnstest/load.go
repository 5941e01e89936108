// SPDX-License-Identifier: Apache-2.0

package netnstest

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/internal/sleep"
)

// Target is an address to talk to, over "tcp" or "udp".
type Target struct {
	Network string
	Addr    netip.AddrPort
}

// String returns the network and the address.
func (t Target) String() string { return t.Network + " " + t.Addr.String() }

// Exchange is one request of a [Load] and its outcome: a separate connection, or a line on
// an established one.
type Exchange struct {
	// Target is the index of the target in the configuration.
	Target       int
	Session      bool
	Began, Ended time.Time
	// Silent is, on an established connection, when the exchange before ended, unless that is zero. A reset that comes in
	// between shows in this one.
	Silent time.Time
	Answer Answer
	Err    error
}

// LoadConfig says what a busy client does.
type LoadConfig struct {
	Client  *netns.Namespace
	Targets []Target
	// Pause is between two new connections to a target. Over UDP, the client does not wait for an
	// answer before it sends the next datagram.
	Pause time.Duration
	// TalkPause, unless zero, is between two lines on one established connection to each TCP
	// target. A connection that is lost is opened again.
	TalkPause time.Duration
	// Patience bounds one exchange. Nothing is tried twice within it.
	Patience time.Duration
	// Note is called after each exchange, from several goroutines.
	Note func(Exchange)
}

// Load is a client that keeps talking to its targets until it is stopped.
type Load struct {
	LoadConfig
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// StartLoad opens the sessions, all of which must succeed, and starts to talk.
func StartLoad(ctx context.Context, c LoadConfig) (*Load, error) {
	l := &Load{LoadConfig: c}
	sessions := make([]*Session, len(c.Targets))
	for i, target := range c.Targets {
		if c.TalkPause == 0 || !strings.HasPrefix(target.Network, "tcp") {
			continue
		}
		session, err := l.open(ctx, target)
		if err != nil {
			for _, s := range sessions[:i] {
				closeSession(s)
			}
			return nil, fmt.Errorf("start the load: %w", err)
		}
		sessions[i] = session
	}
	ctx, l.cancel = context.WithCancel(ctx)
	for i, session := range sessions {
		l.done.Go(func() { l.connect(ctx, i) })
		if session != nil {
			l.done.Go(func() { l.talk(ctx, i, session) })
		}
	}
	return l, nil
}

// Stop waits for the exchanges that are under way. Note is not called after it.
func (l *Load) Stop() {
	l.cancel()
	l.done.Wait()
}

func (l *Load) connect(ctx context.Context, i int) {
	for ctx.Err() == nil {
		if strings.HasPrefix(l.Targets[i].Network, "udp") {
			l.done.Go(func() { l.once(i) })
		} else {
			l.once(i)
		}
		sleep.For(ctx, l.Pause)
	}
}

// once makes one connection. It is not bound to the end of the load: stopping is no failure.
func (l *Load) once(i int) {
	l.measure(Exchange{Target: i}, func(ctx context.Context) (Answer, error) {
		return Ask(ctx, l.Client, l.Targets[i].Network, l.Targets[i].Addr)
	})
}

// talk sends lines on a session. New connections are counted elsewhere, so opening the session
// again is not.
func (l *Load) talk(ctx context.Context, i int, session *Session) {
	defer func() { closeSession(session) }()
	var silent time.Time
	for n := 0; ctx.Err() == nil; sleep.For(ctx, l.TalkPause) {
		if session == nil {
			session, _ = l.open(ctx, l.Targets[i])
			silent = time.Now()
			continue
		}
		n++
		err := l.measure(Exchange{Target: i, Session: true, Silent: silent}, func(ctx context.Context) (Answer, error) {
			return session.Answer(), session.Echo(ctx, fmt.Sprint("line ", n))
		})
		if err != nil {
			closeSession(session)
			session = nil
		}
		silent = time.Now()
	}
}

func (l *Load) open(ctx context.Context, target Target) (*Session, error) {
	ctx, cancel := context.WithTimeout(ctx, l.Patience)
	defer cancel()
	return Connect(ctx, l.Client, target.Addr)
}

func (l *Load) measure(e Exchange, do func(context.Context) (Answer, error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), l.Patience)
	defer cancel()
	e.Began = time.Now()
	e.Answer, e.Err = do(ctx)
	e.Ended = time.Now()
	l.Note(e)
	return e.Err
}

func closeSession(s *Session) {
	if s != nil {
		_ = s.Close() // its lines have shown whether it works
	}
}
