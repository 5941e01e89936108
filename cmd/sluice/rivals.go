package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/internal/daemon/rival"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

const (
	// rivalsEvery is the pause between looks for other proxies, and rivalsSoon that
	// after an audit has found changes by others. A look takes some milliseconds.
	rivalsEvery, rivalsSoon = 30 * time.Second, 5 * time.Second
	// rivalsSure is how long somebody is seen before it is said: a proxy that is
	// ending, or one that is about to wait for this one, is no rival.
	rivalsSure = 3 * time.Second
	// rivalsAgain is the pause before it is said again.
	rivalsAgain = 10 * time.Minute
)

// rivals looks for proxies that know nothing of the lock, such as a kube-proxy, and
// says so. It implements observe.Listener.
type rivals struct {
	log    *zap.Logger
	looker rival.Looker
	// waits tells which processes wait for this one; told is for the event.
	waits func(pid int) bool
	told  func(who string)
	// before gives the snapshot of a domain, which in an event is that from before it.
	before func(domain string) aggregator.Status
	// changed says that an audit has found changes by others.
	changed chan struct{}

	// first is since when each is seen that the last look saw, and saidAt when it was
	// last said. They belong to Run.
	first  map[string]time.Time
	saidAt time.Time

	mu sync.Mutex
	// who are the rivals, in words; empty for none. Rewrites counts the audits that have
	// found changes by others since then.
	who      string
	since    time.Time
	rewrites int
	adopted  map[string]bool
}

func newRivals(log *zap.Logger, waits func(int) bool, told func(string), before func(string) aggregator.Status) *rivals {
	return &rivals{
		log: log, waits: waits, told: told, before: before,
		changed: make(chan struct{}, 1), first: map[string]time.Time{}, adopted: map[string]bool{},
	}
}

// status gives the newest snapshot of a domain.
func (s *server) status(domain string) aggregator.Status {
	for _, status := range s.proxy.Status() {
		if status.Domain == domain {
			return status
		}
	}
	return aggregator.Status{}
}

// watchRivals looks for other proxies from when the rules are this process's.
func (s *server) watchRivals(ctx context.Context) {
	select {
	case <-s.owner.mayWrite:
		s.rivals.Run(ctx)
	case <-ctx.Done():
	}
}

// Run looks every now and then, until the context ends.
func (r *rivals) Run(ctx context.Context) {
	for {
		began := time.Now()
		again := r.look(began)
		timer := time.NewTimer(again)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
			continue
		case <-r.changed:
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(min(again, rivalsSoon) - time.Since(began)):
		}
	}
}

// look looks once, and gives the time until the next look.
func (r *rivals) look(now time.Time) time.Duration {
	seen, err := r.looker.Look(r.waits)
	if err != nil {
		r.log.Debug("other proxies are looked for by name only", zap.Error(err))
	}
	again, first := rivalsEvery, map[string]time.Time{}
	var sure []string
	for _, s := range seen {
		who := s.String()
		since, known := r.first[who]
		if !known {
			since = now
		}
		first[who] = since
		if now.Sub(since) >= rivalsSure {
			sure = append(sure, who)
			continue
		}
		again = rivalsSure
		r.log.Debug("this may be another proxy; looking again", zap.String("who", who))
	}
	r.first = first
	r.say(now, strings.Join(sure, "; "))
	return again
}

// say says who the rivals are, when that changes and every now and then.
func (r *rivals) say(now time.Time, who string) {
	r.mu.Lock()
	former := r.who
	if who != former {
		r.who, r.since, r.rewrites = who, now, 0
	}
	rewrites := r.rewrites
	r.mu.Unlock()
	switch {
	case who == "" && former != "":
		r.log.Info("no other proxy works on this node any more", zap.String("was", former))
	case who != "" && (who != former || now.Sub(r.saidAt) >= rivalsAgain):
		r.saidAt = now
		r.log.Warn("another proxy on this node writes rules, too; stop either", zap.String("who", who), zap.Int("rewrites", rewrites))
		r.told(who)
	}
}

// findings says who the rivals are.
func (r *rivals) findings() []health.Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.who == "" {
		return nil
	}
	return []health.Finding{{Kind: health.Rival, Since: r.since,
		Problem: fmt.Sprintf("another proxy works on this node: %s; audits that found our rules changed since then: %d", r.who, r.rewrites)}}
}

// Aggregator takes note of audits that have found what others have changed. What the
// first one finds is what the former run has left, and what differs while something
// of our own waits is nobody else's doing.
func (r *rivals) Aggregator(event aggregator.Event) {
	e, audited := event.(aggregator.AuditDone)
	if !audited || e.Err != nil {
		return
	}
	before := r.before(e.Domain)
	r.mu.Lock()
	foreign := r.adopted[e.Domain] && e.Drift.Any() && before.Failures == 0 && !before.NodeAtFault && before.Ledger.Dirty == 0
	r.adopted[e.Domain] = true
	if foreign {
		r.rewrites++
	}
	r.mu.Unlock()
	if !foreign {
		return
	}
	select {
	case r.changed <- struct{}{}:
	default: // a look is due
	}
}

// Actors and Supervisor are for others.
func (r *rivals) Actors(actors.Event) {}

// Supervisor is for others.
func (r *rivals) Supervisor(supervisor.Event[service.Key]) {}
