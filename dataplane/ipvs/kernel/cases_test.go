// SPDX-License-Identifier: Apache-2.0

package kernel

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/render"
	"github.com/sluice-proxy/sluice/dataplane/ipvs/wire"
	"github.com/sluice-proxy/sluice/service"
)

// writerCases hold for the fake kernel and for Linux.
var writerCases = []struct {
	name   string
	config Config
	run    func(s *stand)
}{
	{name: "a cold start, and a restart that has nothing to write", run: func(s *stand) {
		all := []owned{s.scaffold(), s.serviceOf("a", s.OpenPort()), s.serviceOf("b", s.clusterIP(1, 2))}
		s.want(all...)
		s.begin(Config{})
		s.read()
		if left := s.changes(all...); len(left) > 0 {
			s.Errorf("a restart writes %+v", left)
		}
		s.want() // removes everything
		if len(s.known) > 0 {
			s.Errorf("left: %v", s.known)
		}
	}},
	{name: "endpoints come, leave, come back and go", config: Config{DrainDeadline: time.Hour}, run: func(s *stand) {
		p := s.clusterIP(1, 1)
		s.want(s.scaffold(), s.serviceOf("a", p))
		p.Cluster = s.Endpoints(3)
		s.want(s.scaffold(), s.serviceOf("a", p))
		p.Cluster = s.Endpoints(3)[1:]
		s.want(s.scaffold(), s.serviceOf("a", p))
		p.Cluster = s.Endpoints(3)
		s.want(s.scaffold(), s.serviceOf("a", p))
		p.Cluster = nil
		s.want(s.scaffold(), s.serviceOf("a", p))
	}},
	{name: "scheduler, flags and timeout change in place", run: func(s *stand) {
		p := s.clusterIP(1, 2)
		s.want(s.scaffold(), s.serviceOf("a", p))
		p.AffinitySeconds = 10800
		s.want(s.scaffold(), s.serviceOf("a", p))
		p.AffinitySeconds = 0
		s.want(s.scaffold(), s.serviceOf("a", p))
	}},
	{name: "what was thought wrongly", run: func(s *stand) {
		p := s.clusterIP(1, 2)
		s.want(s.scaffold(), s.serviceOf("a", p))
		server, _ := s.server(p)
		other := server.Service
		other.Scheduler = "wrr"
		stranger := wire.Real{Addr: netip.AddrPortFrom(s.Node, 1234), Weight: 7}
		s.interfere(
			wire.Request{Verb: wire.SetService, Service: other},
			wire.Request{Verb: wire.NewReal, Service: other, Real: stranger},
			wire.Request{Verb: wire.DelReal, Service: other, Real: server.Reals[0]},
			wire.Request{Verb: wire.NewReal, Service: other, Real: wire.Real{Addr: netip.AddrPortFrom(s.EndpointAddrs[2], 8080), Weight: 5}},
		)
		p.Cluster = s.Endpoints(3)[1:] // the first is gone already, the third there already
		s.want(s.scaffold(), s.serviceOf("a", p))
		s.interfere(wire.Request{Verb: wire.DelService, Service: other})
		p.Cluster = s.Endpoints(3)
		s.want(s.scaffold(), s.serviceOf("a", p))
		s.interfere(wire.Request{Verb: wire.DelService, Service: other})
		s.want(s.scaffold())
	}},
	{name: "what is there and was thought absent", run: func(s *stand) {
		s.want(s.scaffold(), s.serviceOf("a", s.OpenPort()))
		s.known = map[dataplane.ID]*dataplane.Object{}
		p := s.OpenPort()
		p.Cluster = s.Endpoints(1)
		s.want(s.scaffold(), s.serviceOf("a", p))
	}},
	{name: "what is not known", run: func(s *stand) {
		p := s.OpenPort()
		s.want(s.scaffold(), s.serviceOf("a", p), s.serviceOf("b", s.clusterIP(1, 1)))
		p.Cluster = s.Endpoints(1)
		changes := s.changes(s.scaffold(), s.serviceOf("a", p), s.serviceOf("c", s.clusterIP(2, 1)))
		for i := range changes {
			changes[i].Unsure = true
			if b := changes[i].Before; b != nil && b.Body != "" {
				changes[i].Before = nil
			}
		}
		s.write(changes)
		s.expect(s.scaffold(), s.serviceOf("a", p), s.serviceOf("c", s.clusterIP(2, 1)))
	}},
	{name: "drift is read and repaired", run: func(s *stand) {
		all := []owned{s.scaffold(), s.serviceOf("a", s.OpenPort())}
		s.want(all...)
		server, _ := s.server(s.Port())
		s.interfere(wire.Request{Verb: wire.SetReal, Service: server.Service, Real: wire.Real{Addr: server.Reals[1].Addr, Weight: 3}})
		s.kernel.sets.Delete(s.Context(), []wire.EntryChange{{Set: render.SetName(s.Family, render.SetIPs), Entry: wire.Entry{Addr: s.ClusterIP}}})
		s.device.Remove(s.Context(), []netip.Addr{s.ClusterIP})
		s.read()
		if n := len(s.changes(all...)); n != 3 {
			s.Errorf("%d differences, want 3", n)
		}
		s.want(all...)
	}},
	{name: "a poisoned object is named with its owner", run: func(s *stand) {
		bad := s.serviceOf("bad", s.clusterIP(3, 1))
		for i := range bad.objects {
			bad.objects[i].Body = strings.Replace(bad.objects[i].Body, "rr ", "nonesuch ", 1)
		}
		good := []owned{s.scaffold(), s.serviceOf("a", s.clusterIP(1, 1)), s.serviceOf("z", s.clusterIP(9, 1))}
		receipt := s.write(s.changes(append(good, bad)...))
		if receipt.Outcome != dataplane.Rejected || !receipt.Proven || !slices.Equal(receipt.Suspects, []service.Key{bad.owner}) ||
			!strings.Contains(receipt.Err.Error(), "ip_vs_nonesuch") {
			s.Errorf("%v, suspects %v", receipt, receipt.Suspects)
		}
		_, id := s.server(s.clusterIP(3, 1))
		if found, known := receipt.Certain[id]; !known || found != nil {
			s.Errorf("the rejected server is said to be %v, %t", found, known)
		}
		s.expect(append(good, owned{bad.owner, slices.DeleteFunc(bad.objects, func(o dataplane.Object) bool { return o.ID == id })})...)
		s.want(good...)
	}},
	{name: "a rejected change leaves what was, and is told in full", run: func(s *stand) {
		p := s.clusterIP(1, 2)
		s.want(s.scaffold(), s.serviceOf("a", p))
		_, id := s.server(p)
		was := s.known[id].Body
		bad := s.serviceOf("a", s.clusterIP(1, 1))
		for i := range bad.objects {
			bad.objects[i].Body = strings.Replace(bad.objects[i].Body, "rr ", "nonesuch ", 1)
		}
		receipt := s.write(s.changes(s.scaffold(), bad))
		if found := receipt.Certain[id]; receipt.Outcome != dataplane.Rejected || found == nil || found.Body != was {
			s.Errorf("%v: %+v, want %q", receipt, receipt.Certain[id], was)
		}
	}},
	{name: "excluded ranges", config: Config{Excluded: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24"), netip.MustParsePrefix("2001:db8:1::/48")}}, run: func(s *stand) {
		for _, addr := range []netip.Addr{s.External, s.VIP} {
			f := service.Frontend{Addr: addr, Port: 99}
			s.interfere(wire.Request{Verb: wire.NewService, Service: wire.Service{Frontend: f, Scheduler: "rr"}})
		}
		s.read()
		if len(s.known) != 1 || s.known[render.ServerID(service.Frontend{Addr: s.VIP, Port: 99})] == nil {
			s.Errorf("read %v, want the server that is not excluded", s.known)
		}
		s.want(s.scaffold(), s.serviceOf("a", s.OpenPort())) // one of its addresses is in the range
		s.want()
		again := service.Frontend{Addr: s.External, Port: 80} // that one, by a stranger
		s.interfere(wire.Request{Verb: wire.NewService, Service: wire.Service{Frontend: again, Scheduler: "rr"}})
		s.expect()
	}},
	{name: "sets of another release and of kube-proxy go", run: func(s *stand) {
		s.want(s.scaffold())
		for _, name := range []string{setPrefixes[s.Family] + "CLUSTER-IP-012def", setPrefixes[s.Family] + "LOOP-BACK"} {
			other := s.w.sets[render.SetName(s.Family, "CLUSTER-IP")]
			other.Name = name
			s.kernel.sets.Create(s.Context(), []wire.SetSpec{other})
			s.kernel.sets.Add(s.Context(), []wire.EntryChange{{Set: name, Entry: wire.Entry{Addr: s.External, Protocol: wire.TCP, Port: 80}}})
			s.plantRule(name, "dst,dst")
		}
		s.read()
		all := []owned{s.scaffold(), s.serviceOf("a", s.clusterIP(1, 1))}
		s.want(all...)
		s.expect(all...)
	}},
	{name: "sets and the device that vanish are read and made again", run: func(s *stand) {
		s.want(s.scaffold())
		s.want(slicesWithout(s.scaffold()))
		s.kernel.sets.Destroy(s.Context(), []string{render.SetName(s.Family, "CLUSTER-IP")})
		if err := s.device.Delete(); err != nil {
			s.Fatal(err)
		}
		all := []owned{s.scaffold(), s.serviceOf("a", s.clusterIP(1, 1))}
		changes := slices.DeleteFunc(s.changes(all...), func(c dataplane.Change) bool { return c.Owner == service.Node })
		receipt := s.write(changes)
		if _, known := receipt.Certain[render.AddressID(s.clusterIP(1, 1).ClusterIP)]; receipt.Outcome != dataplane.Unknown || known {
			s.Errorf("%v, want it to be read again", receipt)
		}
		s.read()
		s.want(all...)
	}},
}

// plantRule writes a chain of ours that asks a set as another release would.
func (s *stand) plantRule(set, fields string) {
	s.Helper()
	o := dataplane.Object{
		ID: dataplane.ID{Container: "nat", Name: "KUBE-SERVICES"}, Kind: dataplane.Owned,
		Body: "-m set --match-set " + set + " " + fields + " -j ACCEPT", Links: dataplane.LinkTo(render.SetID(set)),
	}
	receipt := s.w.config.Rules.Write(s.Context(), &dataplane.Batch{Number: 1, Changes: []dataplane.Change{{ID: o.ID, After: &o, Unsure: true}}})
	if receipt.Outcome != dataplane.Landed {
		s.Fatal(receipt)
	}
}

// slicesWithout is the scaffold without rules, so that nothing asks the sets.
func slicesWithout(scaffold owned) owned {
	scaffold.objects = slices.DeleteFunc(scaffold.objects, func(o dataplane.Object) bool {
		return o.ID.Container != render.ContainerDevice && o.ID.Container != render.ContainerSet
	})
	return scaffold
}

func TestWriter(t *testing.T) {
	for _, family := range service.Families {
		for _, c := range writerCases {
			t.Run(family.String()+"/"+c.name, func(t *testing.T) {
				s, _ := newFakeStand(t, family, c.config)
				c.run(s)
			})
		}
	}
}
