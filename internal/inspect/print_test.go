// SPDX-License-Identifier: Apache-2.0

package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/internal/terminal"
	"github.com/sluice-proxy/sluice/observe/state"
)

var printedAt = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func number(n int64) *int64 { return &n }

// TestStatus_Problems: the status shows failures of the source, quarantined Services, write errors and findings.
func TestStatus_Problems(t *testing.T) {
	var out terminal.Page
	s := Status{
		Version: "v1", Compatible: "v1.37.2", Now: printedAt, Started: printedAt.Add(-26 * time.Hour), Mode: "nftables", ModeReason: "because",
		Health: "unhealthy", Node: "n1", Zone: "z1", Feed: Feed{From: "API server https://x", Resources: []Resource{{Name: "services", FailingSince: printedAt.Add(-90 * time.Second), Error: "rejected"}}},
		Actors: Actors{Running: 3, Parked: 1}, Conntrack: &Conntrack{Entries: 4012, Limit: 5000, LastDrop: printedAt.Add(-time.Minute)}, Offload: &Offload{Devices: 2, Problem: "device x:\nno room"},
		Domains: []Domain{{
			Name: "nftables/IPv4", Open: true, Applied: 2, Held: 101, LastError: "no\nroom",
			Quarantined: []state.Quarantine{{Namespace: "a", Name: "b", Reason: "invalid argument", Since: printedAt.Add(-time.Minute)}},
		}, {Name: "nftables/IPv6"}},
		Findings: []Finding{{Finding: state.Finding{Kind: "quarantined", About: "nftables/IPv4", Problem: "one is held", Advice: "Look."}, Services: []string{"a/b"}}},
	}
	s.Print(&out)
	for _, want := range []string{
		"up 26h\n", "n1, zone z1\n", "not synced yet; services fail since 90s: rejected\n", "3 running, 1 parked\n", "TCP, on 2 devices; device x: no room\n", "Conntrack:   4012 of 5000 entries (80%), last drop 60s ago\n",
		"nftables/IPv4, last error: no room\n", "nftables/IPv4, held for 60s: a/b: invalid argument\n", "nftables/IPv4, also held: 100 Services; see sluice get services --state held\n",
		"nftables/IPv6   not begun", "Health: unhealthy\n", "  quarantined nftables/IPv4: one is held\n    Services: a/b\n    Look.\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestServiceDetail_QuarantineAndTimeline: the detail of a Service shows its quarantine and its timeline.
func TestServiceDetail_QuarantineAndTimeline(t *testing.T) {
	var out terminal.Page
	d := ServiceDetail{
		Now: printedAt, Service: Service{Namespace: "a", Name: "b", InternalPolicy: "Cluster",
			Record: state.Record{State: state.Rejected, LongestMicros: number(20_000), LastMicros: number(900)}},
		AffinitySeconds: 10, SourceRanges: []string{"192.0.2.0/24"}, DenySourceRanges: []string{"192.0.2.9/32"}, NoEndpoints: "drop", HealthCheckNodePort: 31000, Scheduler: "sh",
		Actor:     state.Actor{State: "parked", Restarts: 6, LastFailure: "panic: x", FailedAt: printedAt.Add(-time.Second), ParkedUntil: printedAt.Add(time.Minute)},
		Frontends: []Frontend{{Kind: "NodePort", Family: "IPv4", Port: 30080, Protocol: "TCP", Policy: "Local"}},
		Domains: []ServiceDomain{{
			Name: "nftables/IPv4", State: state.Rejected, Revision: "1.2", Applied: "1.1", Omitted: 5,
			Quarantine: &state.Quarantine{Revision: "1.2", Reason: "Invalid argument", Since: printedAt.Add(-time.Minute)},
			Objects:    []Object{{"@frontends", "192.0.2.1 . tcp . 80", state.Pending}},
		}},
		Timeline: []state.Change{
			{Domain: "nftables/IPv4", Outcome: state.Held, Received: printedAt},
			{Domain: "nftables/IPv4", Outcome: state.Applied, Causes: []string{"service", "endpoints"}, Received: printedAt, TriggerMicros: -1_500_000,
				SeenMicros: 12, RenderedMicros: 90, BatchedMicros: 120, DoneMicros: 11_000, Batch: 7, Endpoints: 3},
		},
	}
	d.Print(&out)
	for _, want := range []string{
		"State:       held (rejected)\n", "ClientIP affinity for 10 s; load balancer sources 192.0.2.0/24; denied sources 192.0.2.9/32; without endpoints drop; health check node port 31000; IPVS scheduler sh\n",
		"from receipt to kernel 900µs, at most 20.0ms\n", "parked, restarted 6 times; last failure 1s ago: panic: x; parked, tried again in 60s or when the Service changes\n",
		"no endpoint on this node: dropped", "Held for 60s (revision 1.2)", "    Invalid argument\n", "pending\n", "and 5 more objects\n",
		"service,endpoints   1.50s before   12µs   90µs       120µs     11.0ms    7", "held",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// TestEndpointList_Decision: the list of endpoints shows for each one whether and why it was chosen.
func TestEndpointList_Decision(t *testing.T) {
	var out terminal.Page
	l := EndpointList{Namespace: "a", Name: "b", Node: "n1", Ports: []EndpointPort{
		{Port: Port{Name: "web", Protocol: "TCP", Port: 80}, Family: "IPv4", Internal: Rule{"Cluster", "every ready endpoint", 1}, Omitted: 2,
			Endpoints: []Endpoint{{Address: "10.0.0.1:80", Slice: "b-1", Ready: true, Internal: &Decision{Chosen: true, Rule: "ready", Why: "ready"}}}},
		{Port: Port{Protocol: "UDP", Port: 53}, Family: "IPv6", Internal: Rule{Policy: "Cluster"}},
	}}
	l.Print(&out)
	for _, want := range []string{
		"a/b, as seen from node n1\n", "Port 80/TCP (web), IPv4\n  internal traffic: policy Cluster, every ready endpoint: 1 chosen\n",
		"  10.0.0.1:80   yes     no        no            -      -      yes: ready   -          b-1\n", "  and 2 more\n", "Port 53/UDP, IPv6\n", "no EndpointSlice lists an endpoint\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second: "0ms", 12 * time.Millisecond: "12ms", 119 * time.Second: "119s", 150 * time.Second: "2m30s",
		30 * time.Minute: "30m", 30 * time.Hour: "30h", 72 * time.Hour: "3d",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %s, want %s", d, got, want)
		}
	}
}

// TestStatus_RejectedFileSource: while a file is rejected, the source is shown as read, but not as in sync.
func TestStatus_RejectedFileSource(t *testing.T) {
	finding := func(kind, about string) Finding { return Finding{Finding: state.Finding{Kind: kind, About: about}} }
	s := Status{Now: printedAt, Feed: Feed{From: "manifests", Synced: printedAt.Add(-90 * time.Second)}}
	for want, findings := range map[string][]Finding{
		"Source:    manifests, in sync for 90s\n":                                      {finding("other", "shop.yaml")},
		"Source:    manifests, read 90s ago, but not all of it is valid (see below)\n": {finding("other", ""), finding("manifest-rejected", "shop.yaml")},
	} {
		s.Findings = findings
		expectLine(t, &s, want)
	}
}

// TestStatus_SelfTest: the status shows that the self-test covers the loopback of this node only.
func TestStatus_SelfTest(t *testing.T) {
	s := Status{Now: printedAt, SelfTest: []SelfTest{{Family: "IPv4", Passed: true, At: printedAt.Add(-time.Second)}, {Family: "IPv6", At: printedAt.Add(-time.Minute)}}}
	expectLine(t, &s, "Self-test:   loopback of this node: IPv4 passed 1s ago, IPv6 FAILED 60s ago\n")
}

// expectLine checks that the printed status has a line, regardless of the number of blanks after the head.
func expectLine(t *testing.T, s *Status, want string) {
	t.Helper()
	var out terminal.Page
	s.Print(&out)
	joined := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	if !strings.Contains(joined(out.String()), joined(want)) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
}

// TestStatus_Unapplied: the summary of unapplied Services uses their states, because the numbers of the domains do not
// include a Service that is too large, parked or shadowed.
func TestStatus_Unapplied(t *testing.T) {
	status := func(change func(*Status)) string {
		s := Status{Services: 5, States: &state.Counts{Applied: 5}, Domains: []Domain{{Name: "d4", Open: true, Applied: 5}}}
		change(&s)
		return s.Unapplied()
	}
	finding := func(kind string, services ...string) Finding {
		return Finding{Finding: state.Finding{Kind: kind}, Services: services}
	}
	for want, change := range map[string]func(*Status){
		"": func(s *Status) { s.Findings = []Finding{finding("other", "a/b")} },
		"1 too large (a/large) of 5 Services; see sluice get services": func(s *Status) {
			s.Findings = []Finding{finding("too-large", "a/large")}
		},
		"5 held (a/1,a/2,a/3 +1 more), 1 shadowed (a/s), 2 pending of 5 Services; see sluice get services": func(s *Status) {
			*s.States = state.Counts{Held: 5, Shadowed: 1, Pending: 2}
			s.Findings = []Finding{finding("shadowed", "a/s"), finding("parked", "a/4", "a/2"), finding("quarantined", "a/3", "a/1"), finding("quarantined", "a/1")}
		},
		"d4: not begun, 2 Services missing; see sluice status":     func(s *Status) { s.Domains[0].Open, s.Domains[0].Missing = false, 2 },
		"d4: 0 pending, 0 held, 1 in the queue; see sluice status": func(s *Status) { s.Domains[0].Queue = 1 },
		"d4: 1 pending, 0 held, 0 in the queue; see sluice status": func(s *Status) { s.Domains[0].Pending = 1 },
		"d4: 0 pending, 2 held, 0 in the queue; see sluice status": func(s *Status) { s.States, s.Domains[0].Held = nil, 2 },
	} {
		if got := status(change); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
