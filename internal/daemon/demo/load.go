package demo

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// target is one Service address and how to talk to it.
type target struct {
	label   string
	network string
	addr    netip.AddrPort
}

var targets = []target{
	{"TCP on IPv4", "tcp", netip.MustParseAddrPort("172.30.0.41:80")},
	{"TCP on IPv6", "tcp", netip.MustParseAddrPort("[fd00:172:30::41]:80")},
	{"UDP on IPv4", "udp", netip.MustParseAddrPort("172.30.0.53:53")},
	{"UDP on IPv6", "udp", netip.MustParseAddrPort("[fd00:172:30::53]:53")},
}

// spread counts the answers by backend.
type spread map[string]int

func (s spread) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, fmt.Sprintf("%s ×%d", name, s[name]))
	}
	return strings.Join(parts, "  ")
}

// connectMany makes count connections to a target, several at a time, and counts the
// answers by backend. It fails if one connection fails.
func connectMany(ctx context.Context, from *netns.Namespace, t target, count int) (spread, error) {
	var mu sync.Mutex
	answers := spread{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for range count {
		group.Go(func() error {
			answer, err := from.Ask(ctx, t.network, t.addr)
			if err != nil {
				return fmt.Errorf("%s: %w", t.label, err)
			}
			mu.Lock()
			defer mu.Unlock()
			answers[answer.Backend]++
			return nil
		})
	}
	return answers, group.Wait()
}

// load makes connections to all targets until it is stopped, and records failures.
type load struct {
	from   *netns.Namespace
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	made     int
	failures []error
	lastSeen map[string]time.Time // by "label backend"
}

// startLoad runs one goroutine per target, each with a short pause between
// connections.
func startLoad(ctx context.Context, from *netns.Namespace) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{from: from, cancel: cancel, lastSeen: map[string]time.Time{}}
	for _, t := range targets {
		l.done.Go(func() {
			for ctx.Err() == nil {
				l.once(t)
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	return l
}

func (l *load) once(t target) {
	// Not bound to the load's context: stopping must not look like a failure.
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	answer, err := l.from.Ask(ctx, t.network, t.addr)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made++
	if err != nil {
		l.failures = append(l.failures, fmt.Errorf("%s: %w", t.label, err))
		return
	}
	l.lastSeen[t.label+" "+answer.Backend] = time.Now()
}

// firstAnswer waits until a backend has answered a target after a moment.
func (l *load) firstAnswer(ctx context.Context, t target, backend string, after time.Time) (time.Time, error) {
	for {
		l.mu.Lock()
		at := l.lastSeen[t.label+" "+backend]
		l.mu.Unlock()
		if at.After(after) {
			return at, nil
		}
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("%s: %s never answered", t.label, backend)
		case <-time.After(200 * time.Microsecond):
		}
	}
}

// stop ends the load and returns the number of connections.
func (l *load) stop() (made int, err error) {
	l.cancel()
	l.done.Wait()
	if len(l.failures) > 0 {
		return l.made, fmt.Errorf("%d of %d connections failed, the first: %w", len(l.failures), l.made, l.failures[0])
	}
	return l.made, nil
}
