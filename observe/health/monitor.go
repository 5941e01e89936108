// Package health judges whether this node's proxy does its work, for load balancers and probes over
// HTTP, and for people in words.
//
//	status of domains ─┐
//	events ────────────┼─► Monitor ──► Handler  /healthz, /livez
//	Node, API ─────────┘       └────► Ports    one listener per Service that asks for it
//
// A [Monitor] reads the newest snapshots when it is asked, and listens to events for what no
// snapshot shows. [Handler] answers for the node as kube-proxy does; with ?verbose it also says
// what is wrong and what to do. [Ports] answers for single Services, on their health-check node
// ports. The daemon assembles all three and serves the handler with a web.Server.
//
// One bad Service never makes the node unhealthy: what is quarantined, parked or stuck is listed
// and does not count. docs/health.md has the meaning of each answer.
package health

import (
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/supervisor"
)

// Config has what a Monitor judges by. Its functions run on several goroutines and must not block.
type Config struct {
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

// Monitor judges the state of the proxy. It implements observe.Listener and must receive events
// from the start.
//
// Concurrency: all methods are safe for concurrent use. They take a short lock, which guards the
// board, and never hold it during a call.
type Monitor struct {
	config  Config
	started time.Time

	mu    sync.Mutex
	board board
}

// NewMonitor makes a monitor. The deadline of the first write starts here.
func NewMonitor(config Config) *Monitor {
	return &Monitor{config: config.withDefaults(), started: time.Now(), board: newBoard()}
}

// State returns the state of the families and the node.
func (m *Monitor) State() State {
	in := m.read()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.complete(&in)
	in.board = m.board
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

// inputs returns everything that the findings depend on. It shares nothing with the board, so the
// judgement needs no lock.
func (m *Monitor) inputs() inputs {
	in := m.read()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.complete(&in)
	in.board = m.board.clone()
	return in
}

// read reads the snapshots.
func (m *Monitor) read() inputs {
	return inputs{
		started: m.started,
		domains: m.config.Domains(), node: m.config.Node(), resources: m.config.Resources(),
		standby: m.config.Standby(), others: m.config.Others(), stopping: m.config.Stopping(),
	}
}

// complete reads the clock, after the snapshots, and records them. The caller holds the lock.
func (m *Monitor) complete(in *inputs) {
	in.now, in.bound = time.Now(), 2*m.config.SyncPeriod
	for i := range in.domains {
		m.board.sampled(in.now, &in.domains[i].Status)
	}
}

// Supervisor records actors that are parked or stuck.
func (m *Monitor) Supervisor(event supervisor.Event[service.Key]) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	b, key := &m.board, event.Child
	stuck := incarnation{key, event.Incarnation}
	switch e := event.What.(type) {
	case supervisor.Parked:
		a := Affected{Service: key.String(), Since: now}
		if e.Err != nil {
			a.Reason = oneLine(e.Err.Error())
		}
		b.parked[key] = a
	case supervisor.Unparked:
		delete(b.parked, key)
	case supervisor.Stuck:
		b.stuck[stuck] = Affected{
			Service: key.String(), Since: now,
			Reason: fmt.Sprintf("incarnation %d spent %v on one message",
				event.Incarnation, e.For.Round(time.Millisecond)),
		}
	case supervisor.Returned:
		delete(b.stuck, stuck)
	case supervisor.Started:
		delete(b.large, key) // this incarnation reports it again
	case supervisor.Ended:
		delete(b.parked, key)
	}
}

// Aggregator records writes and audits.
func (m *Monitor) Aggregator(event aggregator.Event) {
	now := time.Now()
	switch e := event.(type) {
	case aggregator.BatchWritten:
		var before aggregator.Status
		if e.Receipt.Outcome != dataplane.Landed { // a success needs no context
			before = m.before(e.Domain)
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.board.wrote(now, e, &before)
	case aggregator.AuditDone:
		before := m.before(e.Domain)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.board.audited(now, e, &before)
	}
}

// Source records frontends that Services lose to each other.
func (m *Monitor) Source(e source.Shadowed) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e.Over {
		m.board.unshadowed(shadow{e.Key, e.By}, len(e.Frontends))
		return
	}
	m.board.shadowed(time.Now(), shadow{e.Key, e.By}, len(e.Frontends))
}

// Unfollowed returns the Services whose changes are not applied because of their actors: parked, stuck or too large.
func (m *Monitor) Unfollowed() map[service.Key]Affected {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[service.Key]Affected, len(m.board.parked)+len(m.board.large))
	for at, a := range m.board.stuck {
		all[at.key] = a
	}
	maps.Copy(all, m.board.parked)
	maps.Copy(all, m.board.large)
	return all
}

// Shadowed returns the Services that want addresses and ports which others serve; a bounded
// number of them.
func (m *Monitor) Shadowed() map[service.Key]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[service.Key]bool, len(m.board.shadows))
	for at := range m.board.shadows {
		all[at.key] = true
	}
	return all
}

// Actors records Services that ask for too much.
func (m *Monitor) Actors(event actors.Event) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e := event.(type) {
	case actors.TooLarge:
		m.board.large[e.Key] = Affected{Service: e.Key.String(), Since: now,
			Reason: fmt.Sprintf("needs %d objects in %s; the limit is %d", e.Objects, e.Domain, e.Max)}
	case actors.Fits:
		delete(m.board.large, e.Key)
	}
}

// before returns the snapshot of a domain from before an event: the aggregator replaces it after
// the listeners have returned.
func (m *Monitor) before(domain string) aggregator.Status {
	for _, d := range m.config.Domains() {
		if d.Status.Domain == domain {
			return d.Status
		}
	}
	return aggregator.Status{}
}
