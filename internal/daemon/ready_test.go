// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/service"
)

// followedLab has Services, and processes that follow them or not.
type followedLab struct {
	t   *testing.T
	dir string
	// mu guards the three maps, which processes read.
	mu   sync.Mutex
	port map[string]uint16    // the objects of each Service, by name
	at   map[string]time.Time // when they changed
	held map[string]bool
	r    *readiness
	stop func()
}

// start starts a process, after its first sync. It does not follow some Services.
func (l *followedLab) start(held ...string) {
	l.r = newReadiness(l.dir, zap.NewNop())
	l.ready(false) // without the first sync
	l.serve(held...)
}

// serve starts a server of the process.
func (l *followedLab) serve(held ...string) {
	l.lock(func() {
		l.held = map[string]bool{}
		for _, name := range held {
			l.held[name] = true
		}
	})
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan struct{})
	s := &followedServices{
		keys: func() (all []service.Key) {
			l.mu.Lock()
			defer l.mu.Unlock()
			for name := range l.port {
				all = append(all, service.ParseKey(name))
			}
			return all
		},
		known: func(key service.Key) service.Snapshot {
			l.mu.Lock()
			defer l.mu.Unlock()
			spec := &service.Spec{Key: key, Ports: []service.Port{{Port: l.port[key.String()]}}}
			return service.Snapshot{Spec: spec, Changed: l.at[key.String()]}
		},
		held: func() map[service.Key]health.Affected {
			l.mu.Lock()
			defer l.mu.Unlock()
			all := map[service.Key]health.Affected{}
			for name := range l.held {
				all[service.ParseKey(name)] = health.Affected{Service: name, Reason: "no room"}
			}
			return all
		},
	}
	go func() { l.r.run(ctx, s); close(ended) }()
	l.stop = func() { cancel(); <-ended }
	l.pass(2 * readyAgain)
}

func (l *followedLab) lock(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
}

// hold says whether a process does not follow a Service.
func (l *followedLab) hold(name string, held bool) {
	l.lock(func() {
		if delete(l.held, name); held {
			l.held[name] = true
		}
	})
}

func (l *followedLab) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (l *followedLab) change(name string) {
	l.lock(func() {
		l.port[name]++
		l.at[name] = time.Now()
	})
	l.pass(2 * readyAgain)
}

// ready expects the process to be ready, or not because of some Services.
func (l *followedLab) ready(want bool, because ...string) {
	l.t.Helper()
	now := l.r.now()
	var names []string
	for _, a := range now.Services {
		names = append(names, a.Service)
	}
	slices.Sort(names)
	if now.Ready() != want || !slices.Equal(names, because) {
		l.t.Errorf("ready: %v because of %v, want %v because of %v: %s", now.Ready(), names, want, because, now.Text(true))
	}
}

func readinessTest(t *testing.T, test func(l *followedLab)) {
	synctest.Test(t, func(t *testing.T) {
		l := &followedLab{t: t, dir: filepath.Join(t.TempDir(), "run"), at: map[string]time.Time{},
			port: map[string]uint16{"a/one": 1, "a/two": 1, "b/three": 1}}
		for name := range l.port {
			l.at[name] = time.Now()
		}
		test(l)
	})
}

// TestReadiness: a Service that the previous process followed counts as long as it is not followed and its objects are
// the same, even after a further restart.
func TestReadiness(t *testing.T) {
	readinessTest(t, func(l *followedLab) {
		l.start("a/one")
		l.ready(true) // a new node has no record
		l.stop()

		l.start("a/one", "a/two", "node")
		l.ready(false, "a/two", "node")
		if now := l.r.now(); !strings.Contains(now.Text(true), "a/two (no room)") || strings.Contains(now.Text(false), "two") {
			t.Errorf("%q to this host, %q to others", now.Text(true), now.Text(false))
		}
		l.pass(time.Hour)
		l.ready(false, "a/two", "node") // a rollout does not go on by waiting
		l.stop()

		l.start("a/two")
		l.ready(false, "a/two") // a restart does not excuse it
		l.hold("a/two", false)
		l.pass(2 * readyAgain)
		l.ready(true)
		l.hold("a/two", true) // such as a parked actor that is tried again
		l.pass(2 * readyAgain)
		l.ready(false, "a/two")
		l.hold("a/two", false)
		l.pass(2 * settling)
		l.hold("a/two", true)
		l.pass(2 * readyAgain)
		l.ready(true) // nothing makes a ready node unready
		l.stop()
		l.r.next()
		l.ready(false)
		l.serve("a/two", "b/three") // of a changed configuration
		l.ready(false, "b/three")
		l.stop()
	})
}

// TestReadiness_ChangedServiceNotCounted: no tenant can stop a rollout: a Service whose objects changed since the
// previous process followed it does not count.
func TestReadiness_ChangedServiceNotCounted(t *testing.T) {
	readinessTest(t, func(l *followedLab) {
		l.start()
		l.pass(2 * settling)
		l.change("a/one") // and the process stops before it is known whether it follows this
		l.stop()
		l.lock(func() { l.port["a/two"]++; l.port["a/new"] = 1 }) // while no process runs
		l.start("a/one", "a/two", "a/new", "b/three")
		l.ready(false, "b/three")
		l.change("b/three") // the remedy
		l.ready(true)
		l.change("b/three")
		l.ready(true)
		l.pass(2 * settling)
		l.ready(true)
		l.stop()
	})
}

// TestReadiness_AfterCrash: a process records a Service that it does not follow immediately, and the Services that it
// follows once they have settled, so that the record also holds after a crash.
func TestReadiness_AfterCrash(t *testing.T) {
	readinessTest(t, func(l *followedLab) {
		l.start()
		l.pass(2 * settling)
		l.hold("a/one", true)
		l.pass(2 * readyAgain)
		crashed := l.stop // without a record of its own
		l.start("a/one", "a/two")
		l.ready(false, "a/two")
		l.stop()
		crashed()
	})
}
