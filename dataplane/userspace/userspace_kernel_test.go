// SPDX-License-Identifier: Apache-2.0

package userspace_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

var networks = map[string]service.Protocol{"tcp": service.TCP, "udp": service.UDP}

// TestKernelForwarder_ServiceLifecycle: clients outside and on the node are distributed round-robin, follow a changed
// table, and are refused where there is no listener.
func TestKernelForwarder_ServiceLifecycle(t *testing.T) {
	bothFamilies(t, userspace.Config{}, func(w *world) {
		for i := range 3 {
			w.backend(i)
		}
		at, address := w.cluster(80), addressOf(addresses[w.family].cluster)
		w.write(w.want(address))
		for network := range networks {
			w.expectRefused(network, at)
		}
		for network, protocol := range networks {
			w.write(w.want(listenerOf(protocol, at, w.to(0, 1)...)))
			for _, from := range []*netns.Namespace{w.client, w.node} {
				if got := w.names(from, network, at, 10); got["a"] != 5 || got["b"] != 5 {
					w.Errorf("%s: %v, want 5 each of a and b", network, got)
				}
			}
			w.write(w.want(listenerOf(protocol, at, w.to(2)...)))
			if got := w.names(w.client, network, at, 5); got["c"] != 5 {
				w.Errorf("%s after the change: %v, want c", network, got)
			}
			w.write(w.gone(listenerOf(protocol, at, w.to(2)...)))
			w.expectRefused(network, at)
		}
		w.write(w.gone(address))
		if left := w.read(); len(left) != 0 {
			w.Errorf("left: %v", left)
		}
		if routes := w.run("ip", "route", "show", "table", "local", "proto", "219"); routes != "" {
			w.Errorf("left: %s", routes)
		}
	})
}

// TestKernelForwarder_ConnectTriedElsewhere: a connection is tried at another endpoint if an endpoint refuses or does
// not respond.
func TestKernelForwarder_ConnectTriedElsewhere(t *testing.T) {
	eachFamily(t, userspace.Config{Relay: relay.Config{DialTimeout: 600 * time.Millisecond}}, func(w *world) {
		w.backend(0)
		silent := map[service.Family]string{service.IPv4: "10.244.9.9/32", service.IPv6: "fd00:10:9::9/128"}[w.family]
		check(w, w.node.AddRoute(netip.MustParsePrefix(silent), addresses[w.family].client))
		nobody := netip.AddrPortFrom(netip.MustParsePrefix(silent).Addr(), 8080)
		lines := append(w.to(0, 1), "to "+nobody.String())
		w.write(w.want(addressOf(addresses[w.family].cluster)), w.want(listenerOf(service.TCP, w.cluster(80), lines...)))
		if got := w.names(w.client, "tcp", w.cluster(80), 12); got["a"] != 12 {
			w.Errorf("got %v, want a", got)
		}
		s := w.forwarder.Stats()
		if n := s.ConnectionsRetried.Load(); n < 4 || s.ConnectionsUnreachable.Load() != 0 {
			w.Errorf("%d tried elsewhere, %d given up; want some and none", n, s.ConnectionsUnreachable.Load())
		}
		before := s.ConnectionsRetried.Load()
		if w.names(w.client, "tcp", w.cluster(80), 6); s.ConnectionsRetried.Load() != before {
			w.Error("endpoints that failed twice are still tried first")
		}
		w.write(w.want(listenerOf(service.TCP, w.cluster(80), w.to(1)...)))
		w.expectReset(w.cluster(80)) // no endpoint accepts
	})
}

// TestKernelForwarder_DeniedSourcesDropped: clients outside the allowed source ranges get no response, and clients
// within them are served, after a change as well.
func TestKernelForwarder_DeniedSourcesDropped(t *testing.T) {
	eachFamily(t, userspace.Config{}, func(w *world) {
		w.backend(0)
		w.backend(1)
		a := addresses[w.family]
		client, node := netns.Single(a.client).String(), netns.Single(a.cluster).String()
		w.write(w.want(addressOf(a.cluster)))
		for network, protocol := range networks {
			set := func(lines ...string) { w.write(w.want(listenerOf(protocol, w.cluster(80), lines...))) }
			set(append([]string{"allow " + node}, w.to(0)...)...)
			w.expectSilence(network, w.cluster(80))
			set(append([]string{"allow " + client}, w.to(0)...)...)
			w.names(w.client, network, w.cluster(80), 1)
			set()
			w.expectSilence(network, w.cluster(80))
			set("near "+client, "near-to "+w.endpoint(1).String(), "to "+w.endpoint(0).String())
			if got := w.names(w.client, network, w.cluster(80), 4); got["b"] != 4 {
				w.Errorf("a near client: %v, want b", got)
			}
			set("near "+node, "near-to "+w.endpoint(1).String(), "to "+w.endpoint(0).String())
			if got := w.names(w.client, network, w.cluster(80), 4); got["a"] != 4 {
				w.Errorf("a client outside: %v, want a", got)
			}
			set("near "+node, "near-to "+w.endpoint(1).String())
			w.expectSilence(network, w.cluster(80))
		}
	})
}

// TestKernelForwarder_ConnectionsDrain: a connection continues until the drain deadline after its endpoint or its
// listener is removed.
func TestKernelForwarder_ConnectionsDrain(t *testing.T) {
	const deadline = 500 * time.Millisecond
	eachFamily(t, userspace.Config{DrainDeadline: deadline}, func(w *world) {
		w.backend(0)
		w.backend(1)
		listener := listenerOf(service.TCP, w.cluster(80), w.to(0)...)
		w.write(w.want(addressOf(addresses[w.family].cluster)), w.want(listener))
		for name, change := range map[string]dataplane.Change{
			"another table": w.want(listenerOf(service.TCP, w.cluster(80), w.to(1)...)), "no listener": w.gone(listener),
		} {
			w.write(w.want(listener))
			session, err := netnstest.Connect(w.Context(), w.client, w.cluster(80))
			check(w, err)
			began := time.Now()
			w.write(change)
			err = session.Echo(w.Context(), "still here")
			ctx, cancel := context.WithTimeout(w.Context(), patience)
			for err == nil {
				err = session.Echo(ctx, "and now?")
			}
			cancel()
			if lived := time.Since(began); lived < deadline || ctx.Err() == context.DeadlineExceeded {
				w.Errorf("%s: the connection ended after %v (%v), want %v", name, lived, err, deadline)
			}
			_ = session.Reset() // it has ended
		}
	})
}

// TestKernelForwarder_SessionsMove: a session moves with the next datagram after its endpoint is removed, and also if
// the endpoint refuses.
func TestKernelForwarder_SessionsMove(t *testing.T) {
	eachFamily(t, userspace.Config{}, func(w *world) {
		first := w.backend(0)
		w.backend(1)
		at := w.cluster(53)
		w.write(w.want(addressOf(addresses[w.family].cluster)), w.want(listenerOf(service.UDP, at, w.to(0)...)))
		flow, err := netnstest.OpenFlow(w.Context(), w.client, netip.AddrPort{}, at)
		check(w, err)
		defer flow.Close() // a datagram socket
		ask := func(want string) {
			w.Helper()
			answer, err := flow.Ask(w.Context())
			if err != nil || answer.Backend != want {
				w.Errorf("got %v, %v; want %s", answer, err, want)
			}
		}
		ask("a")
		w.write(w.want(listenerOf(service.UDP, at, append(w.to(1), "keep "+w.endpoint(0).String())...)))
		ask("a")
		w.write(w.want(listenerOf(service.UDP, at, w.to(1)...)))
		ask("b")
		w.write(w.want(listenerOf(service.UDP, at, w.to(0)...)))
		ask("a")
		w.write(w.want(listenerOf(service.UDP, at, w.to(0, 1)...)))
		check(w, first.Close())
		w.eventually("the session has moved", func() bool {
			ctx, cancel := context.WithTimeout(w.Context(), 200*time.Millisecond)
			defer cancel()
			answer, err := flow.Ask(ctx)
			return err == nil && answer.Backend == "b"
		})
	})
}

// TestKernelWriter_PortInUseRefusedAlone: only the Service whose port is in use is rejected, as a proven suspect; the
// rest of the batch lands.
func TestKernelWriter_PortInUseRefusedAlone(t *testing.T) {
	eachFamily(t, userspace.Config{}, func(w *world) {
		w.backend(0)
		taken, err := w.node.Listen("tcp", netip.AddrPortFrom(addresses[w.family].node, 30080).String())
		check(w, err)
		port := w.want(listenerOf(service.TCP, netip.AddrPortFrom(addresses[w.family].node, 30080), w.to(0)...))
		port.Owner = service.Key{Namespace: "ns1", Name: "taken"}
		receipt := w.attempt(w.want(addressOf(addresses[w.family].cluster)), w.want(listenerOf(service.TCP, w.cluster(80), w.to(0)...)), port)
		if receipt.Outcome != dataplane.Rejected || !receipt.Proven || len(receipt.Suspects) != 1 || receipt.Suspects[0] != port.Owner ||
			!strings.Contains(receipt.Err.Error(), "Service ns1/taken: cannot listen on tcp/") {
			w.Errorf("got %+v", receipt)
		}
		w.names(w.client, "tcp", w.cluster(80), 1)
		check(w, taken.Close())
		w.write(port)
		w.names(w.client, "tcp", netip.AddrPortFrom(addresses[w.family].node, 30080), 1)
	})
}

// TestKernelRoutes_WatchAndRead: a route deleted by another process is reported, read as missing and written again.
// Routes of other processes are left alone.
func TestKernelRoutes_WatchAndRead(t *testing.T) {
	bothFamilies(t, userspace.Config{}, func(w *world) {
		a := addresses[w.family]
		ours, theirs := addressOf(a.cluster), netns.Single(a.other).String()
		family := map[service.Family]string{service.IPv4: "-4", service.IPv6: "-6"}[w.family]
		changed := make(chan struct{}, 10)
		ctx, stop := context.WithCancel(w.Context())
		ended := make(chan error)
		go func() {
			ended <- w.writer.Watch(ctx, func(dataplane.ForeignProcess) { changed <- struct{}{} })
		}()
		w.write(w.want(ours))
		w.run("ip", family, "route", "add", "local", theirs, "dev", "lo", "table", "local", "metric", "219", "proto", "218")
		if there := w.read(); len(there) != 1 || there[ours.ID] == nil {
			w.Errorf("read %v, want one address", there)
		}
		// The watch may not be there yet.
		w.eventually("the loss is announced", func() bool {
			w.write(w.want(ours))
			w.run("ip", family, "route", "delete", "local", netns.Single(a.cluster).String(), "dev", "lo", "table", "local", "proto", "219")
			select {
			case <-changed:
				return true
			case <-time.After(50 * time.Millisecond):
				return false
			}
		})
		if there := w.read(); len(there) != 0 {
			w.Errorf("read %v, want nothing", there)
		}
		w.write(w.want(ours))
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			w.Errorf("the watch ended with %v", err)
		}
		count := func(dry bool) (n int) {
			check(w, w.node.Do(func() (err error) {
				n, err = userspace.Cleanup(w.Context(), w.family, dry)
				return err
			}))
			return n
		}
		if dry, real, after := count(true), count(false), count(true); dry != 1 || real != 1 || after != 0 {
			w.Errorf("a clean-up finds %d, removes %d and leaves %d; want 1, 1, 0", dry, real, after)
		}
		if left := w.run("ip", family, "route", "show", "table", "local", "proto", "218"); !strings.Contains(left, a.other.String()) {
			w.Errorf("the route of another program has gone: %q", left)
		}
	})
}

// TestKernelWriter_SuccessorGoesOn: a second writer finds all objects of the first one, and connections stay open.
func TestKernelWriter_SuccessorGoesOn(t *testing.T) {
	eachFamily(t, userspace.Config{}, func(w *world) {
		w.backend(0)
		w.write(w.want(addressOf(addresses[w.family].cluster)), w.want(listenerOf(service.TCP, w.cluster(80), w.to(0)...)))
		session, err := netnstest.Connect(w.Context(), w.client, w.cluster(80))
		check(w, err)
		before := w.read()
		check(w, w.writer.Close())
		w.writer = w.newWriter()
		if there := w.read(); len(there) != 2 || len(before) != 2 {
			w.Errorf("read %v, then %v; want both twice", before, there)
		}
		check(w, session.Echo(w.Context(), "still here"))
		check(w, session.Close())
	})
}

// TestKernelRoutes_ManyInOneWrite: a write of 2,000 routes lands, as does a repeated one.
func TestKernelRoutes_ManyInOneWrite(t *testing.T) {
	const many = 2000
	eachFamily(t, userspace.Config{}, func(w *world) {
		var come, go_ []dataplane.Change
		for addr := addresses[w.family].other; len(come) < many; addr = addr.Next() {
			come, go_ = append(come, w.want(addressOf(addr))), append(go_, w.gone(addressOf(addr)))
		}
		w.write(come...)
		w.write(come...) // what is there already is success
		w.write(go_...)
		w.write(go_...)
	})
}
