// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"time"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/process"
)

// moving is a host with two pods of a Service on a device that comes and goes while connections to them
// are offloaded.
var (
	moving = netns.Cable{
		Router: "node", Leaf: "moving", Port: "to-moving",
		AtRouter: netns.Prefixes("10.244.2.1/24"), AtLeaf: netns.Prefixes("10.244.2.10/24", "10.244.2.11/24"),
	}
	movingPods = []string{"moving-0", "moving-1"}
)

func movingAt(pod int) netip.AddrPort {
	return netip.AddrPortFrom(moving.AtLeaf[pod].Addr(), podPort(0))
}

// offloading is what the instants of the fault share.
type offloading struct {
	service netip.AddrPort
	// steady are offloaded connections to Services that nothing happens to, one of each family.
	steady []*netnstest.Session
	// held is an offloaded connection to one of the moving pods, new in each instant.
	held *netnstest.Session
}

var offloadInstants = []struct {
	name string
	do   func(context.Context, *trial) error
}{
	{"endpoint removed, and then its pod", endpointRemoved},
	{"device removed, and another pod with the addresses attached", deviceRemoved},
	{"new connections denied by a policy engine", policyAdded},
	{"proxy killed", killedWithOffload},
	{"offload switched off and on", switched},
}

// beginOffload attaches the moving pods, and holds an offloaded connection in each family.
func beginOffload(ctx context.Context, r *trial) error {
	o := &offloading{service: netip.AddrPortFrom(netip.MustParseAddr(tenantIP(0)), webPort)}
	r.offloading = o
	if err := r.attachMoving(); err != nil {
		return err
	}
	r.setMoving(0, 1)
	for _, family := range service.Families {
		session, err := r.offloadedSession(ctx, clusterAddr(family, 1, webPort))
		if err != nil {
			return err
		}
		o.steady = append(o.steady, session)
	}
	return nil
}

func (r *trial) endOffload() error {
	for _, s := range r.offloading.steady {
		_ = s.Close() // the last instant has shown whether it works
	}
	r.setTenant(tenantService("moving", r.offloading.service.Addr().String(), 1))()
	return r.detachMoving()
}

// offload plays one instant. The steady connections, and the load, must not notice.
func offload(ctx context.Context, r *trial, number int) (err error) {
	now := offloadInstants[number%len(offloadInstants)]
	r.row.count(now.name)
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", now.name, err)
		}
	}()
	if r.offloading.held, err = r.offloadedSession(ctx, r.offloading.service); err != nil {
		return err
	}
	err = now.do(ctx, r)
	_ = r.offloading.held.Close() // some instants have ended it
	if err != nil {
		return err
	}
	for _, s := range r.offloading.steady {
		if err := r.echo(ctx, s); err != nil {
			return fmt.Errorf("a connection to an unchanged Service: %w", err)
		}
	}
	return r.recovered(ctx, time.Now(), r.c.mark(), false)
}

// endpointRemoved removes the endpoint of the held connection, which lasts as it does without offload:
// until its pod ends.
func endpointRemoved(ctx context.Context, r *trial) error {
	gone := 0
	if r.offloading.held.Answer().Backend == movingPods[1] {
		gone = 1
	}
	r.setMoving(1 - gone)
	if err := r.only(ctx, movingPods[1-gone]); err != nil {
		return err
	}
	if err := r.echo(ctx, r.offloading.held); err != nil {
		return fmt.Errorf("the connection to the removed endpoint, whose pod still runs: %w", err)
	}
	if err := r.net.Leave(movingAt(gone)); err != nil {
		return err
	}
	if err := r.ended(ctx); err != nil {
		return err
	}
	err := r.net.Serve(movingPods[gone], moving.Leaf, movingAt(gone))
	r.setMoving(0, 1)
	return err
}

// deviceRemoved removes the device of the held connection. Another pod gets its address on a new
// device, refuses the connection, and its own connections are offloaded.
func deviceRemoved(ctx context.Context, r *trial) error {
	local := r.offloading.held.Local()
	if err := r.p.Namespace.DeleteLink(moving.Port); err != nil {
		return err
	}
	if err := r.await(ctx, "the flow of a removed device is still offloaded", func() (bool, error) {
		is, err := r.isOffloaded(local)
		return !is, err
	}); err != nil {
		return err
	}
	if err := errors.Join(r.detachMoving(), r.attachMoving()); err != nil {
		return err
	}
	if err := r.ended(ctx); err != nil {
		return err
	}
	again, err := r.offloadedSession(ctx, r.offloading.service)
	if err != nil {
		return fmt.Errorf("over the new device: %w", err)
	}
	return again.Close()
}

// policyAdded denies new connections to the moving pods in a chain before Sluice's.
func policyAdded(ctx context.Context, r *trial) error {
	rules := fmt.Sprintf(`table inet policies { chain forward { type filter hook forward priority 0;
		ct state established,related accept; ip daddr %s drop; }; }`, moving.AtLeaf[0].Masked())
	if printed, err := netnstest.Output(r.p.Namespace, exec.Command("nft", rules)); err != nil {
		return fmt.Errorf("nft: %w: %s", err, printed)
	}
	asking, stop := context.WithTimeout(ctx, r.t.question())
	answer, err := netnstest.Ask(asking, r.t.client, "tcp", r.offloading.service)
	if stop(); err == nil {
		return fmt.Errorf("%s answers a connection that the policy denies", answer.Backend)
	}
	if err := r.echo(ctx, r.offloading.held); err != nil {
		return fmt.Errorf("the connection from before the policy, which allows it: %w", err)
	}
	allowed, err := r.offloadedSession(ctx, clusterAddr(service.IPv4, 1, webPort))
	if err != nil {
		return fmt.Errorf("an allowed connection: %w", err)
	}
	if printed, err := netnstest.Output(r.p.Namespace, exec.Command("nft", "delete table inet policies")); err != nil {
		return fmt.Errorf("nft: %w: %s", err, printed)
	}
	return errors.Join(r.echo(ctx, allowed), allowed.Close(), r.only(ctx, movingPods...))
}

// killedWithOffload kills the process, with which the kernel removes the flowtable. Connections go on.
func killedWithOffload(ctx context.Context, r *trial) error {
	if err := r.p.end((*process.Daemon).Kill); err != nil {
		return err
	}
	err := r.offloadIs(ctx, false)
	for range 3 {
		err = errors.Join(err, r.echo(ctx, r.offloading.held))
	}
	if err = errors.Join(err, r.p.start()); err != nil {
		return err
	}
	return errors.Join(r.recovered(ctx, time.Now(), r.c.mark(), true), r.offloadIs(ctx, true), r.echo(ctx, r.offloading.held))
}

// switched changes the configuration of the process. Connections go on.
func switched(ctx context.Context, r *trial) error {
	for _, on := range []bool{false, true} {
		r.p.offload = on
		if err := r.p.configure(); err != nil {
			return err
		}
		if err := errors.Join(r.offloadIs(ctx, on), r.echo(ctx, r.offloading.held)); err != nil {
			return fmt.Errorf("offload %t: %w", on, err)
		}
	}
	return nil
}
