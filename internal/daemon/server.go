package daemon

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/rival"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/observe/events"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/kube"
)

// server is the proxy with everything around it, for one configuration.
type server struct {
	*Options
	*process
	*upstream
	node
	kernel
	reports
	proxy *proxy.Proxy
	// cleaner is nil in userspace mode.
	cleaner *conntrack.Cleaner
	// current is the configuration, with the verbosity that a client may have set since.
	current atomic.Pointer[config.Config]
	// former are the forwarders of a server that this one follows, which serve until its own rules
	// are in force; empty in userspace mode.
	former *backend.Forwarders
	// remote is the connection to a process that this one follows, which serves until it is closed;
	// nil without one.
	remote io.Closer
	// handed are the changes that this server was made for; nil for the first one.
	handed []config.Change
	// successor takes over when this server has stopped. The goroutine that watches the
	// configuration file sets it.
	successor *server
	// stopping is when this server was told to stop; nil before.
	stopping atomic.Pointer[time.Time]
	// end releases what assembling has acquired.
	end context.CancelFunc
}

// reports tell others about the proxy.
type reports struct {
	recorder       *events.Recorder
	monitor        *health.Monitor
	ports          *health.Ports
	metrics        *metrics.Metrics
	lines          *observe.Log
	taken          *addresses
	objectWarnings *observe.Warnings
	// repeated keeps failures that repeat from filling the log.
	repeated observe.Incidents
	// began is when the server began to run.
	began time.Time
	// http are the HTTP servers.
	http []*web.Server
}

// newServer makes a server for a configuration, and prepares the node for it. Nothing of
// it runs yet.
func newServer(ctx context.Context, o *Options, p *process) (*server, error) {
	from, err := p.from(o)
	if err != nil {
		return nil, err
	}
	warn(p.log.Logger, o.warnings)
	defer rival.Turn(ctx, assembling)()
	s := &server{Options: o, process: p, upstream: from, node: node{sysctls: o.recorded(p.log.Logger)}}
	s.current.Store(o.Config)
	if s.client != nil {
		if err := s.node.prepare(o, p.log.Logger); err != nil {
			return nil, err
		}
	}
	ctx, s.end = context.WithCancel(ctx)
	if err := s.assemble(ctx); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

// discard releases what a server holds that never ran. One that runs closes its writers.
func (s *server) discard() error {
	s.end()
	return s.kernel.close()
}

// assemble builds everything. Nothing of it runs yet.
func (s *server) assemble(ctx context.Context) (err error) {
	if s.kernel, err = newKernel(ctx, s.Options, s.sysctls, s.forwarders, s.log.Logger); err != nil {
		return err
	}
	if s.settings, err = s.NodeSettings(s.mode); err != nil {
		return err
	}
	if s.recorder, err = events.New(ctx, s.eventsConfig(ctx)); err != nil {
		return err
	}
	if s.mode != config.ModeUserspace { // which translates nothing
		if s.cleaner, err = conntrack.New(s.conntrackConfig()); err != nil {
			return err
		}
	}
	s.objectWarnings = observe.NewWarnings(s.log.Logger)
	s.monitor = health.NewMonitor(s.healthConfig())
	s.ports = health.NewPorts(s.portsConfig())
	s.taken = &addresses{log: s.log.Logger, handing: s.owner.handing, told: s.recorder.AddressTaken}
	s.lines = s.newLog()
	listeners := []observe.Listener{s.lines, s.recorder, s.monitor}
	if s.metrics, err = metrics.New(s.metricsConfig()); err != nil {
		return err
	}
	listeners = append(listeners, s.metrics)
	followers := []proxy.Follower{s.lines}
	if s.cleaner != nil {
		followers = append(followers, s.cleaner)
	}
	followers = append(followers, s.ports, s.metrics)
	if s.proxy, err = proxy.New(s.proxyConfig(listeners, followers)); err != nil {
		return UsageError{err}
	}
	s.metrics.Attach(s.proxy.Status, s.proxy.SourceEvents)
	s.http = s.servers()
	return nil
}

// eventsConfig says how events are sent, over connections that close when the context ends.
func (s *server) eventsConfig(ctx context.Context) events.Config {
	client := s.client
	if client != nil {
		own, closeAll := kube.OwnConnections(client)
		context.AfterFunc(ctx, closeAll)
		client = own
	}
	return events.Config{Client: client, Node: s.settings.Name, Reporter: func(key service.Key) string {
		return service.Reporter(s.proxy.Snapshot(key).Slices)
	}}
}

// newLog returns what logs the proxy's events.
func (s *server) newLog() *observe.Log {
	families := make(map[string]service.Family)
	for _, d := range s.domains {
		if !d.Auxiliary {
			families[d.Name] = d.Family
		}
	}
	return observe.NewLog(s.log.Logger, families)
}

func (s *server) proxyConfig(listeners []observe.Listener, followers []proxy.Follower) proxy.Config {
	return proxy.Config{
		Node: s.settings, Domains: s.domains, Source: s.feed(s),
		HostAddresses: s.hostAddresses(), ServerAddresses: s.serverAddresses(), MayWrite: s.owner.mayWrite,
		Listeners: listeners, Followers: followers,
		NodeWait: s.Sluice.Start.NodeWait.Duration, GateWait: s.Sluice.Start.GateWait.Duration,
		MessageDeadline: s.Sluice.Actors.MessageDeadline.Duration,
		ObjectsMax:      int(s.Sluice.Actors.ObjectsMax),
		WatchFailed: func(domain string, err error) {
			s.log.Warn("cannot watch for changes by other programs; audits find them until watching works again",
				zap.String("domain", domain), zap.Error(err))
		},
		Objects: s.objects(func(w service.Warning) {
			s.recorder.Warn(w)
			s.objectWarnings.Add(w)
		}),
	}
}

// serverAddresses follows the API server's addresses; nil without one.
func (s *server) serverAddresses() func(context.Context, func([]netip.Addr)) error {
	if s.apiServers == nil {
		return nil
	}
	return s.apiServers.follow
}

// conntrackConfig is about the removal of stale flows.
func (s *server) conntrackConfig() conntrack.Config {
	return conntrack.Config{
		NodePorts: s.nodePorts,
		Gather:    s.Sluice.Conntrack.Gather.Duration,
		Listen: func(e conntrack.Event) {
			s.metrics.Conntrack(e)
			swept, ok := e.(conntrack.Swept)
			switch {
			case !ok:
			case swept.Err != nil:
				warnIfNew := zap.DebugLevel
				if tell, _ := s.repeated.Failed("flows" + swept.Family.String()); tell {
					warnIfNew = zap.WarnLevel
				}
				s.log.Log(warnIfNew, "cannot remove stale flows; will retry", zap.Stringer("family", swept.Family),
					zap.Int("failures", swept.Failures), zap.Error(swept.Err))
			case swept.Deleted > 0:
				s.log.Debug("stale flows removed", zap.Stringer("family", swept.Family),
					zap.Int("flows", swept.Deleted), zap.Duration("took", swept.Took))
			}
		},
	}
}

// run serves until the context ends, or there is a successor.
func (s *server) run(ctx context.Context) error {
	s.began = time.Now()
	s.follow()
	defer s.dismiss()
	if s.Ready != nil {
		s.Ready(s.mode)
	}
	what := "started"
	if !s.owner.owns() {
		what = "ready to serve"
	}
	s.log.Info(what, zap.String("mode", string(s.mode)), zap.String("reason", s.modeReason()),
		zap.String("node", s.settings.Name), zap.String("version", s.Version))
	if s.handed == nil {
		s.recorder.Starting()
	} else {
		var fields []string
		for _, c := range s.handed {
			fields = append(fields, c.Field)
		}
		s.recorder.Reloaded(strings.Join(fields, ", "))
	}
	process := ctx
	group, ctx := errgroup.WithContext(ctx)
	shown, hide := context.WithCancel(ctx)
	defer hide()
	for _, server := range s.http {
		group.Go(func() error { return server.Run(shown) })
	}
	group.Go(func() error {
		defer hide() // last, so that health is answered while the rest stops
		defer s.yield()
		return s.work(ctx, process)
	})
	return group.Wait()
}

// yield lets another proxy have the rules once this process has stopped writing.
func (s *server) yield() {
	if s.successor == nil {
		s.socket.close()
		s.offerSockets()
		s.owner.lock.Release()
	}
}

// work runs the proxy until the context ends or there is a successor. The context of the
// process is for the successor.
func (s *server) work(ctx, process context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, func() {
		now := time.Now()
		s.stopping.Store(&now)
	})()
	group.Go(func() error {
		if s.former.Any() {
			s.track(ctx)
		}
		return s.proxy.Run(ctx)
	})
	if s.cleaner != nil {
		group.Go(func() error { return s.cleaner.Run(ctx) })
	}
	group.Go(func() error { s.objectWarnings.Run(ctx); return nil })
	group.Go(func() error { return s.ports.Run(ctx) })
	group.Go(func() error { s.cleanUpOthers(ctx); return nil })
	group.Go(func() error { s.owner.wait(ctx, func() { s.receive(ctx) }); return nil })
	group.Go(func() error { s.answerQuestions(ctx); return nil })
	group.Go(func() error {
		s.Flags.Watch(ctx, s.Config, func(u config.Update) {
			if ctx.Err() != nil {
				return // this server is stopping
			}
			if s.update(process, u); s.successor != nil {
				stop()
			}
		})
		return nil
	})
	return group.Wait()
}

// inStep logs that a start is complete, and what it took.
func (s *server) inStep() {
	objects := 0
	for _, status := range s.proxy.Status() {
		objects += status.Ledger.Objects
	}
	s.log.Info("start complete", zap.Int("services", len(s.proxy.Keys())),
		zap.Int("objects", objects), zap.Int64("written", s.lines.Written()),
		zap.Float64("seconds", time.Since(s.began).Round(time.Millisecond).Seconds()))
}

// cleanUpOthers removes what other backends left, once the rules of this one are in force.
func (s *server) cleanUpOthers(ctx context.Context) {
	select {
	case <-s.proxy.InForce():
		s.owner.inForce()
		s.inStep()
		if s.InForce != nil {
			s.InForce(s.mode)
		}
	case <-ctx.Done():
		return
	}
	s.settle(ctx)
	s.sockets.Close()
	replaced, err := s.kernel.cleanUpOthers(ctx, s.log.Logger)
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, fs.ErrPermission):
		s.log.Info("cannot tell whether rules of another mode remain; sluice cleanup --dry-run tells root", zap.Error(err))
	default:
		s.log.Warn("rules of another mode remain and still affect packets; remove them with sluice cleanup", zap.Error(err))
	}
	if err == nil {
		s.Options.restoreARP(s.mode, s.sysctls, s.log.Logger)
	}
	s.leave(ctx)
	s.release(ctx, replaced)
}
