// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-proxy/sluice/dataplane"
	iptrender "github.com/sluice-proxy/sluice/dataplane/iptables/render"
	ipvsrender "github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ledger"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/source/reduce"
)

// large is one Service that is large in some way.
type large struct {
	name string
	// ports is the number of service ports, slices that of EndpointSlices, and each that of
	// endpoints in a slice.
	ports, slices, each int
	externalIPs, ranges int
	affinity            bool
	// changed bounds the objects that one replaced endpoint changes in the nftables, iptables
	// and IPVS mode. In iptables mode, a chain is one object however long it is.
	changed [3]int
}

var sizes = []large{
	{name: "100,000 endpoints, 100 slices", ports: 1, slices: 100, each: 1000, changed: [3]int{12, 3, 3}},
	{name: "100,000 endpoints, 1,000 slices", ports: 1, slices: 1000, each: 100, changed: [3]int{12, 3, 3}},
	{name: "10,000 ports", ports: 10_000, slices: 1, each: 1, changed: [3]int{50_000, 20_000, 20_000}},
	{name: "1,000 external IPs and ranges", ports: 1, slices: 1, each: 10, externalIPs: 1000, ranges: 1000, changed: [3]int{9000, 10, 2200}},
	{name: "affinity, 10,000 endpoints", ports: 1, slices: 10, each: 1000, affinity: true, changed: [3]int{20, 5, 3}},
}

func (l large) object() *corev1.Service {
	o := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "large", ResourceVersion: "not a number, 99999999999999999999"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIP: "10.96.0.1"},
	}
	for i := range l.ports {
		o.Spec.Ports = append(o.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(i + 1)})
	}
	for i := range l.externalIPs {
		o.Spec.ExternalIPs = append(o.Spec.ExternalIPs, fmt.Sprintf("192.0.%d.%d", i>>8, i&255))
	}
	for i := range l.ranges { // every other one lies inside another
		o.Spec.LoadBalancerSourceRanges = append(o.Spec.LoadBalancerSourceRanges, fmt.Sprintf("100.%d.%d.0/%d", i>>9, i>>1&255, 24+i%2))
	}
	if l.ranges > 0 {
		o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}
	}
	if l.affinity {
		o.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	}
	return o
}

// endpoints returns the slices; the first endpoint of another generation is another.
func (l large) endpoints(generation int) (all []*discoveryv1.EndpointSlice) {
	var ports []discoveryv1.EndpointPort
	for i := range l.ports {
		ports = append(ports, discoveryv1.EndpointPort{Name: new(fmt.Sprintf("p%d", i)), Port: new(int32(8000 + i))})
	}
	for n := range l.slices {
		o := &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprint("large-", n), Labels: map[string]string{discoveryv1.LabelServiceName: "large"}},
			AddressType: discoveryv1.AddressTypeIPv4, Ports: ports,
		}
		for i := range l.each {
			number := n*l.each + i
			addr := fmt.Sprintf("10.%d.%d.%d", 128+number>>16, number>>8&255, number&255)
			if number == 0 {
				addr = fmt.Sprintf("10.200.0.%d", generation)
			}
			o.Endpoints = append(o.Endpoints, discoveryv1.Endpoint{Addresses: []string{addr}})
		}
		all = append(all, o)
	}
	return all
}

// view reduces and selects.
func (l large) view(generation int) *service.View {
	spec, _ := reduce.Policy{}.Service(l.object())
	var slices []*service.Slice
	for _, o := range l.endpoints(generation) {
		slice, _ := reduce.Policy{}.EndpointSlice(o)
		slices = append(slices, slice)
	}
	view := service.Resolve(spec.Key, spec, slices, nodeFacts())
	return &view
}

// TestSizes: each mode needs a limited number of objects for one large Service and for one replaced endpoint of it. The
// times are only logged.
func TestSizes(t *testing.T) {
	for _, l := range sizes {
		t.Run(l.name, func(t *testing.T) {
			began := time.Now()
			before := l.view(1)
			resolved := time.Since(began)
			after := l.view(2)
			reachable := l.ports * l.slices * l.each
			if got := endpointsOf(before); got != reachable {
				t.Fatalf("%d endpoints, want %d", got, reachable)
			}
			t.Logf("reduced and selected in %v", resolved.Round(time.Millisecond))
			frontends := l.ports * (1 + l.externalIPs + min(l.ranges, 1))
			for i, mode := range []struct {
				name     string
				renderer dataplane.Renderer
				layout   dataplane.Layout
				most     int
			}{
				// At most two thirds of the slots are empty; each endpoint has a hairpin.
				{"nftables", nftrender.NewRenderer(service.IPv4, nftrender.Options{}), nil, 60 + 8*frontends + l.ranges + (frontends+4)*reachable/l.ports},
				{"iptables", iptrender.NewRenderer(service.IPv4, iptrender.Options{}), iptrender.NewLayout(service.IPv4), 200 + 8*frontends + l.ranges + 2*reachable},
				{"ipvs", ipvsrender.NewRenderer(service.IPv4, ipvsrender.Options{}), nil, 200 + 6*frontends + l.ranges + 2*reachable},
			} {
				began := time.Now()
				book := ledger.New(mode.layout, mode.renderer.Naming(), nil)
				book.Want(dataplane.NewFragment(service.Node, mode.renderer.Node(nodeFacts())))
				book.Want(dataplane.NewFragment(before.Key, mode.renderer.Service(context.Background(), before, nodeFacts())))
				batch := book.Plan()
				first := time.Since(began)
				size := 0
				for _, c := range batch.Changes {
					size += len(c.ID.Name) + len(c.After.Body)
				}
				if len(batch.Changes) > mode.most*l.ports {
					t.Errorf("%s: %d objects, want at most %d", mode.name, len(batch.Changes), mode.most)
				}
				book.Settle(batch, dataplane.Receipt{Outcome: dataplane.Landed})
				began = time.Now()
				book.Want(dataplane.NewFragment(after.Key, mode.renderer.Service(context.Background(), after, nodeFacts())))
				change := book.Plan()
				t.Logf("%-8s %8d objects, %9d bytes in %6d ms; one endpoint: %5d objects in %5d ms", mode.name, len(batch.Changes), size,
					first.Milliseconds(), len(change.Changes), time.Since(began).Milliseconds())
				if len(change.Changes) > l.changed[i] {
					t.Errorf("%s: one endpoint changes %d objects, want at most %d", mode.name, len(change.Changes), l.changed[i])
				}
			}
		})
	}
}

func endpointsOf(view *service.View) (count int) {
	for i := range view.Ports[service.IPv4] {
		count += len(view.Ports[service.IPv4][i].Reachable())
	}
	return count
}

// TestSizes_ManyAddressesInOneObject: all addresses of an object with 200,000 of them are read. An API object may have
// 1.5 MB.
func TestSizes_ManyAddressesInOneObject(t *testing.T) {
	const count = 100_000
	o := large{ports: 1}.object()
	for i := range count {
		addr := netip.AddrFrom4([4]byte{100, byte(i >> 16), byte(i >> 8), byte(i)}).String()
		o.Spec.ExternalIPs = append(o.Spec.ExternalIPs, addr, addr)
		o.Spec.LoadBalancerSourceRanges = append(o.Spec.LoadBalancerSourceRanges, addr+"/32")
	}
	began := time.Now()
	spec, warnings := reduce.Policy{}.Service(o)
	t.Logf("%v", time.Since(began))
	if len(spec.ExternalIPs[service.IPv4]) != count || len(spec.SourceRanges[service.IPv4]) != count || len(warnings) != 0 {
		t.Errorf("%d addresses, %d ranges, %v", len(spec.ExternalIPs[service.IPv4]), len(spec.SourceRanges[service.IPv4]), warnings)
	}
}
