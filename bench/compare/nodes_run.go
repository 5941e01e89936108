package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
)

const (
	// fleetServed is how many Services each node of a fleet has rules for. The other Services have
	// everything that the API server sends, but no address, so that the rules and the work of
	// hundreds of nodes fit on one machine.
	fleetServed = 20
	// fleetNodesChanges are written one after the other, fleetNodesRate a second.
	fleetNodesChanges, fleetNodesRate = 200, 10
	// fleetNodesIdle is how long nothing changes.
	fleetNodesIdle = 20 * time.Second
	// fleetPause is the time between two starts, one after the other.
	fleetPause = 700 * time.Millisecond
)

// fleet is many nodes with one API server.
type fleet struct {
	*run
	network    *netns.Network
	members    []*member
	up         []*member // those that run
	kubeconfig string
	withNews   int // the nodes that reached has waited for with success
	out        *result.Fleet
}

// fleetAll measures fleets of several sizes, prints the result and stores it.
func fleetAll(ctx context.Context, o options) error {
	machine, comparison, err := describe(ctx, o)
	if err != nil {
		return err
	}
	f := &fleet{
		run: &run{options: o, program: result.Sluice, round: 1, out: comparison},
		out: &result.Fleet{Services: o.N, Endpoints: comparison.Endpoints, Changes: fleetNodesChanges, ChangesPerSecond: fleetNodesRate},
	}
	failed := rig.InFolder("fleet", func(dir string) error {
		f.dir = dir
		return errors.Join(f.all(ctx), f.close())
	})
	if failed != nil {
		f.out.Incomplete = failed.Error()
	}
	if o.json != "" {
		failed = errors.Join(failed, result.Store(o.json, "fleet", o.fleetCommand(), machine, f.out))
	}
	return errors.Join(failed, f.out.Print(os.Stdout))
}

// fleetCommand is what to type to repeat this.
func (o options) fleetCommand() string {
	return fmt.Sprintf("make bench-fleet NODES=%d N=%d", o.nodes, o.N)
}

// fleetSizes are the sizes of the fleets, after an API server alone. One machine can start a quarter of the
// nodes at the same time.
func fleetSizes(nodes int) []int {
	return slices.Compact([]int{0, max(1, nodes/4), nodes})
}

// all measures all sizes.
func (f *fleet) all(ctx context.Context) error {
	if err := f.prepare(ctx); err != nil {
		return err
	}
	for i, size := range fleetSizes(f.nodes) {
		f.up = f.members[:size]
		rig.Progress("%d nodes, load average %s", size, rig.LoadAverage())
		steps := []func(context.Context) error{f.startApart, f.changes, f.rest, f.restartServer}
		switch i {
		case 0:
			steps = steps[1:]
		case 1:
			steps = append([]func(context.Context) error{f.startTogether}, steps...)
		}
		for _, step := range steps {
			if err := step(ctx); err != nil {
				return fmt.Errorf("%d nodes: %w", size, err)
			}
		}
		if err := each(f.up, (*member).stop); err != nil {
			return err
		}
	}
	return nil
}

// prepare makes the network, the API server and the objects.
func (f *fleet) prepare(ctx context.Context) (err error) {
	plan, members := planFleet(f.nodes)
	if f.network, err = netns.Build(plan); err != nil {
		return err
	}
	f.members = members
	if f.api, err = startAPIServer(ctx, f.apiServer, f.network.Hosts[apiPort], f.dir, "--fairness"); err != nil {
		return err
	}
	if f.kubeconfig, err = f.api.proxyAccount(ctx, filepath.Join(f.dir, "node.kubeconfig")); err != nil {
		return err
	}
	began := time.Now()
	f.items, f.fresh = planOfFleet(f.N), f.N*addressesEach
	f.deal()
	if err := f.api.createNamespaces(ctx, f.items); err != nil {
		return err
	}
	for _, m := range f.members {
		m.host, m.dir = f.network.Hosts[m.name], filepath.Join(f.dir, m.name)
		if err := m.createNode(ctx, f.api); err != nil {
			return err
		}
	}
	if err := forEach(ctx, f.items, f.api.create); err != nil {
		return err
	}
	rig.Progress("  %d Services and %d nodes written to the API server in %s", f.N, f.nodes, rig.Round(time.Since(began)))
	f.memory = rig.WatchMemory(f.api.process.PID())
	return nil
}

// planOfFleet makes the Services of plan, most of them without an address.
func planOfFleet(n int) []*item {
	items := plan(n)
	served := rig.Spread(items, fleetServed)
	for _, it := range items {
		it.external = !slices.Contains(served, it)
	}
	return items
}

// external makes a Service one without an address: a proxy reads it with all its endpoints, and has no rules
// for it.
func external(s *corev1.Service) {
	s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "service.example.com"
	s.Spec.ClusterIP, s.Spec.Ports[0].NodePort = "", 0
}

// close ends everything that still runs.
func (f *fleet) close() error {
	errs := []error{each(f.members, (*member).stop), f.run.close()}
	if f.network != nil {
		errs = append(errs, f.network.Close())
	}
	return errors.Join(errs...)
}
