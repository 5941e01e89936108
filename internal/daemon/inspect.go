package daemon

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/service"
)

// inspection answers questions about a server with what it knows already. It implements
// inspect.Source.
//
// Nothing here holds up a change. Most is read from snapshots and from values that never change;
// each record of a Service is copied under a short lock; a ledger answers between two turns of its
// aggregator, with a bounded copy.
type inspection struct{ s *server }

var _ inspect.Source = inspection{}

// answerQuestions shows the answers of this server on the socket, once the rules belong to this
// process: of two proxies on a node, the one that serves has the socket.
func (s *server) answerQuestions(ctx context.Context) {
	select {
	case <-s.owner.mayWrite:
		s.socket.show(s.socketPath(), inspect.Handler(s.Version, inspection{s}))
	case <-ctx.Done():
	}
}

// Ready waits until the source has a complete picture.
func (i inspection) Ready(ctx context.Context) error {
	const look = 20 * time.Millisecond
	for i.s.proxy.Synced().IsZero() {
		select {
		case <-ctx.Done():
			return errors.New("the proxy has no complete picture of the Services yet (" + i.s.origin + "); see sluice status")
		case <-time.After(look):
		}
	}
	return nil
}

// Keys returns the keys of all Services.
func (i inspection) Keys() []service.Key { return i.s.proxy.Keys() }

// Status returns the state of the proxy.
func (i inspection) Status() inspect.Status {
	s := i.s
	report := s.monitor.Report()
	made := inspect.Status{
		Version: s.Version, Compatible: Release, PID: os.Getpid(),
		Started: started.UTC(), Now: time.Now().UTC(),
		Mode: string(s.mode), ModeReason: s.modeReason(), Node: s.settings.Name, Zone: s.proxy.Facts().Zone,
		Feed:     inspect.Feed{From: s.origin, Synced: utc(s.proxy.Synced())},
		Services: max(0, s.proxy.Services()), Healthy: report.Healthy(),
		Domains: []inspect.Domain{}, Findings: []inspect.Finding{},
	}
	made.Actors.Running, made.Actors.Waiting, made.Actors.Parked, made.Actors.Abandoned = s.metrics.States()
	for _, r := range s.resources() {
		resource := inspect.Resource{Name: r.Resource, Heard: utc(r.Heard), FailingSince: utc(r.FailingSince), Absent: r.Absent}
		if r.Err != nil {
			resource.Error = r.Err.Error()
		}
		made.Feed.Resources = append(made.Feed.Resources, resource)
	}
	for n, status := range s.proxy.Status() {
		made.Domains = append(made.Domains, i.domain(n, &status))
	}
	for _, f := range report.Findings {
		// Without a cluster there is no Node that could be eligible for anything.
		if s.client == nil && f.Kind == health.NodeNotEligible {
			continue
		}
		finding := inspect.Finding{
			Kind: string(f.Kind), About: f.About, Since: utc(f.Since), Unhealthy: f.Unhealthy,
			Problem: f.Problem, Advice: f.Advice, More: f.More,
		}
		for _, a := range f.Services {
			finding.Services = append(finding.Services, a.Service)
		}
		made.Findings = append(made.Findings, finding)
	}
	return made
}

// domain returns the state of the domain at a position.
func (i inspection) domain(n int, status *aggregator.Status) inspect.Domain {
	d, l := &i.s.domains[n], &status.Ledger
	made := inspect.Domain{
		Name: status.Domain, Family: d.Family.String(), Auxiliary: d.Auxiliary,
		Open: status.Open, Missing: status.Missing,
		Held: len(status.Quarantined), Waiting: l.Pending, Queue: status.Waiting,
		OldestPending: utc(status.OldestPending), Objects: l.Objects, Dirty: l.Dirty,
		Batches: status.Batches, LastWrite: utc(status.LastWrite),
		Failures: status.Failures, LastError: status.LastError, NodeAtFault: status.NodeAtFault,
	}
	made.InForce = max(0, l.Keys-1-made.Waiting-made.Held) // without the node's own account
	for _, q := range status.Quarantined[:min(len(status.Quarantined), inspect.QuarantinedMax)] {
		made.Quarantined = append(made.Quarantined, *quarantineOf(&q))
	}
	return made
}

func quarantineOf(q *aggregator.QuarantinedKey) *inspect.Quarantine {
	return &inspect.Quarantine{
		Namespace: q.Key.Namespace, Name: q.Key.Name, Revision: q.Revision.String(), Reason: q.Reason, Since: utc(q.Since),
	}
}

// utc returns a time as an answer has it; the zero time stays.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.UTC()
}
