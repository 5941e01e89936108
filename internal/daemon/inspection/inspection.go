// SPDX-License-Identifier: Apache-2.0

// Package inspection answers queries about a running proxy: for the local socket, for the web UI and
// for the archive of a bug report.
//
// No query delays a change. Most state is read from snapshots and from values that never change;
// each record of a Service is copied under a short lock; a ledger answers between two turns of its
// aggregator, with a bounded copy.
package inspection

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane/conntrack/account"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/gone"
	"github.com/sluice-proxy/sluice/internal/daemon/part"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/inspect"
	"github.com/sluice-proxy/sluice/internal/sleep"
	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/observe/events"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/observe/usage"
	"github.com/sluice-proxy/sluice/service"
)

// Proxy contains the methods of proxy.Proxy that answers need.
type Proxy interface {
	Keys() []service.Key
	Snapshot(key service.Key) service.Snapshot
	OwnerPort(family service.Family, f service.Frontend) (key service.Key, port string, ok bool)
	Services() int
	Synced() time.Time
	Node() *service.NodeObject
	Facts() *service.NodeFacts
	Status() []aggregator.Status
	Pending(ctx context.Context, domain string) ([]service.Key, error)
	Account(ctx context.Context, domain string, key service.Key, limit int) (ledger.Account, error)
}

// Inspection answers queries about one proxy from the state that the proxy keeps anyway. It
// implements inspect.Source. Its fields do not change.
type Inspection struct {
	Options *setup.Options
	// FlagValues returns all flags with their values; nil if they are not known.
	FlagValues func() map[string]string
	// Current returns the configuration applied.
	Current func() *config.Config
	// Node is the name of the node.
	Node    string
	Proxy   Proxy
	Backend *setup.Backend
	Feed    *feed.Feed
	Book    *book.Book
	Metrics *metrics.Metrics
	Monitor *health.Monitor
	// Forwarders serve in userspace mode.
	Forwarders *backend.Forwarders
	// Parts add their state to the status.
	Parts []*part.Part
	// Traffic watches the connection table; nil in userspace mode.
	Traffic *account.Traffic
	// Leaving determines whether rules still send new connections to an endpoint.
	Leaving *gone.Watch
	// Usage remembers the traffic of the last minutes.
	Usage *usage.Recorder
	// Hash identifies the configuration.
	Hash string
	// Memory remembers events.
	Memory *events.Memory
	// Started is when the process began.
	Started time.Time
}

var _ inspect.Source = (*Inspection)(nil)

// Ready waits until the proxy has read all objects from its source.
func (i *Inspection) Ready(ctx context.Context) error {
	const look = 20 * time.Millisecond
	for i.Proxy.Synced().IsZero() {
		if !sleep.For(ctx, look) {
			return errors.New("the proxy did not complete its initial sync (" + i.Feed.Origin + "); see sluice status")
		}
	}
	return nil
}

// Keys returns the keys of all Services.
func (i *Inspection) Keys() []service.Key { return i.Proxy.Keys() }

// Events returns the events that the process remembers.
func (i *Inspection) Events() *inspect.EventList {
	all, omitted := i.Memory.Events()
	return &inspect.EventList{Items: all, Omitted: omitted}
}

// Observe calls each with nil once all connections are recorded, and then with each record, until the context ends or
// each fails.
func (i *Inspection) Observe(ctx context.Context, q inspect.FlowQuery, each func(*inspect.FlowEvent) error) error {
	for _, p := range i.Parts {
		if p.Observe != nil {
			return p.Observe(ctx, q, each)
		}
	}
	return errors.New("this proxy does not record connections")
}

// Status returns the state of the proxy.
func (i *Inspection) Status() inspect.Status {
	made := inspect.Status{
		Version: i.Options.Version, Compatible: setup.Release, PID: os.Getpid(),
		Started: i.Started.UTC(), Now: time.Now().UTC(),
		Mode: string(i.Backend.Mode.Name), ModeReason: i.Options.ModeReason(i.Backend), Node: i.Node, Zone: i.Proxy.Facts().Zone,
		ConfigurationHash: i.Hash,
		Feed:              inspect.Feed{From: i.Feed.Origin, Synced: i.Proxy.Synced().UTC(), Resources: i.Feed.Resources()},
		Services:          max(0, i.Proxy.Services()),
		Domains:           []state.Domain{}, Findings: []inspect.Finding{},
		Activity: i.Book.Activity(), Actors: i.Book.Totals().Actors,
	}
	for n := range made.Feed.Resources { // converted here: UTC strips the monotonic clock, which health needs
		r := &made.Feed.Resources[n]
		r.Heard, r.FailingSince = r.Heard.UTC(), r.FailingSince.UTC()
	}
	counts, domains := i.Counts(context.Background())
	made.States = &counts
	for n, status := range i.Proxy.Status() {
		made.Domains = append(made.Domains, i.domain(n, &status, &domains[n]))
	}
	for _, p := range i.Parts {
		if p.Status != nil {
			p.Status(&made)
		}
	}
	report := i.Monitor.Report() // after the parts, so that it has the findings about the state that they added
	for _, f := range report.Findings {
		f.Since = f.Since.UTC()
		finding := inspect.Finding{Finding: f}
		for _, a := range f.Services {
			finding.Services = append(finding.Services, a.Service)
		}
		made.Findings = append(made.Findings, finding)
	}
	word := report.Health(report.NodeEligible, len(made.Findings))
	made.Healthy, made.Health = word != health.Unhealthy, string(word)
	return made
}

// domain returns the state of the domain at a position.
func (i *Inspection) domain(n int, status *aggregator.Status, counts *state.Counts) state.Domain {
	d, l := &i.Backend.Domains[n], &status.Ledger
	made := state.Domain{
		Name: status.Domain, Family: d.Family.String(), Auxiliary: d.Auxiliary,
		Open: status.Open, Missing: status.Missing,
		Applied: counts.Applied, Shadowed: counts.Shadowed, Held: counts.Held, Pending: counts.Pending, Queue: status.Waiting,
		OldestPending: status.OldestPending.UTC(), Objects: l.Objects, Dirty: l.Dirty,
		Batches: status.Batches, LastWrite: status.LastWrite.UTC(), LastAudit: i.Book.Domain(status).Read.UTC(),
		Failures: status.Failures, LastError: status.LastError, NodeAtFault: status.NodeAtFault,
	}
	for n := range status.Quarantined {
		q := &status.Quarantined[n]
		if n < state.QuarantinedMax {
			made.Quarantined = append(made.Quarantined, book.QuarantineOf(status.Domain, q))
		}
		if i.Proxy.Snapshot(q.Key).Spec == nil {
			made.Held++ // the Service is removed, and its rules are not
		}
	}
	return made
}
