package daemon

import (
	"fmt"
	"net/http"
	"slices"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/gone"
	"github.com/sluice-proxy/sluice/internal/daemon/selftest"
	"github.com/sluice-proxy/sluice/internal/plural"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// otherFindings returns the findings about other programs on this node, about manifests, about the offload, about
// the self-test and about the connection table.
func otherFindings(o *owner, c *portConflicts, from *feed.Feed, offload *backend.Offload, test *selftest.Test, t *conntrack.Traffic) []health.Finding {
	all := slices.Concat(o.findings(), c.findings(), manifestFindings(from.Problems()), offloadFindings(offload), testFindings(test))
	if t != nil {
		p := t.Pressure()
		all = append(all, pressureFindings(&p)...)
	}
	return all
}

// offloadFindings returns a finding if connections are not offloaded although the configuration asks for it.
func offloadFindings(o *backend.Offload) []health.Finding {
	if o == nil {
		return nil
	}
	now := o.State()
	if now.Problem == "" {
		return nil
	}
	return []health.Finding{{Kind: health.NotOffloaded, Since: now.Since, Problem: now.Problem}}
}

// testFindings returns a finding for each family whose self-test failed although the rules are applied. If they are
// not, other findings say so.
func testFindings(t *selftest.Test) (all []health.Finding) {
	for family, r := range t.Results() {
		if r.Err != nil && r.Right {
			all = append(all, health.Finding{Kind: health.Dataplane, About: service.Family(family).String(), Since: r.Since, Problem: r.Problem()})
		}
	}
	return all
}

// manifestFindings returns a finding about the manifests that are rejected, with the first problem.
func manifestFindings(problems []manifest.Problem) []health.Finding {
	if len(problems) == 0 {
		return nil
	}
	files := map[string]bool{}
	for i := range problems {
		files[problems[i].File] = true
	}
	text := fmt.Sprintf("rejected: %s with %s; the first: %s", plural.Of(len(files), "file"), plural.Of(len(problems), "problem"), problems[0])
	return []health.Finding{{Kind: health.ManifestRejected, Problem: text}}
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
	r, hard := s.reports, s.options.KubeProxy.BindAddressHardFail
	handler := s.protection.health(health.Handler(r.monitor, r.answered))
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
				r.recorder.HealthcheckFailed(err)
				return
			}
			if tell, _ := r.repeated.Failed("health server"); tell {
				s.log.Error("health server failed; retrying", zap.Error(err), zap.Duration("every", web.RetryPause))
			}
		},
		Handing: s.life.owner.handing, Listening: r.conflicts.listening(field, address),
	})
}

// answered counts an answer about health.
func (r *reports) answered(path string, code int) {
	if path == "/livez" {
		r.metrics.Livez(code)
	} else {
		r.metrics.Healthz(code)
	}
}
