package kube

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/sourcetest"
)

// lossRules drop every packet of a namespace without an answer.
const lossRules = `add table inet loss; add chain inet loss in { type filter hook input priority 0; policy drop; }`

// nft runs a script in a namespace.
func nft(t *testing.T, n *netns.Namespace, script string) {
	t.Helper()
	cmd := exec.Command("nft", script)
	var said strings.Builder
	cmd.Stderr = &said
	if err := n.Run(cmd); err != nil {
		t.Fatalf("nft: %v: %s", err, said.String())
	}
}

// TestChangeIsSeenAfterASilentOutage drops every packet between a source and its server, so that
// nothing closes the connection. A change made meanwhile is seen within 5 s after the outage
// ends, for short and for long outages.
func TestChangeIsSeenAfterASilentOutage(t *testing.T) {
	t.Parallel()
	type outage struct {
		*rig
		namespace *netns.Namespace
		lasts     time.Duration
	}
	var outages []outage
	for _, lasts := range []time.Duration{8 * time.Second, 20 * time.Second, 31 * time.Second} {
		n := netnstest.New(t, "silence")
		r := newSecureRigAt(t, n.Listen, n.DialContext)
		r.source.backoff = retry()
		r.populate()
		r.run(t)
		r.complete(t)
		outages = append(outages, outage{r, n, lasts})
	}
	for _, o := range outages {
		nft(t, o.namespace, lossRules)
	}
	began := time.Now()
	for _, o := range outages {
		o.Set(services, apiService("a", 81))
	}
	for _, o := range outages {
		if o.lasts > pingAfter+pingTimeout+dialMax {
			o.awaitFailing(t)
		}
		time.Sleep(time.Until(began.Add(o.lasts)))
		o.posts.Expect(t)
		nft(t, o.namespace, "delete table inet loss")
		ended := time.Now()
		sourcetest.Eventually(t, "the change is seen", func() bool { return o.cache.Snapshot(keyOf("a")).Spec.Ports[0].Port == 81 })
		took := time.Since(ended)
		t.Logf("silent for %v: the change is seen %v after the end", o.lasts, took.Round(time.Millisecond))
		if took > 5*time.Second {
			t.Errorf("silent for %v: the change is seen %v after the end, want 5 s at most", o.lasts, took)
		}
	}
}
