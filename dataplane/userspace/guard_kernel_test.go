// SPDX-License-Identifier: Apache-2.0

package userspace_test

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	nftkernel "github.com/sluice-proxy/sluice/dataplane/nftables/kernel"
	"github.com/sluice-proxy/sluice/dataplane/relay"
	"github.com/sluice-proxy/sluice/dataplane/userspace"
	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
	"github.com/sluice-proxy/sluice/test/testenv"
)

// eachGuarded runs a test in worlds whose writers have a guard.
func eachGuarded(t *testing.T, test func(*world)) {
	for _, family := range testenv.Variants(service.IPv4, service.IPv6) {
		t.Run(family.String(), func(t *testing.T) {
			w := newWorld(t, family, userspace.Config{})
			w.guarded = true
			check(t, w.writer.Close())
			w.writer = w.newWriter()
			test(w)
			check(t, w.node.Do(func() error {
				_, err := nftkernel.RemoveGuard(w.Context(), family, false)
				return err
			}))
		})
	}
}

func healthOf(port string) *dataplane.Object {
	return &dataplane.Object{ID: dataplane.ID{Container: "health", Name: port}, Kind: dataplane.Element}
}

// hostPort makes a program of the node answer on all addresses at a port, over TCP and UDP.
func (w *world) hostPort(port uint16) {
	w.Helper()
	any := service.PerFamily[netip.Addr]{netip.IPv4Unspecified(), netip.IPv6Unspecified()}[w.family]
	b, err := netnstest.StartBackend(w.node, "host", netip.AddrPortFrom(any, port))
	check(w, err)
	w.Cleanup(func() { check(w, b.Close()) })
}

// TestKernelGuard_HostPorts: a process that listens on all addresses of the node is reachable at the node's address,
// and not at Service addresses. Frontends and health check ports are reachable there.
func TestKernelGuard_HostPorts(t *testing.T) {
	eachGuarded(t, func(w *world) {
		w.backend(0)
		w.hostPort(10250)
		w.hostPort(31000)
		a := addresses[w.family]
		vip := netip.AddrPortFrom(a.other, 443)
		w.write(w.want(addressOf(a.cluster)), w.want(addressOf(a.other)), w.want(healthOf("31000")),
			w.want(listenerOf(service.TCP, w.cluster(80), w.to(0)...)),
			w.want(listenerOf(service.UDP, w.cluster(80), w.to(0)...)),
			w.want(listenerOf(service.TCP, vip, w.to(0)...)))
		for network := range networks {
			for _, addr := range []netip.Addr{a.cluster, a.other} {
				w.expectRefused(network, netip.AddrPortFrom(addr, 10250))
			}
			for _, from := range []*netns.Namespace{w.client, w.node} {
				if got := w.names(from, network, netip.AddrPortFrom(a.node, 10250), 1); got["host"] != 1 {
					w.Errorf("%s at the node's address: %v, want host", network, got)
				}
				if got := w.names(from, network, w.cluster(80), 20); got["a"] != 20 {
					w.Errorf("%s at the frontend: %v, want a", network, got)
				}
			}
		}
		w.expectRefused("udp", vip) // the frontend is of TCP
		if got := w.names(w.client, "tcp", vip, 1); got["a"] != 1 {
			w.Errorf("the load balancer's address: %v, want a", got)
		}
		if got := w.names(w.client, "tcp", w.cluster(31000), 1); got["host"] != 1 {
			w.Errorf("the health check port at a Service's address: %v, want host", got)
		}
		w.write(w.gone(healthOf("31000")))
		w.expectRefused("tcp", w.cluster(31000))
		for range 20 { // a reset, not one of the few messages of ICMP
			w.expectRefused("tcp", w.cluster(10250))
		}
	})
}

// TestKernelGuard_NodeHealthAtVIPs: a load balancer that checks the node's health at its own address gets an answer
// from the health server. No other port of the host is reachable there.
func TestKernelGuard_NodeHealthAtVIPs(t *testing.T) {
	eachGuarded(t, func(w *world) {
		w.hostPort(10256)
		w.hostPort(10250)
		vip := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(addresses[w.family].other, port) }
		changes := []dataplane.Change{w.want(addressOf(vip(0).Addr()))}
		settings := userspace.Settings{Guarded: true, HealthPort: 10256}
		for _, o := range userspace.NewRenderer(userspace.Addresses, w.family, settings).Node(&service.NodeFacts{}) {
			changes = append(changes, w.want(&o))
		}
		w.write(changes...)
		if got := w.names(w.client, "tcp", vip(10256), 1); got["host"] != 1 {
			w.Errorf("the node's health at the load balancer's address: %v, want host", got)
		}
		w.expectRefused("udp", vip(10256))
		w.expectRefused("tcp", vip(10250))
	})
}

// TestKernelGuard_FrontendsComeAndGo: when a frontend is removed, its connection continues, new clients are refused,
// and a client of another frontend is not affected.
func TestKernelGuard_FrontendsComeAndGo(t *testing.T) {
	eachGuarded(t, func(w *world) {
		w.backend(0)
		a := addresses[w.family]
		address := addressOf(a.cluster)
		w.write(w.want(address), w.want(listenerOf(service.TCP, w.cluster(80), w.to(0)...)))
		ctx, stop := context.WithCancel(w.Context())
		lost := make(chan error)
		go func() { lost <- w.askUntil(ctx, w.cluster(80)) }()
		for range 5 {
			other := listenerOf(service.TCP, w.cluster(81), w.to(0)...)
			w.write(w.want(other), w.want(addressOf(a.other)))
			session, err := netnstest.Connect(w.Context(), w.client, w.cluster(81))
			check(w, err)
			check(w, session.Echo(w.Context(), "here"))
			w.write(w.gone(other), w.gone(addressOf(a.other)))
			w.expectRefused("tcp", w.cluster(81))
			check(w, session.Echo(w.Context(), "still here"))
			check(w, session.Close())
		}
		stop()
		if err := <-lost; err != nil {
			w.Errorf("a client of another frontend: %v", err)
		}
		w.write(w.gone(listenerOf(service.TCP, w.cluster(80))), w.gone(address))
		if left := w.read(); len(left) != 0 {
			w.Errorf("left: %v", left)
		}
	})
}

// askUntil asks a frontend until the context ends, and returns the first failure.
func (w *world) askUntil(ctx context.Context, at netip.AddrPort) error {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(w.Context(), patience)
		_, err := netnstest.Ask(asking, w.client, "tcp", at)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// TestKernelGuard_OutlivesWriter: the writer of a new process finds the guarded addresses and listeners of the previous
// process and removes unwanted ones; clients are served in the meantime.
func TestKernelGuard_OutlivesWriter(t *testing.T) {
	eachGuarded(t, func(w *world) {
		w.backend(0)
		a := addresses[w.family]
		kept, left := listenerOf(service.TCP, w.cluster(80), w.to(0)...), listenerOf(service.TCP, w.cluster(81), w.to(0)...)
		w.write(w.want(addressOf(a.cluster)), w.want(addressOf(a.other)), w.want(kept), w.want(left))
		predecessor, served := w.writer, w.forwarder
		w.forwarder = userspace.NewForwarder(userspace.Addresses, w.family, userspace.Config{Relay: relay.Config{Inside: w.node.Do}})
		w.writer = w.newWriter()
		there := w.read()
		if len(there) != 4 {
			t.Errorf("read %v, want two addresses and two listeners", there)
		}
		for _, o := range []*dataplane.Object{kept, left} {
			if dataplane.Same(there[o.ID], o) {
				t.Errorf("%v is as wanted, but this process does not listen", o.ID)
			}
		}
		w.names(w.client, "tcp", w.cluster(80), 1)
		served.Close()
		check(t, predecessor.Close())
		w.write(w.want(kept), w.gone(left))
		w.names(w.client, "tcp", w.cluster(80), 1)
		w.hostPort(81)
		w.expectRefused("tcp", w.cluster(81))
		if there := w.read(); len(there) != 3 {
			t.Errorf("read %v, want two addresses and one listener", there)
		}
	})
}

// TestKernelGuard_Repaired: when another process deletes the guard, Watch reports it, Read marks the objects as
// unguarded, and writing them again restores the guard.
func TestKernelGuard_Repaired(t *testing.T) {
	eachGuarded(t, func(w *world) {
		w.backend(0)
		w.hostPort(10250)
		a := addresses[w.family]
		all := []dataplane.Change{w.want(addressOf(a.cluster)), w.want(listenerOf(service.TCP, w.cluster(80), w.to(0)...))}
		changed := make(chan struct{}, 10)
		ctx, stop := context.WithCancel(w.Context())
		ended := make(chan error)
		go func() { ended <- w.writer.Watch(ctx, func(dataplane.ForeignProcess) { changed <- struct{}{} }) }()
		family := map[service.Family]string{service.IPv4: "ip", service.IPv6: "ip6"}[w.family]
		w.eventually("the loss is announced", func() bool {
			w.read()
			w.write(all...)
			w.run("nft", "delete", "table", family, "sluice-guard")
			select {
			case <-changed:
				return true
			case <-time.After(50 * time.Millisecond):
				return false
			}
		})
		w.names(w.client, "tcp", w.cluster(10250), 1) // this is what the guard is for
		for _, o := range w.read() {
			if !strings.Contains(o.Body, "unguarded") {
				w.Errorf("%v has the body %q", o.ID, o.Body)
			}
		}
		w.write(all...)
		w.expectRefused("tcp", w.cluster(10250))
		w.names(w.client, "tcp", w.cluster(80), 1)
		stop()
		<-ended
	})
}
