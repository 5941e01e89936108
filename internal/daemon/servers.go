// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"go.uber.org/zap"
	logsapi "k8s.io/component-base/logs/api/v1"

	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/ui"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/observe/web"
)

// started is when this process began.
var started = time.Now()

// servers returns the HTTP servers.
func (s *server) servers() (all []*web.Server) {
	if lab := s.options.Lab; lab != nil && lab.Page != nil {
		all = append(all, s.pageServer(lab))
	}
	if !observed(s.options, s.feed) {
		return all
	}
	address := healthAddress(s.options, s.feed)
	if address != "" {
		all = append(all, s.healthServer("healthzBindAddress", address))
	}
	if probe := s.options.Sluice.Healthz.ProbeAddress; probe != "" && !setup.Covers(address, probe) {
		all = append(all, s.healthServer("healthz.probeAddress", probe))
	}
	all = append(all, s.metricsServer())
	if address := s.options.Sluice.Inspection.BindAddress; address != "" {
		all = append(all, s.inspectionServer(address))
	}
	return all
}

// inspectionServer makes the server that answers kubectl sluice. It accepts any Host header, because the API server
// forwards requests with its own name in it.
func (s *server) inspectionServer(address string) *web.Server {
	return web.NewServer(web.ServerConfig{
		Name: "inspection address " + address, Address: address, Log: s.log,
		Handler: s.protection.inspection.questions(inspect.Remote(s.options.Version, s.answers, s.options.Sluice.Security.Inspection)), TLS: s.protection.inspection.tls(),
		Failed: func(err error) {
			if tell, _ := s.host.Repeated.Failed("inspection server"); tell {
				s.log.Error("inspection server failed; retrying", zap.String("address", address), zap.Error(err),
					zap.Duration("every", web.RetryPause))
			}
		},
		Handing: s.life.owner.handing, Listening: s.conflicts.listening("inspection.bindAddress", address),
	})
}

// metricsPart maintains the metrics.
func (s *server) metricsPart() (*part.Part, error) {
	o, b, life := s.options, s.backend, s.life
	c := metrics.Config{
		Mode: string(b.Mode.Name), Refusals: b.Mode.Refusals, ServicesMax: int(o.Sluice.Metrics.ServicesMax),
		Build: metrics.Build{Version: o.Version, Revision: setup.Revision()}, Process: metricsProcess(o),
		Book: s.answers.Book, Events: s.host.SourceEvents,
	}
	c.LocalhostListeners = b.Mode.LocalPorts && o.GateEnabled(config.GateNFTablesLocalhost)
	if b.Mode.Traffic != nil {
		c.Traffic, c.Owner = b.Mode.Traffic(&o.Options, b.Domains), s.host.Owner
		c.Refresh = func(ctx context.Context) { s.answers.Usage.Refresh(ctx) }
	}
	if s.answers.Traffic != nil {
		c.Flows = s.answers.Traffic.Last
	}
	if b.Mode.Forwards {
		c.Relayed, c.Relay = life.relayed, life.relayTotals
	}
	if b.Mode.Accounts != nil {
		if _, err := b.Mode.Accounts(); err == nil {
			c.Accounted = b.Mode.Accounts
		}
	}
	m, err := metrics.New(c)
	s.answers.Metrics = m
	return &part.Part{Name: "metrics", Listener: m}, err
}

// metricsProcess returns the process-wide settings of metrics.
func metricsProcess(o *Options) metrics.Process {
	p := metrics.Process{
		ShowHidden:       o.KubeProxy.ShowHiddenMetricsForVersion != "",
		NativeHistograms: o.GateEnabled(config.GateNativeHistograms),
	}
	for _, g := range o.Gates() {
		p.Features = append(p.Features, metrics.Feature{Name: g.Name, Stage: g.Stage, Enabled: g.Enabled})
	}
	return p
}

// metricsServer makes the server of the metrics address.
func (s *server) metricsServer() *web.Server {
	address := s.options.KubeProxy.MetricsBindAddress
	return web.NewServer(web.ServerConfig{
		Name: "metrics address " + address, Address: address,
		Handler: s.protection.pages(s.pages().Handler(), s.answers.Monitor), TLS: s.protection.tls(),
		Hosts: hostNames(s.options, s.host.Node.Name), HardFail: s.options.KubeProxy.BindAddressHardFail, Log: s.log,
		Failed: func(err error) {
			if tell, _ := s.host.Repeated.Failed("metrics server"); tell {
				s.log.Error("metrics server failed; retrying", zap.String("address", address), zap.Error(err),
					zap.Duration("every", web.RetryPause))
			}
			if s.options.KubeProxy.BindAddressHardFail {
				s.host.Recorder.MetricsFailed(err)
			}
		},
		Handing: s.life.owner.handing, Listening: s.conflicts.listening("metricsBindAddress", address),
	})
}

// hostNames returns the names under which the metrics address answers: those of the node and of
// the machine, and those in metrics.hosts; nil for all names.
func hostNames(o *Options, node string) []string {
	if slices.Contains(o.Sluice.Metrics.Hosts, config.AllHosts) {
		return nil
	}
	names := []string{node}
	if machine, err := os.Hostname(); err == nil {
		names = append(names, machine)
	}
	return append(names, o.Sluice.Metrics.Hosts...)
}

// pages returns what the metrics address shows.
func (s *server) pages() web.Pages {
	p := web.Pages{
		Mode: string(s.backend.Mode.Name), Metrics: s.answers.Metrics.Handler(), Services: s.answers.Metrics.ServicesHandler(),
		Configz: func() map[string]any {
			kubeProxy, own := s.configuration.current.Load().InEffect(s.backend.Mode.Name, s.backend.Pace())
			return map[string]any{"kubeproxy.config.k8s.io": kubeProxy, "sluice.dev": own}
		},
		Profiling: s.options.KubeProxy.EnableProfiling, SetVerbosity: s.setVerbosity,
	}
	if s.options.Sluice.UI.Enabled {
		p.UI, p.UIPath = ui.Handler(inspect.Handler(s.options.Version, s.answers), s.answers), ui.Path
	}
	if s.options.GateEnabled(config.GateComponentFlagz) {
		p.Flagz = s.options.FlagValues
	}
	if s.options.GateEnabled(config.GateComponentStatusz) {
		p.Statusz = &web.Program{Started: started, Version: setup.Release[1:], Own: s.options.Version}
	}
	return p
}

// setVerbosity applies a number that a client has put at /debug/flags/v.
func (s *server) setVerbosity(text string) (string, error) {
	number, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return "", fmt.Errorf("%q: must be a number", text)
	}
	for swapped := false; !swapped; { // another client may come in between
		now := s.configuration.current.Load()
		to := *now
		to.KubeProxy.Logging.Verbosity = logsapi.VerbosityLevel(number)
		if err := s.life.log.Set(to.Log()); err != nil {
			return "", err
		}
		swapped = s.configuration.current.CompareAndSwap(now, &to)
	}
	return fmt.Sprintf("successfully set klog.logging.verbosity to %d", number), nil
}
