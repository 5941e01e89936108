package daemon

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/service"
)

// healthConfig says what health is judged by.
func (s *server) healthConfig() health.Config {
	return health.Config{
		Domains: s.healthDomains, Resources: s.resources, SyncPeriod: s.SyncPeriod(),
		Standby: s.owner.waiting, Others: s.otherFindings,
		Node: func() *service.NodeObject {
			if s.proxy == nil {
				return nil
			}
			return s.proxy.Node()
		},
	}
}

// otherFindings are those about others on this node.
func (s *server) otherFindings() []health.Finding {
	return slices.Concat(s.owner.findings(), s.rivals.findings(), s.taken.findings())
}

func (s *server) healthDomains() (domains []health.Domain) {
	if s.proxy == nil {
		return nil
	}
	for i, status := range s.proxy.Status() {
		domains = append(domains, health.Domain{Status: status, Family: s.made[i].Family, Auxiliary: s.made[i].Auxiliary})
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

// portsConfig is about the health-check node ports.
func (s *server) portsConfig() health.PortsConfig {
	c := health.PortsConfig{NodePorts: s.nodePorts, Failed: s.recorder.HealthPortFailed, Log: s.log.Logger}
	if s.healthAddress() != "" {
		c.Healthy = s.monitor.Healthy
	}
	return c
}

// nodePorts tells on which addresses node ports of a family answer now.
func (s *server) nodePorts(family service.Family) service.NodePortAddresses {
	return s.proxy.Facts().NodePorts[family]
}

// healthAddress is where health is told; empty for nowhere: that was asked for, or
// there is no cluster to ask.
func (s *server) healthAddress() string {
	if s.client == nil {
		return ""
	}
	return s.KubeProxy.HealthzBindAddress
}

// healthServer makes the server of /healthz and /livez; nil without one.
func (s *server) healthServer() (*health.Server, error) {
	text := s.healthAddress()
	if text == "" {
		return nil, nil
	}
	address, err := netip.ParseAddrPort(text)
	if err != nil {
		return nil, fmt.Errorf("healthzBindAddress: %w", err)
	}
	return health.NewServer(health.ServerConfig{
		Address: address, HardFail: s.KubeProxy.BindAddressHardFail, Monitor: s.monitor,
		Answered: s.answered, Failed: s.recorder.HealthcheckFailed, Log: s.log.Logger,
		Handing: s.owner.handing, Listening: s.taken.listening("healthzBindAddress", text),
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
