package main

import (
	"context"
	"errors"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/kube-proxy/config/v1alpha1"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/hostaddress"
	"github.com/sluice-proxy/sluice/internal/backend"
	"github.com/sluice-proxy/sluice/internal/config"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/observe/events"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/kube"
	"github.com/sluice-proxy/sluice/supervisor"
)

// feed makes a source for a server whose log and settings are known.
type feed func(s *server) proxy.Source

// server is the proxy with everything around it.
type server struct {
	*options
	log      *logger
	mode     backend.Mode
	settings proxy.NodeSettings
	recorder *events.Recorder
	proxy    *proxy.Proxy
	cleaner  *conntrack.Cleaner
	monitor  *health.Monitor
	ports    *health.Ports
	// metrics is nil without an API server: there is nobody to ask for them.
	metrics *metrics.Metrics
	// current is the configuration in force.
	current atomic.Pointer[config.Config]
	// client is nil without an API server. The source, once it runs, tells how
	// that is doing.
	client *rest.Config
	source atomic.Pointer[kube.Source]
	// made are the domains, in the order of the proxy's Status.
	made []proxy.Domain
	// preferred is the pace that the backend prefers in each domain.
	preferred map[string]aggregator.Pace
}

// serve runs the proxy until the context ends; the options have been loaded. The
// client is nil without an API server.
func serve(ctx context.Context, o *options, client *rest.Config, from feed) (err error) {
	log, err := newLogger(o.Log())
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }() // standard error cannot always be flushed
	o.warn(log.Logger)
	s := &server{options: o, log: log, client: client}
	s.current.Store(o.Config)
	if client != nil {
		if err := s.prepareNode(); err != nil {
			return err
		}
	}
	if err := s.assemble(ctx, from); err != nil {
		return err
	}
	if err := s.run(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	if o.sandboxed {
		log.Info("stopped; the sandbox and its rules are gone")
	} else {
		log.Info("stopped; the rules stay in the kernel")
	}
	return nil
}

// assemble builds everything. Nothing of it runs yet.
func (s *server) assemble(ctx context.Context, from feed) error {
	mode, domains, err := s.domains(ctx)
	if err != nil {
		return err
	}
	s.mode, s.made = mode, domains
	if s.ready != nil {
		s.ready(mode)
	}
	if s.settings, err = s.NodeSettings(v1alpha1.ProxyMode(mode)); err != nil {
		return err
	}
	if s.recorder, err = events.New(ctx, s.client, s.settings.Name); err != nil {
		return err
	}
	if s.cleaner, err = conntrack.New(s.conntrackConfig()); err != nil {
		return err
	}
	if s.monitor, err = health.NewMonitor(s.healthConfig()); err != nil {
		return err
	}
	s.ports = health.NewPorts(s.portsConfig())
	listeners := []observe.Listener{observe.NewLog(s.log.Logger), s.recorder, s.monitor}
	followers := []proxy.Follower{s.cleaner, s.ports}
	if s.client != nil {
		if s.metrics, err = metrics.New(s.metricsConfig()); err != nil {
			return err
		}
		listeners, followers = append(listeners, s.metrics), append(followers, s.metrics)
	}
	s.proxy, err = proxy.New(proxy.Config{
		Node: s.settings, Domains: domains, Source: from(s),
		HostAddresses: hostaddress.Watch,
		Listeners:     listeners, Followers: followers,
		NodeWait: s.Sluice.Start.NodeWait.Duration, GateWait: s.Sluice.Start.GateWait.Duration,
		Supervisor:  supervisor.Config{MessageDeadline: s.Sluice.Actors.MessageDeadline.Duration},
		MaxServices: int(s.Sluice.Actors.ServicesMax),
		Warn: func(w service.Warning) {
			s.log.Warn("part of an object cannot be used", zap.String("object", w.Object), zap.String("field", w.Field), zap.String("problem", w.Problem))
		},
	})
	if err != nil {
		return usageError{err}
	}
	if s.metrics != nil {
		s.metrics.Attach(s.proxy.Status, s.proxy.SourceEvents)
	}
	return nil
}

// run serves until the context ends.
func (s *server) run(ctx context.Context) error {
	s.log.Info("serving", zap.String("mode", string(s.mode)), zap.String("node", s.settings.Name), zap.String("version", version))
	servers, err := s.servers()
	if err != nil {
		return err
	}
	s.recorder.Starting()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.proxy.Run(ctx) })
	group.Go(func() error { return s.cleaner.Run(ctx) })
	group.Go(func() error { return s.ports.Run(ctx) })
	for _, server := range servers {
		group.Go(func() error { return server.Run(ctx) })
	}
	group.Go(func() error { s.leaveOtherModes(ctx); return nil })
	group.Go(func() error { s.flags.Watch(ctx, s.Config, s.update); return nil })
	return group.Wait()
}

// leaveOtherModes removes what other modes have left, once nobody depends on it.
func (s *server) leaveOtherModes(ctx context.Context) {
	select {
	case <-s.proxy.InForce():
	case <-ctx.Done():
		return
	}
	if err := backend.CleanUpOthers(ctx, s.mode, s.log.Logger); err != nil && ctx.Err() == nil {
		s.log.Warn("rules of another mode remain, which take part in deciding about packets; remove them with sluice cleanup", zap.Error(err))
	}
}

// domains builds the domains of the backend that is asked for, and tells which it
// is.
func (s *server) domains(ctx context.Context) (backend.Mode, []proxy.Domain, error) {
	mode, domains, err := backend.Build(s.options.mode(), s.log.Logger,
		func() ([]proxy.Domain, error) {
			return backend.NFTables(ctx, backend.NFTablesOptions{
				MasqueradeBit: s.MasqueradeBit(), LocalPorts: s.ForwardsLocalhost(), Log: s.log.Logger,
			})
		},
		func() ([]proxy.Domain, error) {
			choice, err := s.iptables()
			if err != nil {
				return nil, err
			}
			choice.Log = s.log.Logger
			return backend.IPTables(ctx, choice)
		})
	s.preferred = make(map[string]aggregator.Pace)
	for i := range domains {
		d := &domains[i]
		s.preferred[d.Name], d.Pace = d.Pace, s.Pace(d.Pace)
	}
	return mode, domains, err
}

// iptables gives the options of iptables mode, but for the logger.
func (o *options) iptables() (backend.IPTablesOptions, error) {
	settings, err := o.NodeSettings(v1alpha1.ProxyMode(backend.ModeIPTables))
	return backend.IPTablesOptions{
		Variant: o.Sluice.IPTables.Variant, MasqueradeBit: o.MasqueradeBit(), LocalhostNodePorts: settings.LocalhostNodePorts,
		PrivateLock: o.sandboxed,
	}, err
}

// conntrackConfig is about the removal of stale flows.
func (s *server) conntrackConfig() conntrack.Config {
	return conntrack.Config{
		NodePorts: s.nodePorts,
		Gather:    s.Sluice.Conntrack.Gather.Duration,
		Listen: func(e conntrack.Event) {
			if s.metrics != nil {
				s.metrics.Conntrack(e)
			}
			swept, ok := e.(conntrack.Swept)
			switch {
			case !ok:
			case swept.Err != nil:
				s.log.Warn("stale flows could not be removed; tried again", zap.Stringer("family", swept.Family),
					zap.Int("failures", swept.Failures), zap.Error(swept.Err))
			case swept.Deleted > 0:
				s.log.Debug("stale flows removed", zap.Stringer("family", swept.Family), zap.Int("flows", swept.Deleted), zap.Duration("took", swept.Took))
			}
		},
	}
}
