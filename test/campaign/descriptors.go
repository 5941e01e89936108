// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/test/process"
)

// descriptors takes file descriptors from the proxy, in one of three ways.
func descriptors(ctx context.Context, r *trial, number int) error {
	switch number % 3 {
	case 0:
		r.row.count("no more allowed than it uses")
		return r.fewDescriptors(ctx)
	case 1:
		r.row.count("clients with more connections than descriptors")
		return r.manyClients(ctx)
	default:
		r.row.count("none left")
		return r.noDescriptors(ctx)
	}
}

// inUse returns how many descriptors the proxy has.
func (p *proxies) inUse() (int, error) {
	all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.Process().PID()))
	return len(all), err
}

// atMost returns the largest number of descriptors within a time.
func (p *proxies) atMost(within time.Duration) (most int, err error) {
	for began := time.Now(); time.Since(began) < within; time.Sleep(time.Millisecond) {
		now, err := p.inUse()
		if err != nil {
			return 0, err
		}
		most = max(most, now)
	}
	return most, nil
}

// allow limits the descriptors of the running process, and returns what takes that back.
func (p *proxies) allow(most int) (undo func() error, err error) {
	var before unix.Rlimit
	set := func(limit, old *unix.Rlimit) error {
		return os.NewSyscallError("prlimit", unix.Prlimit(p.Process().PID(), unix.RLIMIT_NOFILE, limit, old))
	}
	if err := set(nil, &before); err != nil {
		return nil, err
	}
	return func() error { return set(&before, nil) }, set(&unix.Rlimit{Cur: uint64(most), Max: before.Max}, nil)
}

// fewDescriptors allows as many as the proxy was seen to use and a few for what was not seen, such
// as both families' programs at once. Changes are applied under the limit.
func (r *trial) fewDescriptors(ctx context.Context) (err error) {
	const unseen = 8
	most, err := r.p.atMost(2 * time.Second)
	if err != nil {
		return err
	}
	undo, err := r.p.allow(most + unseen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, undo()) }()
	for range 3 {
		if err := r.recovered(ctx, time.Now(), r.c.mark(), false); err != nil {
			return fmt.Errorf("with %d descriptors: %w", most+unseen, err)
		}
	}
	return nil
}

// descriptorsMax is the limit of a process that clients try to exhaust.
const descriptorsMax = 256

// manyClients starts the proxy under a limit, and opens more connections to each of its addresses.
// Changes are applied meanwhile, and health answers afterwards.
func (r *trial) manyClients(ctx context.Context) (err error) {
	r.p.Under = []string{"sh", "-c", `ulimit -n "$0" && exec "$@"`, strconv.Itoa(descriptorsMax)}
	defer func() { r.p.Under = nil }()
	if err := r.restart(ctx); err != nil {
		return err
	}
	clients, err := r.crowd(ctx, descriptorsMax+50)
	defer func() { err = errors.Join(err, clients.Close()) }()
	if err != nil {
		return err
	}
	for range 3 {
		if err := r.recovered(ctx, time.Now(), r.c.mark(), false); err != nil {
			return fmt.Errorf("under %d connections: %w", len(clients), err)
		}
		time.Sleep(time.Second)
	}
	used, err := r.p.inUse()
	if err != nil {
		return err
	}
	if used >= descriptorsMax {
		return fmt.Errorf("%d connections have taken all of %d descriptors", len(clients), descriptorsMax)
	}
	if err := clients.Close(); err != nil {
		return err
	}
	clients = nil
	return r.healthy(ctx)
}

// noDescriptors allows no new descriptor at all, until the log says so, while clients knock. (A
// limit above zero would allow some, as soon as connections of the instant before are closed.) In
// nftables mode, a change needs none. Elsewhere it is applied as soon as there are some again.
func (r *trial) noDescriptors(ctx context.Context) (err error) {
	undo, err := r.p.allow(0)
	if err != nil {
		return err
	}
	clients, err := r.crowd(ctx, 50)
	defer func() { err = errors.Join(err, clients.Close()) }()
	from, want := time.Now(), r.c.mark()
	if err == nil && r.mode == "nftables" {
		err = r.recovered(ctx, from, want, false)
	}
	if err == nil {
		err = r.said(ctx, unix.EMFILE.Error())
	}
	if err := errors.Join(err, undo()); err != nil {
		return err
	}
	if err := clients.Close(); err != nil {
		return err
	}
	clients = nil
	if err := r.recovered(ctx, time.Now(), r.c.mark(), false); err != nil {
		return err
	}
	return r.healthy(ctx)
}

// crowd is many idle connections.
type crowd []net.Conn

func (c crowd) Close() (err error) {
	for _, conn := range c {
		err = errors.Join(err, conn.Close())
	}
	return err
}

// crowd opens connections to the health and the metrics address and to the local socket. One that
// is not accepted waits in the kernel; one that the kernel does not take is left out.
func (r *trial) crowd(ctx context.Context, each int) (clients crowd, err error) {
	const knock = 20 * time.Millisecond
	for _, addr := range []string{"127.0.0.1:10256", "127.0.0.1:10249"} {
		for range each {
			if conn, err := r.p.Namespace.DialContext(ctx, "tcp", addr); err == nil {
				clients = append(clients, conn)
			}
		}
	}
	var sockets []string
	err = r.await(ctx, "there is not one socket in "+r.stateDir(), func() (bool, error) { // a new process replaces that of the last one
		sockets, err = filepath.Glob(filepath.Join(r.stateDir(), "*.sock"))
		return len(sockets) == 1, err
	})
	if err != nil {
		return clients, fmt.Errorf("%w: %s", err, strings.Join(sockets, " "))
	}
	for range each {
		dialer := net.Dialer{Timeout: knock}
		if conn, err := dialer.DialContext(ctx, "unix", sockets[0]); err == nil {
			clients = append(clients, conn)
		}
	}
	return clients, nil
}

// restart kills and starts the proxy, and waits for its recovery.
func (r *trial) restart(ctx context.Context) error {
	if err := r.p.end((*process.Daemon).Kill); err != nil {
		return err
	}
	want, from := r.c.mark(), time.Now()
	if err := r.p.start(); err != nil {
		return err
	}
	return r.recovered(ctx, from, want, true)
}

// healthy waits until the health address answers.
func (r *trial) healthy(ctx context.Context) error {
	const interval = 100 * time.Millisecond
	for began := time.Now(); ; time.Sleep(interval) {
		_, err := r.health(ctx)
		if err == nil || time.Since(began) > r.recovery {
			return err
		}
	}
}
