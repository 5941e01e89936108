// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/internal/sleep"
)

const (
	// patience bounds one connection.
	patience = 3 * time.Second
	// loadPause is between two connections of a load to one target.
	loadPause = 2 * time.Millisecond
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

// spread counts the answers by pod.
type spread map[string]int

func (s spread) String() string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		parts = append(parts, fmt.Sprintf("%s ×%d", name, s[name]))
	}
	return strings.Join(parts, "  ")
}

// ask connects to a target once from the client, and returns the name of the pod that answers. It sends nothing twice, so
// that each loss is an error.
func (r *run) ask(ctx context.Context, t target) (pod string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := r.network.DialContext(ctx, t.network, t.addr.String())
	if err != nil {
		return "", err
	}
	defer conn.Close() // the answer is all that counts
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.0\r\n\r\n"); err != nil { // over UDP, any question will do
		return "", err
	}
	lines := bufio.NewReader(conn)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return "", err
		}
		if _, answer, found := strings.Cut(line, " of "); found {
			pod, _, _ = strings.Cut(answer, " ")
			return pod, nil
		}
	}
}

// connectMany makes count connections to a target, several at a time, and counts who answered. One
// failure fails all.
func (r *run) connectMany(ctx context.Context, t target, count int) (spread, error) {
	var mu sync.Mutex
	answers := spread{}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for range count {
		group.Go(func() error {
			pod, err := r.ask(ctx, t)
			if err != nil {
				return fmt.Errorf("%s: %w", t.label, err)
			}
			mu.Lock()
			defer mu.Unlock()
			answers[pod]++
			return nil
		})
	}
	return answers, group.Wait()
}

// load is a client that keeps connecting to all targets until it is stopped. A connection that
// fails is remembered.
type load struct {
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu       sync.Mutex
	made     int
	failures []error
	lastSeen map[string]time.Time // by "label pod"
}

func (r *run) startLoad(ctx context.Context) *load {
	l := &load{lastSeen: map[string]time.Time{}}
	ctx, l.cancel = context.WithCancel(ctx)
	for _, t := range targets {
		l.done.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(loadPause) {
				pod, err := r.ask(context.WithoutCancel(ctx), t) // to be stopped is no failure
				l.note(t, pod, err)
			}
		})
	}
	return l
}

func (l *load) note(t target, pod string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.made++
	if err != nil {
		l.failures = append(l.failures, fmt.Errorf("%s: %w", t.label, err))
		return
	}
	l.lastSeen[t.label+" "+pod] = time.Now()
}

// firstAnswer waits until a pod has answered on a target after the given time.
func (l *load) firstAnswer(ctx context.Context, t target, pod string, after time.Time) (time.Time, error) {
	for {
		l.mu.Lock()
		at := l.lastSeen[t.label+" "+pod]
		l.mu.Unlock()
		if at.After(after) {
			return at, nil
		}
		if !sleep.For(ctx, 200*time.Microsecond) {
			return time.Time{}, fmt.Errorf("%s: %s never answered", t.label, pod)
		}
	}
}

// stop ends the load and returns how many connections it made. An error lists those that failed.
func (l *load) stop() (made int, err error) {
	l.cancel()
	l.done.Wait()
	if len(l.failures) > 0 {
		return l.made, fmt.Errorf("%d of %d connections failed, the first: %w", len(l.failures), l.made, l.failures[0])
	}
	return l.made, nil
}
