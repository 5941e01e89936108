package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	proxy "github.com/sluice-proxy/sluice"
	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/iptables"
	"github.com/sluice-proxy/sluice/dataplane/nftables"
	"github.com/sluice-proxy/sluice/internal/daemon/config"
	"github.com/sluice-proxy/sluice/internal/daemon/plan"
	"github.com/sluice-proxy/sluice/internal/daemon/rival"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/internal/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// Plan reads what this node's kernel has, as a start does, and returns what a start would
// change. It changes nothing. The Services are those of the manifests in a directory or, if
// dir is empty, of the API server.
func Plan(ctx context.Context, o *Options, dir string) (report *plan.Report, err error) {
	log, err := newLogger(o.Log())
	if err != nil {
		return nil, err
	}
	warn(log.Logger, o.warnings)
	p := planner{Options: o, log: log.Logger}
	o.dry = func(c sysctl.Change) { p.settled = append(p.settled, plan.Setting(c)) }
	files := o.recorded(log.Logger)
	if dir == "" {
		// With an API server, a start sets up connection tracking first.
		if err := o.prepareConntrack(files, zap.NewNop()); err != nil {
			return nil, err
		}
	}
	// A start that probes the kernel at this moment would not be read as it is.
	release := rival.Turn(ctx, assembling)
	p.kernel, err = newKernel(ctx, o, files, log.Logger)
	release()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, p.kernel.close()) }()
	if p.settings, err = o.NodeSettings(p.mode); err != nil {
		return nil, err
	}
	if p.cache, err = p.fill(ctx, dir); err != nil {
		return nil, err
	}
	return p.report(ctx)
}

// planner is one run of Plan.
type planner struct {
	*Options
	kernel
	settings proxy.NodeSettings
	cache    *source.Cache
	log      *zap.Logger
	// settled are the kernel settings that would change.
	settled []plan.Setting
}

// fill returns a complete cache.
func (p *planner) fill(ctx context.Context, dir string) (*source.Cache, error) {
	options := source.Options{
		IgnoreExternalIPs: !p.GateEnabled(config.GateAllowServiceExternalIPs),
		Warn:              func(w service.Warning) { warnObject(p.log, w) },
	}
	if dir != "" {
		return manifest.Load(dir, p.settings.Name, options)
	}
	return p.list(ctx, options)
}

// report reads each domain and compares it.
func (p *planner) report(ctx context.Context) (*plan.Report, error) {
	hosts, err := p.hosts(ctx)
	if err != nil {
		return nil, err
	}
	facts := p.settings.Facts(p.cache.Node(), hosts, p.cache.ServiceCIDRs())
	r := &plan.Report{Node: p.settings.Name, Mode: string(p.mode), Services: len(p.cache.Keys()), Groups: []*plan.Group{}}
	for i := range p.domains {
		if err := p.domain(ctx, r, &p.domains[i], facts); err != nil {
			return nil, err
		}
	}
	if r.Others, err = p.others(ctx); err != nil {
		return nil, err
	}
	r.Settings = p.settled
	return r, nil
}

// hosts returns the host's addresses, as a start learns them.
func (p *planner) hosts(ctx context.Context) (hosts []netip.Addr, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = p.hostAddresses()(ctx, func(found []netip.Addr) {
		if hosts == nil {
			hosts = found
		}
		cancel()
	})
	return hosts, err
}

// domain adds what a start would change in one domain: the first plan of its ledger, after
// the ledger has seen the kernel.
func (p *planner) domain(ctx context.Context, r *plan.Report, d *proxy.Domain, facts *service.NodeFacts) error {
	var failed error
	var adjust func(service.View) service.View
	if d.Drain != nil {
		adjust = func(view service.View) service.View {
			view, err := draining(ctx, d, view)
			failed = errors.Join(failed, err)
			return view
		}
	}
	book := render.Ledger(d.Renderer, d.Layout, p.cache, facts, p.cache.Keys(), adjust)
	if failed != nil {
		return failed
	}
	read, err := d.Writer.Read(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", d.Name, err)
	}
	r.Unchanged += book.Observe(read).Equal
	var changes []dataplane.Change
	if batch := book.Plan(); batch != nil {
		changes = batch.Changes
	}
	origin, _ := d.Writer.(dataplane.Origin)
	r.Add(plan.Domain{
		Name: d.Name, Layout: d.Layout, Origin: origin, Lines: p.lines(d.Family), LeavesOut: p.leavesOut(),
	}, changes)
	return nil
}

// lines returns what puts this mode's objects into words.
func (p *planner) lines(family service.Family) func(*dataplane.Object) (string, []string) {
	if p.mode != config.ModeNFTables {
		return plan.TextLines
	}
	return func(o *dataplane.Object) (string, []string) { return nftables.Lines(family, o) }
}

func (p *planner) leavesOut() func(*dataplane.Change) bool {
	if p.mode == config.ModeNFTables {
		return nil
	}
	return iptables.LeavesOut
}

// draining returns a view with the endpoints that have left and that have connections in the
// kernel: a start lets them drain.
func draining(ctx context.Context, d *proxy.Domain, view service.View) (service.View, error) {
	ports := slices.Clone(view.Ports[d.Family])
	view.Ports[d.Family] = ports
	for i := range ports {
		if ports[i].Protocol != service.TCP {
			continue
		}
		held, err := d.Drain.Held(ctx, &view, &ports[i])
		if err != nil {
			return view, fmt.Errorf("%s: %v: %w", d.Name, view.Key, err)
		}
		ports[i].Draining = held
		var busy []service.Endpoint
		for _, e := range held {
			has, err := d.Drain.Busy(ctx, &view, &ports[i], e)
			if err != nil {
				return view, fmt.Errorf("%s: %v: %w", d.Name, view.Key, err)
			}
			if has {
				busy = append(busy, e)
			}
		}
		slices.SortFunc(busy, service.Endpoint.Compare)
		ports[i].Draining = busy
	}
	return view, nil
}

// others returns what a start would remove because another mode left it.
func (p *planner) others(context.Context) ([]plan.Other, error) { return nil, nil }

// listMax bounds the wait for the API server.
const listMax = 30 * time.Second
