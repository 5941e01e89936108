// SPDX-License-Identifier: Apache-2.0

package localport

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/dataplane/relay"
)

// targets are where a listener forwards to: this node's node port, or the endpoints of the Service.
type targets struct {
	to []netip.AddrPort // sorted
	// affinity is for how long the next client gets the same endpoint; 0 for no affinity.
	affinity time.Duration
}

// The words of a body: "to 192.0.2.10:30080", or "to 10.0.0.1:8080 10.0.0.2:8080 for 3h0m0s".
const (
	bodyPrefix = "to "
	bodyFor    = " for "
)

func (t targets) body() string {
	words := make([]string, len(t.to))
	for i, at := range t.to {
		words[i] = at.String()
	}
	text := bodyPrefix + strings.Join(words, " ")
	if t.affinity > 0 {
		text += bodyFor + t.affinity.String()
	}
	return text
}

// parseBody returns the targets in an object's body. It rejects a target on the loopback interface:
// a listener would forward to itself in a loop.
func parseBody(text string) (t targets, err error) {
	rest, found := strings.CutPrefix(text, bodyPrefix)
	rest, affinity, limited := strings.Cut(rest, bodyFor)
	if limited {
		t.affinity, err = time.ParseDuration(affinity)
	}
	for _, word := range strings.Split(rest, " ") {
		at, wrong := netip.ParseAddrPort(word)
		if !found || err != nil || wrong != nil || at.Addr().IsLoopback() {
			return targets{}, fmt.Errorf("content %q: must be %q and addresses off the loopback interface, with a port", text, bodyPrefix)
		}
		t.to = append(t.to, at)
	}
	return t, nil
}

// balancer picks one of the targets at random for each client. With affinity, all clients share one
// target, because the rules of a node port also see all of them as one client: this node. Except for
// the choice of a target, it behaves as relay.Fixed.
type balancer struct {
	relay.Fixed
	targets

	mu     sync.Mutex
	pinned netip.AddrPort
	until  time.Time
}

// newBalancer returns a balancer. It keeps the pinned target of the previous one, which may be nil.
func newBalancer(t targets, former *balancer) *balancer {
	b := &balancer{targets: t}
	if former != nil && former.affinity == t.affinity {
		former.mu.Lock()
		defer former.mu.Unlock()
		b.pinned, b.until = former.pinned, former.until
	}
	return b
}

// Targets implements relay.Balancer.
func (b *balancer) Targets(netip.AddrPort) []netip.AddrPort {
	at := b.to[rand.IntN(len(b.to))]
	if b.affinity == 0 {
		return []netip.AddrPort{at}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.After(b.until) || !b.has(b.pinned) {
		b.pinned = at
	}
	b.until = now.Add(b.affinity)
	return []netip.AddrPort{b.pinned}
}

// Keeps implements relay.Balancer.
func (b *balancer) Keeps(_ netip.Addr, target netip.AddrPort) bool { return b.has(target) }

func (b *balancer) has(target netip.AddrPort) bool {
	_, found := slices.BinarySearchFunc(b.to, target, netip.AddrPort.Compare)
	return found
}
