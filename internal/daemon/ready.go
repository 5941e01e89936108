// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// settling is how long after the first sync a Service that this process does not follow counts, and how long the
	// objects of a Service must be unchanged before this process is known to follow them.
	settling = time.Minute
	// readyAgain is the interval between two checks of the Services that are not followed.
	readyAgain = time.Second
	// heldFile contains the names of the Services that are not followed, and followedFile the digests of the objects of
	// all others. Both are for the next process.
	heldFile, followedFile = "held.json", "followed.json"
)

// readiness checks whether this process follows at least the Services that the previous process followed: if so, a
// rollout continues. It outlives servers. A Service is not followed if its changes are not applied (Book.Unfollowed).
//
// Invariant: a Service counts only while its objects are exactly those that the previous process followed, and only if
// it was not followed within settling after the first sync. So a tenant can neither stop a rollout with a Service that
// is not followed because of its objects, nor make a ready node unready.
type readiness struct {
	dir string
	log *zap.Logger

	// The first fields belong to run; servers run one after another.

	// followed contains the digests of the Services that the previous server followed, by name.
	followed map[string]uint64
	// before are the Services that the previous server, and after settling this one, did not follow; nil until load.
	before map[string]bool
	// quiet is when the first sync was complete, or the last time that a Service counted.
	quiet time.Time
	// recorded is when this server last recorded followed; zero before.
	recorded time.Time

	mu sync.Mutex
	// synced is when the first sync was complete; zero before.
	synced time.Time
	// counting are the Services that count against this server.
	counting map[string]health.Affected
}

// followedServices gives a readiness access to the Services of a server. Its functions may be called at any time.
type followedServices struct {
	// keys lists the Services. It walks all of them.
	keys func() []service.Key
	// known returns the state of a Service in the API.
	known func(service.Key) service.Snapshot
	// held returns the Services that the server does not follow, and service.Node for rules of the node itself.
	held func() map[service.Key]health.Affected
}

func newReadiness(dir string, log *zap.Logger) *readiness { return &readiness{dir: dir, log: log} }

// load reads the files of the previous process, which has ended: this process owns the rules.
func (r *readiness) load() {
	r.before = map[string]bool{}
	var names []string
	for file, into := range map[string]any{heldFile: &names, followedFile: &r.followed} {
		text, err := os.ReadFile(filepath.Join(r.dir, file))
		if err == nil {
			err = json.Unmarshal(text, into)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.log.Info("cannot read which Services the previous process followed; readiness depends on the first sync only", zap.Error(err))
			r.followed = nil
		}
	}
	for _, name := range names {
		r.before[name] = true
	}
}

// run follows a server after its first sync until the context ends.
func (r *readiness) run(ctx context.Context, s *followedServices) {
	if r.before == nil {
		r.load()
	}
	now := time.Now()
	r.quiet, r.recorded = now, time.Time{}
	held := map[service.Key]health.Affected{}
	for ctx.Err() == nil {
		held = s.held()
		counting, names, settled := r.look(time.Now(), held, s.known)
		r.count(now, counting)
		if settled && r.recorded.IsZero() {
			r.remember(now, held, s)
		} else if settled && names != nil {
			r.write(heldFile, names)
		}
		sleep.For(ctx, readyAgain)
	}
	maps.Copy(held, s.held()) // actors that have stopped no longer report failures
	r.remember(now, held, s)
}

// look returns those of the Services not followed now that count. settled reports whether none counts, and none will.
// If so, names lists all Services that are not followed if these have changed, and is nil otherwise.
func (r *readiness) look(now time.Time, held map[service.Key]health.Affected, known func(service.Key) service.Snapshot) (counting map[string]health.Affected, names []string, settled bool) {
	if len(r.counting) > 0 {
		r.quiet = now
	}
	if now.Sub(r.quiet) < settling {
		counting = map[string]health.Affected{}
		for key, a := range held {
			digest, was := r.followed[key.String()]
			if was && !r.before[key.String()] && digest == digestOf(known(key)) {
				counting[key.String()] = a
			}
		}
		return counting, nil, false
	}
	before := map[string]bool{}
	for key := range held {
		before[key.String()] = true
	}
	if maps.Equal(r.before, before) {
		return nil, nil, true
	}
	r.before = before
	return nil, slices.Sorted(maps.Keys(before)), true
}

// remember records for the next server which Services this one follows. A Service that counts against this server, or
// that changed too recently to be known as followed, keeps its previous digest.
func (r *readiness) remember(synced time.Time, held map[service.Key]health.Affected, s *followedServices) {
	now := time.Now()
	followed, before := map[string]uint64{}, map[string]bool{}
	for _, key := range append(s.keys(), service.Node) {
		name, known := key.String(), s.known(key)
		_, isHeld := held[key]
		digest, was := r.followed[name]
		_, counts := r.counting[name]
		switch recent := known.Changed.After(synced) && now.Sub(known.Changed) < settling; {
		case isHeld && !counts:
			before[name] = true
		case !counts && !recent && known.Changed.Before(r.recorded) && was:
			followed[name] = digest // a walk over all Services costs 10 µs for each
		case !counts && !recent:
			followed[name] = digestOf(known)
		case was:
			followed[name] = digest
		}
	}
	r.followed, r.before, r.recorded = followed, before, now
	r.write(heldFile, slices.Sorted(maps.Keys(before)))
	r.write(followedFile, followed)
}

// count publishes the Services that count.
func (r *readiness) count(synced time.Time, counting map[string]health.Affected) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced, r.counting = synced, counting
}

// next makes readiness wait for the first sync of the next server.
func (r *readiness) next() {
	r.count(time.Time{}, nil)
}

// now returns what is missing.
func (r *readiness) now() health.Readiness {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.synced.IsZero() {
		return health.Readiness{Missing: "the first sync is not complete: the rules of this process are not all in the kernel (see sluice status)"}
	}
	return health.Readiness{Services: slices.Collect(maps.Values(r.counting))}
}

// write writes a file for the next process.
func (r *readiness) write(file string, content any) {
	if err := record(filepath.Join(r.dir, file), content); err != nil {
		r.log.Info("cannot record which Services this process follows, for the readiness of the next one", zap.Error(err))
	}
}

// ready returns what /readyz answers. A process on standby is ready: in a rollout with maxSurge, the previous process
// ends only when this one is ready.
func (s *server) ready() health.Readiness {
	if s.life.owner.waiting().For != "" {
		return health.Readiness{}
	}
	state, r := s.answers.Monitor.State(), s.life.readiness.now()
	for _, family := range state.Bare() {
		r.Missing = "the kernel has no rules of " + family.String()
	}
	return r
}
