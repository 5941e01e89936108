package metrics

import (
	"errors"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/conntrack"
	"github.com/sluice-proxy/sluice/service"
)

func TestConntrackCleanUps(t *testing.T) {
	m := listedMetrics(t, 1)
	m.Conntrack(conntrack.Swept{Family: service.IPv6, Flows: 10, Deleted: 2, Took: time.Second, Services: map[service.Key]int{serviceKey(0): 2}})
	m.Conntrack(conntrack.Swept{Family: service.IPv6, Flows: 5, Deleted: 1, Err: errors.New("interrupted"), Services: map[service.Key]int{serviceKey(0): 1}})
	scraped(t, m).expect(t, samples{
		in("IPv6", "kubeproxy_conntrack_reconciler_sync_duration_seconds_count"): 1,
		in("IPv6", "kubeproxy_conntrack_reconciler_deleted_entries_total"):       3,
		in("IPv6", "sluice_conntrack_flows_seen_total"):                          15,
		in("IPv6", "sluice_conntrack_failures_total"):                            1,
		in("IPv4", "sluice_conntrack_failures_total"):                            0,
		in("IPv4", "kubeproxy_conntrack_reconciler_deleted_entries_total"):       absent,
	})
	if got := askJSON(t, m, "").Services[0].FlowsDeleted; got != 3 {
		t.Errorf("the Service has lost %d flows", got)
	}
}

func TestAnswersToProbesAreCountedByCode(t *testing.T) {
	m := listedMetrics(t, 0)
	m.Healthz(200)
	m.Healthz(200)
	m.Healthz(503)
	m.Livez(200)
	scraped(t, m).expect(t, samples{
		`kubeproxy_proxy_healthz_total{code="200"}`: 2,
		`kubeproxy_proxy_healthz_total{code="503"}`: 1,
		`kubeproxy_proxy_livez_total{code="200"}`:   1,
		`kubeproxy_proxy_livez_total{code="503"}`:   absent,
	})
}
