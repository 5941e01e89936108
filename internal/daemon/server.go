package daemon

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/balance"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/flows"
	"github.com/sluice-proxy/sluice/internal/daemon/gone"
	"github.com/sluice-proxy/sluice/internal/daemon/inspection"
	"github.com/sluice-proxy/sluice/internal/daemon/peer"
	"github.com/sluice-proxy/sluice/internal/daemon/selftest"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/usage"
	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// server is the proxy with everything around it, for one configuration.
type server struct {
	options *Options
	life    *lifetime
	feed    *feed.Feed
	// sysctls are the kernel's settings.
	sysctls sysctl.Files
	backend *setup.Backend
	node    proxy.NodeSettings
	reports *reports
	// cleaner is nil in userspace mode.
	cleaner *conntrack.Cleaner
	// traffic watches the connection table; nil in userspace mode.
	traffic *conntrack.Traffic
	// connections are the kernel's announcements, for flows and balance.
	connections *conntrack.Feed
	flows       *flows.Hub
	balance     *balance.Watcher
	// selfTest is nil if the configuration does not ask for it, and in modes without it.
	selfTest *selftest.Test
	// offload is nil if the configuration does not ask for it.
	offload  *backend.Offload
	proxy    *proxy.Proxy
	handover *handover
	pending  pending
	answers  *inspection.Inspection
	http     []*web.Server
	// around watches what Services need of the node.
	around *surroundings
	// protection is of the metrics address.
	protection protection
	log        *zap.Logger
	// current is the configuration, with the verbosity that a client may have set since.
	current *atomic.Pointer[config.Config]
	// began is when the server began to run.
	began time.Time
	// handed are the changes that this server was made for; nil for the first one.
	handed []config.Change
	// successor takes over when this server has stopped. The goroutine that follows the
	// configuration file sets it.
	successor *server
	// end releases what assembling has acquired.
	end context.CancelFunc
}

// newServer makes a server for a configuration, and prepares the node for it. Nothing of
// it runs yet.
func newServer(ctx context.Context, o *Options, life *lifetime) (*server, error) {
	from, err := life.open(&o.Options)
	if err != nil {
		return nil, err
	}
	log := life.log.Logger
	setup.Warn(log, o.Warnings)
	defer peer.Turn(ctx, setup.TurnMax)()
	sysctls := o.Sysctls(log)
	if from.Client != nil {
		if err := o.PrepareNode(sysctls, log); err != nil {
			return nil, err
		}
	}
	b, err := setup.NewBackend(ctx, &o.Options, sysctls, life.forwarders, life.tallies, log)
	if err != nil {
		return nil, errors.Join(err, b.Close())
	}
	o.PrepareAccounting(b.Mode, sysctls, log)
	ctx, end := context.WithCancel(ctx)
	s := &server{options: o, life: life, feed: from, sysctls: sysctls, backend: b, log: log, current: &atomic.Pointer[config.Config]{}, end: end}
	s.current.Store(o.Config)
	if err := s.assemble(ctx); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

// discard releases what a server holds that never ran. One that runs closes its writers.
func (s *server) discard() error {
	s.end()
	return s.backend.Close()
}

// assemble builds the proxy and what surrounds it. The reports come first, because they listen to
// the proxy; what they read of it, they read through a view that shows nothing yet.
func (s *server) assemble(ctx context.Context) (err error) {
	if s.node, err = s.options.NodeSettings(s.backend.Mode); err != nil {
		return err
	}
	s.node.SelfTest = s.options.SelfTest(s.backend.Mode)
	seen := &view{name: s.node.Name, domains: s.backend.Domains}
	if s.options.Sluice.NFTables.Offload == config.OffloadTCP {
		s.offload = &backend.Offload{Mode: s.backend.Mode, Log: s.log}
	}
	if s.backend.Mode != config.ModeUserspace { // which translates nothing
		s.traffic = conntrack.NewTraffic(conntrack.TrafficConfig{
			Ports: seen.ports, Continuous: s.options.Sluice.Traffic.Accounting,
			Changed: func(p conntrack.Pressure) { s.reports.pressed(&p) }, Failed: func(err error) { s.reports.tableRead(err) },
		})
	}
	if s.node.SelfTest != (service.SelfTest{}) {
		s.selfTest = selftest.New(selftest.Config{
			Families: seen.families(), Ports: s.node.SelfTest, Moved: func(to service.SelfTest) { s.proxy.MoveSelfTest(to) },
			NodePort: func(port uint16) bool { return s.proxy.NodePort(port) },
			Right:    seen.right, Interval: cmp.Or(s.options.SelfTestInterval, selftest.Interval), Log: s.log,
		})
	}
	recorder := usage.New(func(ctx context.Context) (usage.Amounts, error) { return s.answers.Totals(ctx) })
	s.around = &surroundings{options: &s.options.Options, backend: s.backend, seen: seen, sysctls: s.sysctls, log: s.log,
		every: cmp.Or(s.options.LookInterval, surroundingsEvery)}
	if s.reports, err = newReports(ctx, s.options, s.life, s.feed, s.backend, s.offload, s.selfTest, s.traffic, recorder, seen, s.around, &s.pending); err != nil {
		return err
	}
	s.connections = &conntrack.Feed{Open: conntrack.Listen, Read: conntrack.Translated,
		Owner: func(family service.Family, f service.Frontend) (service.Key, bool) { return s.proxy.Owner(family, f) }}
	s.flows = s.newFlows()
	s.reports.flows = s.flows
	s.balance = s.newBalance()
	s.reports.balance = s.balance
	observers := []proxy.ApplyObserver{{Programmed: s.reports.lines.Programmed}, {Programmed: s.flows.Programmed}, {Programmed: s.balance.Programmed}}
	if s.traffic != nil {
		s.cleaner, err = conntrack.New(conntrack.Config{
			NodePorts: seen.nodePorts, Owner: seen.owner, Gather: s.options.Sluice.Conntrack.BatchWindow.Duration, Listen: s.reports.conntrack,
			Drains: s.backend.Mode != config.ModeIPVS, // there, the actors drain
		})
		if err != nil {
			return err
		}
		observers = append(observers, proxy.ApplyObserver{
			Programmed: s.cleaner.Programmed, BeforeWrite: s.cleaner.Submitted, AfterRepair: s.cleaner.Repaired,
		})
	}
	observers = append(observers,
		proxy.ApplyObserver{Programmed: s.reports.ports.Programmed}, proxy.ApplyObserver{Programmed: s.reports.metrics.Programmed})
	if s.proxy, err = s.newProxy(observers); err != nil {
		return setup.UsageError{Err: err}
	}
	seen.proxy.Store(s.proxy)
	s.reports.metrics.Attach(s.proxy.Status, s.proxy.SourceEvents)
	s.handover = &handover{options: s.options, life: s.life, mode: s.backend.Mode, node: s.node, sysctls: s.sysctls, log: s.log}
	s.answers = &inspection.Inspection{
		Options: &s.options.Options, FlagValues: s.options.FlagValues, Current: s.current.Load, Node: s.node.Name,
		Proxy: s.proxy, Backend: s.backend, Feed: s.feed, Metrics: s.reports.metrics, Monitor: s.reports.monitor,
		Forwarders: s.life.forwarders, Offload: s.offload, SelfTest: s.selfTest, Traffic: s.traffic, Started: started,
	}
	s.answers.Memory, s.answers.Hash = s.life.events, s.reports.loaded.Load().Hash
	s.answers.Chains = s.around.chains
	seen.answers.Store(s.answers)
	s.answers.Usage, s.answers.Flows, s.answers.Leaving = recorder, s.flows, gone.New(s.proxy, s.life.others.remain)
	if s.protection, err = s.protect(ctx); err != nil {
		return err
	}
	s.http = s.servers()
	return nil
}

// newProxy makes the proxy, once there is everything else.
func (s *server) newProxy(observers []proxy.ApplyObserver) (*proxy.Proxy, error) {
	o, r := s.options, s.reports
	return proxy.New(proxy.Config{
		Node: s.node, Domains: s.backend.Domains, Source: s.feed.Source(s.node.Name, s.log),
		HostAddresses: s.backend.HostAddresses(), ServerAddresses: s.feed.ServerAddresses(), MayWrite: s.life.owner.mayWrite, Unlanded: s.life.unlanded.read,
		Listeners: r.listeners(), ApplyObservers: observers,
		NodeWait: o.Sluice.Start.NodeWait.Duration, GateWait: o.Sluice.Start.GateWait.Duration,
		MessageDeadline: o.Sluice.Actors.MessageDeadline.Duration, ObjectsMax: int(o.Sluice.Actors.ObjectsMax),
		WatchFailed: func(domain string, err error) {
			s.log.Warn("cannot watch for rule changes; relying on periodic audits",
				zap.String("domain", domain), zap.Error(err))
		},
		Objects: o.Objects(s.backend, func(w service.Warning) {
			r.recorder.Warn(w)
			r.warnings.Add(w)
		}),
	})
}

// run serves until the context ends, or there is a successor.
func (s *server) run(ctx context.Context) error {
	s.began = time.Now()
	s.life.readiness.next()
	s.life.others.begin(s.kind())
	s.handover.follow()
	defer s.handover.dismiss()
	if s.options.Ready != nil {
		s.options.Ready(s.backend.Mode)
	}
	what := "started"
	if !s.life.owner.owns() {
		what = "ready to serve"
	}
	s.log.Info(what, zap.String("mode", string(s.backend.Mode)), zap.String("reason", s.options.ModeReason(s.backend)),
		zap.String("node", s.node.Name), zap.String("version", s.options.Version))
	if s.handed == nil || slices.ContainsFunc(s.handed, func(c config.Change) bool { return c.Field == "mode" }) {
		if s.backend.Choice != nil {
			s.reports.recorder.DefaultMode(string(s.backend.Mode))
		}
		if s.backend.Mode == config.ModeIPVS {
			s.reports.recorder.IPVS()
		}
	}
	if s.handed == nil {
		s.reports.recorder.Starting()
	} else {
		var fields []string
		for _, c := range s.handed {
			fields = append(fields, c.Field)
		}
		s.reports.recorder.Reloaded(strings.Join(fields, ", "))
	}
	process := ctx
	group, ctx := errgroup.WithContext(ctx)
	shown, hide := context.WithCancel(ctx)
	defer hide()
	group.Go(func() error { s.protection.run(shown); return nil })
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
		s.life.socket.Close()
		s.handover.offerSockets()
		s.life.owner.lock.Release()
	}
}

// work runs the proxy until the context ends or there is a successor. The context of the
// process is for the successor.
func (s *server) work(ctx, process context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer s.connections.Rest()
	updates := make(chan config.Update, 1) // the newest content of the configuration file
	group, ctx := errgroup.WithContext(ctx)
	defer context.AfterFunc(ctx, s.reports.stop)()
	group.Go(func() error {
		s.handover.trackFormer(ctx)
		return s.proxy.Run(ctx)
	})
	if s.cleaner != nil {
		group.Go(func() error { return s.cleaner.Run(ctx) })
	}
	if s.traffic != nil {
		group.Go(func() error { return s.watchTraffic(ctx) })
	}
	group.Go(func() error { s.recordFlows(ctx); return nil })
	group.Go(func() error { s.adapt(ctx); return nil })
	group.Go(func() error { s.lookAround(ctx); return nil })
	if s.selfTest != nil {
		group.Go(func() error { s.afterFirstSync(ctx, s.selfTest.Run); return nil })
	}
	if s.offload != nil {
		group.Go(func() error { s.afterFirstSync(ctx, s.offload.Run); return nil })
	}
	group.Go(func() error { s.afterFirstSync(ctx, s.answers.Usage.Run); return nil })
	group.Go(func() error { s.afterFirstSync(ctx, s.keepHooks); return nil })
	group.Go(func() error {
		s.afterFirstSync(ctx, func(ctx context.Context) {
			s.life.readiness.run(ctx, &followedServices{s.proxy.Keys, s.proxy.Snapshot, s.held})
		})
		return nil
	})
	group.Go(func() error {
		select {
		case <-s.life.owner.mayWrite:
			s.life.unlanded.run(ctx, s.proxy.FirstSync(), s.proxy.Unlanded)
		case <-ctx.Done():
		}
		return nil
	})
	group.Go(func() error { s.reports.warnings.Run(ctx); return nil })
	if s.reports.traces != nil {
		group.Go(func() error { s.reports.traces.Run(ctx); return nil })
	}
	group.Go(func() error { return s.reports.ports.Run(ctx) })
	group.Go(func() error { return s.cleanUpOthers(ctx) })
	group.Go(func() error { s.life.owner.wait(ctx, func() { s.handover.receive(ctx) }); return nil })
	group.Go(func() error { s.answerQuestions(ctx); return nil })
	group.Go(func() error {
		s.options.Flags.Watch(ctx, s.options.Config, func(u config.Update) {
			select {
			case <-updates: // it is older
			default:
			}
			updates <- u
		})
		return nil
	})
	group.Go(func() error {
		if s.follow(ctx, process, updates); s.successor != nil {
			stop()
		}
		return nil
	})
	return group.Wait()
}

// answerQuestions shows the answers of this server on the socket, once the rules belong to this
// process: of two proxies on a node, the one that serves has the socket.
func (s *server) answerQuestions(ctx context.Context) {
	select {
	case <-s.life.owner.mayWrite:
		s.life.socket.Show(inspection.SocketPath(&s.options.Options), inspect.Handler(s.options.Version, s.answers))
	case <-ctx.Done():
	}
}

// watchTraffic watches the connection table once the rules belong to this process.
func (s *server) watchTraffic(ctx context.Context) error {
	select {
	case <-s.life.owner.mayWrite:
		return s.traffic.Run(ctx)
	case <-ctx.Done():
		return nil
	}
}

// lookAround watches the node once the rules belong to this process.
func (s *server) lookAround(ctx context.Context) {
	select {
	case <-s.life.owner.mayWrite:
		s.around.run(ctx, s.proxy.FirstSync())
	case <-ctx.Done():
	}
}

// afterFirstSync runs what is not urgent, once the first rules are applied.
func (s *server) afterFirstSync(ctx context.Context, run func(context.Context)) {
	select {
	case <-s.proxy.FirstSync():
		run(ctx)
	case <-ctx.Done():
	}
}

// inStep logs that a start is complete, and what it took.
func (s *server) inStep() {
	objects := 0
	for _, status := range s.proxy.Status() {
		objects += status.Ledger.Objects
	}
	s.log.Info("start complete", zap.Int("services", len(s.proxy.Keys())),
		zap.Int("objects", objects), zap.Int64("written", s.reports.lines.Written()),
		zap.Float64("seconds", time.Since(s.began).Round(time.Millisecond).Seconds()))
}
