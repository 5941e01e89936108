package daemon

import (
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// healthConfig has what health is judged by.
func (s *server) healthConfig() health.Config {
	return health.Config{
		Domains: s.healthDomains, Resources: s.resources, SyncPeriod: s.SyncPeriod(),
		Standby: s.owner.waiting, Others: s.otherFindings, Stopping: s.stoppingSince,
		Node: func() *service.NodeObject {
			if s.proxy == nil {
				return nil
			}
			return s.proxy.Node()
		},
	}
}

// stoppingSince returns when this server was told to stop; zero if it was not.
func (s *server) stoppingSince() time.Time {
	if at := s.stopping.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// otherFindings returns the findings about other programs on this node, and about manifests.
func (s *server) otherFindings() []health.Finding {
	found := slices.Concat(s.owner.findings(), s.taken.findings())
	if from := s.manifests.Load(); from != nil {
		found = append(found, manifestFindings(from.Problems())...)
	}
	return found
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
	text := fmt.Sprintf("rejected: %d files with %d problems; the first: %s", len(files), len(problems), problems[0])
	return []health.Finding{{Kind: health.ManifestRejected, Problem: text}}
}

func (s *server) healthDomains() (domains []health.DomainStatus) {
	if s.proxy == nil {
		return nil
	}
	for i, status := range s.proxy.Status() {
		domains = append(domains, health.DomainStatus{Status: status, Family: s.domains[i].Family, Auxiliary: s.domains[i].Auxiliary})
	}
	return domains
}

func (s *server) resources() (resources []health.Resource) {
	if from := s.source.Load(); from != nil {
		for _, status := range from.Status() {
			resources = append(resources, health.Resource(status))
		}
	}
	return resources
}

// portsConfig configures the health-check node ports.
func (s *server) portsConfig() health.PortsConfig {
	c := health.PortsConfig{NodePorts: s.nodePorts, Failed: s.recorder.HealthPortFailed, Log: s.log.Logger}
	if s.healthAddress() != "" {
		c.Healthy = s.monitor.Healthy
	}
	return c
}

// nodePorts returns the addresses on which node ports of a family answer now.
func (s *server) nodePorts(family service.Family) service.NodePortAddresses {
	return s.proxy.Facts().NodePorts[family]
}

// healthAddress returns where the health server listens. It is empty if the server is disabled, or
// if there is no cluster that could ask.
func (s *server) healthAddress() string {
	if !s.observed() {
		return ""
	}
	return s.KubeProxy.HealthzBindAddress
}

// healthServer makes the server of /healthz and /livez.
func (s *server) healthServer() *web.Server {
	address := s.healthAddress()
	return web.NewServer(web.ServerConfig{
		Name: "health server", Address: address, Handler: health.Handler(s.monitor, s.answered), ForProbes: true,
		HardFail: s.KubeProxy.BindAddressHardFail, Log: s.log.Logger,
		Failed: func(err error) {
			if s.KubeProxy.BindAddressHardFail {
				s.recorder.HealthcheckFailed(err)
				return
			}
			if tell, _ := s.repeated.Failed("health server"); tell {
				s.log.Error("health server does not run; trying again", zap.Error(err), zap.Duration("every", web.RetryPause))
			}
		},
		Handing: s.owner.handing, Listening: s.taken.listening("healthzBindAddress", address),
	})
}

// answered counts an answer about health.
func (s *server) answered(path string, code int) {
	if path == "/livez" {
		s.metrics.Livez(code)
	} else {
		s.metrics.Healthz(code)
	}
}
