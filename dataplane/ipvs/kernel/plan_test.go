// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// inOrder expects the first lines of a log with each text to come in the order of the
// texts, and all of them to be there.
func inOrder(t *testing.T, log []string, texts ...string) {
	t.Helper()
	last := -1
	for _, text := range texts {
		at := slices.IndexFunc(log, func(line string) bool { return strings.Contains(line, text) })
		if at < 0 || at < last {
			t.Errorf("%q is at %d of the log, after %d", text, at, last)
		}
		last = at
	}
	if t.Failed() {
		t.Logf("log:\n%s", strings.Join(log, "\n"))
	}
}

// TestPlan_OrderInWrite: a write creates sets, entries and rules before addresses and servers, and removes them in the
// reverse order.
func TestPlan_OrderInWrite(t *testing.T) {
	s, k := newFakeStand(t, service.IPv4, Config{})
	p := s.OpenPort()
	p.SourceRanges = []netip.Prefix{s.Allowed}
	s.want(s.scaffold(), s.serviceOf("a", p))
	inOrder(t, k.log, "create KUBE-CLUSTER-IP", "in KUBE-CLUSTER-IP", "in KUBE-LB-SOURCE-CIDR", "in KUBE-IPVS-IPS",
		"in KUBE-LB-FIREWALL", "rule filter KUBE-IPVS-FILTER", "make the device", "bind 172.30.0.41",
		"add virtual server 172.30.0.41:80/tcp", "add real server 10.180.0.1:8080 of 172.30.0.41:80/tcp")
	k.log = nil
	s.want()
	inOrder(t, k.log, "delete virtual server 172.30.0.41:80/tcp", "unbind 172.30.0.41", "in KUBE-LB-FIREWALL",
		"in KUBE-LB-SOURCE-CIDR", "no rule filter KUBE-IPVS-FILTER", "destroy KUBE-CLUSTER-IP", "delete the device")
	if len(k.about("delete real server")) > 0 {
		t.Error("real servers go with their virtual one")
	}
}

// TestPlan_PolicyChangesAroundServers: a frontend whose clients keep their addresses never leads to endpoints
// elsewhere, because their answers would not return this way.
func TestPlan_PolicyChangesAroundServers(t *testing.T) {
	s, k := newFakeStand(t, service.IPv4, Config{})
	cluster, local := s.OpenPort(), s.OpenPort()
	local.ExternalLocal, local.Local = true, s.Endpoints(1)
	s.want(s.scaffold(), s.serviceOf("a", cluster))
	k.log = nil
	s.want(s.scaffold(), s.serviceOf("a", local))
	inOrder(t, k.log, "delete real server 10.180.1.3:8080 of 198.51.100.7:80/tcp", "in KUBE-LB-LOCAL")
	k.log = nil
	s.want(s.scaffold(), s.serviceOf("a", cluster))
	inOrder(t, k.log, "delete 198.51.100.7,tcp:80 in KUBE-LB-LOCAL", "add real server 10.180.1.3:8080 of 198.51.100.7:80/tcp")
	s.want(s.scaffold())
	k.log = nil
	s.want(s.scaffold(), s.serviceOf("a", local))
	inOrder(t, k.log, "in KUBE-LB-LOCAL", "add virtual server 198.51.100.7:80/tcp")
}

// random returns a virtual server with a few real ones.
func random(r *rand.Rand) *render.Server {
	s := &render.Server{Service: wire.Service{
		Frontend:  service.Frontend{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80},
		Scheduler: schedulers[r.IntN(2)], Timeout: uint32(r.IntN(2)) * 60,
	}}
	for i := range 6 {
		if r.IntN(2) == 0 {
			addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), 80)
			s.Reals = append(s.Reals, wire.Real{Addr: addr, Weight: uint32(r.IntN(2))})
		}
	}
	return s
}

// serves reports whether new connections have somewhere to go.
func serves(reals []wire.Real) bool {
	return slices.ContainsFunc(reals, func(r wire.Real) bool { return r.Weight > 0 })
}

// TestDiff_FromServerToServer: the kernel rejects no request that diff returns, always has an endpoint that serves
// before and after, and in the end has the wanted server.
func TestDiff_FromServerToServer(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		before, after := random(r), random(r)
		k := fakeServers{newFakeKernel()}
		come, _ := diff(nil, before)
		come2, goes := diff(before, after)
		for i, request := range slices.Concat(come, come2, goes) {
			if err := k.carryOut(request); err != nil {
				t.Fatalf("%v to %v: %v", before, after, err)
			}
			if i < len(come) {
				continue
			}
			reals, _ := k.Destinations(t.Context(), after.Frontend)
			if now := serverOf(after.Service, reals).Reals; serves(before.Reals) && serves(after.Reals) && !serves(now) {
				t.Fatalf("%v to %v: no endpoint serves meanwhile", before, after)
			}
			for _, real := range before.Reals {
				stays := slices.ContainsFunc(after.Reals, func(r wire.Real) bool { return r.Addr == real.Addr })
				if _, there := k.servers[after.Frontend].reals[real.Addr]; stays && !there {
					t.Fatalf("%v to %v: %v is not there meanwhile", before, after, real)
				}
			}
		}
		found, _ := k.List(t.Context(), func(wire.Service) bool { return true })
		if got := serverOf(found[0].Service, found[0].Destinations); fmt.Sprint(got) != fmt.Sprint(*after) {
			t.Fatalf("got %v, want %v", got, *after)
		}
		if come, goes := diff(after, after); len(come)+len(goes) > 0 {
			t.Fatalf("%v to itself takes %v, %v", after, come, goes)
		}
	}
}

// TestDiff_AbsentServers: diff returns no requests between absent servers, and a deletion for a server that is no
// longer wanted.
func TestDiff_AbsentServers(t *testing.T) {
	s := random(rand.New(rand.NewPCG(1, 2)))
	if come, goes := diff(nil, nil); len(come)+len(goes) > 0 {
		t.Error(come, goes)
	}
	if come, goes := diff(s, nil); len(come) > 0 || len(goes) != 1 || goes[0].Verb != wire.DelService {
		t.Error(come, goes)
	}
}
