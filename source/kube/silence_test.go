// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"net"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// lossRules drop every packet of a namespace without an answer.
const lossRules = `add table inet loss; add chain inet loss in { type filter hook input priority 0; policy drop; }`

// nft runs a script in a namespace.
func nft(t *testing.T, n *netns.Namespace, script string) {
	t.Helper()
	cmd := exec.Command("nft", script)
	var said strings.Builder
	cmd.Stderr = &said
	if err := netnstest.Run(n, cmd); err != nil {
		t.Fatalf("nft: %v: %s", err, said.String())
	}
}

// TestOutage_ChangeSeenAfterSilence: after an outage that silently drops all packets, the source sees a change made in
// the meantime, whether pings noticed the outage or not. Attempts to connect follow each other, because the kernel
// repeats a SYN too rarely.
func TestOutage_ChangeSeenAfterSilence(t *testing.T) {
	for name, noticed := range map[string]bool{"short": false, "long": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := netnstest.New(t, "silence")
			var dials atomic.Int64
			r := newSecureRigAt(t, n.Listen, counted(n, &dials))
			r.populate()
			r.run(t)
			r.complete(t)
			nft(t, n, lossRules)
			r.Set(services, apiService("a", 81))
			if noticed {
				r.awaitFailing(t)
				before := dials.Load()
				testenv.Eventually(t, "more attempts to connect", func() bool { return dials.Load() >= before+3 })
			} else {
				time.Sleep(quickLimits.pingAfter)
			}
			r.posts.Expect(t)
			nft(t, n, "delete table inet loss")
			testenv.Eventually(t, "the change is seen", func() bool { return r.cache.Snapshot(keyOf("a")).Spec.Ports[0].Port == 81 })
		})
	}
}

// counted dials in a namespace, and counts the attempts.
func counted(n *netns.Namespace, dials *atomic.Int64) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		dials.Add(1)
		return n.DialContext(ctx, network, address)
	}
}

// TestOutage_EndsSoon: with the production limits, a change is seen within 10 s after an outage in which all pauses
// grew to their longest. An idle machine sees it within 5 s (see TestOutage_EndsWithinFiveSeconds).
func TestOutage_EndsSoon(t *testing.T) {
	testenv.OnlyInAll(t)
	t.Parallel()
	n := netnstest.New(t, "silence")
	var dials atomic.Int64
	r := newSecureRigAt(t, n.Listen, counted(n, &dials))
	made, err := newForREST(Config{NodeName: "n"}, r.client, r.cache, r.source.log, connectionLimits)
	if err != nil {
		t.Fatal(err)
	}
	r.source = made
	r.populate()
	r.run(t)
	r.complete(t)
	nft(t, n, lossRules)
	r.Set(services, apiService("a", 81))
	testenv.Eventually(t, "the outage is noticed", func() bool { return len(r.failing()) > 0 })
	before := dials.Load()
	testenv.Eventually(t, "attempts with the longest pauses", func() bool { return dials.Load() >= before+16 })
	nft(t, n, "delete table inet loss")
	ended := time.Now()
	testenv.Eventually(t, "the change is seen", func() bool { return r.cache.Snapshot(keyOf("a")).Spec.Ports[0].Port == 81 })
	if lag := time.Since(ended); lag > 10*time.Second {
		t.Errorf("the change was seen %v after the outage", lag)
	}
}

// TestOutage_EndsWithinFiveSeconds: the longest attempt to connect and the longest pause after it together take at most
// five seconds.
func TestOutage_EndsWithinFiveSeconds(t *testing.T) {
	longest, pauses := time.Duration(0), retry()
	for range 1000 {
		longest = max(longest, pauses.Step())
	}
	if lag := connectionLimits.dial + longest; lag > 5*time.Second {
		t.Errorf("a server is noticed up to %v after its return", lag)
	}
}
