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

	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/service"
)

const (
	// settling is how long after the first sync a rejected Service counts against this process.
	settling = time.Minute
	// readyAgain is the interval between two looks at the quarantine.
	readyAgain = time.Second
	// quarantineFile has the names of the Services in quarantine, for the next process.
	quarantineFile = "quarantine.json"
)

// readiness knows whether this process serves at least what the one before it served: a rollout goes on by it. It
// outlives servers.
//
// Invariant: what was in quarantine before, and what comes into quarantine later than settling, does not count. So a
// tenant can neither stop a rollout with a Service that was rejected before it, nor make a ready node unready.
type readiness struct {
	file string
	log  *zap.Logger

	mu sync.Mutex
	// before are the Services that were in quarantine before this server; nil without a record.
	before map[string]bool
	// synced is when the first sync was complete; zero before.
	synced time.Time
	// known are the Services of the first sync.
	known map[string]bool
	// fresh are the Services that count against this process.
	fresh map[string]health.Affected
}

// newReadiness reads what the process before recorded.
func newReadiness(dir string, log *zap.Logger) *readiness {
	r := &readiness{file: filepath.Join(dir, quarantineFile), log: log}
	text, err := os.ReadFile(r.file)
	var names []string
	if err == nil {
		err = json.Unmarshal(text, &names)
	}
	switch {
	case err == nil:
		r.before = set(names)
	case !errors.Is(err, fs.ErrNotExist):
		log.Info("cannot read the record of quarantined Services; readiness does not depend on them", zap.Error(err))
	}
	return r
}

func set(names []string) map[string]bool {
	all := make(map[string]bool, len(names))
	for _, name := range names {
		all[name] = true
	}
	return all
}

// run follows a server after its first sync until the context ends.
func (r *readiness) run(ctx context.Context, keys []service.Key, held func() map[string]health.Affected) {
	known := map[string]bool{service.Node.String(): true} // rules of the node itself
	for _, key := range keys {
		known[key.String()] = true
	}
	r.mu.Lock()
	r.synced, r.known, r.fresh = time.Now(), known, map[string]health.Affected{}
	r.mu.Unlock()
	for ctx.Err() == nil {
		if names, changed := r.look(time.Now(), held()); changed {
			if err := r.record(names); err != nil {
				r.log.Info("cannot record quarantined Services for the readiness of the next process", zap.Error(err))
			}
		}
		wait(ctx, readyAgain)
	}
}

// look judges the Services in quarantine now. Those that do not count against this process are recorded: it returns
// them if the record changes.
func (r *readiness) look(now time.Time, held map[string]health.Affected) (names []string, changed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	settled := now.Sub(r.synced) >= settling
	for name, a := range held {
		if !settled && r.before != nil && !r.before[name] && r.known[name] {
			r.fresh[name] = a
		}
	}
	maps.DeleteFunc(r.fresh, func(name string, _ health.Affected) bool { _, still := held[name]; return !still })
	if !settled || len(r.fresh) > 0 {
		return nil, false
	}
	names, r.known = slices.Sorted(maps.Keys(held)), nil
	if r.before != nil && maps.Equal(r.before, set(names)) {
		return nil, false
	}
	r.before = set(names)
	return names, true
}

// next makes the server that follows wait for its own first sync.
func (r *readiness) next() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.synced, r.fresh = time.Time{}, nil
}

// now returns what is missing.
func (r *readiness) now() health.Readiness {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.synced.IsZero() {
		return health.Readiness{Missing: "the first sync is not complete: the rules of this process are not all in the kernel (see sluice status)"}
	}
	return health.Readiness{Services: slices.Collect(maps.Values(r.fresh))}
}

// record writes the names for the next process. A crash leaves the old record or the new one.
func (r *readiness) record(names []string) error {
	text, err := json.Marshal(names)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(r.file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(r.file+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(r.file+".new", r.file)
}

// ready returns what /readyz answers. A process on standby is ready: in a rollout with maxSurge, the previous process ends
// only then.
func (s *server) ready() health.Readiness {
	if s.life.owner.waiting().For != "" {
		return health.Readiness{}
	}
	return s.life.readiness.now()
}

// held returns the Services in quarantine.
func (s *server) held() map[string]health.Affected {
	all := map[string]health.Affected{}
	for _, status := range s.proxy.Status() {
		for _, q := range status.Quarantined {
			all[q.Key.String()] = health.Affected{Service: q.Key.String(), Since: q.Since, Reason: q.Reason}
		}
	}
	return all
}
