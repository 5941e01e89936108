package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/test/e2e/harness"
)

const (
	// changes is how many changes are measured.
	changes = 30
	// changeMedianMax bounds the median of the times they take; changeMax bounds each. It is more
	// than thirty times what an idle machine of two cores needs, but less than changes need that
	// wait for a timer of the proxy or of its client. The benchmarks measure the times themselves;
	// here they are only in the test's output.
	changeMedianMax = time.Second
)

// A change in the API reaches clients at once: an endpoint is replaced by another, again and again,
// and each time a client opens new connections until one in each family reaches the new endpoint.
// The clock starts before the write to the API server. The modes run one after the other, because
// this test measures time.
func TestChangeReachesNewConnections(t *testing.T) {
	for _, mode := range harness.Modes {
		t.Run(string(mode), func(t *testing.T) { testChange(t, mode) })
	}
}

func testChange(t *testing.T, mode harness.Mode) {
	c := harness.NewCluster(t)
	c.StartProxy(mode)
	web := c.CreateService("web", corev1.ServiceTypeClusterIP)
	c.SetEndpoints("web", c.A)
	targets := clusterIPs(t, web)
	reachAll(t, startMax, "a new service works", []*harness.Host{c.X}, targets, c.A)

	var writes, all []time.Duration
	for i := range changes {
		pod := c.Pods()[(i+1)%len(c.Pods())]
		begin := time.Now()
		c.SetEndpoints("web", pod)
		writes = append(writes, time.Since(begin))
		all = append(all, awaitPod(t, c.X, targets, pod, begin))
	}
	slices.Sort(writes)
	slices.Sort(all)
	median := all[changes/2]
	t.Logf("%s mode, %d changes: from the API write to new connections p50 %v, longest %v; of that, writing to the API p50 %v",
		mode, changes, median, all[changes-1], writes[changes/2].Round(100*time.Microsecond))
	if median > changeMedianMax {
		t.Errorf("p50 is %v, want %v at most; all: %v", median, changeMedianMax, all)
	}
}

// awaitPod asks TCP targets until the pod has answered at each, and returns the time since begin.
func awaitPod(t *testing.T, client *harness.Host, targets []harness.Target, pod *harness.Host, begin time.Time) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), changeMax)
	defer cancel()
	for _, target := range targets {
		if target.Network != "tcp" {
			continue
		}
		for {
			got, err := client.WhoAnswers(ctx, target)
			if err == nil && got == pod.Name() {
				break
			}
			if ctx.Err() != nil {
				t.Fatalf("not within %v: %s reached at %s; last answer %q, %v", changeMax, pod.Name(), target, got, err)
			}
		}
	}
	return time.Since(begin).Round(100 * time.Microsecond)
}
