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

// connectMany makes count connections to a target, several at a time, and counts who answered. One
// failure fails all.
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

// load keeps making connections to all targets until it is stopped, and keeps the failures.
type load struct {
	*netns.Load

	mu       sync.Mutex
	made     int
	failures []error
	lastSeen map[string]time.Time // by "label backend"
}

func startLoad(ctx context.Context, from *netns.Namespace) (*load, error) {
	l := &load{lastSeen: map[string]time.Time{}}
	config := netns.LoadConfig{Client: from, Pause: 2 * time.Millisecond, Patience: 3 * time.Second, Note: l.note}
	for _, t := range targets {
		config.Targets = append(config.Targets, netns.Target{Network: t.network, Addr: t.addr})
	}
	var err error
	l.Load, err = netns.StartLoad(ctx, config)
	return l, err
}

func (l *load) note(e netns.Exchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made++
	label := targets[e.Target].label
	if e.Err != nil {
		l.failures = append(l.failures, fmt.Errorf("%s: %w", label, e.Err))
		return
	}
	l.lastSeen[label+" "+e.Answer.Backend] = e.Ended
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

// stop ends the load and reports how it went.
func (l *load) stop() (made int, err error) {
	l.Stop()
	if len(l.failures) > 0 {
		return l.made, fmt.Errorf("%d of %d connections failed, the first: %w", len(l.failures), l.made, l.failures[0])
	}
	return l.made, nil
}
