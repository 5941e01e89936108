package harness

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// trafficEvery is the pause between two rounds of traffic.
const trafficEvery = 20 * time.Millisecond

// Traffic is what a busy client does while a test disturbs the proxy. In each round, for every target,
// it opens a new connection, and for every TCP target it also sends a line on a session that was
// established when the traffic started. Nothing is tried twice, so every loss is counted.
type Traffic struct {
	client   *Host
	targets  []Target
	sessions []*netns.Session

	cancel context.CancelFunc
	ended  sync.WaitGroup

	mu       sync.Mutex
	exchange int     // questions and lines that were answered
	failures []error // those that were not
}

// StartTraffic opens the sessions and starts the rounds.
func StartTraffic(ctx context.Context, client *Host, targets ...Target) (*Traffic, error) {
	t := &Traffic{client: client, targets: targets}
	for _, target := range targets {
		if target.Network != "tcp" {
			continue
		}
		session, err := client.Connect(ctx, target.Addr)
		if err != nil {
			t.closeSessions()
			return nil, fmt.Errorf("start traffic: %w", err)
		}
		t.sessions = append(t.sessions, session)
	}
	ctx, t.cancel = context.WithCancel(ctx)
	t.ended.Go(func() { t.run(ctx) })
	return t, nil
}

func (t *Traffic) run(ctx context.Context) {
	ticker := time.NewTicker(trafficEvery)
	defer ticker.Stop()
	for round := 1; ; round++ {
		for _, target := range t.targets {
			_, err := t.client.ask(ctx, target, patientMax)
			t.count(ctx, err)
		}
		for _, session := range t.sessions {
			t.count(ctx, session.Echo(ctx, fmt.Sprintf("round %d", round)))
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (t *Traffic) count(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return // the exchange was cut off by Stop and says nothing
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if err != nil {
		t.failures = append(t.failures, fmt.Errorf("%s: %w", time.Now().Format("15:04:05.000"), err))
		return
	}
	t.exchange++
}

// Stop ends the traffic and returns how many exchanges went well, and an error when one did not.
func (t *Traffic) Stop() (int, error) {
	t.cancel()
	t.ended.Wait()
	t.closeSessions()
	if len(t.failures) == 0 {
		return t.exchange, nil
	}
	var first strings.Builder
	for _, failure := range t.failures[:min(len(t.failures), 5)] {
		fmt.Fprintf(&first, "\n\t%v", failure)
	}
	return t.exchange, fmt.Errorf("%d of %d exchanges failed, the first being:%s",
		len(t.failures), len(t.failures)+t.exchange, first.String())
}

func (t *Traffic) closeSessions() {
	for _, session := range t.sessions {
		_ = session.Close() // whether it still worked was tested by its lines
	}
}
