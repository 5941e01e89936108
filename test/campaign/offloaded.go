// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/sluice-proxy/sluice/test/netnstest"
)

// offloadTable is where Sluice keeps its flowtable.
const offloadTable = "table inet sluice-offload"

// offloadIs waits until the node has a flowtable, or none.
func (r *trial) offloadIs(ctx context.Context, want bool) error {
	return r.await(ctx, fmt.Sprintf("want %q %t", offloadTable, want), func() (bool, error) {
		tables, err := netnstest.Output(r.p.Namespace, exec.Command("nft", "list", "tables"))
		return strings.Contains(string(tables), offloadTable) == want, err
	})
}

// offloadedSession opens a connection and uses it until the kernel has offloaded it.
func (r *trial) offloadedSession(ctx context.Context, to netip.AddrPort) (session *netnstest.Session, err error) {
	err = r.await(ctx, fmt.Sprintf("%s does not answer", to), func() (bool, error) {
		asking, stop := context.WithTimeout(ctx, r.t.question())
		defer stop()
		var failed error
		session, failed = netnstest.Connect(asking, r.t.client, to)
		return failed == nil, nil
	})
	if err != nil {
		return nil, err
	}
	err = r.await(ctx, fmt.Sprintf("a connection to %s is not offloaded", to), func() (bool, error) {
		if err := r.echo(ctx, session); err != nil {
			return false, err
		}
		return r.isOffloaded(session.Local())
	})
	return session, err
}

// isOffloaded reports whether the connection of a client is.
func (r *trial) isOffloaded(local netip.AddrPort) (bool, error) {
	all, err := netnstest.Conntrack(r.p.Namespace)
	for _, t := range all {
		if t.Source == local && t.Offloaded {
			return true, err
		}
	}
	return false, err
}

// only waits until the Service is served by these pods alone.
func (r *trial) only(ctx context.Context, pods ...string) error {
	const enough = 24 // another pod of two stays unseen with a probability below 1e-7
	return r.await(ctx, fmt.Sprintf("%s is not served by %v alone", r.offloading.service, pods), func() (bool, error) {
		for range enough {
			asking, stop := context.WithTimeout(ctx, r.t.question())
			answer, err := netnstest.Ask(asking, r.t.client, "tcp", r.offloading.service)
			stop()
			if err != nil || !strings.Contains(strings.Join(pods, " "), answer.Backend) {
				return false, nil
			}
		}
		return true, nil
	})
}

// ended makes sure that the held connection does not hang: its other end, or another pod with the
// address, has ended it.
func (r *trial) ended(ctx context.Context) error {
	err := r.echo(ctx, r.offloading.held)
	switch {
	case err == nil:
		return errors.New("the connection to a removed pod goes on")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the connection to a removed pod hangs: %w", err)
	}
	return nil
}

// echo sends a line and waits for it to come back.
func (r *trial) echo(ctx context.Context, s *netnstest.Session) error {
	ctx, stop := context.WithTimeout(ctx, r.patience)
	defer stop()
	return s.Echo(ctx, "line")
}

// await waits until something holds.
func (r *trial) await(ctx context.Context, otherwise string, holds func() (bool, error)) error {
	const interval = 5 * time.Millisecond
	for deadline := time.Now().Add(r.recovery); ; time.Sleep(interval) {
		is, err := holds()
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", otherwise, err)
		case is:
			return nil
		case ctx.Err() != nil || time.Now().After(deadline):
			return errors.Join(errors.New(otherwise), ctx.Err(), r.p.Alive())
		}
	}
}

// setMoving makes some of the moving pods the endpoints of their Service.
func (r *trial) setMoving(pods ...int) {
	var addresses []string
	for _, pod := range pods {
		addresses = append(addresses, movingAt(pod).Addr().String())
	}
	r.setTenant(tenantService("moving", r.offloading.service.Addr().String(), 1), addresses...)
}

func (r *trial) attachMoving() error {
	err := r.net.Attach(moving)
	for pod, name := range movingPods {
		if err == nil {
			err = r.net.Serve(name, moving.Leaf, movingAt(pod))
		}
	}
	return err
}

func (r *trial) detachMoving() (err error) {
	if r.net.Hosts[moving.Leaf] == nil {
		return nil // a failed instant left it so
	}
	for pod := range movingPods {
		err = errors.Join(err, r.net.Leave(movingAt(pod)))
	}
	return errors.Join(err, r.net.Detach(moving.Leaf))
}
