// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/gone"
	"github.com/sluice-proxy/sluice/internal/daemon/inspection"
	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/internal/daemon/peer"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/observe/events"
	"github.com/sluice-proxy/sluice/observe/web"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/kube"
)

// server is the proxy with its parts, for one configuration.
type server struct {
	options *Options
	life    *lifetime
	feed    *feed.Feed
	// sysctls are the kernel's settings.
	sysctls sysctl.Files
	backend *setup.Backend
	log     *zap.Logger
	proxy   *proxy.Proxy
	// parts are the components around the proxy. host gives them access to it, and answers serves queries.
	parts   []*part.Part
	host    *part.Host
	answers *inspection.Inspection
	lines   *observe.Log
	// warn receives warnings about API objects.
	warn          func(service.Warning)
	conflicts     *portConflicts
	configuration configuration
	handover      *handover
	http          []*web.Server
	// protection protects the metrics and inspection addresses.
	protection protection
	// began is when the server began to run.
	began time.Time
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
	s := &server{options: o, life: life, feed: from, sysctls: sysctls, backend: b, log: log, end: end}
	s.configuration.current.Store(o.Config)
	s.configuration.accepted(o.Hash(), true)
	if err := s.assemble(ctx); err != nil {
		return nil, errors.Join(err, s.discard())
	}
	return s, nil
}

// discard releases the resources of a server that never ran. A server that ran closed its writers itself.
func (s *server) discard() error {
	s.end()
	return s.backend.Close()
}

// assemble builds the parts and the proxy. The parts come first, because the proxy calls them. They read the proxy's
// state through the host, which shows nothing before host.Show.
func (s *server) assemble(ctx context.Context) (err error) {
	if s.host, err = s.newHost(ctx); err != nil {
		return err
	}
	s.conflicts = &portConflicts{log: s.log, handing: s.life.owner.handing, told: s.host.Recorder.AddressTaken}
	s.answers = &inspection.Inspection{
		Options: &s.options.Options, FlagValues: s.options.FlagValues, Current: s.configuration.current.Load, Node: s.host.Node.Name,
		Backend: s.backend, Feed: s.feed, Forwarders: s.life.forwarders, Started: started, Memory: s.life.events, Hash: s.options.Hash(),
		Book: s.newBook(),
	}
	if err := s.newParts(); err != nil {
		return err
	}
	if s.proxy, err = s.newProxy(); err != nil {
		return setup.UsageError{Err: err}
	}
	s.answers.Proxy, s.answers.Leaving = s.proxy, gone.New(s.proxy, s.life.others.remain)
	s.host.Show(s.proxy)
	s.handover = &handover{options: s.options, life: s.life, mode: s.backend.Mode, node: s.host.Node, sysctls: s.sysctls, log: s.log}
	if s.protection, err = s.protect(ctx); err != nil {
		return err
	}
	s.http = s.servers()
	return nil
}

// newBook makes the book about the proxy.
func (s *server) newBook() *book.Book {
	c := book.Config{Status: s.host.Snapshots}
	for _, d := range s.backend.Domains {
		c.Domains = append(c.Domains, book.Domain{Name: d.Name, Family: d.Family, Auxiliary: d.Auxiliary, Leaving: d.Writer.Leaving})
	}
	return book.New(c)
}

// newHost makes the parts' access to the process. API connections for events close when the context ends.
func (s *server) newHost(ctx context.Context) (*part.Host, error) {
	node, err := s.options.NodeSettings(s.backend.Mode.Name)
	if err != nil {
		return nil, err
	}
	h := &part.Host{
		View: &part.View{Domains: s.backend.Domains}, Options: &s.options.Options, Backend: s.backend, Node: node, Log: s.log,
		Repeated: &observe.Incidents{}, MayWrite: s.life.owner.mayWrite,
	}
	h.Connections = &conntrack.Feed{Open: conntrack.Listen, Read: conntrack.Translated, Owner: h.Owner}
	client := s.feed.Client
	if client != nil {
		own, closeAll := kube.OwnConnections(client)
		context.AfterFunc(ctx, closeAll)
		client = own
	}
	reporter := func(key service.Key) string { return service.Reporter(h.Snapshot(key).Slices) }
	h.Recorder, err = events.New(ctx, events.Config{Client: client, Node: node.Name, Reporter: reporter, Memory: s.life.events})
	return h, err
}

// newProxy makes the proxy. The host, the backend, the feed and the parts must exist.
func (s *server) newProxy() (*proxy.Proxy, error) {
	o := s.options
	var listeners []observe.Listener
	var observers []proxy.ApplyObserver
	for _, p := range s.parts {
		if p.Listener != nil {
			listeners = append(listeners, p.Listener)
		}
		if p.Observer.Programmed != nil {
			observers = append(observers, p.Observer)
		}
	}
	return proxy.New(proxy.Config{
		Node: s.host.Node, Domains: s.backend.Domains, Source: s.feed.Source(s.host.Node.Name, s.log),
		HostAddresses: s.backend.HostAddresses(), ServerAddresses: s.feed.ServerAddresses(), MayWrite: s.life.owner.mayWrite, Unlanded: s.life.unlanded.read,
		Listeners: append(listeners, o.Listeners...), ApplyObservers: observers, Intercept: o.Intercept,
		NodeWait: s.nodeWait(), MessageDeadline: o.MessageDeadline,
		WatchFailed: func(domain string, err error) {
			s.log.Warn("cannot watch for rule changes; relying on periodic audits",
				zap.String("domain", domain), zap.Error(err))
		},
		Objects: o.Objects(s.backend, s.warn),
	})
}

// nodeWait is how long the first rules wait for the Node object: not at all without a cluster.
func (s *server) nodeWait() time.Duration {
	if s.feed.Client == nil {
		return 0
	}
	return s.options.Patience()
}

// run serves until the context ends, or there is a successor.
func (s *server) run(ctx context.Context) error {
	s.began = time.Now()
	s.life.readiness.next()
	s.life.others.begin(s.kind())
	s.handover.follow()
	defer s.handover.dismiss()
	if s.options.Ready != nil {
		s.options.Ready(s.backend.Mode.Name)
	}
	s.announce()
	process := ctx
	group, ctx := errgroup.WithContext(ctx)
	shown, hide := context.WithCancel(ctx)
	defer hide()
	group.Go(func() error { s.protection.run(shown); return nil })
	for _, server := range s.http {
		group.Go(func() error { return server.Run(shown) })
	}
	group.Go(func() error {
		defer hide() // last, so that health checks get responses while the rest stops
		defer s.yield()
		return s.work(ctx, process)
	})
	return group.Wait()
}

// announce logs that the server begins, and emits the events about it.
func (s *server) announce() {
	what := "started"
	if !s.life.owner.owns() {
		what = "ready to serve"
	}
	s.log.Info(what, zap.String("mode", string(s.backend.Mode.Name)), zap.String("reason", s.options.ModeReason(s.backend)),
		zap.String("node", s.host.Node.Name), zap.String("version", s.options.Version))
	handed := s.configuration.handed
	if handed == nil || slices.ContainsFunc(handed, func(c config.Change) bool { return c.Field == "mode" }) {
		if s.backend.Choice != nil {
			s.host.Recorder.DefaultMode(string(s.backend.Mode.Name))
		}
		if s.backend.Mode.Deprecated {
			s.host.Recorder.IPVS()
		}
	}
	if handed == nil {
		s.host.Recorder.Starting()
		return
	}
	var fields []string
	for _, c := range handed {
		fields = append(fields, c.Field)
	}
	s.host.Recorder.Reloaded(strings.Join(fields, ", "))
}

// yield lets another proxy have the rules once this process has stopped writing.
func (s *server) yield() {
	if s.successor == nil {
		s.life.socket.Close()
		s.handover.offerSockets()
		s.life.owner.lock.Release()
	}
}

// work runs the proxy and its parts until the context ends or there is a successor. The context of the
// process is for the successor.
func (s *server) work(ctx, process context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer s.host.Connections.Rest()
	updates := make(chan config.Update, 1) // the newest content of the configuration file
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		s.handover.trackFormer(ctx)
		return s.proxy.Run(ctx)
	})
	s.runParts(ctx, group)
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

// inStep logs that a start is complete, with its size and duration.
func (s *server) inStep() {
	objects := 0
	for _, status := range s.proxy.Status() {
		objects += status.Ledger.Objects
	}
	s.log.Info("start complete", zap.Int("services", len(s.proxy.Keys())),
		zap.Int("objects", objects), zap.Int64("written", s.lines.Written()),
		zap.Float64("seconds", time.Since(s.began).Round(time.Millisecond).Seconds()))
}
