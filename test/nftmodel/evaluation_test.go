// SPDX-License-Identifier: Apache-2.0

package nftmodel

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-proxy/sluice/dataplane"
	nftrender "github.com/sluice-proxy/sluice/dataplane/nftables/render"
	"github.com/sluice-proxy/sluice/dataplane/nftables/rules"
	"github.com/sluice-proxy/sluice/internal/render"
	"github.com/sluice-proxy/sluice/service"
	"github.com/sluice-proxy/sluice/test/writertest"
)

// TestEvaluation_AgreesWithModel: for random Services and packets, the evaluation of rules as data has the same
// outcomes, probabilities and matching rules as this model, which reads the writer's bytes and shares no code with it.
func TestEvaluation_AgreesWithModel(t *testing.T) {
	const rounds, packets = 60, 150
	for _, family := range service.Families {
		t.Run(family.String(), func(t *testing.T) {
			ends := map[rules.End]int{}
			for round := range rounds {
				p := &pair{t: t, r: rand.New(rand.NewPCG(uint64(round), 43)), world: writertest.NewFixture(family)}
				p.render()
				p.remember()
				for range packets {
					p.send(p.packet(), ends)
				}
				if t.Failed() {
					t.Fatalf("round %d", round)
				}
			}
			for _, end := range []rules.End{rules.Untouched, rules.Delivered, rules.Rejected, rules.Dropped} {
				if ends[end] < rounds {
					t.Errorf("%d outcomes of kind %d: too few to prove anything (%v)", ends[end], end, ends)
				}
			}
		})
	}
}

// pair is a ruleset as data and in the model.
type pair struct {
	t       *testing.T
	r       *rand.Rand
	world   writertest.Fixture
	kernel  *Kernel
	ruleset *rules.Ruleset
	// sources and targets are addresses and frontends to try.
	sources []netip.Addr
	targets []netip.AddrPort
}

func (p *pair) chance(percent int) bool { return p.r.IntN(100) < percent }

func one[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// render makes Services and puts their rules into both.
func (p *pair) render() {
	w := p.world
	facts := p.facts()
	p.sources = []netip.Addr{w.Node, w.Second, w.A, w.B, w.Pod, w.Outside, w.ForeignProcess, w.Loopback}
	p.targets = []netip.AddrPort{
		netip.AddrPortFrom(w.Outside, 80), netip.AddrPortFrom(w.Node, 22),
		netip.AddrPortFrom(netip.PrefixFrom(w.ClusterIP, w.ServiceCIDR.Bits()).Masked().Addr().Next(), 80),
	}
	var views []service.View
	for n := range 1 + p.r.IntN(4) {
		spec := p.service(n)
		views = append(views, service.Resolve(spec.Key, &spec, []*service.Slice{p.slice(&spec)}, &facts))
	}
	each := func(yield func(*service.View) bool) {
		for i := range views {
			if !yield(&views[i]) {
				return
			}
		}
	}
	bit := uint(p.r.IntN(32))
	objects := render.Objects(nftrender.NewRenderer(w.Family, nftrender.Options{MasqueradeBit: bit}), nil, each, &facts)
	p.kernel = NewKernel()
	p.kernel.SetAddresses(w.Node, w.Second)
	batch := dataplane.Batch{Number: 1}
	for i := range objects {
		batch.Changes = append(batch.Changes, dataplane.Change{ID: objects[i].ID, After: &objects[i]})
	}
	if receipt := p.kernel.Writer(w.Family).Write(p.t.Context(), &batch); receipt.Outcome != dataplane.Landed {
		p.t.Fatalf("the model: %v", receipt)
	}
	var err error
	p.ruleset, err = nftrender.Ruleset(w.Family, objects, func(a netip.Addr) bool {
		return a.IsLoopback() || a == w.Node || a == w.Second
	})
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) facts() service.NodeFacts {
	facts := p.world.Facts()
	detect := &facts.Detect[p.world.Family]
	switch p.r.IntN(5) {
	case 0:
		*detect = service.LocalDetector{Interface: "veth-pod"}
	case 1:
		*detect = service.LocalDetector{Interface: "veth-+"}
	case 2:
		*detect = service.LocalDetector{}
	case 3:
		detect.CIDR = netip.PrefixFrom(detect.CIDR.Addr(), detect.CIDR.Bits()-p.r.IntN(8)).Masked()
	}
	if p.chance(40) {
		facts.NodePorts[p.world.Family] = service.NodePortAddresses{Addresses: []netip.Addr{p.world.Second}}
	}
	if p.chance(30) {
		facts.ServiceCIDRs[p.world.Family] = nil
	}
	facts.MasqueradeAll = p.chance(20)
	return facts
}

// service returns the Service with a number, at addresses of its own.
func (p *pair) service(n int) service.Spec {
	spec, w := p.world.Spec(), p.world
	if p.chance(70) {
		spec = w.Exposed()
	}
	own := func(a netip.Addr) netip.Addr {
		b := a.AsSlice()
		b[len(b)-1] += byte(n)
		moved, _ := netip.AddrFromSlice(b)
		return moved
	}
	spec.Key.Name = fmt.Sprintf("svc%d", n)
	for i := range 1 + p.r.IntN(2) {
		port := service.Port{Name: fmt.Sprint("p", i), Port: uint16(80 + i), Protocol: one(p.r, []service.Protocol{service.TCP, service.UDP})}
		if spec.Ports[0].NodePort != 0 {
			port.NodePort = uint16(30000 + 10*n + i)
		}
		if i == 0 {
			spec.Ports = nil
		}
		spec.Ports = append(spec.Ports, port)
	}
	spec.ClusterIPs[w.Family] = own(spec.ClusterIPs[w.Family])
	addrs := []netip.Addr{spec.ClusterIPs[w.Family]}
	for _, list := range []*[]netip.Addr{&spec.LoadBalancerVIPs[w.Family], &spec.ExternalIPs[w.Family]} {
		for i, a := range *list {
			(*list)[i] = own(a)
			addrs = append(addrs, own(a))
		}
	}
	spec.InternalLocal, spec.ExternalLocal = p.chance(30), p.chance(50)
	if p.chance(50) {
		spec.AffinitySeconds = 1 + p.r.IntN(1000)
	}
	if p.chance(40) {
		spec.SourceRanges[w.Family] = []netip.Prefix{w.Allowed, netip.PrefixFrom(w.Pod, w.Pod.BitLen())}
	}
	for _, port := range append(spec.Ports, service.Port{Port: 9}) {
		for _, a := range addrs {
			p.targets = append(p.targets, netip.AddrPortFrom(a, port.Port))
		}
		for _, a := range []netip.Addr{w.Node, w.Second, w.Loopback} {
			p.targets = append(p.targets, netip.AddrPortFrom(a, port.NodePort+1), netip.AddrPortFrom(a, port.NodePort))
		}
	}
	return spec
}

// slice returns endpoints of all ports of a Service.
func (p *pair) slice(spec *service.Spec) *service.Slice {
	addrs := []netip.Addr{p.world.A, p.world.B, p.world.C, p.world.Node}
	for a := p.world.C; len(addrs) < 24; {
		a = a.Next()
		addrs = append(addrs, a)
	}
	p.r.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	slice := p.world.Slice(addrs[:one(p.r, []int{0, 1, 2, 3, 7, 20})]...)
	slice.Service, slice.Ports = spec.Key, nil
	for _, port := range spec.Ports {
		// Ports with one number: two endpoints with the same address, in affinity.
		slice.Ports = append(slice.Ports, service.SlicePort{Name: port.Name, Protocol: port.Protocol, Port: 8080})
	}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		e.Location = &service.Location{NodeName: one(p.r, []string{"n1", "n2"})}
		e.Ready = p.chance(80)
		e.Serving = e.Ready || p.chance(50)
		e.Terminating = !e.Ready && e.Serving
		p.sources = append(p.sources, e.Addr)
	}
	return slice
}

// remember lets both remember some clients, at endpoints that may be gone.
func (p *pair) remember() {
	for name, set := range p.ruleset.Sets {
		if !nftrender.IsClientsMap(name) {
			continue
		}
		for _, client := range p.sources {
			if !p.chance(30) {
				continue
			}
			key, endpoint := string(client.AsSlice()), string(one(p.r, p.sources).AsSlice())
			set.Elements[key] = &rules.Element{Key: key, Data: endpoint}
			p.kernel.Remember(Name{Family: p.world.Family, Table: nftrender.TableName, Set: name, Key: key}, endpoint, time.Minute)
		}
	}
}

func (p *pair) packet() rules.Packet {
	return rules.Packet{
		Src: netip.AddrPortFrom(one(p.r, p.sources), 40000), Dst: one(p.r, p.targets),
		Protocol: one(p.r, []service.Protocol{service.TCP, service.TCP, service.UDP}), In: one(p.r, []string{"", "eth0", "veth-pod", "veth-other"}),
	}
}

// send compares the outcomes of a packet.
func (p *pair) send(packet rules.Packet, ends map[rules.End]int) {
	got, err := p.ruleset.Outcomes(packet)
	if err != nil {
		p.t.Errorf("%+v: %v", packet, err)
		return
	}
	want := p.kernel.Outcomes(Packet{Src: packet.Src, Dst: packet.Dst, Protocol: packet.Protocol, In: packet.In})
	var left, right []string
	for _, o := range got {
		ends[o.End]++
		var steps []string
		for _, s := range o.Steps {
			element := ""
			if s.Element != nil {
				element = fmt.Sprintf("%s %x", s.Set, s.Element.Key)
			}
			steps = append(steps, fmt.Sprint(s.Hook(), s.Chain.Name, s.Rule, element))
		}
		left = append(left, line(int(o.End), o.To, o.Masqueraded, o.Probability, steps))
	}
	for _, o := range want {
		var steps []string
		for _, s := range o.Steps {
			element := ""
			if s.Element.Set != "" {
				element = fmt.Sprintf("%s %x", s.Element.Set, s.Element.Key)
			}
			steps = append(steps, fmt.Sprint(s.Hook, s.Chain, s.Rule, element))
		}
		right = append(right, line(int(o.Verdict), o.To, o.Masqueraded, o.Probability, steps))
	}
	slices.Sort(left)
	slices.Sort(right)
	if !slices.Equal(left, right) {
		p.t.Errorf("%+v: the rules as data say\n\t%s\nand the model says\n\t%s", packet, strings.Join(left, "\n\t"), strings.Join(right, "\n\t"))
	}
}

func line(end int, to netip.AddrPort, masqueraded bool, probability float64, steps []string) string {
	const precision = 1e9
	return fmt.Sprintf("%d %v %t %.0f %v", end, to, masqueraded, math.Round(probability*precision), steps)
}
