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

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/ui"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/service"
)

// started is when this process began.
var started = time.Now()

// observed reports whether health and metrics are served: with a cluster, or if asked for.
func (s *server) observed() bool { return s.client != nil || s.WithoutCluster }

// servers returns the HTTP servers.
func (s *server) servers() (all []*web.Server) {
	if !s.observed() {
		return nil
	}
	if s.healthAddress() != "" {
		all = append(all, s.healthServer())
	}
	return append(all, s.metricsServer())
}

// metricsConfig says what is counted.
func (s *server) metricsConfig() metrics.Config {
	c := metrics.Config{
		Mode: string(s.mode), Findings: s.monitor.Tallies, Shadowed: s.monitor.Shadowed, Dropped: s.dropped,
		ServicesMax: int(s.Sluice.Metrics.ServicesMax),
		Build:       metrics.Build{Version: s.Version, Revision: Revision()},
		Process: metrics.Process{
			ShowHidden:       s.KubeProxy.ShowHiddenMetricsForVersion != "",
			NativeHistograms: s.GateEnabled(config.GateNativeHistograms),
		},
	}
	switch s.mode {
	case config.ModeIPVS:
		c.Counters = ipvsCounters
	case config.ModeUserspace:
		c.Relayed, c.Relay = s.relayed, s.relayTotals
	case config.ModeIPTables:
		if _, err := iptables.ReadAccounts(); err == nil {
			c.Accounted = iptables.ReadAccounts
		}
	}
	for _, d := range s.domains {
		c.Domains = append(c.Domains, metrics.DomainInfo{Name: d.Name, Family: d.Family, Auxiliary: d.Auxiliary})
	}
	for _, g := range s.Gates() {
		c.Process.Features = append(c.Process.Features, metrics.Feature{Name: g.Name, Stage: g.Stage, Enabled: g.Enabled})
	}
	return c
}

// dropped counts the reports that this server has dropped.
func (s *server) dropped() metrics.Dropped {
	return metrics.Dropped{Events: s.recorder.Dropped(), Warnings: s.objectWarnings.Dropped(), Lines: logging.Dropped()}
}

// ipvsCounters returns what IPVS has counted.
func ipvsCounters(ctx context.Context) (map[service.Frontend]metrics.Counters, error) {
	counted, err := backend.IPVSTraffic(ctx)
	all := make(map[service.Frontend]metrics.Counters, len(counted))
	for f, c := range counted {
		all[f] = metrics.Counters{Connections: c.Connections, BytesIn: c.BytesIn, BytesOut: c.BytesOut}
	}
	return all, err
}

// metricsServer makes the server of the metrics address.
func (s *server) metricsServer() *web.Server {
	address := s.KubeProxy.MetricsBindAddress
	return web.NewServer(web.ServerConfig{
		Name: "metrics address " + address, Address: address, Handler: s.pages().Handler(),
		Hosts: s.hostNames(), HardFail: s.KubeProxy.BindAddressHardFail, Log: s.log.Logger,
		Failed: func(err error) {
			if tell, _ := s.repeated.Failed("metrics server"); tell {
				s.log.Error("metrics are not served; trying again", zap.String("address", address), zap.Error(err),
					zap.Duration("every", web.RetryPause))
			}
			if s.KubeProxy.BindAddressHardFail {
				s.recorder.MetricsFailed(err)
			}
		},
		Handing: s.owner.handing, Listening: s.taken.listening("metricsBindAddress", address),
	})
}

// hostNames returns the names under which the metrics address answers: those of the node and of
// the machine, and those in metrics.hosts; nil for all names.
func (s *server) hostNames() []string {
	if slices.Contains(s.Sluice.Metrics.Hosts, config.AllHosts) {
		return nil
	}
	names := []string{s.settings.Name}
	if machine, err := os.Hostname(); err == nil {
		names = append(names, machine)
	}
	return append(names, s.Sluice.Metrics.Hosts...)
}

// pages returns what the metrics address shows.
func (s *server) pages() web.Pages {
	p := web.Pages{
		Mode: string(s.mode), Metrics: s.metrics.Handler(), Services: s.metrics.ServicesHandler(),
		Configz: func() map[string]any {
			kubeProxy, own := s.current.Load().InEffect(s.mode, s.pace())
			return map[string]any{"kubeproxy.config.k8s.io": kubeProxy, "sluice.dev": own}
		},
		Profiling: s.KubeProxy.EnableProfiling, SetVerbosity: s.setVerbosity,
	}
	if s.Sluice.UI.Enabled {
		p.UI, p.UIPath = ui.Handler(inspect.Handler(s.Version, inspection{s}), inspection{s}), ui.Path
	}
	if s.GateEnabled(config.GateComponentFlagz) {
		p.Flagz = s.FlagValues
	}
	if s.GateEnabled(config.GateComponentStatusz) {
		p.Statusz = &web.Program{Started: started, Version: Release[1:], Own: s.Version}
	}
	return p
}

// pace returns the pace of the domains that hold the rules of Services.
func (k *kernel) pace() aggregator.Pace {
	for _, d := range k.domains {
		if !d.Auxiliary {
			return d.Pace
		}
	}
	return aggregator.Pace{}
}

// setVerbosity applies a number that a client has put at /debug/flags/v.
func (s *server) setVerbosity(text string) (string, error) {
	number, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		return "", fmt.Errorf("%q: want a number", text)
	}
	for swapped := false; !swapped; { // another client may come in between
		now := s.current.Load()
		to := *now
		to.KubeProxy.Logging.Verbosity = logsapi.VerbosityLevel(number)
		if err := s.log.Set(to.Log()); err != nil {
			return "", err
		}
		swapped = s.current.CompareAndSwap(now, &to)
	}
	return fmt.Sprintf("successfully set klog.logging.verbosity to %d", number), nil
}
