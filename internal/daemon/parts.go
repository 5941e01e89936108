// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-proxy/sluice/internal/daemon/balance"
	"github.com/sluice-proxy/sluice/internal/daemon/flows"
	"github.com/sluice-proxy/sluice/internal/daemon/inspection"
	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/internal/daemon/offload"
	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/internal/daemon/selftest"
	"github.com/sluice-proxy/sluice/internal/daemon/traces"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/observe/usage"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
)

// newParts makes the components around the proxy. Listeners and observers are called in the order of this list.
func (s *server) newParts() error {
	table := s.tablePart()
	counts, err := s.metricsPart()
	if err != nil {
		return err
	}
	cleaner, err := s.cleanerPart()
	if err != nil {
		return err
	}
	s.parts = slices.DeleteFunc([]*part.Part{
		{Name: "book", Listener: s.answers.Book, Observer: proxy.ApplyObserver{Programmed: s.answers.Book.Programmed}},
		s.linesPart(),
		s.eventsPart(),
		s.healthPart(),
		flows.Part(s.host, s.life.forwarders.Registry),
		balance.Part(s.host, s.options.SuspectPause),
		cleaner,
		s.portsPart(),
		counts,
		traces.Part(s.host),
		table,
		selftest.Part(s.host, s.options.SelfTestInterval),
		offload.Part(s.host),
		s.surroundingsPart(),
		s.usagePart(),
		s.hooksPart(),
		s.warningsPart(),
		s.configurationPart(),
		{Name: "readiness", When: part.Synced, Run: part.Always(s.followServices)},
		{Name: "unlanded", When: part.Owned, Run: part.Always(s.recordUnlanded)},
		{Name: "owner", Findings: s.life.owner.findings, Run: part.Always(s.awaitRules)},
		{Name: "others", When: part.Synced, Run: s.cleanUpOthers},
		{Name: "socket", When: part.Owned, Run: part.Always(s.answerQuestions)},
		{Name: "families", Findings: (&unservedFamily{backend: s.backend, node: s.host.NodeNow}).findings},
		{Name: "conflicts", Findings: s.conflicts.findings},
		{Name: "manifests", Findings: func() []state.Finding { return manifestFindings(s.feed.Problems()) }},
	}, func(p *part.Part) bool { return p == nil })
	for _, p := range s.parts {
		s.answers.Metrics.Register(p.Metrics)
	}
	s.answers.Parts = s.parts
	return nil
}

// runParts runs the parts, each from the moment on that its When names.
func (s *server) runParts(ctx context.Context, group *errgroup.Group) {
	moments := map[part.When]<-chan struct{}{part.Owned: s.life.owner.mayWrite, part.Synced: s.proxy.FirstSync()}
	for _, p := range s.parts {
		if p.Run == nil {
			continue
		}
		group.Go(func() error {
			if p.When != part.Now && !part.Came(ctx, moments[p.When]) {
				return nil
			}
			return p.Run(ctx)
		})
	}
}

// findings returns those of all parts.
func (s *server) findings() (all []state.Finding) {
	for _, p := range s.parts {
		if p.Findings != nil {
			all = append(all, p.Findings()...)
		}
	}
	return all
}

// linesPart logs the proxy's events.
func (s *server) linesPart() *part.Part {
	families := make(map[string]service.Family)
	for _, d := range s.backend.Domains {
		if !d.Auxiliary {
			families[d.Name] = d.Family
		}
	}
	s.lines = observe.NewLog(s.log, families)
	return &part.Part{
		Name: "lines", Listener: s.lines, Observer: proxy.ApplyObserver{Programmed: s.lines.Programmed},
		Metrics: metrics.One("sluice_log_lines_dropped_total", "Log lines that were not written because the reader was too slow.",
			metrics.Total, func() float64 { return float64(logging.Dropped()) }),
	}
}

// eventsPart emits Kubernetes events.
func (s *server) eventsPart() *part.Part {
	return &part.Part{
		Name: "events", Listener: s.host.Recorder,
		Metrics: metrics.One("sluice_events_dropped_total", "Kubernetes events that were not sent, because the queue was full or no node reports them.",
			metrics.Total, func() float64 { return float64(s.host.Recorder.Dropped()) }),
	}
}

// warningsPart logs warnings about API objects.
func (s *server) warningsPart() *part.Part {
	warnings := observe.NewWarnings(s.log)
	s.warn = func(w service.Warning) {
		s.host.Recorder.Warn(w)
		warnings.Add(w)
	}
	return &part.Part{
		Name: "warnings", Run: part.Always(warnings.Run),
		Metrics: metrics.One("sluice_warnings_dropped_total", "Warnings about API objects that exceeded the log's rate limit.",
			metrics.Total, func() float64 { return float64(warnings.Dropped()) }),
	}
}

// usagePart remembers the traffic of the last minutes.
func (s *server) usagePart() *part.Part {
	const connections, refused = "sluice_connections_total", "sluice_refused_total"
	recorder := usage.New(s.answers.Totals)
	s.answers.Usage = recorder
	return &part.Part{
		Name: "usage", When: part.Synced, Run: part.Always(recorder.Run),
		Metrics: metrics.Sampled{
			Of: []metrics.Definition{
				{Name: connections, Kind: metrics.Counter, Help: "New connections and flows to all Services since the process began or reloaded its configuration."},
				{Name: refused, Kind: metrics.Counter, Labels: []string{"reason"},
					Help: "Refused packets (nftables and iptables mode) or clients (userspace mode) of all Services since the process began or reloaded its configuration, by reason."},
			},
			Read: func(send metrics.Send) {
				used := recorder.Sum()
				send(connections, float64(used.Connections))
				for _, reason := range s.backend.Mode.Refusals {
					send(refused, float64(used.Refused[reason]), reason.String())
				}
			},
		},
	}
}

// followServices follows the Services that decide the answer of /readyz.
func (s *server) followServices(ctx context.Context) {
	s.life.readiness.run(ctx, &followedServices{s.proxy.Keys, s.proxy.Snapshot, s.answers.Book.Unfollowed})
}

// recordUnlanded records the Services whose writes do not land.
func (s *server) recordUnlanded(ctx context.Context) {
	s.life.unlanded.run(ctx, s.proxy.FirstSync(), s.proxy.Unlanded)
}

// awaitRules waits until the rules belong to this process.
func (s *server) awaitRules(ctx context.Context) {
	s.life.owner.wait(ctx, func() { s.handover.receive(ctx) })
}

// answerQuestions lets this server answer on the socket. Of two proxies on a node, the one that serves owns the socket.
func (s *server) answerQuestions(context.Context) {
	s.life.socket.Show(inspection.SocketPath(&s.options.Options), inspect.Handler(s.options.Version, s.answers))
}
