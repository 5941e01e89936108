// SPDX-License-Identifier: Apache-2.0

package selftest

import (
	"cmp"
	"time"

	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// Part returns the self-test; nil if the configuration does not enable it, and in modes without it.
func Part(h *part.Host, interval time.Duration) *part.Part {
	if h.Node.SelfTest == (service.SelfTest{}) {
		return nil
	}
	t := New(Config{
		Families: h.Families(), Ports: h.Node.SelfTest, Moved: func(to service.SelfTest) { h.Proxy().MoveSelfTest(to) },
		NodePort: func(port uint16) bool { return h.Proxy().NodePort(port) },
		Right:    h.Right, Interval: cmp.Or(interval, Interval), Log: h.Log,
	})
	return &part.Part{
		Name: "self-test", When: part.Synced, Run: part.Always(t.Run), Findings: t.findings,
		Status: func(s *inspect.Status) { s.SelfTest = t.Status() },
		Metrics: metrics.Sampled{Read: t.sample, Of: []metrics.Definition{
			{Name: passedName, Labels: []string{"ip_family"}, Help: "1 if the last self-test passed, otherwise 0 (nftables and iptables modes)."},
			{Name: tookName, Labels: []string{"ip_family"}, Help: "Duration of the connection in the last self-test, if it passed (nftables and iptables modes)."},
		}},
	}
}

const passedName, tookName = "sluice_selftest_success", "sluice_selftest_duration_seconds"

func (t *Test) sample(send metrics.Send) {
	for family, r := range t.Results() {
		if r.At.IsZero() {
			continue
		}
		name := service.Family(family).String()
		send(passedName, metrics.Flag(r.Err == nil), name)
		if r.Err == nil {
			send(tookName, r.Took.Seconds(), name)
		}
	}
}

// findings returns a finding for each family whose self-test failed although the rules are applied. If they are not,
// other findings report that.
func (t *Test) findings() (all []state.Finding) {
	for family, r := range t.Results() {
		if r.Err != nil && r.Right {
			all = append(all, state.Finding{Kind: health.Dataplane, About: service.Family(family).String(), Since: r.Since, Problem: r.Problem()})
		}
	}
	return all
}
