package daemon

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane/conntrack"
	"github.com/sluice-proxy/sluice/dataplane/traffic"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/balance"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/flows"
	"github.com/sluice-proxy/sluice/internal/daemon/inspection"
	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/internal/daemon/selftest"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/observe"
	"github.com/sluice-proxy/sluice/observe/events"
	"github.com/sluice-proxy/sluice/observe/health"
	"github.com/sluice-proxy/sluice/observe/metrics"
	"github.com/sluice-proxy/sluice/observe/state"
	"github.com/sluice-proxy/sluice/observe/traces"
	"github.com/sluice-proxy/sluice/observe/usage"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/kube"
)

// reports tell others about the proxy.
type reports struct {
	log       *zap.Logger
	lines     *observe.Log
	recorder  *events.Recorder
	conflicts *portConflicts
	monitor   *health.Monitor
	ports     *health.Ports
	metrics   *metrics.Metrics
	// warnings are about API objects.
	warnings *observe.Warnings
	// repeated keeps failures that repeat from filling the log.
	repeated observe.Incidents
	flows    *flows.Hub
	// loaded is the state of the configuration file.
	loaded atomic.Pointer[metrics.Configuration]
	// traces is nil if no spans are exported.
	traces  *traces.Traces
	balance *balance.Watcher
	// stopping is when the server was told to stop; nil before.
	stopping atomic.Pointer[time.Time]
}

// newReports makes the reports about a proxy that the view shows. Connections for events close when
// the context ends.
func newReports(ctx context.Context, o *Options, life *lifetime, from *feed.Feed, b *setup.Backend, offload *backend.Offload, test *selftest.Test, t *conntrack.Traffic, used *usage.Recorder, seen *view, around *surroundings, held *pending) (*reports, error) {
	r := &reports{log: life.log.Logger, lines: newLines(life.log.Logger, b.Domains), warnings: observe.NewWarnings(life.log.Logger)}
	var err error
	client := from.Client
	if client != nil {
		own, closeAll := kube.OwnConnections(client)
		context.AfterFunc(ctx, closeAll)
		client = own
	}
	if r.recorder, err = events.New(ctx, events.Config{Client: client, Node: seen.name, Reporter: seen.reporter, Memory: life.events}); err != nil {
		return nil, err
	}
	r.conflicts = &portConflicts{log: r.log, handing: life.owner.handing, told: r.recorder.AddressTaken}
	r.monitor = health.NewMonitor(health.Config{
		Domains: seen.status, Node: func() *service.NodeObject { return eligible(from, seen.node()) }, Resources: from.Resources,
		Services: seen.counts, SyncPeriod: o.SyncPeriod(), Standby: life.owner.waiting, Stopping: r.stoppingSince,
		Others: func() []health.Finding {
			return slices.Concat(otherFindings(life.owner, r.conflicts, from, offload, test, t), around.findings(), held.findings())
		},
	})
	ports := health.PortsConfig{NodePorts: seen.nodePorts, Failed: r.recorder.HealthPortFailed, Log: r.log}
	if healthAddress(o, from) != "" {
		ports.Healthy = r.monitor.Healthy
	}
	r.ports = health.NewPorts(ports)
	r.traces = newTraces(o, b, seen.name, r)
	config := metricsConfig(o, b, life, used)
	r.configured(o.Hash(), false)
	config.Configuration = func() metrics.Configuration {
		now := *r.loaded.Load()
		now.Pending = held.held()
		return now
	}
	config.Services = seen.counts
	config.Findings, config.Shadowed, config.Dropped = r.monitor.Tallies, r.monitor.Shadowed, r.dropped
	if t != nil {
		config.Pressure, config.Flows = t.Pressure, t.Last
	}
	config.ForeignChains = around.byHook
	config.Suspects = func() (int, uint64) { return r.balance.Tally() }
	config.PartlyObserved = func() int { return r.balance.PartlyObserved() }
	if test != nil {
		config.SelfTest = func() (all service.PerFamily[metrics.SelfTest]) {
			for family, r := range test.Results() {
				all[family] = metrics.SelfTest{Done: !r.At.IsZero(), Passed: r.Err == nil, Took: r.Took}
			}
			return all
		}
	}
	r.metrics, err = metrics.New(config)
	return r, err
}

// eligible returns the Node for health. Without a cluster, an unknown Node is no reason to avoid this one.
func eligible(from *feed.Feed, known *service.NodeObject) *service.NodeObject {
	if known == nil && from.Client == nil {
		return &service.NodeObject{}
	}
	return known
}

// newLines returns what logs the proxy's events.
func newLines(log *zap.Logger, domains []proxy.Domain) *observe.Log {
	families := make(map[string]service.Family)
	for _, d := range domains {
		if !d.Auxiliary {
			families[d.Name] = d.Family
		}
	}
	return observe.NewLog(log, families)
}

func (r *reports) listeners() []observe.Listener {
	all := []observe.Listener{r.lines, r.recorder, r.monitor, r.metrics}
	if r.traces != nil {
		all = append(all, r.traces)
	}
	return all
}

// newTraces returns what exports spans; nil if the configuration does not ask for it.
func newTraces(o *Options, b *setup.Backend, node string, r *reports) *traces.Traces {
	t := &o.Sluice.Tracing
	if t.Endpoint == "" {
		return nil
	}
	families := map[string]service.Family{}
	for _, d := range b.Domains {
		families[d.Name] = d.Family
	}
	return traces.New(traces.Config{
		Endpoint: t.Endpoint, PerMillion: t.SamplingRatePerMillion, Slow: t.SlowThreshold.Duration, Seed: uint32(o.Sluice.Balancing.Seed),
		Mode: string(b.Mode.Name), Node: node, Version: o.Version, Domains: families,
		Failed: func(err error) {
			if tell, _ := r.repeated.Failed("traces"); tell {
				r.log.Warn("cannot export traces; dropping them", zap.Error(err))
			}
		},
	})
}

// conntrack reports the removal of stale flows.
func (r *reports) conntrack(e conntrack.Event) {
	r.metrics.Conntrack(e)
	swept, ok := e.(conntrack.Swept)
	for i := range swept.Cut {
		r.drainCut(swept.Family, &swept.Cut[i])
	}
	switch {
	case !ok:
	case swept.Err != nil:
		warnIfNew := zap.DebugLevel
		if tell, _ := r.repeated.Failed("flows" + swept.Family.String()); tell {
			warnIfNew = zap.WarnLevel
		}
		r.log.Log(warnIfNew, "cannot delete stale conntrack entries; retrying", zap.Stringer("family", swept.Family),
			zap.Int("failures", swept.Failures), zap.Error(swept.Err))
	case swept.Deleted > 0:
		r.log.Debug("stale flows removed", zap.Stringer("family", swept.Family),
			zap.Int("flows", swept.Deleted), zap.Duration("took", swept.Took))
	}
}

// drainCut says which connections to endpoints that have left were cut.
func (r *reports) drainCut(family service.Family, c *conntrack.Cut) {
	const namedMax = 10
	r.log.Info("drain deadline reached; connections cut", zap.Stringer("service", c.Service), zap.Stringer("family", family),
		zap.Int("connections", c.Connections), zap.Int("endpoints", len(c.Endpoints)),
		zap.Stringers("named", c.Endpoints[:min(namedMax, len(c.Endpoints))]), zap.Duration("deadline", c.Deadline),
		zap.Int("beforeDeadline", c.Crowded))
}

// dropped counts the reports that have been dropped.
func (r *reports) dropped() metrics.Dropped {
	d := metrics.Dropped{Events: r.recorder.Dropped(), Warnings: r.warnings.Dropped(), Lines: logging.Dropped(), Flows: r.flows.Lost()}
	if r.traces != nil {
		d.Traces = r.traces.Dropped()
	}
	return d
}

// configured records that a configuration was accepted, or rejected.
func (r *reports) configured(hash string, failed bool) {
	now := metrics.Configuration{Hash: hash, Loaded: time.Now(), Failed: failed}
	if failed {
		now.Loaded = r.loaded.Load().Loaded
	}
	r.loaded.Store(&now)
}

// stop records that the server was told to stop.
func (r *reports) stop() {
	now := time.Now()
	r.stopping.Store(&now)
}

// stoppingSince returns when the server was told to stop; zero if it was not.
func (r *reports) stoppingSince() time.Time {
	if at := r.stopping.Load(); at != nil {
		return *at
	}
	return time.Time{}
}

// view is what reports read of the proxy that they report about. It shows nothing until there is
// one.
type view struct {
	// name is the node's.
	name    string
	domains []proxy.Domain
	proxy   atomic.Pointer[proxy.Proxy]
	answers atomic.Pointer[inspection.Inspection]
}

// counts counts Services by state.
func (v *view) counts() *state.Counts {
	if i := v.answers.Load(); i != nil {
		all, _ := i.Counts(context.Background())
		return &all
	}
	return nil
}

func (v *view) status() (all []health.DomainStatus) {
	if p := v.proxy.Load(); p != nil {
		for i, status := range p.Status() {
			all = append(all, health.DomainStatus{Status: status, Family: v.domains[i].Family, Auxiliary: v.domains[i].Auxiliary})
		}
	}
	return all
}

func (v *view) node() *service.NodeObject {
	if p := v.proxy.Load(); p != nil {
		return p.Node()
	}
	return nil
}

// families returns the families with rules.
func (v *view) families() (all []service.Family) {
	for _, d := range v.domains {
		if !d.Auxiliary && !slices.Contains(all, d.Family) {
			all = append(all, d.Family)
		}
	}
	return all
}

// right reports whether the kernel has the rules of a family, as far as the proxy knows.
func (v *view) right(family service.Family) bool {
	for _, d := range v.status() {
		if d.Family == family && !d.Auxiliary && !d.Right(time.Now()) {
			return false
		}
	}
	return true
}

// nodePorts returns the addresses on which node ports of a family answer now.
func (v *view) nodePorts(family service.Family) (at service.NodePortAddresses) {
	if p := v.proxy.Load(); p != nil {
		at = p.Facts().NodePorts[family]
	}
	return at
}

// owner returns the Service that has a frontend, by the newest API objects.
func (v *view) owner(family service.Family, f service.Frontend) (key service.Key, ok bool) {
	if p := v.proxy.Load(); p != nil {
		key, ok = p.Owner(family, f)
	}
	return key, ok
}

// ports returns the Service port of each frontend.
func (v *view) ports() traffic.Ports {
	if p := v.proxy.Load(); p != nil {
		return inspection.Ports(p)
	}
	return traffic.Ports{}
}

// reporter returns who reports about a Service.
func (v *view) reporter(key service.Key) string {
	if p := v.proxy.Load(); p != nil {
		return service.Reporter(p.Snapshot(key).Slices)
	}
	return ""
}
