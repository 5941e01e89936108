package main

import (
	"context"
	"errors"
	"net/netip"
	"sync/atomic"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/kube-proxy/config/v1alpha1"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/ipvs"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/kernel"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/rival"
	"github.com/sluice-proxy/sluice/internal/host/hostaddress"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
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

// upstream says where the Services of a configuration come from: how to reach the
// API server, nil without one, and the feed. Nothing on this node is touched.
type upstream func(o *options) (*rest.Config, feed, error)

// server is the proxy with everything around it, for one configuration, of which
// some can change in place.
type server struct {
	*options
	upstream upstream
	log      *logger
	// owner is the process's, and says when the rules are.
	owner *owner
	// rivals looks for other proxies, and taken knows the addresses that others have.
	rivals *rivals
	taken  addresses
	// sysctls are the kernel's settings.
	sysctls sysctl.Files
	mode    backend.Mode
	// variant is that of iptables which IPVS mode writes its rules with.
	variant  iptables.Variant
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
	// faces are the HTTP servers.
	faces []runner
	// handed says which changes this server was made for; nil for the first.
	handed []config.Change
	// left are the variants of iptables that former servers of this process have
	// used, and this one does not.
	left []iptables.Variant
	// successor takes over when this server has stopped. The goroutine that
	// watches the configuration file sets it.
	successor *server
	// end gives up what assembling has begun.
	end context.CancelFunc
}

// serve runs one server after the other, each until its configuration changes so
// much that another has to take over, until the context ends; the options have been
// loaded.
func serve(ctx context.Context, o *options, from upstream) error {
	log, err := newLogger(o.Log())
	if err != nil {
		return err
	}
	defer func() { _ = log.Sync() }() // standard error cannot always be flushed
	own := claim(log.Logger)
	defer own.lock.Release()
	s, err := newServer(ctx, o, log, own, from)
	if err != nil {
		return err
	}
	for s != nil {
		err := s.run(ctx)
		s.end()
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		if s.successor != nil && ctx.Err() != nil {
			s.successor.end()
			break
		}
		s = s.successor
	}
	if o.sandboxed {
		log.Info("stopped; the sandbox and its rules are gone")
	} else {
		log.Info("stopped; the rules stay in the kernel")
	}
	return nil
}

// newServer makes a server for a configuration, and prepares the node for it.
// Nothing of it runs yet.
func newServer(ctx context.Context, o *options, log *logger, own *owner, from upstream) (*server, error) {
	client, feed, err := from(o)
	if err != nil {
		return nil, err
	}
	o.warn(log.Logger)
	defer rival.Turn(ctx, assembling)()
	s := &server{options: o, upstream: from, log: log, owner: own, client: client, sysctls: o.recorded(log.Logger)}
	s.current.Store(o.Config)
	if client != nil {
		if err := s.prepareNode(); err != nil {
			return nil, err
		}
	}
	ctx, s.end = context.WithCancel(ctx)
	if err := s.assemble(ctx, feed); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// assemble builds everything. Nothing of it runs yet.
func (s *server) assemble(ctx context.Context, from feed) error {
	mode, domains, err := s.domains(ctx)
	if err != nil {
		return err
	}
	s.mode, s.made = mode, domains
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
	s.rivals = newRivals(s.log.Logger, s.owner.lock.Waits, s.recorder.RivalSeen, s.status)
	listeners := []observe.Listener{observe.NewLog(s.log.Logger), s.recorder, s.monitor, s.rivals}
	followers := []proxy.Follower{s.cleaner, s.ports}
	if s.client != nil {
		if s.metrics, err = metrics.New(s.metricsConfig()); err != nil {
			return err
		}
		listeners, followers = append(listeners, s.metrics), append(followers, s.metrics)
	}
	s.proxy, err = proxy.New(proxy.Config{
		Node: s.settings, Domains: domains, Source: from(s),
		HostAddresses: s.hostAddresses(), MayWrite: s.owner.mayWrite,
		Listeners: listeners, Followers: followers,
		NodeWait: s.Sluice.Start.NodeWait.Duration, GateWait: s.Sluice.Start.GateWait.Duration,
		IgnoreExternalIPs: !s.GateEnabled(config.GateAllowServiceExternalIPs),
		Supervisor:        supervisor.Config{MessageDeadline: s.Sluice.Actors.MessageDeadline.Duration},
		MaxServices:       int(s.Sluice.Actors.ServicesMax),
		WatchFailed: func(domain string, err error) {
			s.log.Warn("changes by others are not announced; compared with the kernel instead, and tried again", zap.String("domain", domain), zap.Error(err))
		},
		Warn: func(w service.Warning) {
			s.recorder.Warn(w)
			s.log.Warn("part of an object cannot be used", zap.String("object", w.Object), zap.String("field", w.Field), zap.String("problem", w.Problem))
		},
	})
	if err != nil {
		return usageError{err}
	}
	if s.metrics != nil {
		s.metrics.Attach(s.proxy.Status, s.proxy.SourceEvents)
	}
	s.faces, err = s.servers()
	return err
}

// run serves until the context ends, or there is a successor.
func (s *server) run(ctx context.Context) error {
	if s.ready != nil {
		s.ready(s.mode)
	}
	what := "serving"
	if !s.owner.owns() {
		what = "ready to serve"
	}
	s.log.Info(what, zap.String("mode", string(s.mode)), zap.String("node", s.settings.Name), zap.String("version", version))
	if s.handed == nil {
		s.recorder.Starting()
	} else {
		s.recorder.Reloaded(names(s.handed))
	}
	process := ctx
	group, ctx := errgroup.WithContext(ctx)
	shown, hide := context.WithCancel(ctx)
	defer hide()
	for _, face := range s.faces {
		group.Go(func() error { return face.Run(shown) })
	}
	group.Go(func() error {
		defer hide() // last, so that whoever asks about health has an answer while the rest stops
		defer s.yield()
		return s.work(ctx, process)
	})
	return group.Wait()
}

// yield lets another proxy have the rules, once this process writes none any more.
func (s *server) yield() {
	if s.successor == nil {
		s.owner.lock.Release()
	}
}

// work does what a proxy does until the context ends, or there is a successor, which
// lives until the process is told to stop.
func (s *server) work(ctx, process context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.proxy.Run(ctx) })
	group.Go(func() error { return s.cleaner.Run(ctx) })
	group.Go(func() error { return s.ports.Run(ctx) })
	group.Go(func() error { s.leaveOtherModes(ctx); return nil })
	group.Go(func() error { s.owner.wait(ctx); return nil })
	group.Go(func() error { s.watchRivals(ctx); return nil })
	group.Go(func() error {
		s.flags.Watch(ctx, s.Config, func(u config.Update) bool {
			if ctx.Err() != nil {
				return false // there is a successor, or an end
			}
			inForce := s.update(process, u)
			if s.successor != nil {
				stop()
			}
			return inForce
		})
		return nil
	})
	return group.Wait()
}

// leaveOtherModes removes what other modes have left, once nobody depends on it.
func (s *server) leaveOtherModes(ctx context.Context) {
	select {
	case <-s.proxy.InForce():
		s.owner.inForce()
	case <-ctx.Done():
		return
	}
	err := errors.Join(backend.CleanUpOthers(ctx, s.mode, s.usedVariant(), s.log.Logger), s.leaveVariants(ctx))
	if err != nil && ctx.Err() == nil {
		s.log.Warn("rules of another mode remain, which take part in deciding about packets; remove them with sluice cleanup", zap.Error(err))
	}
}

// domains builds the domains of the backend that is asked for, and tells which it
// is.
func (s *server) domains(ctx context.Context) (backend.Mode, []proxy.Domain, error) {
	mode, domains, err := backend.Build(s.options.mode(), s.choice(ctx), backend.Builders{
		NFTables: func() ([]proxy.Domain, error) {
			return backend.NFTables(ctx, backend.NFTablesOptions{
				MasqueradeBit: s.MasqueradeBit(), LocalPorts: s.ForwardsLocalhost(), Log: s.log.Logger,
			})
		},
		IPTables: func() ([]proxy.Domain, error) {
			choice, err := s.iptables()
			if err != nil {
				return nil, err
			}
			choice.Log, choice.Sysctls = s.log.Logger, s.sysctls
			return backend.IPTables(ctx, choice)
		},
		IPVS: func() (domains []proxy.Domain, err error) {
			domains, s.variant, err = backend.IPVS(ctx, s.ipvs(s.sysctls, s.log.Logger))
			return domains, err
		},
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

// ipvs gives the options of IPVS mode.
func (o *options) ipvs(files sysctl.Files, log *zap.Logger) backend.IPVSOptions {
	c := &o.KubeProxy.IPVS
	return backend.IPVSOptions{
		Variant: o.Sluice.IPTables.Variant, MasqueradeBit: o.MasqueradeBit(), Scheduler: o.Scheduler(),
		Excluded: o.ExcludedCIDRs(), DrainDeadline: o.Sluice.IPVS.DrainDeadline.Duration, StrictARP: c.StrictARP,
		Timeouts:    kernel.Timeouts{TCP: c.TCPTimeout.Duration, TCPFin: c.TCPFinTimeout.Duration, UDP: c.UDPTimeout.Duration},
		PrivateLock: o.sandboxed, Sysctls: files, Log: log,
	}
}

// hostAddresses follows the host's addresses. In IPVS mode those of the Services are
// on a device of the host, and no addresses of its own.
func (s *server) hostAddresses() func(ctx context.Context, changed func([]netip.Addr)) error {
	if s.mode == backend.ModeIPVS {
		return hostaddress.WatchWithout(ipvs.Device)
	}
	return hostaddress.Watch
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
