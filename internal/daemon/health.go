// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/gone"
	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// healthPart reports the health of this node.
func (s *server) healthPart() *part.Part {
	const finding, services, without = "sluice_health_finding", "sluice_services", "sluice_services_without_endpoints"
	var stopping atomic.Pointer[time.Time] // when the server was told to stop
	m := health.NewMonitor(health.Config{
		Book: s.answers.Book, Domains: s.host.Status, Node: s.eligible, Resources: s.feed.Resources, Services: s.counts, SyncPeriod: s.options.SyncPeriod(),
		Standby: s.life.owner.waiting, Others: s.findings,
		Stopping: func() (at time.Time) {
			if told := stopping.Load(); told != nil {
				at = *told
			}
			return at
		},
	})
	s.answers.Monitor = m
	return &part.Part{
		Name: "health",
		Run: func(ctx context.Context) error {
			<-ctx.Done()
			now := time.Now()
			stopping.Store(&now)
			return nil
		},
		Metrics: metrics.Sampled{
			Of: []metrics.Definition{
				{Name: finding, Labels: []string{"finding", "domain"},
					Help: "Findings of /healthz?verbose: number of affected Services or API resources, 1 for a finding without any, 0 without a finding."},
				{Name: services, Labels: []string{"state"}, Help: "Services by state: applied, pending, shadowed, held. Each Service has one state, the gravest over all domains."},
				{Name: without, Help: "Services without an endpoint for new connections, except for pending Services."},
			},
			Read: func(send metrics.Send) {
				for _, f := range m.Tallies() {
					send(finding, float64(f.Count), f.Kind, f.Domain)
				}
				c := s.counts()
				if c == nil {
					return
				}
				for of, n := range map[state.State]int{state.Applied: c.Applied, state.Pending: c.Pending, state.Shadowed: c.Shadowed, state.Held: c.Held} {
					send(services, float64(n), string(of))
				}
				send(without, float64(c.WithoutEndpoints))
			},
		},
	}
}

// counts counts Services by state; nil before there is a proxy.
func (s *server) counts() *state.Counts {
	if s.host.Proxy() == nil {
		return nil
	}
	all, _ := s.answers.Counts(context.Background())
	return &all
}

// eligible returns the Node for health's eligibility check. Without a cluster, an unknown Node is eligible.
func (s *server) eligible() *service.NodeObject {
	known := s.host.NodeObject()
	if known == nil && s.feed.Client == nil {
		return &service.NodeObject{}
	}
	return known
}

// portsPart answers on the health-check node ports.
func (s *server) portsPart() *part.Part {
	healthy := func() bool { return true } // a proxy without a health server
	if healthAddress(s.options, s.feed) != "" {
		healthy = s.answers.Monitor.Healthy
	}
	ports := health.NewPorts(health.PortsConfig{
		Healthy: healthy, NodePorts: s.host.NodePorts, Failed: s.host.Recorder.HealthPortFailed, Log: s.log,
	})
	return &part.Part{Name: "health-check ports", Run: ports.Run, Observer: proxy.ApplyObserver{Programmed: ports.Programmed}}
}

// manifestFindings returns a finding about the manifests that are rejected, with the first problem.
func manifestFindings(problems []manifest.Problem) []state.Finding {
	if len(problems) == 0 {
		return nil
	}
	files := map[string]bool{}
	for i := range problems {
		files[problems[i].File] = true
	}
	text := fmt.Sprintf("rejected: %s with %s; the first: %s", plural.Of(len(files), "file"), plural.Of(len(problems), "problem"), problems[0])
	return []state.Finding{{Kind: health.ManifestRejected, Problem: text}}
}

// observed reports whether health and metrics are served: with a cluster, or if asked for.
func observed(o *Options, from *feed.Feed) bool { return from.Client != nil || o.WithoutCluster }

// healthAddress returns where the health server listens. It is empty if the server is disabled, or
// if there is no cluster that could ask.
func healthAddress(o *Options, from *feed.Feed) string {
	if !observed(o, from) {
		return ""
	}
	return o.KubeProxy.HealthzBindAddress
}

// healthServer makes the server of /healthz, /livez, /readyz and /endpoints at an address, which is named by its field
// of the configuration.
func (s *server) healthServer(field, address string) *web.Server {
	hard := s.options.KubeProxy.BindAddressHardFail
	handler := s.protection.health(health.Handler(s.answers.Monitor, web.OnHost, s.answered))
	if *s.options.Sluice.Healthz.Endpoints {
		handler = gone.Handler(s.answers.Gone, web.WaitingMax(), handler)
	}
	paths := http.NewServeMux()
	paths.Handle("/", handler)
	paths.Handle("/readyz", health.ReadyHandler(s.ready))
	return web.NewServer(web.ServerConfig{
		Name: "health server", Address: address, Handler: paths, ForProbes: true,
		HardFail: hard, Log: s.log,
		Failed: func(err error) {
			if hard {
				s.host.Recorder.HealthcheckFailed(err)
				return
			}
			if tell, _ := s.host.Repeated.Failed("health server"); tell {
				s.log.Error("health server failed; retrying", zap.Error(err), zap.Duration("every", web.RetryPause))
			}
		},
		Handing: s.life.owner.handing, Listening: s.conflicts.listening(field, address),
	})
}

// answered counts a response of the health server.
func (s *server) answered(path string, code int) {
	if path == "/livez" {
		s.answers.Metrics.Livez(code)
	} else {
		s.answers.Metrics.Healthz(code)
	}
}
