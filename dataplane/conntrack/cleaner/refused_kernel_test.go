// SPDX-License-Identifier: Apache-2.0

package cleaner_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-proxy/sluice/internal/host/netns"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/netnstest"
)

// TestKernelCleaner_UnansweredClientsRefused: clients that have sent datagrams or SYNs since before there was a Service
// are refused after the cleanup if the Service has no endpoints.
func TestKernelCleaner_UnansweredClientsRefused(t *testing.T) {
	eachFamily(t, func(w *world) {
		w.facts.ServiceCIDRs[w.family] = nil // the node does not drop what is for no Service
		w.want(service.Node, w.renderer.Node(&w.facts))
		w.commit()
		connections := map[string]<-chan error{
			"ClusterIP":               w.connect(w.client, w.clusterIP, servicePort),
			"another port of it":      w.connect(w.client, w.clusterIP, servicePort+1),
			"external IP":             w.connect(w.client, w.external, servicePort),
			"ClusterIP from the host": w.connect(w.node, w.clusterIP, servicePort),
		}
		flows := map[string]*peer{
			"ClusterIP":             w.dial(w.clusterIP, servicePort),
			"external IP":           w.dial(w.external, servicePort),
			"external IP from host": w.dialFrom(w.node, w.external, servicePort),
		}
		for name, p := range flows {
			p.expect(silence, name+" before the Service is there")
		}
		view := w.view()
		tcp := view.Ports[w.family][0]
		tcp.Name, tcp.Protocol = "tcp", service.TCP
		view.Ports[w.family] = append(view.Ports[w.family], tcp)
		w.write(view)
		for name, p := range flows {
			p.expect(silence, name+" before the clean-up")
		}
		w.expectDeleted(w.tell(view), len(connections)+len(flows), "a Service without endpoints")
		for name, p := range flows {
			p.expect(refused, name)
		}
		for name, c := range connections {
			if err := <-c; !errors.Is(err, unix.ECONNREFUSED) {
				t.Errorf("%s: %v, want that the connection is refused", name, err)
			}
		}
	})
}

// TestKernelCleaner_UnansweredGetsFirstEndpoint: an unanswered TCP connection reaches the first endpoint with its next
// SYN.
func TestKernelCleaner_UnansweredGetsFirstEndpoint(t *testing.T) {
	eachFamily(t, func(w *world) {
		connection := w.connect(w.client, w.external, servicePort)
		view := w.view(w.a)
		view.Ports[w.family][0].Protocol = service.TCP
		w.expectDeleted(w.serve(view), 1, "first endpoint")
		if err := <-connection; err != nil {
			t.Error(err)
		}
	})
}

// TestKernelCleaner_SourceRangesEndUnanswered: new source ranges end the flow of an excluded client that no endpoint
// answered, and keep one that was answered.
func TestKernelCleaner_SourceRangesEndUnanswered(t *testing.T) {
	eachFamily(t, func(w *world) {
		view := func(endpoint netip.Prefix, ranges ...netip.Prefix) service.View {
			v := w.view(endpoint)
			port := &v.Ports[w.family][0]
			port.LoadBalancerVIPs, port.ExternalIPs, port.SourceRanges = port.ExternalIPs, nil, ranges
			return v
		}
		w.serve(view(w.a))
		answered := w.dial(w.external, servicePort)
		answered.expect("a", "without ranges")
		w.serve(view(w.a, w.plan.pods))
		answered.expect("a", "answered before it was in no range")
		w.serve(view(w.stranger))
		unanswered := w.dial(w.external, servicePort)
		unanswered.expect(refused, "without ranges")
		w.serve(view(w.stranger, w.plan.client.Masked()))
		unanswered.expect(refused, "in a range")
		w.write(view(w.stranger, w.plan.pods))
		unanswered.expect(refused, "before the clean-up")
		w.expectDeleted(w.tell(view(w.stranger, w.plan.pods)), 1, "in no range")
		unanswered.expect(silence, "in no range")
	})
}

// connect begins a connection, waits until the node knows it, and returns how it ends.
func (w *world) connect(from *netns.Namespace, to netip.Addr, port uint16) <-chan error {
	w.Helper()
	ended := make(chan error, 1)
	ctx, cancel := context.WithTimeout(w.Context(), patience)
	w.Cleanup(cancel)
	at := netip.AddrPortFrom(to, port)
	go func() {
		session, err := netnstest.ConnectFrom(ctx, from, netip.AddrPort{}, at)
		if err == nil {
			err = session.Close()
		}
		ended <- err
	}()
	for began := time.Now(); time.Since(began) < patience; time.Sleep(time.Millisecond) {
		all, err := netnstest.Conntrack(w.node)
		w.check(err)
		if slices.ContainsFunc(all, func(f netnstest.Entry) bool { return f.Destination == at && f.Protocol == unix.IPPROTO_TCP }) {
			return ended
		}
	}
	w.Fatalf("the node has seen no connection to %v in %v", at, patience)
	return nil
}
