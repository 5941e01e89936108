package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/internal/daemon/rival"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

const (
	// rivalsEvery is the pause between looks for other proxies, and rivalsSoon the
	// pause after an audit found changes by others. A look takes some milliseconds.
	rivalsEvery, rivalsSoon = 30 * time.Second, 5 * time.Second
	// rivalsSure is how long a process must be seen before it is reported: one that is
	// ending, or about to wait for this one, is no rival.
	rivalsSure = 3 * time.Second
	// rivalsAgain is the pause before it is reported again.
	rivalsAgain = 10 * time.Minute
)

// rivals looks for proxies that do not know the lock, such as a kube-proxy, and reports
// them. It implements observe.Listener.
type rivals struct {
	log    *zap.Logger
	looker rival.Looker
	// waits reports whether a process waits for this one; told emits the event.
	waits func(pid int) bool
	told  func(who string)
	// before returns the snapshot of a domain; during an event, the one from before it.
	before func(domain string) aggregator.Status
	// changed says that an audit has found changes by others.
	changed chan struct{}

	// first is since when each process of the last look has been seen, and saidAt when
	// rivals were last reported. Both belong to Run.
	first  map[string]time.Time
	saidAt time.Time

	mu sync.Mutex
	// who are the rivals, in words; empty for none.
	who   string
	since time.Time
	// rewrites counts the audits since then that found changes by others.
	rewrites int
	// adopted are the domains whose first audit is done.
	adopted map[string]bool
}

func newRivals(log *zap.Logger, waits func(int) bool, told func(string), before func(string) aggregator.Status) *rivals {
	return &rivals{
		log: log, waits: waits, told: told, before: before,
		changed: make(chan struct{}, 1), first: map[string]time.Time{}, adopted: map[string]bool{},
	}
}

// Run looks for rivals until the context ends.
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

// look looks once, and returns the time until the next look.
func (r *rivals) look(now time.Time) time.Duration {
	seen, err := r.looker.Look(r.waits)
	if err != nil {
		r.log.Debug("can find other proxies only by name", zap.Error(err))
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
	r.report(now, strings.Join(sure, "; "))
	return again
}

// report reports the rivals when they change, and from time to time.
func (r *rivals) report(now time.Time, who string) {
	r.mu.Lock()
	former := r.who
	if who != former {
		r.who, r.since, r.rewrites = who, now, 0
	}
	rewrites := r.rewrites
	r.mu.Unlock()
	switch {
	case who == "" && former != "":
		r.log.Info("the other proxy on this node is gone", zap.String("was", former))
	case who != "" && (who != former || now.Sub(r.saidAt) >= rivalsAgain):
		r.saidAt = now
		r.log.Warn("another proxy on this node also writes rules; stop one of them", zap.String("who", who), zap.Int("rewrites", rewrites))
		r.told(who)
	}
}

// findings returns the rivals.
func (r *rivals) findings() []health.Finding {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.who == "" {
		return nil
	}
	return []health.Finding{{Kind: health.Rival, Since: r.since, Problem: fmt.Sprintf(
		"another proxy is running on this node: %s; audits since then that found our rules changed: %d", r.who, r.rewrites)}}
}

// Aggregator counts audits that found changes by others. The first audit finds what the
// former run left, and a difference while changes of our own wait may be our own.
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

// Actors ignores the actors' events.
func (r *rivals) Actors(actors.Event) {}

// Supervisor ignores the supervisor's events.
func (r *rivals) Supervisor(supervisor.Event[service.Key]) {}

// holderAgain is the pause before the holder of an address is looked up and reported again.
const holderAgain = time.Minute

// addresses knows which addresses of this process other processes hold.
type addresses struct {
	log *zap.Logger
	// handing reports whether another proxy is handing its addresses over.
	handing func() bool
	// told emits the event.
	told func(problem string)

	mu    sync.Mutex
	taken map[string]health.Finding // by the field of the configuration
}

// listening returns a function that a server at an address calls with the outcome of each
// attempt to listen. The address is named by its field of the configuration.
func (a *addresses) listening(field, address string) func(error) {
	var saidAt time.Time
	handing := false
	return func(err error) {
		switch now := time.Now(); {
		case err == nil:
			if a.free(field) {
				a.log.Info("the address is free again; listening", zap.String(field, address))
			}
			saidAt, handing = time.Time{}, false
		case !errors.Is(err, syscall.EADDRINUSE):
		case a.handing():
			if !handing {
				handing = true
				a.log.Info("the other proxy still listens on an address; this one takes it over as soon as it is free", zap.String(field, address))
			}
		case now.Sub(saidAt) >= holderAgain:
			saidAt = now
			problem := fmt.Sprintf("%s %s is held by %s", field, address, holderIn(err))
			if a.set(field, health.Finding{Kind: health.AddressTaken, About: field, Since: now, Problem: problem}) {
				a.log.Warn("another program holds an address of this one; will retry", zap.String("problem", problem))
				a.told(problem)
			}
		}
	}
}

// holderIn returns the holder that an error names.
func holderIn(err error) string {
	if taken, ok := errors.AsType[*web.TakenError](err); ok && taken.Holder != "" {
		return taken.Holder
	}
	return "a process that cannot be found"
}

// free forgets a finding, and reports whether there was one.
func (a *addresses) free(field string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, known := a.taken[field]
	delete(a.taken, field)
	return known
}

// set records a finding, and reports whether it is new.
func (a *addresses) set(field string, f health.Finding) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	former, known := a.taken[field]
	if known && former.Problem == f.Problem {
		return false
	}
	if a.taken == nil {
		a.taken = map[string]health.Finding{}
	}
	a.taken[field] = f
	return true
}

// findings lists the addresses that other processes hold.
func (a *addresses) findings() (all []health.Finding) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, f := range a.taken {
		all = append(all, f)
	}
	slices.SortFunc(all, func(x, y health.Finding) int { return x.Since.Compare(y.Since) })
	return all
}
