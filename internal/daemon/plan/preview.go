// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/internal/daemon/backend"
	"github.com/sluice-proxy/sluice/internal/daemon/feed"
	"github.com/sluice-proxy/sluice/internal/daemon/logging"
	"github.com/sluice-proxy/sluice/internal/daemon/peer"
	"github.com/sluice-proxy/sluice/internal/daemon/setup"
	"github.com/sluice-proxy/sluice/internal/host/sysctl"
	"github.com/sluice-proxy/sluice/internal/render"
	"github.com/sluice-proxy/sluice/proxy"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source"
	"github.com/sluice-proxy/sluice/source/kube"
	"github.com/sluice-proxy/sluice/source/manifest"
)

// Make reads what this node's kernel has, as a start does, and returns what a start would
// change. It changes nothing. The Services are those of the manifests in a directory or, if
// dir is empty, of the API server.
func Make(ctx context.Context, o *setup.Options, dir string) (report *Report, err error) {
	log, err := logging.New(o.Log())
	if err != nil {
		return nil, err
	}
	setup.Warn(log.Logger, o.Warnings)
	p, err := newPreview(ctx, o, dir, log.Logger)
	if err != nil {
		return nil, err
	}
	report, err = p.report(ctx)
	return report, errors.Join(err, p.backend.Close())
}

// preview is one run of Make.
type preview struct {
	options  *setup.Options
	backend  *setup.Backend
	settings proxy.NodeSettings
	cache    *source.Cache
	log      *zap.Logger
	// settled are the kernel settings that would change.
	settled []sysctl.Change
	facts   *service.NodeFacts
	// warnings are about parts of objects that a start ignores.
	warned   sync.Mutex
	warnings []service.Warning
	// servers are the addresses of the API server.
	servers []netip.Addr
}

// newPreview finds out what a start would render, and for which backend.
func newPreview(ctx context.Context, o *setup.Options, dir string, log *zap.Logger) (*preview, error) {
	p := &preview{options: o, log: log}
	o.Dry = func(c sysctl.Change) { p.settled = append(p.settled, c) }
	files := o.Sysctls(log)
	if dir == "" {
		if _, err := kube.RESTConfig(feed.API(o)); err != nil {
			return nil, err
		}
		// With an API server, a start sets up connection tracking first.
		if err := o.PrepareConntrack(files, zap.NewNop()); err != nil {
			return nil, err
		}
	}
	// NewBackend probes the kernel, as a start does. Only one process at a time may do that.
	release := peer.Turn(ctx, setup.TurnMax)
	var err error
	p.backend, err = setup.NewBackend(ctx, o, files, &backend.Forwarders{}, nil, log)
	release()
	if err == nil {
		o.PrepareAccounting(p.backend.Mode, files, zap.NewNop())
		err = p.learn(ctx, dir)
	}
	if err != nil {
		return nil, errors.Join(err, p.backend.Close())
	}
	return p, nil
}

// learn finds out everything that rules depend on.
func (p *preview) learn(ctx context.Context, dir string) (err error) {
	if p.settings, err = p.options.NodeSettings(p.backend.Mode.Name); err != nil {
		return err
	}
	if p.cache, err = p.fill(ctx, dir); err != nil {
		return err
	}
	if err = p.backend.Unserved(p.cache.Node()); err != nil {
		return err
	}
	hosts, err := p.hosts(ctx)
	p.facts = p.settings.Facts(p.cache.Node(), hosts, p.cache.ServiceCIDRs(), p.servers)
	return err
}

// views yields the views of the Services.
func (p *preview) views(yield func(*service.View) bool) {
	for _, key := range p.cache.Keys() {
		found := p.cache.Snapshot(key)
		if view := service.Resolve(key, found.Spec, found.Slices, p.facts); !yield(&view) {
			return
		}
	}
}

// fill returns a complete cache.
func (p *preview) fill(ctx context.Context, dir string) (*source.Cache, error) {
	options := p.options.Objects(p.backend, func(w service.Warning) {
		p.warned.Lock()
		defer p.warned.Unlock()
		p.warnings = append(p.warnings, w)
	})
	if dir != "" {
		return manifest.Load(dir, p.settings.Name, options)
	}
	return p.list(ctx, options)
}

// report reads each domain and compares it.
func (p *preview) report(ctx context.Context) (*Report, error) {
	r := &Report{Node: p.settings.Name, Mode: string(p.backend.Mode.Name), Services: len(p.cache.Keys()),
		Groups: []*Group{}, Settings: p.settled}
	for i := range p.backend.Domains {
		d := &p.backend.Domains[i]
		changes, equal, err := p.compare(ctx, d)
		if err != nil {
			return nil, err
		}
		r.Unchanged += equal
		r.Add(Domain{
			Name: d.Name, Layout: d.Layout, Origin: d.Writer.Origin, Lines: p.lines(d.Family), LeavesOut: p.backend.Mode.LeavesOut,
		}, changes)
	}
	for view := range p.views {
		if e := view.Excess; e.LeftOut > 0 {
			p.warnings = append(p.warnings, e.Warning(view.Key))
		}
	}
	slices.SortFunc(p.warnings, func(a, b service.Warning) int { return cmp.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	r.Warnings = p.warnings
	var err error
	r.Others, err = p.others(ctx)
	return r, err
}

// hosts returns the host's addresses, as a start learns them.
func (p *preview) hosts(ctx context.Context) (hosts []netip.Addr, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	err = p.backend.HostAddresses()(ctx, func(found []netip.Addr) {
		if hosts == nil {
			hosts = found
		}
		cancel()
	})
	return hosts, err
}

// compare returns what a start would change in one domain: what its ledger plans
// after it has seen the kernel. Equal counts the objects that would stay.
func (p *preview) compare(ctx context.Context, d *proxy.Domain) (changes []dataplane.Change, equal int, err error) {
	book := render.Ledger(d.Renderer, d.Layout, p.views, p.facts)
	read, err := d.Writer.Read(ctx)
	if err != nil {
		return nil, 0, fmt.Errorf("%s: %w", d.Name, err)
	}
	drift := book.Observe(read)
	// The first batch keeps unowned objects that may belong to a Service that is not applied yet.
	for batch := book.Plan(); batch != nil && len(batch.Changes) > 0; batch = book.Plan() {
		changes = append(changes, batch.Changes...)
		book.Settle(batch, dataplane.Receipt{Outcome: dataplane.Landed})
	}
	changes, kept, err := foresee(ctx, d, changes)
	return changes, drift.Equal + kept, err
}

// foresee adds removed endpoints that keep connections to the changes, as a start does. It leaves out and counts the
// changes that would then leave the kernel as it is.
func foresee(ctx context.Context, d *proxy.Domain, changes []dataplane.Change) (left []dataplane.Change, kept int, err error) {
	if d.Writer.Foresee == nil {
		return changes, 0, nil
	}
	for _, c := range changes {
		if c.After, err = d.Writer.Foresee(ctx, &c); err != nil {
			return nil, 0, fmt.Errorf("%s: %v: %w", d.Name, c.Owner, err)
		}
		if dataplane.Same(c.Before, c.After) {
			kept++
			continue
		}
		left = append(left, c)
	}
	return left, kept, nil
}

// lines returns the function that describes this mode's objects in text.
func (p *preview) lines(family service.Family) func(*dataplane.Object) (string, []string) {
	if p.backend.Mode.Lines == nil {
		return TextLines
	}
	return func(o *dataplane.Object) (string, []string) { return p.backend.Mode.Lines(family, o) }
}

// others returns the leftovers of other modes that a start would remove.
func (p *preview) others(ctx context.Context) ([]backend.Leftover, error) {
	found, err := p.backend.Sweep(true).Run(ctx)
	found = slices.DeleteFunc(found, func(l backend.Leftover) bool { return !l.Any() })
	if errors.Is(err, fs.ErrPermission) {
		return found, nil // a start with the same rights could not see or remove the rest
	}
	return found, err
}

// listMax bounds the wait for the API server.
const listMax = 30 * time.Second
