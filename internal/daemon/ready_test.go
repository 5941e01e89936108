package daemon

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/observe/health"
)

// quarantine returns Services in quarantine.
func quarantine(names ...string) map[string]health.Affected {
	all := map[string]health.Affected{}
	for _, name := range names {
		all[name] = health.Affected{Service: name, Reason: "no room"}
	}
	return all
}

// synced begins a server after its first sync, at which there were the Services.
func synced(r *readiness, names ...string) time.Time {
	r.next()
	r.synced, r.known, r.fresh = time.Now(), set(names), map[string]health.Affected{}
	return r.synced
}

// TestReadiness: only a Service that comes into quarantine because of the start of a process counts, and it counts until
// it is accepted.
func TestReadiness(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	look := func(r *readiness, now time.Time, held map[string]health.Affected) {
		t.Helper()
		if names, changed := r.look(now, held); changed {
			check(t, r.record(names))
		}
	}
	ready := func(r *readiness, want bool) {
		t.Helper()
		if now := r.now(); now.Ready() != want {
			t.Errorf("ready: %v, want %v: %s", !want, want, now.Text(true))
		}
	}

	first := newReadiness(dir, zap.NewNop())
	if text := newReadiness(dir, zap.NewNop()).now(); text.Ready() || !strings.Contains(text.Text(false), "first sync") {
		t.Errorf("before the first sync: %q", text.Text(false))
	}
	began := synced(first, "a/old", "a/new")
	look(first, began, quarantine("a/old"))
	ready(first, true) // a new node has no record
	look(first, began.Add(settling), quarantine("a/old"))

	second := newReadiness(dir, zap.NewNop()) // after a crash
	ready(second, false)
	began = synced(second, "a/old", "a/new")
	look(second, began, quarantine("a/old", "a/created-later"))
	ready(second, true)
	look(second, began.Add(settling/2), quarantine("a/old", "a/new"))
	ready(second, false)
	now := second.now()
	if local, remote := now.Text(true), now.Text(false); !strings.Contains(local, "a/new (no room)") || strings.Contains(remote, "no room") {
		t.Errorf("%q to this host, %q to others", local, remote)
	}
	look(second, began.Add(2*settling), quarantine("a/old", "a/new"))
	ready(second, false) // a rollout does not go on by waiting

	third := newReadiness(dir, zap.NewNop())
	began = synced(third, "a/old", "a/new")
	look(third, began, quarantine("a/old", "a/new"))
	ready(third, false) // a restart does not excuse it
	look(third, began.Add(settling), quarantine("a/old"))
	ready(third, true)
	look(third, began.Add(settling), quarantine("a/old", "a/new"))
	ready(third, true) // a tenant cannot make a ready node unready
	third.next()
	ready(third, false) // the server that follows has its own first sync
}
