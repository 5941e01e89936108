// SPDX-License-Identifier: Apache-2.0

// Package health judges whether this node's proxy does its work, for load balancers and probes over
// HTTP, and for people in words.
//
//	status of domains ─┐
//	book ──────────────┼─► Monitor ──► Handler  /healthz, /livez
//	Node, API ─────────┘       └────► Ports    one listener per Service that asks for it
//
// A [Monitor] reads the newest snapshots when it is asked, and the book for what no snapshot
// shows. [Handler] answers for the node as kube-proxy does; with ?verbose it also says
// what is wrong and what to do. [Ports] answers for single Services, on their health-check node
// ports. The daemon assembles all three and serves the handler with a web.Server.
//
// One bad Service never makes the node unhealthy: what is quarantined, parked or stuck is listed
// and does not count. docs/health.md has the meaning of each answer.
package health

import (
	"time"

	"github.com/sluice-proxy/sluice/observe/book"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
)

// Config has what a Monitor judges by. Its functions run on several goroutines and must not block.
type Config struct {
	// Book remembers what no snapshot shows; nil means nothing.
	Book *book.Book
	// Domains returns the newest snapshot of every domain. A family without one is not reported,
	// and counts as healthy.
	Domains func() []DomainStatus
	// Node returns what the API, or the manifests, say about this node. While that is unknown it
	// returns nil, and the node is not eligible.
	Node func() *service.NodeObject
	// Resources returns the state of what is read from the API. Nil means that there is no API.
	Resources func() []state.Resource
	// Standby reports whether this process waits for another to exit; nil means never.
	Standby func() Standby
	// Stopping returns when the proxy was told to stop; zero if it was not. Nil means never.
	Stopping func() time.Time
	// Others returns findings of other parts of the program; nil means none.
	Others func() []Finding
	// Services counts Services by state, for people who ask; nil if that is not known. It may take time.
	Services func() *state.Counts
	// SyncPeriod is kube-proxy's setting: a family is healthy while its oldest pending change is
	// younger than twice this.
	SyncPeriod time.Duration
}

func (c Config) withDefaults() Config {
	if c.Book == nil {
		c.Book = book.New(book.Config{})
	}
	if c.Standby == nil {
		c.Standby = func() Standby { return Standby{} }
	}
	if c.Stopping == nil {
		c.Stopping = func() time.Time { return time.Time{} }
	}
	if c.Others == nil {
		c.Others = func() []Finding { return nil }
	}
	if c.Services == nil {
		c.Services = func() *state.Counts { return nil }
	}
	if c.Resources == nil {
		c.Resources = func() []state.Resource { return nil }
	}
	return c
}

// Monitor judges the state of the proxy.
//
// Concurrency: all methods are safe for concurrent use.
type Monitor struct {
	config  Config
	started time.Time
}

// NewMonitor makes a monitor. The deadline of the first write starts here.
func NewMonitor(config Config) *Monitor {
	return &Monitor{config: config.withDefaults(), started: time.Now()}
}

// State returns the state of the families and the node.
func (m *Monitor) State() State {
	in := m.read()
	return in.state()
}

// Healthy reports whether every family is healthy. /healthz answers this with the node, and the health-check node
// ports include it. /livez is more patient; see Instance.Live.
func (m *Monitor) Healthy() bool {
	state := m.State()
	return state.Healthy()
}

// Report returns the State and everything that is wrong.
func (m *Monitor) Report() Report {
	in := m.inputs()
	return Report{State: in.state(), Findings: in.findings()}
}

// inputs returns everything that the findings depend on.
func (m *Monitor) inputs() inputs {
	in := m.read()
	in.affected = map[Kind][]Affected{}
	for _, of := range ofServices {
		in.affected[of.kind] = m.config.Book.Affected(of.kind)
	}
	return in
}

// read returns everything that the state depends on. It reads the clock last.
func (m *Monitor) read() inputs {
	in := inputs{
		started: m.started, bound: 2 * m.config.SyncPeriod, history: map[string]book.History{},
		domains: m.config.Domains(), node: m.config.Node(), resources: m.config.Resources(),
		standby: m.config.Standby(), others: m.config.Others(), stopping: m.config.Stopping(),
	}
	for i := range in.domains {
		s := &in.domains[i].Status
		in.history[s.Domain] = m.config.Book.Domain(s)
	}
	in.now = time.Now()
	return in
}
