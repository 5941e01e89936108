package health

import (
	"fmt"
	"sync"
	"time"

	"github.com/sluice-proxy/sluice/actors"
	"github.com/sluice-proxy/sluice/aggregator"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/supervisor"
)

// Config is what a Monitor judges by. Its functions are called by several
// goroutines and must not block.
type Config struct {
	// Domains gives the newest snapshot of every domain. A family without one
	// is not reported, and counts as healthy.
	Domains func() []Domain
	// Node gives what the API, or the manifests, say about this node; nil while
	// that is not known, and then the node is not eligible.
	Node func() *service.NodeObject
	// Resources gives the state of what is read from the API; nil where there
	// is none.
	Resources func() []Resource
	// Standby reports whether this process waits for another to end; nil never does.
	Standby func() Standby
	// Others gives findings that others have made; nil gives none.
	Others func() []Finding
	// SyncPeriod is kube-proxy's setting: a family is healthy while its oldest
	// pending change is younger than twice this. Default 30 s. It can change
	// later, with SetSyncPeriod.
	SyncPeriod time.Duration
}

func (c Config) withDefaults() Config {
	if c.SyncPeriod == 0 {
		c.SyncPeriod = 30 * time.Second
	}
	if c.Standby == nil {
		c.Standby = func() Standby { return Standby{} }
	}
	if c.Others == nil {
		c.Others = func() []Finding { return nil }
	}
	if c.Resources == nil {
		c.Resources = func() []Resource { return nil }
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Domains == nil || c.Node == nil:
		return fmt.Errorf("health: Domains and Node are needed: there is nothing to judge by")
	case c.SyncPeriod < 0:
		return fmt.Errorf("health: sync period %v: want a positive duration", c.SyncPeriod)
	}
	return nil
}

// Monitor judges how the proxy is doing. It implements observe.Listener, and
// has to be told the events from the start on.
//
// Concurrency: everything may be called from anywhere and does not block beyond
// a short lock, which guards the board and the period, and never a call.
type Monitor struct {
	config  Config
	started time.Time

	mu         sync.Mutex
	board      board
	syncPeriod time.Duration
}

// NewMonitor makes a monitor; time counts from here.
func NewMonitor(config Config) (*Monitor, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	return &Monitor{config: config, started: time.Now(), board: newBoard(), syncPeriod: config.SyncPeriod}, nil
}

// SetSyncPeriod judges by another period from now on, which must be more than 0.
func (m *Monitor) SetSyncPeriod(period time.Duration) error {
	if period <= 0 {
		return fmt.Errorf("health: sync period %v: want a positive duration", period)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.syncPeriod = period
	return nil
}

// State judges the families and the node.
func (m *Monitor) State() State {
	p := m.look()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.complete(&p)
	p.board = m.board
	return p.state()
}

// Healthy reports whether every family is healthy: what /livez answers, and what
// the health-check node ports add.
func (m *Monitor) Healthy() bool {
	state := m.State()
	return state.Healthy()
}

// Report is State with everything that is not as it should be.
func (m *Monitor) Report() Report {
	p := m.picture()
	return Report{State: p.state(), Findings: p.findings()}
}

// picture gives everything that is judged. It shares nothing with the board, so
// that judging takes no lock.
func (m *Monitor) picture() picture {
	p := m.look()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.complete(&p)
	p.board = m.board.clone()
	return p
}

// look reads the snapshots.
func (m *Monitor) look() picture {
	return picture{
		started: m.started,
		domains: m.config.Domains(), node: m.config.Node(), resources: m.config.Resources(),
		standby: m.config.Standby(), others: m.config.Others(),
	}
}

// complete reads the clock, after the snapshots, and takes note of them. The
// lock is held.
func (m *Monitor) complete(p *picture) {
	p.now, p.bound = time.Now(), 2*m.syncPeriod
	for i := range p.domains {
		m.board.sampled(p.now, &p.domains[i].Status)
	}
}

// Supervisor takes note of actors that fail for good.
func (m *Monitor) Supervisor(event supervisor.Event[service.Key]) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	b, child := &m.board, event.Child.String()
	switch e := event.What.(type) {
	case supervisor.Parked:
		a := Affected{Service: child, Since: now}
		if e.Err != nil {
			a.Reason = oneLine(e.Err.Error())
		}
		b.parked[child] = a
	case supervisor.Unparked:
		delete(b.parked, child)
	case supervisor.Stuck:
		b.stuck[abandoned{child, event.Incarnation}] = Affected{
			Service: child, Since: now,
			Reason: fmt.Sprintf("incarnation %d was with one message for %v", event.Incarnation, e.For.Round(time.Millisecond)),
		}
	case supervisor.Returned:
		delete(b.stuck, abandoned{child, event.Incarnation})
	case supervisor.Started:
		delete(b.refused, child)
	case supervisor.Ended:
		delete(b.parked, child)
	}
}

// Aggregator takes note of writes and audits.
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

// Actors takes note of Services that there was no room for.
func (m *Monitor) Actors(event actors.Event) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch e := event.(type) {
	case actors.Refused:
		name := e.Key.String()
		if len(m.board.refused) >= refusedMax {
			return
		}
		m.board.refused[name] = Affected{Service: name, Since: now, Reason: fmt.Sprintf("the bound is %d Services", e.MaxServices)}
	case actors.RefusedGone:
		delete(m.board.refused, e.Key.String())
	}
}

// before gives the snapshot of a domain as it was before what an event tells:
// the aggregator replaces it after having told.
func (m *Monitor) before(domain string) aggregator.Status {
	for _, d := range m.config.Domains() {
		if d.Status.Domain == domain {
			return d.Status
		}
	}
	return aggregator.Status{}
}
