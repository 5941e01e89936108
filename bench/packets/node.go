package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	benchresult "github.com/sluice-proxy/sluice/bench/result"
	"github.com/sluice-proxy/sluice/bench/rig"
	"github.com/sluice-proxy/sluice/internal/host/netns"
)

// nodeLoad is the traffic while -node measures a running proxy.
type nodeLoad struct {
	// open connections stay open. perSecond connections are opened and closed.
	open, perSecond int
	// rest is the time without new connections, and busy the time with them.
	rest, busy time.Duration
}

// measureNodes measures each variant of Sluice with each number of Services, in nftables mode and one family.
func (o options) measureNodes(ctx context.Context, load nodeLoad) (costs []benchresult.NodeCost, err error) {
	err = rig.InFolder("packets", func(dir string) error {
		for _, services := range o.services {
			for _, v := range o.variants {
				if !v.isSluice() {
					continue
				}
				folder := filepath.Join(dir, fmt.Sprintf("%s-%d", v.name, services))
				if err := os.Mkdir(folder, 0o755); err != nil {
					return err
				}
				cost, err := o.measureNode(ctx, v, cluster{services, o.endpoints, o.families[:1]}, load, folder)
				if err != nil {
					return fmt.Errorf("%s: %w", v.name, err)
				}
				costs = append(costs, cost)
			}
		}
		return nil
	})
	return costs, err
}

func (o options) measureNode(ctx context.Context, v variant, c cluster, load nodeLoad, dir string) (cost benchresult.NodeCost, err error) {
	r, err := newRoom()
	if err != nil {
		return cost, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	cost = benchresult.NodeCost{Variant: v.name, Services: c.services, Endpoints: c.endpoints, Open: load.open}
	err = v.runProxy(ctx, r, nftables, c, dir, func(process *netns.Daemon) error {
		failure := r.client.Do(func() error {
			undo, err := o.sampling.secure()
			if err != nil {
				return err
			}
			defer undo()
			return load.measure(ctx, &cost, process.PID(), r.servers[c.families[0]], c)
		})
		return errors.Join(failure, process.Kill())
	})
	return cost, err
}

// measure measures in the namespace of the client.
func (load nodeLoad) measure(ctx context.Context, cost *benchresult.NodeCost, pid int, s server, c cluster) error {
	rig.Progress("%s: at rest", cost.Variant)
	watch := rig.WatchMemory(pid)
	defer watch.Close()
	targets := toClusterIPs(plain)(c, c.families[0])
	if err := s.drain(); err != nil {
		return err
	}
	open, err := s.openMany(targets, load.open)
	defer closeAll(open...)
	if err != nil {
		return err
	}
	used := func(run func() error) (perSecond float64, err error) {
		first, err := rig.Used(pid)
		if err != nil {
			return 0, err
		}
		began := time.Now()
		if err := run(); err != nil {
			return 0, err
		}
		last, err := rig.Used(pid)
		return float64(last.Minus(first).Sum().Milliseconds()) / time.Since(began).Seconds(), err
	}
	if cost.RestCPU, err = used(func() error { rig.Sleep(ctx, load.rest); return ctx.Err() }); err != nil {
		return err
	}
	rig.Progress("%s: %d connections per second", cost.Variant, load.perSecond)
	count, began := 0, time.Now()
	cost.BusyCPU, err = used(func() error {
		count, err = s.openAndClose(ctx, targets, load)
		return err
	})
	cost.PerSecond = float64(count) / time.Since(began).Seconds()
	cost.Resident, cost.Peak = rig.MiB(pid, rig.Resident), watch.Take()
	return err
}

// openMany opens connections, evenly to all targets, and returns both ends of each.
func (s server) openMany(targets []target, count int) (ends []int, err error) {
	for i := range count {
		client, err := dial(targets[i%len(targets)].raw, unix.SOCK_STREAM)
		if err != nil {
			return ends, fmt.Errorf("open connection %d: %w", i, err)
		}
		ends = append(ends, client)
		peer, err := accept(s.listener)
		if err != nil {
			return ends, fmt.Errorf("accept connection %d: %w", i, err)
		}
		ends = append(ends, peer)
	}
	return ends, nil
}

// openAndClose opens and closes connections at a rate for a while.
func (s server) openAndClose(ctx context.Context, targets []target, load nodeLoad) (count int, err error) {
	on := connections{&scene{server: s, targets: targets}}
	for began := time.Now(); time.Since(began) < load.busy && ctx.Err() == nil; {
		if early := time.Duration(count)*time.Second/time.Duration(load.perSecond) - time.Since(began); early > 0 {
			rig.Sleep(ctx, early)
		}
		n, err := on.turn()
		if err != nil {
			return count, err
		}
		count += n
	}
	return count, ctx.Err()
}
