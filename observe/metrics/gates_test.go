package metrics

import (
	"testing"
	"time"

	kube "k8s.io/component-base/metrics"

	"github.com/sluice-proxy/sluice/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

// native tells whether kube-proxy's own histograms have the native form.
func native(t *testing.T, gate bool) bool {
	t.Helper()
	m, err := New(Config{Mode: modeIPTables, NativeHistograms: gate})
	if err != nil {
		t.Fatal(err)
	}
	m.Conntrack(conntrack.Swept{Family: service.IPv4, Took: time.Second})
	for _, f := range gathered(t, m) {
		if f.GetName() == "kubeproxy_conntrack_reconciler_sync_duration_seconds" {
			return len(f.GetMetric()[0].GetHistogram().GetPositiveSpan()) > 0
		}
	}
	t.Fatal("the histogram is missing")
	return false
}

func TestNativeHistogramsFollowTheirGate(t *testing.T) {
	if !native(t, true) {
		t.Error("the gate is on, and the native form is missing")
	}
	if native(t, false) {
		t.Error("the gate is off, and the native form is there")
	}
}

func TestHiddenMetricsAreShownWhenAskedFor(t *testing.T) {
	if _, err := New(Config{Mode: modeIPTables, ShowHidden: true}); err != nil {
		t.Fatal(err)
	}
	if !kube.ShouldShowHidden() {
		t.Error("hidden metrics stay hidden")
	}
}
