package faults

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
)

// refusals is a client per family that asks a Service without endpoints, one connection after the
// other. Each has to be refused.
type refusals struct {
	network *network
	targets []netip.AddrPort
	halt    context.CancelFunc
	running sync.WaitGroup
	refused atomic.Int64
	mu      sync.Mutex
	others  []error
}

func startRefusals(t *testing.T, n *network) *refusals {
	t.Helper()
	ctx, halt := context.WithCancel(context.Background())
	r := &refusals{network: n, halt: halt}
	const without = 5 // see quietSlice
	for _, family := range service.Families {
		to := netip.AddrPortFrom(quietSpec(without).ClusterIPs[family], 80)
		r.targets = append(r.targets, to)
		r.running.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
				asking, cancel := context.WithTimeout(context.Background(), patience)
				_, err := n.client.Connect(asking, to)
				cancel()
				if errors.Is(err, unix.ECONNREFUSED) {
					r.refused.Add(1)
					continue
				}
				r.mu.Lock()
				r.others = append(r.others, err)
				r.mu.Unlock()
			}
		})
	}
	return r
}

// end fails if a connection was not refused. A SYN that has passed the rules leaves an entry with
// the node, even if the next one is refused.
func (r *refusals) end(t *testing.T) {
	t.Helper()
	r.halt()
	r.running.Wait()
	if len(r.others) > 0 {
		t.Errorf("%d connections to a Service without endpoints ended otherwise, for example: %v", len(r.others), r.others[0])
	}
	if r.refused.Load() < 10 {
		t.Errorf("only %d connections were refused: that proves nothing", r.refused.Load())
	}
	tracked, err := r.network.node.Tracked()
	check(t, err)
	passed := slices.DeleteFunc(tracked, func(e netns.Tracked) bool { return !slices.Contains(r.targets, e.Destination) })
	if len(passed) > 0 {
		t.Errorf("%d connections to a Service without endpoints have passed the rules: %+v", len(passed), passed)
	}
}
