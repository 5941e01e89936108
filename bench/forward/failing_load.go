package main

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// perSource is how many connections per second each client address makes.
const perSource = 100

// connection is one attempt of a client.
type connection struct {
	from  netip.Addr
	began time.Time
	took  time.Duration
	// by is the endpoint that answered; empty if none did.
	by string
}

// connections are those of a load.
type connections struct {
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu  sync.Mutex
	all []connection
}

// startLoad makes connections at a steady rate from each client address, without waiting for the end of earlier ones.
func (s *stage) startLoad(ctx context.Context) *connections {
	l := &connections{}
	ctx, l.cancel = context.WithCancel(ctx)
	for _, from := range s.sources {
		l.running.Go(func() {
			tick := time.NewTicker(time.Second / perSource)
			defer tick.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-tick.C:
					l.running.Go(func() { l.connect(s.client, from) })
				}
			}
		})
	}
	return l
}

// connect makes one connection. It is not bound to the end of the load: stopping is no failure.
func (l *connections) connect(client *netns.Namespace, from netip.Addr) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := connection{from: from, began: time.Now()}
	answer, err := client.AskFrom(ctx, "tcp", netip.AddrPortFrom(from, 0), serviceAt)
	c.took = time.Since(c.began)
	if err == nil {
		c.by = answer.Backend
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, c)
}

// stop waits for the connections that are under way.
func (l *connections) stop() {
	l.cancel()
	l.running.Wait()
}

// count counts the connections that began in a time, except those of an address, and returns when the last one began
// that failed or was late.
func (l *connections) count(from, to time.Time, spared netip.Addr) (n counts, lasted time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.all {
		if c.began.Before(from) || !c.began.Before(to) || c.from == spared {
			continue
		}
		n.Attempted++
		switch {
		case c.by == "":
			n.Failed++
		case c.took > lateAfter:
			n.Late++
		}
		if c.by == "" || c.took > lateAfter {
			lasted = max(lasted, c.began.Sub(from))
		}
		n.Slowest = max(n.Slowest, c.took)
	}
	return n, lasted
}

// again waits for a connection that began after a time and that the failed endpoint answered.
func (l *connections) again(ctx context.Context, after time.Time) (time.Duration, error) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for time.Since(after) < againMax {
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
			if took, found := l.answered(after); found {
				return took, nil
			}
		}
	}
	return 0, errors.New("the endpoint answers again, and gets no connection")
}

func (l *connections) answered(after time.Time) (time.Duration, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.all {
		if c.by == failingAt().String() && !c.began.Before(after) {
			return c.began.Sub(after), true
		}
	}
	return 0, false
}
